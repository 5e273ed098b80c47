"""Settings, with their units and names, as the plain numbers the broker keeps."""

from __future__ import annotations

from gateway.broker.limits import Limits
from gateway.config.model import Settings

LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}


def limits_of(settings: Settings) -> Limits:
    """The broker's limits."""
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
        retry_interval=mqtt.retry_interval,
        session_expiry_max=int(mqtt.session_expiry_max),
        keep_alive_max=int(mqtt.keep_alive_max),
        max_subscriptions=mqtt.max_subscriptions,
        max_topic_levels=mqtt.max_topic_levels,
        max_retained=mqtt.max_retained,
        max_retained_bytes=mqtt.max_retained_bytes,
        max_user_properties=mqtt.max_user_properties,
        shared_subscriptions=mqtt.shared_subscriptions,
    )
