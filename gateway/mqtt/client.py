"""What a client sends, and a reader for what a server sends: for probe, demo and tests. PUBLISH and acknowledgements
are in `writer`."""

from __future__ import annotations

from gateway.mqtt import properties as props
from gateway.mqtt.decoders import FROM_SERVER
from gateway.mqtt.packets import (
    CONNECT,
    PINGREQ,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    V31,
    Connect,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from gateway.mqtt.primitives import MAX_REMAINING_LENGTH, encode_binary, encode_block, encode_string, encode_u16
from gateway.mqtt.reader import Reader
from gateway.mqtt.writer import encode_properties, frame

PINGREQ_BYTES = bytes((PINGREQ << 4, 0))


def server_reader(version: int) -> Reader:
    """A reader for the packets of a server, for a client that has connected with `version`."""
    return Reader(MAX_REMAINING_LENGTH + 5, version, FROM_SERVER)


def connect(
    version: int, client_id: str, *, clean_start: bool = True, keep_alive: int = 0, will: Will | None = None
) -> Connect:
    """A CONNECT with the protocol name that belongs to the version."""
    name = "MQIsdp" if version == V31 else "MQTT"
    return Connect(name, version, clean_start, keep_alive, client_id, will)


def encode_connect(connect: Connect) -> bytes:
    """A CONNECT of any version."""
    will = connect.will
    parts = [encode_string(connect.protocol_name), bytes((connect.version, _flags(connect)))]
    parts.append(encode_u16(connect.keep_alive))
    if connect.version == V5:
        parts.append(encode_properties(connect.properties))
    parts.append(encode_string(connect.client_id))
    if will is not None:
        parts += _will(connect.version, will)
    if connect.username is not None:
        parts.append(encode_string(connect.username))
    if connect.password is not None:
        parts.append(encode_binary(connect.password))
    return frame(CONNECT << 4, b"".join(parts))


def _flags(connect: Connect) -> int:
    flags = connect.clean_start << 1
    if connect.will is not None:
        flags |= 0x04 | connect.will.qos << 3 | connect.will.retain << 5
    return flags | (connect.password is not None) << 6 | (connect.username is not None) << 7


def _will(version: int, will: Will) -> list[bytes]:
    parts = [encode_string(will.topic), encode_binary(will.payload)]
    if version == V5:
        block = will.raw_properties or props.encode(will.properties)
        parts.insert(0, encode_block(block))
    return parts


def encode_subscribe(version: int, subscribe: Subscribe) -> bytes:
    """A SUBSCRIBE; options other than the QoS exist in 5.0 only."""
    body = encode_u16(subscribe.packet_id)
    if version == V5:
        body += encode_properties(subscribe.properties)
    for subscription in subscribe.subscriptions:
        body += encode_string(subscription.filter) + bytes((_options(version, subscription),))
    return frame(SUBSCRIBE << 4 | 2, body)


def _options(version: int, subscription: Subscription) -> int:
    if version != V5:
        return subscription.qos
    flags = subscription.no_local << 2 | subscription.retain_as_published << 3 | subscription.retain_handling << 4
    return subscription.qos | flags


def encode_unsubscribe(version: int, unsubscribe: Unsubscribe) -> bytes:
    """An UNSUBSCRIBE."""
    body = encode_u16(unsubscribe.packet_id)
    if version == V5:
        body += encode_properties(unsubscribe.properties)
    return frame(UNSUBSCRIBE << 4 | 2, body + b"".join(map(encode_string, unsubscribe.filters)))


def encode_pingreq() -> bytes:
    """PINGREQ."""
    return PINGREQ_BYTES
