"""What /metrics reads rather than counts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.app.resources import certificate_ends, room_of
from gateway.errors import MQError
from gateway.observe.metrics import Gauges, build_info
from gateway.ports.counters import Counters
from gateway.session.connection import ONLINE
from gateway.version import VERSION

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

_PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


def queue_names(gateway: Gateway) -> list[str]:
    """Queues that rules name without a template."""
    names = {route.rule.spec.queue for route in gateway.table.routes} | {
        one.spec.queue for one in gateway.table.outbound
    }
    return sorted(name for name in names if name and "{" not in name)


def gauges_of(gateway: Gateway) -> Gauges:
    """Every gauge, bound to the running gateway."""
    engine = gateway.engine

    def connections() -> dict[tuple[object, ...], float]:
        found: dict[tuple[object, ...], float] = {}
        for connection in engine.connections:
            if connection.state == ONLINE:
                key = (connection.link.listener, _PROTOCOLS[connection.version])
                found[key] = found.get(key, 0.0) + 1
        return found

    def limits() -> dict[tuple[object, ...], float]:
        total = gateway.settings.mqtt.max_connections
        return {(one.name,): float(one.max_connections or total) for one in gateway.settings.listeners}

    def sessions() -> dict[tuple[object, ...], float]:
        connected = sum(1 for session in engine.sessions if session.connection is not None)
        return {("connected",): float(connected), ("disconnected",): float(len(engine.sessions) - connected)}

    def inflight() -> dict[tuple[object, ...], float]:
        out = sum(len(session.outflow.inflight) + len(session.inbound) for session in engine.sessions)
        return {(): float(out + sum(one.inbound_pending for one in engine.connections))}

    def queues() -> dict[tuple[object, ...], float]:
        found: dict[tuple[object, ...], float] = {}
        for name in queue_names(gateway):
            with suppress(MQError):  # not defined (yet): the dead letters tell
                found[(name,)] = float(gateway.queue_manager.depth(name))
        return found

    def routes() -> dict[tuple[object, ...], float]:
        name = gateway.queue_manager.name
        inbound = [
            (one.rule.name, one.rule.spec.queue_manager or name, one.rule.spec.queue or one.rule.spec.mq_topic, "in")
            for one in gateway.table.routes
        ]
        outbound = [
            (one.name, name, one.spec.queue or one.spec.transmission_queue or "", "out")
            for one in gateway.table.outbound
        ]
        return dict.fromkeys([*inbound, *outbound], 1.0)

    def spool(part: int) -> dict[tuple[object, ...], float]:
        room = room_of(gateway.settings)
        return {(): float(room[part])} if room else {}

    def dead_letters() -> dict[tuple[object, ...], float]:
        name = engine.dead_letter_queue
        return {(name,): float(gateway.queue_manager.depth(name))} if name else {}

    return Gauges(
        build_info=build_info(VERSION, "ibm" if gateway.settings.queue_manager.ibm else "embedded"),
        route_info=routes,
        config_last_reload_successful=lambda: {(): float(gateway.reload_ok)},
        config_last_reload_timestamp_seconds=lambda: {(): gateway.reloaded_at},
        worker_up=lambda: {("0",): 1.0},
        mqtt_connections=connections,
        mqtt_connections_limit=limits,
        mqtt_sessions=sessions,
        mqtt_inflight_messages=inflight,
        mqtt_subscriptions=lambda: {(): float(len(engine.router.subscriptions))},
        mqtt_retained_messages=lambda: {(): float(engine.retained.count)},
        queue_depth=queues,
        dlq_depth=dead_letters,
        spool_bytes=lambda: spool(0),
        spool_limit_bytes=lambda: spool(1),
        tls_certificate_not_after_timestamp_seconds=lambda: dict(certificate_ends(gateway.settings)),
        mq_connections=lambda: {(gateway.queue_manager.name, "0"): 0.0 if engine.failures.held_since else 1.0},
        backpressure_paused_connections=lambda: {(): float(gateway.hub.count if engine.paused else 0)},
    )


def totals_of(counters: Counters) -> dict[str, int]:
    """What was counted since the process started."""
    return {
        "received": sum(counters.mqtt_publish_received.values()),
        "put": sum(counters.mq_put_messages.values()),
        "fetched": sum(counters.mq_get_messages.values()),
        "sent": counters.packets_out[3],
        "acknowledged": sum(sum(one.buckets) for one in counters.mqtt_puback_seconds.values()),
        "unrouted": counters.messages_unrouted,
        "dropped": sum(counters.messages_dropped.values()),
        "dead_lettered": sum(counters.dlq_messages.values()),
        "failed": sum(counters.mq_errors.values()),
        "bytes_in": counters.bytes_in,
        "bytes_out": counters.bytes_out,
        "connects": sum(n for (_, _, result), n in counters.mqtt_connects.items() if result == "accepted"),
        "disconnects": sum(counters.mqtt_disconnects.values()),
        "auth_failures": sum(counters.mqtt_auth_failures.values()),
    }
