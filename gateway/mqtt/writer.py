"""Encodes the packets that a server sends; acknowledgements and publications for many in batches.

Callers pass what fits the version (no properties before 5.0 reach the wire) and the receiver (its maximum packet size).
"""

from __future__ import annotations

from array import array
from sys import byteorder

from gateway.mqtt import properties as props
from gateway.mqtt.packets import (
    AUTH,
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBLISH,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    V31,
    Auth,
    Connack,
    Disconnect,
    Properties,
    Suback,
)
from gateway.mqtt.primitives import encode_block, encode_u16, encode_varint

PINGRESP_BYTES = bytes((PINGRESP << 4, 0))
DUP = 0x08


def frame(first: int, body: bytes) -> bytes:
    """A packet with this first byte and body."""
    return bytes((first,)) + encode_varint(len(body)) + body


def encode_properties(properties: Properties) -> bytes:
    """The property length, which is 0 if there are none [MQTT5-2.2.2-1], and the properties."""
    return encode_block(props.encode(properties)) if properties else b"\0"


def encode_connack(version: int, connack: Connack) -> bytes:
    """A CONNACK. MQIsdp has no session present flag. [MQTT5-3.2.2-1]"""
    present = connack.session_present and version != V31
    body = bytes((present, connack.reason))
    if version == V5:
        body += encode_properties(connack.properties)
    return frame(CONNACK << 4, body)


def encode_publish(
    version: int,
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    *,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: bytes = b"",
) -> bytes:
    """One PUBLISH; `properties` is the block without its length and must be empty before 5.0."""
    template = PublishTemplate(version, topic, payload, qos, retain=retain, properties=properties)
    if not qos:
        return template.head + template.tail
    return template.resend(packet_id) if dup else template.send(packet_id)


class PublishTemplate:
    """One publication for many receivers of one version, QoS and RETAIN: all bytes but the packet identifier.

    At QoS 0 `whole` is the packet; else `send(packet_id)` joins head, identifier and tail.
    """

    __slots__ = ("head", "qos", "size", "tail")

    def __init__(
        self, version: int, topic: bytes, payload: bytes, qos: int, *, retain: bool = False, properties: bytes = b""
    ) -> None:
        self.qos = qos
        self.tail = encode_block(properties) + payload if version == V5 else payload
        rest = len(topic) + len(self.tail) + (4 if qos else 2)
        first = bytes((PUBLISH << 4 | qos << 1 | retain,))
        self.head = b"".join((first, encode_varint(rest), encode_u16(len(topic)), topic))
        self.size = len(self.head) + len(self.tail) + (2 if qos else 0)
        """Its length on the wire, to compare with the receiver's maximum packet size. [MQTT5-3.1.2-24]"""

    @property
    def whole(self) -> bytes:
        """The packet at QoS 0."""
        return self.head + self.tail

    def send(self, packet_id: int) -> bytes:
        """The packet with this identifier, DUP clear."""
        return b"%b%c%c%b" % (self.head, packet_id >> 8, packet_id & 0xFF, self.tail)

    def resend(self, packet_id: int) -> bytes:
        """The packet with this identifier, DUP set. [MQTT-3.3.1-1]"""
        return b"%c%b%c%c%b" % (self.head[0] | DUP, self.head[1:], packet_id >> 8, packet_id & 0xFF, self.tail)


def encode_acks(packet_type: int, ids: list[int]) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP without a reason for every identifier, in order, in any version."""
    first = _first(packet_type)
    if len(ids) == 1:
        return bytes((first, 2, ids[0] >> 8, ids[0] & 0xFF))
    column = array("H", ids)
    if byteorder == "little":
        column.byteswap()
    raw = column.tobytes()
    acks = bytearray(bytes((first, 2, 0, 0)) * len(ids))
    acks[2::4] = raw[0::2]  # two strided copies in C: 20 ns an id
    acks[3::4] = raw[1::2]
    return bytes(acks)


def encode_ack(
    version: int, packet_type: int, packet_id: int, reason: int = 0, properties: Properties | None = None
) -> bytes:
    """One acknowledgement with a reason, which 3.x cannot carry."""
    body = encode_u16(packet_id)  # [MQTT-2.3.1-6] [MQTT-2.2.1-5]
    if version == V5 and (reason or properties):
        body += bytes((reason,))
        if properties:
            body += encode_properties(properties)
    return frame(_first(packet_type), body)


def _first(packet_type: int) -> int:
    return packet_type << 4 | (2 if packet_type == PUBREL else 0)  # [MQTT-3.6.1-1]


def encode_suback(version: int, suback: Suback) -> bytes:
    """SUBACK: a code for each filter, in order. [MQTT3-3.8.4-5] [MQTT5-3.8.4-6] [MQTT-3.9.3-1]"""
    return _subscription_ack(SUBACK, version, suback)


def encode_unsuback(version: int, unsuback: Suback) -> bytes:
    """UNSUBACK: codes in 5.0 only. [MQTT-3.11.3-1]"""
    return _subscription_ack(UNSUBACK, version, unsuback)


def _subscription_ack(packet_type: int, version: int, ack: Suback) -> bytes:
    body = encode_u16(ack.packet_id)  # [MQTT-2.3.1-7] [MQTT-2.2.1-6] [MQTT-3.8.4-2] [MQTT-3.10.4-5]
    if version == V5:
        body += encode_properties(ack.properties)
    if version == V5 or packet_type == SUBACK:
        body += bytes(ack.reasons)
    return frame(packet_type << 4, body)


def encode_disconnect(version: int, disconnect: Disconnect) -> bytes:
    """DISCONNECT, with a reason in 5.0. A server of 3.x sends none: callers only close there."""
    return frame(DISCONNECT << 4, _reason_body(disconnect) if version == V5 else b"")


def encode_auth(auth: Auth) -> bytes:
    """AUTH (5.0)."""
    return frame(AUTH << 4, _reason_body(auth))


def _reason_body(record: Disconnect | Auth) -> bytes:
    if record.properties:
        return bytes((record.reason,)) + encode_properties(record.properties)
    return bytes((record.reason,)) if record.reason else b""
