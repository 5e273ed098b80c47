"""What CONNACK says: why a CONNECT is refused, and what a 5.0 client is told of our limits. Pure."""

from __future__ import annotations

from gateway.broker.limits import Limits
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, V31, V311, Connect, Properties
from gateway.mqtt.topics import name_error
from gateway.ports.access import Verdict
from gateway.ports.counters import ConnectResult
from gateway.session.registry import Registry

Refusal = tuple[int, str]
RESULTS: dict[int, ConnectResult] = {
    reasons.UNSUPPORTED_PROTOCOL_VERSION: "bad_protocol",
    reasons.CLIENT_IDENTIFIER_NOT_VALID: "bad_client_id",
    reasons.BAD_USER_NAME_OR_PASSWORD: "bad_credentials",
    reasons.NOT_AUTHORIZED: "not_authorized",
    reasons.BANNED: "banned",
    reasons.SERVER_UNAVAILABLE: "unavailable",
    reasons.SERVER_BUSY: "too_many",
    reasons.QUOTA_EXCEEDED: "too_many",
}
"""What a refused CONNECT is counted as."""


def refusal(connect: Connect, limits: Limits) -> Refusal | None:
    """(reason, text) when the CONNECT cannot be accepted whoever sends it."""
    if connect.version not in limits.versions:
        return reasons.UNSUPPORTED_PROTOCOL_VERSION, "this protocol version is switched off here"
    return _client_id(connect, limits) or _will(connect, limits)


def _client_id(connect: Connect, limits: Limits) -> Refusal | None:
    """Any identifier of a later version is accepted [MQTT-3.1.3-5]; what is not ends in a refusal [MQTT3-3.1.3-9]
    [MQTT5-3.1.3-8]."""
    client_id = connect.client_id
    if connect.version == V31:
        if not client_id:
            return reasons.CLIENT_IDENTIFIER_NOT_VALID, "MQIsdp needs a client identifier"
        if limits.strict_client_ids and len(client_id) > 23:
            return reasons.CLIENT_IDENTIFIER_NOT_VALID, "MQIsdp client identifiers have at most 23 characters"
    if connect.version == V311 and not client_id and not connect.clean_start:  # [MQTT3-3.1.3-8]
        return reasons.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier needs a clean session"
    return None


def _will(connect: Connect, limits: Limits) -> Refusal | None:
    will = connect.will
    if will is None:
        return None
    problem = name_error(will.topic, limits.max_topic_levels)
    if problem is None and len(will.topic.encode()) > limits.max_topic_length:
        problem = f"topics have at most {limits.max_topic_length} bytes here"
    if problem is not None:
        return reasons.TOPIC_NAME_INVALID, f"will topic: {problem}"
    if will.qos > limits.max_qos:  # [MQTT-3.2.2-12]
        return reasons.QOS_NOT_SUPPORTED, f"a will of QoS {will.qos} is not offered here"
    if will.retain and not limits.retain:  # [MQTT-3.2.2-13]
        return reasons.RETAIN_NOT_SUPPORTED, "retained messages are off here"
    if limits.max_payload and len(will.payload) > limits.max_payload:
        return reasons.PACKET_TOO_LARGE, f"the will is longer than {limits.max_payload} bytes"
    return None


def no_room(limits: Limits, sessions: Registry, client_id: str, listener: str) -> Refusal | None:
    """(reason, text) when there are as many sessions as may be, of all clients or of those of a listener. Whoever has a
    session comes in; from another listener he is one more here."""
    session, most = sessions.get(client_id), limits.at(listener).max_listener_sessions
    if session is None and len(sessions) >= limits.max_sessions:
        return reasons.QUOTA_EXCEEDED, "this gateway holds as many sessions as it may"
    known = session is not None and session.listener == listener
    if most and not known and sessions.by_listener[listener] >= most:
        return reasons.QUOTA_EXCEEDED, "this listener holds as many sessions as it may"
    return None


def connack_properties(connect: Connect, limits: Limits, assigned: str, expiry: int, verdict: Verdict) -> Properties:
    """Everything a 5.0 client has to know that differs from the default. Nothing has to be known that the
    specification does not tell [MQTT-7.0.0-2]."""
    if connect.version != V5:
        return {}
    properties: Properties = {
        prop.RECEIVE_MAXIMUM: limits.receive_maximum,
        prop.MAXIMUM_PACKET_SIZE: limits.max_packet,
    }
    if connect.properties.get(prop.SESSION_EXPIRY_INTERVAL, 0) != expiry:
        properties[prop.SESSION_EXPIRY_INTERVAL] = expiry
    if limits.max_qos < 2:  # [MQTT-3.2.2-9]
        properties[prop.MAXIMUM_QOS] = limits.max_qos
    if not limits.retain:
        properties[prop.RETAIN_AVAILABLE] = 0
    if not limits.shared_subscriptions:
        properties[prop.SHARED_SUBSCRIPTION_AVAILABLE] = 0
    if assigned:  # [MQTT-3.2.2-16] [MQTT5-3.1.3-7]
        properties[prop.ASSIGNED_CLIENT_IDENTIFIER] = assigned
    if limits.topic_aliases:
        properties[prop.TOPIC_ALIAS_MAXIMUM] = limits.topic_aliases
    if limits.keep_alive_max and (not connect.keep_alive or connect.keep_alive > limits.keep_alive_max):
        properties[prop.SERVER_KEEP_ALIVE] = limits.keep_alive_max
    if connect.properties.get(prop.REQUEST_RESPONSE_INFORMATION) == 1:  # [MQTT-3.1.2-28]
        properties[prop.RESPONSE_INFORMATION] = limits.response_prefix + (assigned or connect.client_id)
    method = connect.properties.get(prop.AUTHENTICATION_METHOD)
    if method is not None:  # [MQTT-4.12.0-5] [MQTT-4.12.0-6]
        properties[prop.AUTHENTICATION_METHOD] = method
        if verdict.data:
            properties[prop.AUTHENTICATION_DATA] = verdict.data
    return properties
