"""The packet types. Frequent packets are tuples that begin with the first byte of the fixed header; rare ones are
`(first_byte, record)`, where the record is a slots dataclass. `packet[0] >> 4` is the packet type in every case.

PUBLISH     (first_byte, topic, packet_id, properties, payload)   topic and properties as they are on the wire (bytes);
                                                                  packet_id 0 at QoS 0; properties b"" before 5.0
PUBACK, PUBREC, PUBREL, PUBCOMP
            (first_byte, packet_id, reason, properties)           reason 0 and properties b"" where absent
PINGREQ     (first_byte,)
others      (first_byte, Connect | Subscribe | Unsubscribe | Disconnect | Auth | Connack | Suback | Unsuback)
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15

V31, V311, V5 = 3, 4, 5
"""Protocol levels as CONNECT gives them."""

PropertyValue = int | str | bytes | list[int] | list[tuple[str, str]]
Properties = dict[int, PropertyValue]
"""Decoded properties by identifier. Repeatable ones (0x26 User Property, 0x0B Subscription Identifier) are lists."""

Publish = tuple[int, bytes, int, bytes, bytes]
Ack = tuple[int, int, int, bytes]


@dataclass(slots=True)
class Will:
    """The will that CONNECT carries, with its payload as raw bytes."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default_factory=dict)
    raw_properties: bytes = b""


@dataclass(slots=True)
class Connect:
    """A CONNECT of any version."""

    protocol_name: str
    version: int
    clean_start: bool
    keep_alive: int
    client_id: str
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Connack:
    """A CONNACK; `reason` is the return code in 3.x."""

    session_present: bool
    reason: int
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Subscription:
    """One filter of a SUBSCRIBE, with its options byte taken apart."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """A SUBSCRIBE."""

    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Suback:
    """A SUBACK, or an UNSUBACK, whose `reasons` are empty in 3.x."""

    packet_id: int
    reasons: list[int]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Unsubscribe:
    """An UNSUBSCRIBE."""

    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Disconnect:
    """A DISCONNECT."""

    reason: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True)
class Auth:
    """An AUTH (5.0)."""

    reason: int = 0
    properties: Properties = field(default_factory=dict)


Record = Connect | Connack | Subscribe | Suback | Unsubscribe | Disconnect | Auth
Packet = tuple[int] | Publish | Ack | tuple[int, Record]
