"""The properties of MQTT 5.0: one table, one decoder, one encoder. A block is the bytes after the property length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt import packets, primitives, reasons
from gateway.mqtt.packets import Properties, PropertyValue
from gateway.mqtt.topics import name_error

PAYLOAD_FORMAT_INDICATOR = 0x01
MESSAGE_EXPIRY_INTERVAL = 0x02
CONTENT_TYPE = 0x03
RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09
SUBSCRIPTION_IDENTIFIER = 0x0B
SESSION_EXPIRY_INTERVAL = 0x11
ASSIGNED_CLIENT_IDENTIFIER = 0x12
SERVER_KEEP_ALIVE = 0x13
AUTHENTICATION_METHOD = 0x15
AUTHENTICATION_DATA = 0x16
REQUEST_PROBLEM_INFORMATION = 0x17
WILL_DELAY_INTERVAL = 0x18
REQUEST_RESPONSE_INFORMATION = 0x19
RESPONSE_INFORMATION = 0x1A
SERVER_REFERENCE = 0x1C
REASON_STRING = 0x1F
RECEIVE_MAXIMUM = 0x21
TOPIC_ALIAS_MAXIMUM = 0x22
TOPIC_ALIAS = 0x23
MAXIMUM_QOS = 0x24
RETAIN_AVAILABLE = 0x25
USER_PROPERTY = 0x26
MAXIMUM_PACKET_SIZE = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
SHARED_SUBSCRIPTION_AVAILABLE = 0x2A

WILL = 0
"""The packet type of will properties, which are part of CONNECT."""

MAX_USER_PROPERTIES = 1000
"""A packet with more is refused: decoded they take far more memory than on the wire."""
MAX_PASSED_OVER = 5000
"""As nobody knows yet who sent a CONNECT, its user properties beyond the limit are ignored up to this number, and only
then refused."""


class PropertyType(NamedTuple):
    """How values of a type are called, read and written."""

    name: str
    decode: Callable[[bytes, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]


BYTE = PropertyType("byte", primitives.decode_u8, primitives.encode_u8)
TWO = PropertyType("two byte integer", primitives.decode_u16, primitives.encode_u16)
FOUR = PropertyType("four byte integer", primitives.decode_u32, primitives.encode_u32)
VARINT = PropertyType("variable byte integer", primitives.decode_varint, primitives.encode_varint)
STRING = PropertyType("UTF-8 string", primitives.decode_string, primitives.encode_string)
BINARY = PropertyType("binary data", primitives.decode_binary, primitives.encode_binary)
PAIR = PropertyType("UTF-8 string pair", primitives.decode_pair, primitives.encode_pair)


class PropertyDefinition(NamedTuple):
    """One row of the table in section 2.2.2.2."""

    identifier: int
    name: str
    type: PropertyType
    packets: frozenset[int]
    repeatable: bool = False


def _row(
    identifier: int, name: str, type_: PropertyType, *allowed: int, repeatable: bool = False
) -> PropertyDefinition:
    return PropertyDefinition(identifier, name, type_, frozenset(allowed), repeatable)


_C, _A, _P, _D = packets.CONNECT, packets.CONNACK, packets.PUBLISH, packets.DISCONNECT
_ACKS = (packets.PUBACK, packets.PUBREC, packets.PUBREL, packets.PUBCOMP, packets.SUBACK, packets.UNSUBACK)

DEFINITIONS: dict[int, PropertyDefinition] = {
    row.identifier: row
    for row in (
        _row(0x01, "Payload Format Indicator", BYTE, _P, WILL),
        _row(0x02, "Message Expiry Interval", FOUR, _P, WILL),
        _row(0x03, "Content Type", STRING, _P, WILL),  # [MQTT-3.3.2-19]
        _row(0x08, "Response Topic", STRING, _P, WILL),
        _row(0x09, "Correlation Data", BINARY, _P, WILL),
        _row(0x0B, "Subscription Identifier", VARINT, _P, packets.SUBSCRIBE, repeatable=True),
        _row(0x11, "Session Expiry Interval", FOUR, _C, _A, _D),
        _row(0x12, "Assigned Client Identifier", STRING, _A),
        _row(0x13, "Server Keep Alive", TWO, _A),
        _row(0x15, "Authentication Method", STRING, _C, _A, packets.AUTH),
        _row(0x16, "Authentication Data", BINARY, _C, _A, packets.AUTH),
        _row(0x17, "Request Problem Information", BYTE, _C),
        _row(0x18, "Will Delay Interval", FOUR, WILL),
        _row(0x19, "Request Response Information", BYTE, _C),
        _row(0x1A, "Response Information", STRING, _A),
        _row(0x1C, "Server Reference", STRING, _A, _D),
        _row(0x1F, "Reason String", STRING, _A, *_ACKS, _D, packets.AUTH),
        _row(0x21, "Receive Maximum", TWO, _C, _A),
        _row(0x22, "Topic Alias Maximum", TWO, _C, _A),
        _row(0x23, "Topic Alias", TWO, _P),
        _row(0x24, "Maximum QoS", BYTE, _A),
        _row(0x25, "Retain Available", BYTE, _A),
        _row(
            0x26, "User Property", PAIR, _C, _A, _P, WILL, *_ACKS, packets.SUBSCRIBE, packets.UNSUBSCRIBE, _D,
            packets.AUTH, repeatable=True,
        ),
        _row(0x27, "Maximum Packet Size", FOUR, _C, _A),
        _row(0x28, "Wildcard Subscription Available", BYTE, _A),
        _row(0x29, "Subscription Identifier Available", BYTE, _A),
        _row(0x2A, "Shared Subscription Available", BYTE, _A),
    )
}  # fmt: skip

_FLAGS = frozenset({0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A})
_NOT_ZERO = frozenset({SUBSCRIPTION_IDENTIFIER, RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE})

_WRONG_SIDE = {
    (_P, False): SUBSCRIPTION_IDENTIFIER,  # [MQTT-3.3.4-6]
    (_D, False): SERVER_REFERENCE,
    (_D, True): SESSION_EXPIRY_INTERVAL,  # [MQTT-3.14.2-2]
}
"""Properties that a packet type may carry, but not from this side: `(packet type, from the server)`."""


def decode(
    block: bytes, packet_type: int, *, from_server: bool = False, max_user_properties: int = MAX_USER_PROPERTIES
) -> Properties:
    """The properties of a block, validated; user properties keep their order [MQTT-3.3.2-18]. Raises ProtocolError."""
    properties: Properties = {}
    offset, end, users = 0, len(block), 0
    while offset < end:
        definition, offset = _definition(block, offset, packet_type)
        identifier = definition.identifier
        value, offset = definition.type.decode(block, offset)
        if identifier == USER_PROPERTY:
            users += 1
            if max_user_properties < users <= MAX_PASSED_OVER and packet_type == packets.CONNECT:
                continue  # it is well-formed, but not used: none of it is kept
            if users > max_user_properties:
                raise ProtocolError(
                    f"more than {max_user_properties} user properties: send fewer", reasons.QUOTA_EXCEEDED
                )
        elif identifier in properties and not (definition.repeatable and from_server):
            raise ProtocolError(f"{definition.name} occurs twice: send it once")
        else:
            _check_value(identifier, value)
        _store(properties, definition, value)
    _check_together(properties, packet_type, from_server)
    return properties


def decode_publish(block: bytes) -> Properties:
    """The properties of a PUBLISH from a client. The reader only cuts the block out; sessions cache the result by
    block."""
    return decode(block, packets.PUBLISH)


def separate(block: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
    """Split a valid block of a PUBLISH: the rest without user properties and expiry, and the user properties as they
    are on the wire. None if the block has a property that belongs to one message only (Response Topic, Correlation
    Data, Topic Alias)."""
    rest, users, offset, end = b"", [], 0, len(block)
    while offset < end:
        identifier, begin = block[offset], offset
        if identifier == USER_PROPERTY:
            middle = offset + 3 + (block[offset + 1] << 8 | block[offset + 2])
            offset = middle + 2 + (block[middle] << 8 | block[middle + 1])
            users.append((block[begin + 3 : middle], block[middle + 2 : offset]))
        elif identifier == MESSAGE_EXPIRY_INTERVAL:
            offset += 5
        elif identifier == PAYLOAD_FORMAT_INDICATOR:
            offset += 2
            rest += block[begin:offset]
        elif identifier == CONTENT_TYPE:
            offset += 3 + (block[offset + 1] << 8 | block[offset + 2])
            rest += block[begin:offset]
        else:
            return None
    return rest, users


def _definition(block: bytes, offset: int, packet_type: int) -> tuple[PropertyDefinition, int]:
    identifier, offset = primitives.decode_varint(block, offset)
    definition = DEFINITIONS.get(identifier)
    if definition is None:
        raise MalformedPacket(f"there is no property 0x{identifier:02X}")
    if packet_type not in definition.packets:
        raise MalformedPacket(f"{definition.name} may not occur in this packet: leave it out")
    return definition, offset


def _store(properties: Properties, definition: PropertyDefinition, value: Any) -> None:
    if definition.repeatable:
        values: Any = properties.setdefault(definition.identifier, [])
        values.append(value)
    else:
        properties[definition.identifier] = value


def _check_value(identifier: int, value: PropertyValue) -> None:
    """Refuse the values that the specification calls a Protocol Error, property by property."""
    if identifier in _FLAGS and value not in (0, 1):
        raise ProtocolError(f"{DEFINITIONS[identifier].name} is {value!r}: only 0 and 1 are defined")
    if identifier in _NOT_ZERO and value == 0:
        raise ProtocolError(f"{DEFINITIONS[identifier].name} is 0: send at least 1 or leave it out")
    if identifier == TOPIC_ALIAS and value == 0:  # [MQTT-3.3.2-8]
        raise ProtocolError("Topic Alias is 0: aliases begin at 1", reasons.TOPIC_ALIAS_INVALID)
    if identifier == RESPONSE_TOPIC and isinstance(value, str):  # [MQTT-3.3.2-13] [MQTT-3.3.2-14]
        problem = name_error(value)
        if problem:
            raise ProtocolError(f"Response Topic: {problem}", reasons.PROTOCOL_ERROR)


def _check_together(properties: Properties, packet_type: int, from_server: bool) -> None:
    """Check the rules that concern several properties, or the side that sends them."""
    wrong = _WRONG_SIDE.get((packet_type, from_server))
    if wrong is not None and wrong in properties:
        raise ProtocolError(f"{DEFINITIONS[wrong].name} may not be sent by this side: leave it out")
    if AUTHENTICATION_DATA in properties and AUTHENTICATION_METHOD not in properties:
        raise ProtocolError("Authentication Data without Authentication Method: send both or neither")


def number(properties: Properties, identifier: int, default: int = 0) -> int:
    """An integer property, or the default if it is absent."""
    value = properties.get(identifier, default)
    return value if isinstance(value, int) else default


def encode(properties: Properties) -> bytes:
    """The block for these properties, in the order of the dict; user properties keep their own order."""
    return b"".join(_encode_one(DEFINITIONS[identifier], value) for identifier, value in properties.items())


def _encode_one(definition: PropertyDefinition, value: PropertyValue) -> bytes:
    encode_value, prefix = definition.type.encode, bytes((definition.identifier,))
    if definition.repeatable and isinstance(value, list):
        return b"".join(prefix + encode_value(item) for item in value)
    return prefix + encode_value(value)
