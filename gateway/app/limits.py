"""Settings, with their units and names, converted to the plain numbers that the broker keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gateway.app.memory import memory_limit
from gateway.broker.limits import Limits
from gateway.config.model import Settings
from gateway.net.rates import ClientRates

LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}


def limits_of(settings: Settings) -> Limits:
    """Returns the broker's limits, and those of listeners that have some of their own."""
    limits = _common(settings)
    limits.listeners = {name: dataclasses.replace(limits, **own) for name, own in _overrides(settings)}
    return limits


def _common(settings: Settings) -> Limits:
    mqtt = settings.mqtt
    return Limits(
        versions=frozenset(LEVELS[version] for version in mqtt.versions),
        strict_client_ids=mqtt.strict_client_ids,
        max_packet=mqtt.max_packet,
        max_payload=mqtt.max_payload or 0,
        max_qos=mqtt.max_qos,
        retain=mqtt.retain,
        max_inflight=mqtt.max_inflight,
        receive_maximum=mqtt.max_inflight,
        topic_aliases=mqtt.topic_aliases,
        max_connections=mqtt.max_connections,
        max_sessions=mqtt.max_sessions,
        connect_timeout=mqtt.connect_timeout,
        max_queued=mqtt.max_queued,
        max_queued_bytes=mqtt.max_queued_bytes,
        refuse_when_full=mqtt.when_full == "refuse",
        retry_interval=mqtt.retry_interval,
        retry_versions=frozenset(LEVELS[version] for version in mqtt.retry_versions),
        session_expiry_max=int(mqtt.session_expiry_max),
        keep_alive_max=int(mqtt.keep_alive_max),
        max_subscriptions=mqtt.max_subscriptions,
        max_total_queued=mqtt.max_total_queued,
        max_total_queued_bytes=mqtt.max_total_queued_bytes,
        max_total_subscriptions=mqtt.max_total_subscriptions,
        max_topic_length=mqtt.max_topic_length,
        max_topic_levels=mqtt.max_topic_levels,
        max_retained=mqtt.max_retained,
        max_retained_bytes=mqtt.max_retained_bytes,
        max_buffered_bytes=memory_limit() // 4 if mqtt.max_buffered_bytes is None else mqtt.max_buffered_bytes,
        max_user_properties=mqtt.max_user_properties,
        shared_subscriptions=mqtt.shared_subscriptions,
        server_reference=mqtt.server_reference,
        response_prefix=mqtt.response_information,
    )


OVERRIDES = (
    "max_packet", "max_inflight", "max_queued", "max_queued_bytes", "max_subscriptions", "max_topic_levels",
    "max_topic_length", "max_payload", "max_user_properties",
)  # fmt: skip
"""Limits that a listener may have of its own."""


def _overrides(settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the limits that each listener has of its own."""
    for listener in settings.listeners:
        own = {key: getattr(listener, key) for key in OVERRIDES if getattr(listener, key) is not None}
        if "max_inflight" in own:
            own["receive_maximum"] = own["max_inflight"]
        if listener.when_full is not None:
            own["refuse_when_full"] = listener.when_full == "refuse"
        if listener.max_sessions is not None:
            own["max_listener_sessions"] = listener.max_sessions
        if listener.versions is not None:
            own["versions"] = frozenset(LEVELS[version] for version in listener.versions)
        if own:
            yield listener.name, own


def take_over(limits: Limits, settings: Settings) -> None:
    """Take over the limits that a reload changes: those that are checked when a client connects, and that of the
    memory."""
    fresh = limits_of(settings)
    limits.max_buffered_bytes = fresh.max_buffered_bytes
    limits.max_connections, limits.max_sessions = fresh.max_connections, fresh.max_sessions
    for listener in settings.listeners:
        most = fresh.at(listener.name).max_listener_sessions
        if limits.at(listener.name).max_listener_sessions != most:
            own = limits.listeners.setdefault(listener.name, dataclasses.replace(limits, listeners={}))
            own.max_listener_sessions = most


def client_rates(settings: Settings) -> dict[str, ClientRates]:
    """Returns what clients may send, by listener; listeners without any limit are left out."""
    found = {}
    everybody = settings.limits
    for one in settings.listeners:
        own = one.limits
        rates = ClientRates(
            everybody.bytes_per_second if own.bytes_per_second is None else own.bytes_per_second,
            everybody.publishes_per_second if own.publishes_per_second is None else own.publishes_per_second,
            (own.total_bytes_per_second, everybody.total_bytes_per_second),
            (own.total_publishes_per_second, everybody.total_publishes_per_second),
        )
        if any((rates.bytes, rates.publishes, *rates.total_bytes, *rates.total_publishes)):
            found[one.name] = rates
    return found
