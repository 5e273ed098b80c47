"""Decodes the bodies of the rare packets into records: one function per packet type, `(first_byte, body, version) ->
packet`.
They raise ProtocolError (or MalformedPacket) and nothing else. The reader finds frames and decodes PUBLISH and plain
acknowledgements itself. Which first bytes are acceptable is written here, in one table per version and side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt import properties as props
from gateway.mqtt import reasons
from gateway.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Properties,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from gateway.mqtt.primitives import (
    decode_string,
    decode_u8,
    decode_u16,
    decode_varint,
)
from gateway.mqtt.topics import is_shared

NAMES = {
    CONNECT: "CONNECT", CONNACK: "CONNACK", PUBLISH: "PUBLISH", PUBACK: "PUBACK", PUBREC: "PUBREC", PUBREL: "PUBREL",
    PUBCOMP: "PUBCOMP", SUBSCRIBE: "SUBSCRIBE", SUBACK: "SUBACK", UNSUBSCRIBE: "UNSUBSCRIBE", UNSUBACK: "UNSUBACK",
    PINGREQ: "PINGREQ", PINGRESP: "PINGRESP", DISCONNECT: "DISCONNECT", AUTH: "AUTH",
}  # fmt: skip

RARE, ACK, PUBLISH_0, PUBLISH_12 = range(4)
"""What the reader does with a frame, by its first byte: call `decode_rare`, or take one of its three fast paths."""


def property_block(body: bytes, offset: int) -> tuple[bytes, int]:
    """The delimited property block at `offset`, not decoded."""
    length, offset = decode_varint(body, offset)
    end = offset + length
    if end > len(body):
        raise MalformedPacket(f"properties announce {length} bytes, the packet has {len(body) - offset}")
    return body[offset:end], end


def body_properties(
    body: bytes, offset: int, packet_type: int, version: int, *, from_server: bool
) -> tuple[Properties, int]:
    """The properties at `offset`, decoded; none before 5.0."""
    if version != V5:
        return {}, offset
    block, offset = property_block(body, offset)
    return props.decode(block, packet_type, from_server=from_server), offset


def check_whole(body: bytes, offset: int, packet_type: int) -> None:
    """Raise MalformedPacket if bytes follow the end of the packet."""
    if offset != len(body):
        raise MalformedPacket(
            f"{len(body) - offset} bytes follow the end of {NAMES[packet_type]}: its length is too large"
        )


def _packet_id(body: bytes) -> int:
    packet_id, _ = decode_u16(body, 0)
    if packet_id == 0:  # [MQTT-2.3.1-1] [MQTT-2.2.1-3]
        raise ProtocolError("packet identifier 0 is not valid: number packets from 1 to 65535")
    return packet_id


# --- CONNACK, acknowledgements, SUBSCRIBE and its kin ----------------------------------------------------------------


def _decode_connack(first: int, body: bytes, version: int) -> Packet:
    flags, offset = decode_u8(body, 0)
    reason, offset = decode_u8(body, offset)
    if version == V31:
        flags = 0  # reserved in MQIsdp
    if flags > 1:  # [MQTT5-3.2.2-1]
        raise MalformedPacket("reserved bits of the connect acknowledge flags are set: send 0 or 1")
    if reason not in (reasons.VALID[CONNACK] if version == V5 else range(6)):
        raise MalformedPacket(f"CONNACK may not carry {reasons.name(reason)}")
    properties, offset = body_properties(body, offset, CONNACK, version, from_server=True)
    check_whole(body, offset, CONNACK)
    return first, Connack(bool(flags), reason, properties)


def _decode_ack(first: int, body: bytes, version: int) -> Packet:
    """Decode an acknowledgement with a reason, or refuse a malformed one. The reader decodes those of two bytes
    itself."""
    packet_type = first >> 4
    packet_id = _packet_id(body)
    if version != V5:
        check_whole(body, 2, packet_type)
    if len(body) == 2:
        return first, packet_id, 0, b""
    reason = body[2]
    # 0x95 is not in the table of PUBACK and PUBREC, but brokers answer it to a payload that is too long for them.
    known = reasons.VALID[packet_type] | ({reasons.PACKET_TOO_LARGE} if packet_type in {PUBACK, PUBREC} else set())
    if reason not in known:
        raise MalformedPacket(f"{NAMES[packet_type]} may not carry {reasons.name(reason)}")
    if len(body) == 3:
        return first, packet_id, reason, b""
    block, offset = property_block(body, 3)
    check_whole(body, offset, packet_type)
    props.decode(block, packet_type)
    return first, packet_id, reason, block


def _decode_subscribe(first: int, body: bytes, version: int) -> Packet:
    packet_id = _packet_id(body)
    properties, offset = body_properties(body, 2, SUBSCRIBE, version, from_server=False)
    subscriptions = []
    while offset < len(body):
        filter_, offset = decode_string(body, offset)  # [MQTT-3.8.3-1]
        options, offset = decode_u8(body, offset)
        subscriptions.append(_subscription(filter_, options, version))
    if not subscriptions:  # [MQTT3-3.8.3-3] [MQTT5-3.8.3-2]
        raise ProtocolError("SUBSCRIBE names no topic filter: send at least one")
    return first, Subscribe(packet_id, subscriptions, properties)


def _subscription(filter_: str, options: int, version: int) -> Subscription:
    qos, retain_handling = options & 3, options >> 4 & 3
    if version != V5:
        if options & 0xFC and version == V311:  # [MQTT3-3.8.3-4]
            raise MalformedPacket("reserved bits of a requested QoS are set: send 0, 1 or 2")
        retain_handling = options = 0
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise MalformedPacket("reserved bits of the subscription options are set: send 0")
    if qos == 3 or retain_handling == 3:
        text = "QoS 3" if qos == 3 else "retain handling 3"
        raise ProtocolError(f"{text} in a subscription does not exist: use 0, 1 or 2")
    if options & 0x04 and is_shared(filter_):  # [MQTT5-3.8.3-4]
        raise ProtocolError("no local on a shared subscription: leave it out")
    return Subscription(filter_, qos, bool(options & 0x04), bool(options & 0x08), retain_handling)


def _decode_suback(first: int, body: bytes, version: int) -> Packet:
    packet_type = first >> 4
    packet_id = _packet_id(body)
    properties, offset = body_properties(body, 2, packet_type, version, from_server=True)
    codes = list(body[offset:])
    if version != V5 and packet_type == UNSUBACK:
        check_whole(body, offset, UNSUBACK)
    valid = reasons.VALID[packet_type] if version == V5 else (0, 1, 2, 0x80)  # [MQTT-3.9.3-2]
    for code in codes:
        if code not in valid:
            raise MalformedPacket(f"{NAMES[packet_type]} may not carry {reasons.name(code)}")
    return first, Suback(packet_id, codes, properties)


def _decode_unsubscribe(first: int, body: bytes, version: int) -> Packet:
    packet_id = _packet_id(body)
    properties, offset = body_properties(body, 2, UNSUBSCRIBE, version, from_server=False)
    filters = []
    while offset < len(body):
        filter_, offset = decode_string(body, offset)  # [MQTT-3.10.3-1]
        filters.append(filter_)
    if not filters:  # [MQTT-3.10.3-2]
        raise ProtocolError("UNSUBSCRIBE names no topic filter: send at least one")
    return first, Unsubscribe(packet_id, filters, properties)


# --- packets without much in them ------------------------------------------------------------------------------------


def _decode_ping(first: int, body: bytes, _version: int) -> Packet:
    check_whole(body, 0, first >> 4)
    return (first,)


def _reason_and_properties(first: int, body: bytes, *, from_server: bool) -> tuple[int, Properties]:
    """Decode the body that DISCONNECT and AUTH have in common in 5.0; both parts may be missing."""
    packet_type = first >> 4
    if not body:
        return 0, {}
    if not reasons.is_valid(packet_type, body[0], from_server):
        raise MalformedPacket(f"{NAMES[packet_type]} may not carry {reasons.name(body[0])} here")
    if len(body) == 1:
        return body[0], {}
    properties, offset = body_properties(body, 1, packet_type, V5, from_server=from_server)
    check_whole(body, offset, packet_type)
    return body[0], properties


def _decode_disconnect(first: int, body: bytes, version: int) -> Packet:
    if version != V5:
        check_whole(body, 0, DISCONNECT)
    return first, Disconnect(*_reason_and_properties(first, body, from_server=False))


def _decode_server_disconnect(first: int, body: bytes, _version: int) -> Packet:
    return first, Disconnect(*_reason_and_properties(first, body, from_server=True))


def _decode_auth(first: int, body: bytes, _version: int) -> Packet:
    reason, properties = _reason_and_properties(first, body, from_server=False)
    if props.AUTHENTICATION_METHOD not in properties:
        raise ProtocolError("AUTH without Authentication Method: name the method of the CONNECT")
    return first, Auth(reason, properties)


def _decode_short_publish(_first: int, body: bytes, _version: int) -> Packet:
    """Refuse a PUBLISH that is too short to be one. The reader decodes all others."""
    raise MalformedPacket(f"a PUBLISH with {len(body)} bytes after its header has no room for a topic")


class Refusal(NamedTuple):
    """Why a first byte may not begin a packet here."""

    error: type[ProtocolError]
    text: str


Decoder = Callable[[int, bytes, int], Packet]

_BOTH: dict[int, Decoder] = {
    PUBLISH: _decode_short_publish,
    PUBACK: _decode_ack,
    PUBREC: _decode_ack,
    PUBREL: _decode_ack,
    PUBCOMP: _decode_ack,
}


@dataclass(slots=True)
class Grammar:
    """What one side may send in one version, and how it is decoded."""

    decoders: dict[int, Decoder]
    """By packet type."""
    kinds: list[int]
    """By first byte: RARE, or the fast path."""
    refusals: dict[int, Refusal]
    """By first byte, for those that may not begin a packet."""


def _refusal(first: int, decoders: dict[int, Decoder], version: int) -> Refusal | None:
    packet_type, flags = first >> 4, first & 0x0F
    if packet_type == 0 or (packet_type == AUTH and version != V5):
        return Refusal(MalformedPacket, f"packet type {packet_type} is reserved")
    if packet_type not in decoders:
        text = (
            "a second CONNECT" if packet_type == CONNECT else f"{NAMES[packet_type]} from this side"
        )  # [MQTT-3.1.0-2]
        return Refusal(ProtocolError, f"{text} is a protocol error")
    if packet_type == PUBLISH:
        return _publish_refusal(flags, version)
    if version == V31:
        return _refusal_in_31(packet_type, flags)
    wanted = 2 if packet_type in {PUBREL, SUBSCRIBE, UNSUBSCRIBE} else 0  # [MQTT3-2.2.2-1] [MQTT-3.15.1-1]
    if flags != wanted:  # [MQTT-2.2.2-2] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-2.1.3-1] [MQTT-3.14.1-1]
        return Refusal(
            MalformedPacket, f"{NAMES[packet_type]} begins with 0x{first:02X}: send 0x{packet_type << 4 | wanted:02X}"
        )
    return None


def _publish_refusal(flags: int, version: int) -> Refusal | None:
    if flags & 6 == 6:  # [MQTT-3.3.1-4]
        return Refusal(MalformedPacket, "PUBLISH with QoS 3: use 0, 1 or 2")
    if version != V31 and flags & 0x0E == 8:  # MQIsdp devices set it, and nothing depends on it. [MQTT-3.3.1-2]
        return Refusal(MalformedPacket, "PUBLISH with DUP at QoS 0: clear DUP")
    return None


def _refusal_in_31(packet_type: int, flags: int) -> Refusal | None:
    """Only PUBREL, SUBSCRIBE and UNSUBSCRIBE use bits of their first byte here, as MQIsdp resends them with DUP; QoS 3
    stays reserved. All other bits are unused."""
    if packet_type in {PUBREL, SUBSCRIBE, UNSUBSCRIBE} and flags & 6 == 6:
        return Refusal(MalformedPacket, f"{NAMES[packet_type]} with QoS 3: send QoS 1")
    return None


def _kind(first: int, refused: bool) -> int:
    packet_type = first >> 4
    if refused or packet_type not in _BOTH:
        return RARE
    if packet_type != PUBLISH:
        return ACK
    return PUBLISH_12 if first & 6 else PUBLISH_0


def _grammar(decoders: dict[int, Decoder], version: int) -> Grammar:
    decoders = decoders | _BOTH
    found = {first: _refusal(first, decoders, version) for first in range(256)}
    refusals = {first: error for first, error in found.items() if error is not None}
    return Grammar(decoders, [_kind(first, first in refusals) for first in range(256)], refusals)


_CLIENT: dict[int, Decoder] = {
    SUBSCRIBE: _decode_subscribe,
    UNSUBSCRIBE: _decode_unsubscribe,
    PINGREQ: _decode_ping,
    DISCONNECT: _decode_disconnect,
}
_SERVER: dict[int, Decoder] = {
    CONNACK: _decode_connack,
    SUBACK: _decode_suback,
    UNSUBACK: _decode_suback,
    PINGRESP: _decode_ping,
}
_AUTH: dict[int, Decoder] = {AUTH: _decode_auth}

Grammars = dict[int, Grammar]

FROM_CLIENT: Grammars = {
    V31: _grammar(_CLIENT, V31),
    V311: _grammar(_CLIENT, V311),
    V5: _grammar(_CLIENT | _AUTH, V5),
}
"""What clients send after their CONNECT, by version."""

FROM_SERVER: Grammars = {
    V31: _grammar(_SERVER, V31),
    V311: _grammar(_SERVER, V311),
    V5: _grammar(_SERVER | _AUTH | {DISCONNECT: _decode_server_disconnect}, V5),
}
"""What servers send, by version: for clients (`mqgate probe`, `mqgate demo`, tests)."""


def decode_rare(grammar: Grammar, first: int, body: bytes, version: int) -> Packet:
    """Decode any packet, given its whole body."""
    return grammar.decoders[first >> 4](first, body, version)
