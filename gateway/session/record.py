"""How protocol state is written into the messages of the state queues, and read back.

A publication record is self-delimiting up to the packet identifier, so that what many sessions store of one publication
is the same bytes followed by two that differ:

    version u8 = 1 | flags u8 (QoS in bits 0-1, RETAIN bit 2, released bit 3, shared bit 4, reports bit 5,
    handed over bit 6)
    | expires f64 (0: never)
    | client id (u16 length + bytes) | topic (u16 + bytes) | properties (u32 + bytes)
    | number of subscription identifiers u8, each u32 | reports: (u16 + MQMD) | packet id u16 | payload

Sessions and wills are JSON, so that an administrator who browses the queue can read them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from gateway.session.publication import Publication

VERSION = 1
RELEASED = 0x08
SHARED = 0x10
REPORTS = 0x20
"""The MQ message asked for reports that are not made yet: its descriptor is in the record."""
HANDED_OVER = 0x40
"""A staged publication that local subscribers have had, while its queue refused it."""
_FIXED = struct.Struct("<BBd")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
STORED_IDS = {number: number.to_bytes(2, "little") for number in range(65_536)}
"""Packet identifiers as they stand in records."""


def key_of(name: str | bytes) -> bytes:
    """24 bytes that stand for a client id or topic as the key (on IBM MQ: CorrelId) of its state message."""
    return hashlib.sha256(name.encode() if isinstance(name, str) else name).digest()[:24]


def encode_prefix(publication: Publication, qos: int, retain: bool, sub_ids: tuple[int, ...], flags: int = 0) -> bytes:
    """Everything of the record before the packet identifier."""
    client, report = publication.client_id.encode(), publication.report
    if report:
        flags |= REPORTS
    return b"".join(
        (
            _FIXED.pack(VERSION, qos | (4 if retain else 0) | flags, publication.expires),
            _U16.pack(len(client)),
            client,
            _U16.pack(len(publication.topic)),
            publication.topic,
            _U32.pack(len(publication.properties)),
            publication.properties,
            bytes((len(sub_ids),)),
            *(_U32.pack(sub_id) for sub_id in sub_ids),
            _U16.pack(len(report)) + report if report else b"",
        )
    )


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
        at = len(self._begins)
        if not at or data[:at] != self._begins:
            at = self._begin(data)
        flags = self._flags
        (packet_id,) = _U16.unpack_from(data, at)
        publication = Publication(
            self._topic, data[at + 2 :], flags & 3, bool(flags & 4), self._properties, self._expires, self._client,
            self._report,
        )  # fmt: skip
        publication.handed_over = bool(flags & HANDED_OVER)
        return publication, packet_id, self._sub_ids, bool(flags & RELEASED)

    def _begin(self, data: bytes) -> int:
        """Everything before the packet identifier; where that is."""
        self._begins = b""
        version, self._flags, self._expires = _FIXED.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"state record of version {version}; this gateway reads version {VERSION}")
        client, at = _take(data, _FIXED.size, _U16)
        self._client = client.decode()
        self._topic, at = _take(data, at, _U16)
        self._properties, at = _take(data, at, _U32)
        count = data[at]
        at += 1
        self._sub_ids = tuple(_U32.unpack_from(data, at + 4 * i)[0] for i in range(count))
        at += 4 * count
        self._report = b""
        if self._flags & REPORTS:
            self._report, at = _take(data, at, _U16)
        self._begins = data[:at]
        return at


def is_shared_copy(data: bytes) -> bool:
    """Whether the record is a copy that came through a shared subscription."""
    return bool(data[1] & SHARED)


def _take(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(data, at)
    start = at + length.size
    return data[start : start + size], start + size


def encode_json(value: dict[str, Any]) -> bytes:
    """A state record in JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(data: bytes) -> dict[str, Any]:
    """The reverse."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("a state record that is no object")
    return value
