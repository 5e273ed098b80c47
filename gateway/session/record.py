"""How protocol state is written into the messages of the state queues, and read back.

A publication record is self-delimiting up to the packet identifier, so that what many sessions store of one publication
is the same bytes followed by two that differ:

    version u8 = 1 | flags u8 (QoS in bits 0-1, RETAIN bit 2, released bit 3, shared bit 4, reports bit 5,
    handed over bit 6)
    | expires f64 (0: never)
    | client id (u16 length + bytes) | topic (u16 + bytes) | properties (u32 + bytes)
    | number of subscription identifiers u8 (255: u32 follows), each u32 | reports: (u16 + MQMD) | packet id u16
    | payload

Sessions and wills are JSON, so that an administrator who browses the queue can read them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from itertools import islice
from typing import Any, NamedTuple

from gateway.errors import NewerState
from gateway.session.publication import Publication

VERSION = 1
RETAIN = 0x04
RELEASED = 0x08
SHARED = 0x10
REPORTS = 0x20
"""The MQ message asked for reports that are not made yet: its descriptor is in the record."""
HANDED_OVER = 0x40
"""A staged publication that local subscribers have had, while its queue refused it."""
_NO_VERSION = 0x08
"""From here on the first byte is a character, or controls a terminal: what stands there is no record."""
_FORMAT = "format"
"""Says in a JSON record that its version is not 1. No release has written that yet; this one refuses it."""
_NEWER = "a newer release has written it (version {}, this one reads {})"
_FIXED = struct.Struct("<BBd")
_EXPIRES = 2
"""Where the time of expiry is in a record."""
_MANY = 0xFF
"""So many subscription identifiers, or more: their number follows."""
_F64 = struct.Struct("<d")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""Made once: `json.dumps` would make one for each record."""
json_text = _JSON.encode
"""A value in JSON, not encoded yet."""


class _StoredIds(dict[int, bytes]):
    """Each made when it is first needed: all of them are 8 MB, and devices use few."""

    __slots__ = ()

    def __missing__(self, packet_id: int) -> bytes:
        made = self[packet_id] = _U16.pack(packet_id)
        return made


STORED_IDS = _StoredIds()
"""Packet identifiers as they stand in records."""


def key_of(name: str | bytes) -> bytes:
    """24 bytes that stand for a client id or topic as the key (on IBM MQ: CorrelId) of its state message."""
    return hashlib.sha256(name.encode() if isinstance(name, str) else name).digest()[:24]


def encode_front(publication: Publication, qos: int, flags: int = 0) -> bytes:
    """Everything of the record before the properties."""
    client, topic = publication.client_id.encode(), publication.topic
    fixed = _FIXED.pack(VERSION, qos | flags, publication.expires)
    return b"".join((fixed, _U16.pack(len(client)), client, _U16.pack(len(topic)), topic))


def encode_sub_ids(sub_ids: tuple[int, ...]) -> bytes:
    """What follows the properties."""
    count = len(sub_ids)
    number = bytes((count,)) if count < _MANY else bytes((_MANY,)) + _U32.pack(count)
    return number + b"".join([_U32.pack(sub_id) for sub_id in sub_ids])


_NO_PROPERTIES = _U32.pack(0) + encode_sub_ids(())
"""How the prefix ends of a record without properties, reports and subscription identifiers."""


def encode_prefix(publication: Publication, qos: int, retain: bool, sub_ids: tuple[int, ...], flags: int = 0) -> bytes:
    """Everything of the record before the packet identifier."""
    block, report = publication.properties, publication.report
    if report:
        flags |= REPORTS
    front = encode_front(publication, qos, flags | (RETAIN if retain else 0))
    properties = _U32.pack(len(block)) + block + encode_sub_ids(sub_ids)
    return front + properties + _U16.pack(len(report)) + report if report else front + properties


def with_properties(prefix: bytes, block: bytes) -> bytes:
    """The prefix of a record without properties, with these."""
    front = len(prefix) - len(_NO_PROPERTIES)
    return b"".join((prefix[:front], _U32.pack(len(block)), block, encode_sub_ids(())))


def with_expiry(prefix: bytes, expires: float, at: int = 0) -> bytes:
    """A prefix that begins there, of a publication that expires then."""
    return b"".join((prefix[: at + _EXPIRES], _F64.pack(expires), prefix[at + _EXPIRES + _F64.size :]))


def encode_publication(
    publication: Publication, packet_id: int, sub_ids: tuple[int, ...] = (), flags: int = 0
) -> bytes:
    """A whole record."""
    prefix = encode_prefix(publication, publication.qos, publication.retain, sub_ids, flags)
    return prefix + _U16.pack(packet_id) + publication.payload


Decoded = tuple[Publication, int, tuple[int, ...], bool]
"""Publication, packet id, subscription identifiers, released."""


def decode_publication(data: bytes) -> Decoded:
    """Decode one record."""
    return Decoding().decode(data)


class Decoding:
    """Decodes a sequence of records: of records with the same beginning that is decoded once."""

    __slots__ = ("_begins", "_client", "_expires", "_flags", "_properties", "_report", "_sub_ids", "_topic")

    def __init__(self) -> None:
        self._begins = b""
        """The last record up to its packet identifier; it says itself where that is, so that whatever begins with it
        says the same."""

    def decode(self, data: bytes) -> Decoded:
        """One record."""
        at = self._packet_id_at(data)
        flags = self._flags
        (packet_id,) = _U16.unpack_from(data, at)
        publication = self._publication(data[at + 2 :])
        publication.handed_over = bool(flags & HANDED_OVER)
        return publication, packet_id, self._sub_ids, bool(flags & RELEASED)

    def decode_several(self, records: list[bytes], begin: int) -> tuple[Publication, tuple[int, ...], int, int, int]:
        """The record at `begin` with those behind it that are like it but for the payload and have the packet
        identifiers that follow: what they have in common, subscription identifiers, where the payload is in each, the
        first packet identifier, and where they end; `begin` if a record of this kind is to be looked at alone."""
        at = self._packet_id_at(records[begin])
        begins, end = self._begins, begin
        (first,) = _U16.unpack_from(records[begin], at)
        if not self._flags & ~(3 | RETAIN):
            for data in islice(records, begin, None):
                if not data.startswith(begins) or data[at] | data[at + 1] << 8 != first + end - begin:
                    break
                end += 1
        return self._publication(b""), self._sub_ids, at + 2, first, end

    def _publication(self, payload: bytes) -> Publication:
        qos, retain = self._flags & 3, bool(self._flags & RETAIN)
        return Publication(
            self._topic, payload, qos, retain, self._properties, self._expires, self._client, self._report
        )

    def _packet_id_at(self, data: bytes) -> int:
        at = len(self._begins)
        return at if at and data.startswith(self._begins) else self._begin(data)

    def _begin(self, data: bytes) -> int:
        """Everything before the packet identifier; where that is."""
        self._begins = b""
        version, self._flags, self._expires = _FIXED.unpack_from(data)
        if VERSION < version < _NO_VERSION:
            raise NewerState(_NEWER.format(version, VERSION))
        if version != VERSION:
            raise ValueError(f"state record of version {version}; this gateway reads version {VERSION}")
        client, at = _take(data, _FIXED.size, _U16)
        self._client = client.decode()
        self._topic, at = _take(data, at, _U16)
        self._properties, at = _take(data, at, _U32)
        count = data[at]
        at += 1
        if count == _MANY:
            (count,) = _U32.unpack_from(data, at)
            at += _U32.size
        self._sub_ids = tuple(_U32.unpack_from(data, at + 4 * i)[0] for i in range(count))
        at += 4 * count
        self._report = b""
        if self._flags & REPORTS:
            self._report, at = _take(data, at, _U16)
        self._begins = data[:at]
        return at


class Front(NamedTuple):
    """What a publication's record begins with, as far as its properties."""

    topic: bytes
    client_id: str
    qos: int
    retain: bool
    expires: float
    end: int
    """Where the length of the properties stands."""


def decode_front(data: bytes) -> Front:
    """Of a record that is nothing but a publication; ValueError or struct.error."""
    version, flags, expires = _FIXED.unpack_from(data)
    if version != VERSION or flags & ~(3 | RETAIN):
        raise ValueError("not a publication alone")
    client, at = _take(data, _FIXED.size, _U16)
    topic, at = _take(data, at, _U16)
    return Front(topic, client.decode(), flags & 3, bool(flags & RETAIN), expires, at)


def is_shared_copy(data: bytes) -> bool:
    """Whether the record is a copy that came through a shared subscription."""
    return bool(data[1] & SHARED)


def _take(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(data, at)
    start = at + length.size
    return data[start : start + size], start + size


def encode_json(value: dict[str, Any] | list[Any]) -> bytes:
    """A state record, or a part of one, in JSON."""
    return json_text(value).encode()


def decode_json(data: bytes) -> dict[str, Any]:
    """The reverse."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("a state record that is no object")
    version = value.get(_FORMAT, VERSION)
    if isinstance(version, int) and version > VERSION:
        raise NewerState(_NEWER.format(version, VERSION))
    return value
