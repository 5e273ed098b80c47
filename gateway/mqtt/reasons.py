"""Reason codes: their names, the packets that may carry them, the return codes of 3.x, and the code for an MQ
reason."""

from __future__ import annotations

from gateway.mqtt.packets import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
)

SUCCESS = 0x00
GRANTED_QOS_1 = 0x01
GRANTED_QOS_2 = 0x02
DISCONNECT_WITH_WILL = 0x04
NO_MATCHING_SUBSCRIBERS = 0x10
NO_SUBSCRIPTION_EXISTED = 0x11
CONTINUE_AUTHENTICATION = 0x18
REAUTHENTICATE = 0x19
UNSPECIFIED_ERROR = 0x80
MALFORMED_PACKET = 0x81
PROTOCOL_ERROR = 0x82
IMPLEMENTATION_SPECIFIC_ERROR = 0x83
UNSUPPORTED_PROTOCOL_VERSION = 0x84
CLIENT_IDENTIFIER_NOT_VALID = 0x85
BAD_USER_NAME_OR_PASSWORD = 0x86
NOT_AUTHORIZED = 0x87
SERVER_UNAVAILABLE = 0x88
SERVER_BUSY = 0x89
BANNED = 0x8A
SERVER_SHUTTING_DOWN = 0x8B
BAD_AUTHENTICATION_METHOD = 0x8C
KEEP_ALIVE_TIMEOUT = 0x8D
SESSION_TAKEN_OVER = 0x8E
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90
PACKET_IDENTIFIER_IN_USE = 0x91
PACKET_IDENTIFIER_NOT_FOUND = 0x92
RECEIVE_MAXIMUM_EXCEEDED = 0x93
TOPIC_ALIAS_INVALID = 0x94
PACKET_TOO_LARGE = 0x95
MESSAGE_RATE_TOO_HIGH = 0x96
QUOTA_EXCEEDED = 0x97
ADMINISTRATIVE_ACTION = 0x98
PAYLOAD_FORMAT_INVALID = 0x99
RETAIN_NOT_SUPPORTED = 0x9A
QOS_NOT_SUPPORTED = 0x9B
USE_ANOTHER_SERVER = 0x9C
SERVER_MOVED = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
CONNECTION_RATE_EXCEEDED = 0x9F
MAXIMUM_CONNECT_TIME = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

NAMES: dict[int, str] = {
    SUCCESS: "Success",
    GRANTED_QOS_1: "Granted QoS 1",
    GRANTED_QOS_2: "Granted QoS 2",
    DISCONNECT_WITH_WILL: "Disconnect with Will Message",
    NO_MATCHING_SUBSCRIBERS: "No matching subscribers",
    NO_SUBSCRIPTION_EXISTED: "No subscription existed",
    CONTINUE_AUTHENTICATION: "Continue authentication",
    REAUTHENTICATE: "Re-authenticate",
    UNSPECIFIED_ERROR: "Unspecified error",
    MALFORMED_PACKET: "Malformed Packet",
    PROTOCOL_ERROR: "Protocol Error",
    IMPLEMENTATION_SPECIFIC_ERROR: "Implementation specific error",
    UNSUPPORTED_PROTOCOL_VERSION: "Unsupported Protocol Version",
    CLIENT_IDENTIFIER_NOT_VALID: "Client Identifier not valid",
    BAD_USER_NAME_OR_PASSWORD: "Bad User Name or Password",
    NOT_AUTHORIZED: "Not authorized",
    SERVER_UNAVAILABLE: "Server unavailable",
    SERVER_BUSY: "Server busy",
    BANNED: "Banned",
    SERVER_SHUTTING_DOWN: "Server shutting down",
    BAD_AUTHENTICATION_METHOD: "Bad authentication method",
    KEEP_ALIVE_TIMEOUT: "Keep Alive timeout",
    SESSION_TAKEN_OVER: "Session taken over",
    TOPIC_FILTER_INVALID: "Topic Filter invalid",
    TOPIC_NAME_INVALID: "Topic Name invalid",
    PACKET_IDENTIFIER_IN_USE: "Packet Identifier in use",
    PACKET_IDENTIFIER_NOT_FOUND: "Packet Identifier not found",
    RECEIVE_MAXIMUM_EXCEEDED: "Receive Maximum exceeded",
    TOPIC_ALIAS_INVALID: "Topic Alias invalid",
    PACKET_TOO_LARGE: "Packet too large",
    MESSAGE_RATE_TOO_HIGH: "Message rate too high",
    QUOTA_EXCEEDED: "Quota exceeded",
    ADMINISTRATIVE_ACTION: "Administrative action",
    PAYLOAD_FORMAT_INVALID: "Payload format invalid",
    RETAIN_NOT_SUPPORTED: "Retain not supported",
    QOS_NOT_SUPPORTED: "QoS not supported",
    USE_ANOTHER_SERVER: "Use another server",
    SERVER_MOVED: "Server moved",
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "Shared Subscriptions not supported",
    CONNECTION_RATE_EXCEEDED: "Connection rate exceeded",
    MAXIMUM_CONNECT_TIME: "Maximum connect time",
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: "Subscription Identifiers not supported",
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: "Wildcard Subscriptions not supported",
}


def name(reason: int) -> str:
    """The name that the specification gives the reason, or its number if it is unknown."""
    return NAMES.get(reason) or f"reason 0x{reason:02X}"


_PUBLISH_FAILURES = frozenset({0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})

VALID: dict[int, frozenset[int]] = {
    CONNACK: frozenset(
        {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
    ),  # [MQTT-3.2.2-8]
    PUBACK: _PUBLISH_FAILURES | {0x00, 0x10},  # [MQTT-3.4.2-1]
    PUBREC: _PUBLISH_FAILURES | {0x00, 0x10},  # [MQTT-3.5.2-1]
    PUBREL: frozenset({0x00, 0x92}),  # [MQTT-3.6.2-1]
    PUBCOMP: frozenset({0x00, 0x92}),  # [MQTT-3.7.2-1]
    SUBACK: frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}),  # [MQTT-3.9.3-2]
    UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),  # [MQTT-3.11.3-2]
    AUTH: frozenset({0x00, 0x18, 0x19}),  # [MQTT-3.15.2-1]
}
"""Reason codes that a packet of either side may carry."""

CLIENT_DISCONNECT = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)  # [MQTT-3.14.2-1]
SERVER_DISCONNECT = frozenset(
    {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}
)  # [MQTT-3.14.2-1]


def is_valid(packet_type: int, reason: int, from_server: bool) -> bool:
    """Whether a packet of this type, from this side, may carry the reason code."""
    if packet_type == DISCONNECT:
        return reason in (SERVER_DISCONNECT if from_server else CLIENT_DISCONNECT)
    return reason in VALID[packet_type]


_RETURN_CODES: dict[int, int] = {
    SUCCESS: 0,
    UNSUPPORTED_PROTOCOL_VERSION: 1,
    CLIENT_IDENTIFIER_NOT_VALID: 2,
    SERVER_UNAVAILABLE: 3,
    SERVER_BUSY: 3,
    QUOTA_EXCEEDED: 3,
    USE_ANOTHER_SERVER: 3,
    SERVER_MOVED: 3,
    CONNECTION_RATE_EXCEEDED: 3,
    # 3.1.1 means malformed credentials by 4 and wrong ones by 5; saying which of them was wrong helps only an intruder.
    BAD_USER_NAME_OR_PASSWORD: 5,
    NOT_AUTHORIZED: 5,
    BANNED: 5,
    BAD_AUTHENTICATION_METHOD: 5,
}


def connack_return_code(reason: int) -> int | None:
    """The return code of a 3.x CONNACK; None where 3.x has none and the connection is only closed. [MQTT3-3.2.2-6]"""
    return _RETURN_CODES.get(reason)


_IN_WORDS: dict[int, str] = {
    1: NAMES[UNSUPPORTED_PROTOCOL_VERSION],
    2: NAMES[CLIENT_IDENTIFIER_NOT_VALID],
    3: NAMES[SERVER_UNAVAILABLE],
    4: NAMES[BAD_USER_NAME_OR_PASSWORD],
    5: NAMES[NOT_AUTHORIZED],
}


def return_code_name(code: int) -> str:
    """What the return code of a 3.x CONNACK means. (MQTT 3.1.1, 3.2.2.3)"""
    return f"{_IN_WORDS[code]}, return code {code}" if code in _IN_WORDS else f"return code {code}"


_FROM_MQRC: dict[int, int] = {
    2030: PACKET_TOO_LARGE,  # MQRC_MSG_TOO_BIG_FOR_Q
    2031: PACKET_TOO_LARGE,  # MQRC_MSG_TOO_BIG_FOR_Q_MGR
    2035: NOT_AUTHORIZED,  # MQRC_NOT_AUTHORIZED
    2051: IMPLEMENTATION_SPECIFIC_ERROR,  # MQRC_PUT_INHIBITED
    2053: QUOTA_EXCEEDED,  # MQRC_Q_FULL
}


def reason_from_mqrc(mqrc: int) -> int:
    """The reason code with which DISCONNECT reports a refusal of the queue manager."""
    return _FROM_MQRC.get(mqrc, UNSPECIFIED_ERROR)
