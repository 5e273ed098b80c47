"""Decodes CONNECT of every version into a record: name and level, flags, payload. Raises ProtocolError and nothing
else."""

from __future__ import annotations

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt import properties as props
from gateway.mqtt import reasons
from gateway.mqtt.decoders import body_properties, check_whole, property_block
from gateway.mqtt.packets import CONNECT, V5, V31, V311, Connect, Will
from gateway.mqtt.primitives import decode_binary, decode_string, decode_u8, decode_u16, has_control
from gateway.mqtt.topics import name_error


def protocol_version(body: bytes) -> tuple[str, int, int]:
    """`(protocol name, level, next offset)`. The level decides how the rest is read and how a refusal looks."""
    name, offset = decode_string(body, 0)
    level, offset = decode_u8(body, offset)
    return name, level, offset


def check_version(name: str, level: int) -> None:
    """Check that name and level belong together: MQIsdp 3, MQTT 4 or MQTT 5. Raises ProtocolError if they do not."""
    if (name, level) not in {("MQIsdp", V31), ("MQTT", V311), ("MQTT", V5)}:  # [MQTT-3.1.2-1] [MQTT-3.1.2-2]
        text = f"protocol {name[:20]!r} level {level} is not supported: use MQIsdp 3, MQTT 4 or MQTT 5"
        raise ProtocolError(text, reasons.UNSUPPORTED_PROTOCOL_VERSION)


def decode_connect(first: int, body: bytes) -> Connect:
    """Decode a CONNECT of any version."""
    name, version, offset = protocol_version(body)
    check_version(name, version)
    if version != V31 and first & 0x0F:  # MQIsdp does not use these bits. [MQTT-2.2.2-2] [MQTT-2.1.3-1]
        raise flags_error(first)
    flags, offset = decode_u8(body, offset)
    _check_connect_flags(flags, version)
    keep_alive, offset = decode_u16(body, offset)
    return _payload((name, version, flags, keep_alive), body, offset)


def flags_error(first: int) -> MalformedPacket:
    """The error for a CONNECT whose flags are not those that the specification gives it."""
    return MalformedPacket(f"CONNECT begins with 0x{first:02X}: send 0x10")


def layout(body: bytes, offset: int) -> int:
    """The version whose layout a CONNECT of an unknown level follows after its level; the refusal is written in that
    version."""
    for version in (V311, V5):
        try:
            flags, place = decode_u8(body, offset)
            keep_alive, place = decode_u16(body, place)
            _payload(("MQTT", version, flags, keep_alive), body, place)
        except ProtocolError:
            continue
        return version
    return V311


def _payload(head: tuple[str, int, int, int], body: bytes, offset: int) -> Connect:
    """Decode the properties and the fields that the flags announce, in their order [MQTT-3.1.3-1]."""
    name, version, flags, keep_alive = head
    properties, offset = body_properties(body, offset, CONNECT, version, from_server=False)
    client_id, offset = _name(body, offset)  # [MQTT-3.1.3-3] [MQTT-3.1.3-4]
    will, offset = _will(body, offset, flags, version)
    username, password, offset = _credentials(body, offset, flags, version)
    check_whole(body, offset, CONNECT)  # [MQTT-3.1.4-1]
    return Connect(name, version, bool(flags & 0x02), keep_alive, client_id, will, username, password, properties)


def _name(body: bytes, offset: int) -> tuple[str, int]:
    text, offset = decode_string(body, offset)
    if has_control(text):
        raise MalformedPacket("client identifiers and user names may not contain control characters or non-characters")
    return text, offset


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x18 == 0x18:  # [MQTT3-3.1.2-14] [MQTT5-3.1.2-12]
        raise MalformedPacket("will QoS 3 does not exist: use 0, 1 or 2")
    if version == V31:
        return  # MQIsdp: bit 0 is unused, and so are the will's bits without a will
    if flags & 0x01:  # [MQTT-3.1.2-3]
        raise MalformedPacket("the reserved bit of the connect flags is set: send 0")
    if not flags & 0x04 and flags & 0x38:  # [MQTT-3.1.2-11] [MQTT3-3.1.2-13] [MQTT5-3.1.2-13] [MQTT3-3.1.2-15]
        raise MalformedPacket("will QoS or will retain without a will: set the will flag or send 0")
    if version == V311 and flags & 0xC0 == 0x40:  # [MQTT3-3.1.2-22]
        raise MalformedPacket("a password without a user name: MQTT 3.1.1 requires both")


def _will(body: bytes, offset: int, flags: int, version: int) -> tuple[Will | None, int]:
    """Decode the fields of the will, of which there are all or none [MQTT-3.1.2-9]."""
    if not flags & 0x04:
        return None, offset
    block = b""
    if version == V5:
        block, offset = property_block(body, offset)
    topic, offset = decode_string(body, offset)  # [MQTT3-3.1.3-10] [MQTT5-3.1.3-11]
    problem = name_error(topic)
    if problem:
        raise MalformedPacket(f"will topic: {problem}")  # 0x90 is for names that are well-formed but not accepted
    payload, offset = decode_binary(body, offset)
    properties = props.decode(block, props.WILL)
    return Will(topic, payload, flags >> 3 & 3, bool(flags & 0x20), properties, block), offset


def _credentials(body: bytes, offset: int, flags: int, version: int) -> tuple[str | None, bytes | None, int]:
    """Decode user name and password, each present exactly if its flag is set [MQTT3-3.1.2-18] [MQTT3-3.1.2-19]
    [MQTT3-3.1.2-20] [MQTT3-3.1.2-21] [MQTT5-3.1.2-16] [MQTT5-3.1.2-17] [MQTT5-3.1.2-18] [MQTT5-3.1.2-19]."""
    username = password = None
    # MQTT 3.1, section 3.1: the length takes precedence over the flags; an announced string may be missing.
    if flags & 0x80 and not (version == V31 and offset == len(body)):
        username, offset = _name(body, offset)  # [MQTT3-3.1.3-11] [MQTT-3.1.3-12]
    if flags & 0x40 and not (version == V31 and offset == len(body)):
        password, offset = decode_binary(body, offset)
    return username, password, offset
