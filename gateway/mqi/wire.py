"""Frames of the MQI socket: split from a stream of chunks; their fields are read with every bound checked, and written.

The protocol is described in docs/reference/mqi-socket.md; the C side is `c/socket_wire.c`. Does no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

from gateway.errors import MqgateError
from gateway.mq import constants as mq
from gateway.ports.mqi import Property, PropertyValue

MAGIC = b"MQGI"
PROTOCOL_VERSION = 1
NO_REPLY = 1
LONGEST_FRAME = 112 << 20
"""The most bytes after the length field: the longest message data (100 MiB), its properties and the other fields."""
HEADER = struct.Struct("<IBBH")
_I4 = struct.Struct("<i")
_U4 = struct.Struct("<I")


class Verb(IntEnum):
    """The call that a frame is about."""

    CONNECT = 1
    DISCONNECT = 2
    OPEN = 3
    CLOSE = 4
    PUT = 5
    PUT1 = 6
    GET = 7
    BEGIN = 8
    COMMIT = 9
    BACK_OUT = 10
    INQUIRE = 11
    SET = 12
    STATUS = 13
    SUBSCRIBE = 14
    SUBSCRIPTION_REQUEST = 15


class FrameError(MqgateError):
    """The peer sent something that is not a frame of this protocol; the connection has to be closed."""


class Frames:
    """Takes chunks and yields whole frames: (verb, flags, tag, body)."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._whole = b""
        """Complete frames; those before `_at` have been taken."""
        self._at = 0

    def add(self, chunk: bytes) -> None:
        """Keep `chunk` until frames are taken."""
        self._pending += chunk

    def waiting(self) -> int:
        """The bytes that have not been taken."""
        return len(self._pending) + len(self._whole) - self._at

    def take(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yields the frames that are complete. Raises FrameError as soon as a header shows that none can follow."""
        unpack, head = HEADER.unpack_from, HEADER.size
        while self._at < len(self._whole) or self._fill():
            start = self._at
            length, verb, flags, tag = unpack(self._whole, start)
            if not 4 <= length <= LONGEST_FRAME:
                raise FrameError(f"a frame of {length} bytes: lengths are 4 to {LONGEST_FRAME}")
            self._at = start + 4 + length
            yield verb, flags, tag, self._whole[start + head : self._at]

    def _fill(self) -> bool:
        if not self._pending:
            self._whole, self._at = b"", 0
            return False
        end = self._complete()
        self._whole, self._at = bytes(memoryview(self._pending)[:end]), 0
        del self._pending[:end]
        return end > 0

    def _complete(self) -> int:
        """Returns the end of the last complete frame, or of a header that cannot be one."""
        pending, at, size = self._pending, 0, len(self._pending)
        while at + HEADER.size <= size:
            (length,) = _U4.unpack_from(pending, at)
            if not 4 <= length <= LONGEST_FRAME:
                return at + HEADER.size
            if at + 4 + length > size:
                break
            at += 4 + length
        return at


class FieldReader:
    """Reads the fields of one frame's body, in order."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def values(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Returns several fixed fields at once."""
        at = self._at
        if at + fields.size > len(self._body):
            raise FrameError("a frame ends inside its fixed fields")
        self._at = at + fields.size
        return fields.unpack_from(self._body, at)

    def numbers(self, fields: struct.Struct) -> tuple[int, ...]:
        """Returns several numbers at once."""
        return self.values(fields)

    def everything(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Returns these fields, and checks that there are no others."""
        if self._at or len(self._body) != fields.size:
            raise FrameError(f"a frame of {len(self._body)} bytes where its fields take {fields.size}")
        self._at = fields.size
        return fields.unpack(self._body)

    def number(self) -> int:
        """Returns one MQLONG."""
        return self.numbers(_I4)[0]

    def fixed(self, length: int) -> bytes:
        """Returns exactly `length` bytes."""
        at = self._at
        if length < 0 or at + length > len(self._body):
            raise FrameError(f"a field of {length} bytes reaches beyond its frame")
        self._at = at + length
        return self._body[at : self._at]

    def blob(self) -> bytes:
        """Returns a counted field."""
        begin = self._at + _I4.size
        if begin > len(self._body):
            raise FrameError("a frame ends inside its fixed fields")
        length: int = _I4.unpack_from(self._body, self._at)[0]
        self._at = begin
        return self.fixed(length)

    def text(self) -> str:
        """Returns a counted field of characters. What is not UTF-8 is read as Latin-1: names are checked later."""
        data = self.blob()
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")

    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self._at == len(self._body)

    def end(self) -> None:
        """Raise FrameError unless everything has been read."""
        if self._at != len(self._body):
            raise FrameError(f"{len(self._body) - self._at} bytes too many in a frame")


class FieldWriter:
    """Writes the fields of one answer, in order."""

    __slots__ = ("_parts", "_verb_tag")

    def __init__(self, verb: int, tag: int, comp_code: int = 0, reason: int = 0) -> None:
        self._verb_tag = (verb, tag)
        self._parts = [_PAIR.pack(comp_code, reason)]

    def numbers(self, *values: int) -> FieldWriter:
        """Add MQLONGs."""
        self._parts.append(struct.pack(f"<{len(values)}i", *values))
        return self

    def fixed(self, data: bytes) -> FieldWriter:
        """Add bytes without a count."""
        self._parts.append(data)
        return self

    def blob(self, data: bytes) -> FieldWriter:
        """Add counted bytes."""
        self._parts += (_I4.pack(len(data)), data)
        return self

    def text(self, *values: str) -> FieldWriter:
        """Add counted characters."""
        for value in values:
            self.blob(value.encode())
        return self

    def frame(self) -> bytes:
        """Returns the frame, ready to be sent."""
        body = b"".join(self._parts)
        verb, tag = self._verb_tag
        return HEADER.pack(len(body) + 4, verb, 0, tag) + body


_PAIR = struct.Struct("<ii")
OUTCOME = struct.Struct("<IBBHii")
"""The beginning of every answer: the header, completion code and reason."""


def outcome(verb: int, tag: int, comp_code: int = 0, reason: int = 0) -> bytes:
    """Returns an answer that only says how the call has ended."""
    return OUTCOME.pack(OUTCOME.size - 4, verb, 0, tag, comp_code, reason)


# Properties: length of the name, name, type, support, context, copy, length of the value, value (as in c/handles.c).

_NUMERIC = {
    mq.MQTYPE_BOOLEAN: struct.Struct("<i"),
    mq.MQTYPE_INT8: struct.Struct("<b"),
    mq.MQTYPE_INT16: struct.Struct("<h"),
    mq.MQTYPE_INT32: struct.Struct("<i"),
    mq.MQTYPE_INT64: struct.Struct("<q"),
    mq.MQTYPE_FLOAT32: struct.Struct("<f"),
    mq.MQTYPE_FLOAT64: struct.Struct("<d"),
}
_DESCRIPTOR = struct.Struct("<4i")


def decode_properties(data: bytes) -> list[Property]:
    """Unpack the properties of a message handle."""
    reader, found = FieldReader(data), []
    while not reader.at_end():
        name = reader.text()
        kind, support, context, copy = reader.numbers(_DESCRIPTOR)
        found.append(Property(name, _decode_value(kind, reader.blob()), kind, support, context, copy))
    return found


def _decode_value(kind: int, data: bytes) -> PropertyValue:
    numeric = _NUMERIC.get(kind)
    if numeric is not None:
        if len(data) != numeric.size:
            raise FrameError(f"a property value of {len(data)} bytes where its type takes {numeric.size}")
        value: int | float = numeric.unpack(data)[0]
        return bool(value) if kind == mq.MQTYPE_BOOLEAN else value
    if kind == mq.MQTYPE_NULL:
        return None
    if kind == mq.MQTYPE_BYTE_STRING:
        return data
    if kind == mq.MQTYPE_STRING:
        return data.decode("utf-8", "surrogateescape")
    raise FrameError(f"no property type {kind}")


def encode_properties(properties: Sequence[Property]) -> bytes:
    """Pack properties for a message handle."""
    parts: list[bytes] = []
    for held in properties:
        name = held.name.removeprefix("usr.").encode()
        value = _encode_value(held.type, held.value)
        parts += (
            _I4.pack(len(name)),
            name,
            _DESCRIPTOR.pack(held.type, held.support, held.context, held.copy),
            _I4.pack(len(value)),
            value,
        )
    return b"".join(parts)


def _encode_value(kind: int, value: PropertyValue) -> bytes:
    if value is None:
        return b""
    numeric = _NUMERIC.get(kind)
    if numeric is not None:
        return numeric.pack(value)
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
