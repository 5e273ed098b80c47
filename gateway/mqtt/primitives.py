"""The data representations of MQTT: variable byte integers, UTF-8 strings, binary data, string pairs.

Decoders take `(data, offset)` and return `(value, next offset)`; they raise MalformedPacket and nothing else.
"""

from __future__ import annotations

import re
from struct import Struct

from gateway.errors import MalformedPacket

MAX_REMAINING_LENGTH = 268_435_455
MAX_STRING_BYTES = 65_535

_U16 = Struct(">H")
_U32 = Struct(">I")


def encode_varint(value: int) -> bytes:
    """One to four bytes, seven bits each, least significant first. 321 is C1 02."""
    if value < 0x80:
        return bytes((value,))
    if value > MAX_REMAINING_LENGTH:
        raise ValueError(f"{value} does not fit into a variable byte integer: the maximum is {MAX_REMAINING_LENGTH}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """The integer at `offset`. Refuses a fifth byte and encodings longer than needed. [MQTT-1.5.5-1]"""
    value = shift = 0
    for byte in data[offset : offset + 4]:
        value |= (byte & 0x7F) << shift
        offset += 1
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("a variable byte integer is longer than needed: send its shortest form")
            return value, offset
        shift += 7
    raise MalformedPacket(_unfinished_varint(shift))


def _unfinished_varint(shift: int) -> str:
    if shift == 28:
        return "a variable byte integer has a fifth byte: send four at most"
    return "the packet ends inside a variable byte integer: send all of it"


def decode_u8(data: bytes, offset: int) -> tuple[int, int]:
    """One byte."""
    if offset >= len(data):
        raise MalformedPacket("the packet ends where a byte is due: its length field is too small")
    return data[offset], offset + 1


def decode_u16(data: bytes, offset: int) -> tuple[int, int]:
    """Two bytes, most significant first."""
    if offset + 2 > len(data):
        raise MalformedPacket("the packet ends inside a two byte integer: its length field is too small")
    return data[offset] << 8 | data[offset + 1], offset + 2


def decode_u32(data: bytes, offset: int) -> tuple[int, int]:
    """Four bytes, most significant first."""
    if offset + 4 > len(data):
        raise MalformedPacket("the packet ends inside a four byte integer: its length field is too small")
    return _U32.unpack_from(data, offset)[0], offset + 4


def decode_binary(data: bytes, offset: int) -> tuple[bytes, int]:
    """Two bytes of length, then that many bytes."""
    length, offset = decode_u16(data, offset)
    end = offset + length
    if end > len(data):
        raise MalformedPacket(
            f"a string or binary field announces {length} bytes, but the packet has {len(data) - offset} left"
        )
    return data[offset:end], end


def decode_string(data: bytes, offset: int) -> tuple[str, int]:
    """Decode a UTF-8 string that follows its length."""
    raw, offset = decode_binary(data, offset)
    return decode_text(raw), offset


def decode_text(raw: bytes) -> str:
    """The text of UTF-8 bytes without surrogates and without U+0000; a byte order mark is an ordinary character.
    [MQTT-1.5.3-3] [MQTT-1.5.4-3]"""
    try:
        text = raw.decode()  # Python's decoder refuses surrogates and overlong forms. [MQTT-1.5.3-1] [MQTT-1.5.4-1]
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a string is not UTF-8 at its byte {error.start}: send well-formed UTF-8") from None
    if "\0" in text:  # [MQTT-1.5.3-2] [MQTT-1.5.4-2]
        raise MalformedPacket("a string contains U+0000: MQTT forbids it")
    return text


_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef" + "".join(chr(p << 16 | e) for p in range(17) for e in (0xFFFE, 0xFFFF)) + "]"
)


def has_control(text: str) -> bool:
    """Whether a name contains control characters or non-characters. MQTT lets a server refuse them (1.5.3, 1.5.4); here
    only names (of topics, filters, clients and users) may not have them, because they would spoil logs and MQ names."""
    return _UNPRINTABLE.search(text) is not None


def decode_pair(data: bytes, offset: int) -> tuple[tuple[str, str], int]:
    """A string pair: name, value. [MQTT-1.5.7-1]"""
    name, offset = decode_string(data, offset)
    value, offset = decode_string(data, offset)
    return (name, value), offset


def encode_u8(value: int) -> bytes:
    """One byte."""
    return bytes((value,))


def encode_u16(value: int) -> bytes:
    """Two bytes, most significant first."""
    return _U16.pack(value)


def encode_u32(value: int) -> bytes:
    """Four bytes, most significant first."""
    return _U32.pack(value)


def encode_binary(value: bytes) -> bytes:
    """Two bytes of length, then the bytes."""
    if len(value) > MAX_STRING_BYTES:
        raise ValueError(
            f"{len(value)} bytes do not fit into a string or binary field: the maximum is {MAX_STRING_BYTES}"
        )
    return _U16.pack(len(value)) + value


def encode_string(text: str) -> bytes:
    """A UTF-8 string after its length."""
    return encode_binary(text.encode())


def encode_pair(pair: tuple[str, str]) -> bytes:
    """A string pair: name, value."""
    return encode_string(pair[0]) + encode_string(pair[1])


def encode_block(block: bytes) -> bytes:
    """A property block after its length."""
    return encode_varint(len(block)) + block
