"""The gauges of /metrics: read from the parts at each scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain

from gateway.app.mappings import gateway_name
from gateway.app.parts import Parts
from gateway.app.reports.resources import certificate_ends, revocation_ends
from gateway.backends.buffer.queue_manager import STATES
from gateway.observe.metrics import Gauges, Read, build_info
from gateway.ports.counters import ROUTE, Counters
from gateway.ports.state_queues import SET_ASIDE
from gateway.queue_manager.inspection import Inspection
from gateway.routing.table import Table
from gateway.session.connection import ONLINE
from gateway.version import VERSION

_PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


Values = dict[tuple[object, ...], float]
Series = Iterator[tuple[tuple[str, ...], float] | None]
"""A series for each queue or rule, of which there may be ten thousand; None after each step without a value."""


def gauges_of(parts: Parts) -> Gauges:
    """Returns every gauge, bound to the running parts."""
    engine, manager = parts.engine, parts.queue_manager
    counts = engine.sys_topics.session_counts

    def one(read: Callable[[], float]) -> Callable[[], Values]:
        return lambda: {(): float(read())}

    return Gauges(
        build_info=build_info(
            VERSION, "ibm" if parts.settings.queue_manager.ibm else "embedded", gateway_name(parts.settings)
        ),
        route_info=lambda: _routes(parts),
        config_last_reload_successful=one(lambda: parts.last_reload.ok),
        config_last_reload_timestamp_seconds=one(lambda: parts.last_reload.time),
        worker_up=lambda: {("0",): 1.0},
        token_keys_age_seconds=lambda: _keys_age(parts),
        mqtt_connections=lambda: _connections(parts),
        mqtt_connections_limit=lambda: _limits(parts),
        mqtt_sessions=lambda: _sessions(parts),
        mqtt_listener_sessions=lambda: _listener_sessions(parts),
        mqtt_sessions_limit=lambda: _session_limits(parts),
        mqtt_inflight_messages=one(lambda: counts.out + counts.arriving),
        mqtt_subscriptions=one(lambda: len(engine.router.subscriptions)),
        mqtt_retained_messages=one(lambda: engine.retained.count),
        queue_depth=lambda: _depths(parts),
        queue_max_depth=lambda: _limits_of_queues(parts, 0),
        queue_high_depth=lambda: _limits_of_queues(parts, 1),
        queue_oldest_message_age_seconds=lambda: _ages(parts),
        queue_incomplete_messages=lambda: _incomplete(parts),
        set_aside_messages=one(lambda: parts.queue_status.depth(SET_ASIDE) or 0),
        dlq_depth=lambda: _dead_letters(parts),
        messages_held=lambda: _held(parts),
        **_buffer(parts),
        spool_bytes=lambda: _room(parts, 0),
        spool_limit_bytes=lambda: _room(parts, 1),
        spool_full_since_seconds=lambda: _full_since(parts),
        tls_certificate_not_after_timestamp_seconds=lambda: dict(certificate_ends(parts.settings)),
        tls_crl_next_update_timestamp_seconds=lambda: dict(revocation_ends(parts.settings)),
        tls_handshakes_waiting=one(lambda: parts.listeners.handshakes.waiting),
        mq_connections=lambda: {
            (manager.name, "0"): float(parts.connected),
            **{(one.name, "0"): float(not one.away) for one in parts.targets},
        },
        backpressure_paused_connections=one(lambda: parts.hub.count if engine.context.paused else 0),
    )


def _keys_age(parts: Parts) -> Values:
    age = parts.access.keys_age
    return {} if age is None else {(): age}


def _connections(parts: Parts) -> Values:
    online = [one for one in parts.engine.connections if one.state == ONLINE]
    return {key: float(n) for key, n in Counter((one.link.listener, _PROTOCOLS[one.version]) for one in online).items()}


def _limits(parts: Parts) -> Values:
    total = parts.settings.mqtt.max_connections
    return {(one.name,): float(one.max_connections or total) for one in parts.settings.listeners}


def _sessions(parts: Parts) -> Values:
    counts = parts.engine.sys_topics.session_counts
    return {("connected",): float(counts.connected), ("disconnected",): float(counts.sessions - counts.connected)}


def _listener_sessions(parts: Parts) -> Values:
    known = {one.name for one in parts.settings.listeners}
    return {(name,): float(n) for name, n in parts.engine.sessions.by_listener.items() if name in known}


def _session_limits(parts: Parts) -> Values:
    total = parts.settings.mqtt.max_sessions
    return {(one.name,): float(one.max_sessions or total) for one in parts.settings.listeners}


def _depths(parts: Parts) -> Series:
    for name in parts.named_queues():
        depth = parts.queue_status.depth(name)
        yield None if depth is None else ((name,), float(depth))


def _limits_of_queues(parts: Parts, part: int) -> Series:
    named = parts.named_queues()
    for name in chain(named, {parts.engine.context.dead_letter_queue} - named - {""}):
        limits = parts.queue_status.limits(name)
        yield None if limits is None else ((name,), float(limits[part]))


def _ages(parts: Parts) -> Series:
    inspection = parts.inspection
    if not isinstance(inspection, Inspection):
        return  # IBM MQ's own exporter reports it
    for name in parts.named_queues():
        since = inspection.oldest(name)
        yield (name,), max(0.0, time.time() - since) if since else 0.0


def _incomplete(parts: Parts) -> Values:
    own = [rule.spec for rule in parts.table.outbound if not rule.targets]
    consumed = [spec.queue or spec.transmission_queue for spec in own]
    stays = {queue: one.number for queue, one in parts.incomplete.now.items()}
    return {(queue,): float(stays.get(queue, 0)) for queue in consumed if queue}


def _dead_letters(parts: Parts) -> Values:
    name = parts.engine.context.dead_letter_queue
    depth = parts.queue_status.depth(name) if name else None
    return {(name,): float(depth)} if depth is not None else {}


def _held(parts: Parts) -> Series:
    waiting = parts.engine.parking.held()
    for route in parts.counters.names.values(ROUTE):
        yield (str(route),), float(waiting[str(route)])


def _routes(parts: Parts) -> Series:
    name, told = parts.queue_manager.name, set[tuple[str, ...]]()
    for series in chain(_routes_in(parts.table, name), _routes_out(parts.table, name)):
        if series not in told:
            told.add(series)
            yield series, 1.0


def _routes_in(table: Table, name: str) -> Iterator[tuple[str, ...]]:
    for route in table.routes:
        one = route.rule.spec
        yield one.name, route.rule.queue_manager.text or name, one.queue or one.mq_topic or "", "in"


def _routes_out(table: Table, name: str) -> Iterator[tuple[str, ...]]:
    for rule in table.outbound:
        one = rule.spec
        for manager in rule.targets or (name,):
            yield one.name, manager, one.queue or one.transmission_queue or "", "out"


def _room(parts: Parts, part: int) -> Values:
    room = parts.room()
    return {(): float(room[part])} if room else {}


def _full_since(parts: Parts) -> Values:
    """Returns since when the disk has been full; nothing if the gateway has no disk of its own."""
    if parts.room() is None:
        return {}
    return {(): parts.storage_full.since if parts.storage_full is not None else 0.0}


def _buffer(parts: Parts) -> dict[str, Read]:
    """Returns the gauges of the buffer, where one is set."""
    buffer = parts.buffer
    if buffer is None:
        return {}
    from gateway.app.queue_managers.buffer import oldest_by_rule

    def ages() -> dict[str, float]:
        routes = [str(route) for route in parts.counters.names.values(ROUTE)]
        return {**dict.fromkeys(routes, 0.0), **oldest_by_rule(buffer, time.time())}

    return {
        "spool_messages": lambda: float(buffer.spool.messages),
        "spool_oldest_message_age_seconds": ages,
        "spool_state": lambda: {state: float(state == buffer.state) for state in STATES},
    }


def totals_of(counters: Counters) -> dict[str, int]:
    """Returns what was counted since the process started."""
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
