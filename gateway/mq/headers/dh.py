"""MQDH, the header of distribution-list messages on a transmission queue, with its MQOR and MQPMR records."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout

FORMAT = b"MQHDIST "
MAX_RECORDS = 10_000
"""The most destinations of one message that are read."""
FIXED_LENGTH = 48
MSG_ID, CORREL_ID, GROUP_ID, FEEDBACK, ACCOUNTING_TOKEN = 1, 2, 4, 8, 16
"""Flags of PutMsgRecFields: which fields each MQPMR has, in this order."""
_FIELDS = (
    (MSG_ID, "msg_id", "24s"),
    (CORREL_ID, "correl_id", "24s"),
    (GROUP_ID, "group_id", "24s"),
    (FEEDBACK, "feedback", "i"),
    (ACCOUNTING_TOKEN, "accounting_token", "32s"),
)
_FIXED = {order: layout.codec("MQDH", 1, order) for order in "<>"}
_RECORD_LENGTH = 96


class Destination(NamedTuple):
    """One MQOR with its MQPMR; a field that PutMsgRecFields does not flag is None."""

    object_name: str
    object_q_mgr_name: str
    msg_id: bytes | None = None
    correl_id: bytes | None = None
    group_id: bytes | None = None
    feedback: int | None = None
    accounting_token: bytes | None = None


class Dh(NamedTuple):
    """One parsed header."""

    length: int
    encoding: int
    coded_char_set_id: int
    format: bytes
    flags: int
    put_msg_rec_fields: int
    destinations: tuple[Destination, ...]


def build(
    destinations: Sequence[Destination],
    *,
    encoding: int,
    coded_char_set_id: int,
    format_name: bytes,
    flags: int = 0,
    put_msg_rec_fields: int = 0,
    order: str = "<",
) -> bytes:
    """Returns the header with its records; a flagged field that a destination does not have is written as zeros."""
    objects = b"".join(_object_record(each) for each in destinations)
    record = struct.Struct(_record_format(put_msg_rec_fields, order))
    puts = b"".join(_put_record(each, put_msg_rec_fields, record) for each in destinations)
    puts_at = FIXED_LENGTH + len(objects) if puts else 0
    length = FIXED_LENGTH + len(objects) + len(puts)
    head = (b"DH  ", 1, length, encoding, coded_char_set_id, format_name.ljust(8), flags, put_msg_rec_fields)
    return _FIXED[order].pack(*head, len(destinations), FIXED_LENGTH if objects else 0, puts_at) + objects + puts


def _object_record(given: Destination) -> bytes:
    names = given.object_name.encode(), given.object_q_mgr_name.encode()
    if max(map(len, names)) > 48:
        raise HeaderError(
            "MQOR", "ObjectName", 0, f"{given.object_name!r} on {given.object_q_mgr_name!r}: at most 48 bytes each"
        )
    return names[0].ljust(48) + names[1].ljust(48)


def _record_format(flags: int, order: str) -> str:
    return order + "".join(code for flag, _, code in _FIELDS if flags & flag)


def record_length(flags: int) -> int:
    """Returns the length in bytes of one MQPMR with these fields."""
    return struct.calcsize(_record_format(flags, "<"))


def feedback_offset(flags: int) -> int | None:
    """Returns where Feedback lies in an MQPMR with these fields; None when it has none."""
    return struct.calcsize(_record_format(flags & (FEEDBACK - 1), "<")) if flags & FEEDBACK else None


def _put_record(given: Destination, flags: int, record: struct.Struct) -> bytes:
    values = [getattr(given, name) or (0 if code == "i" else b"") for flag, name, code in _FIELDS if flags & flag]
    return record.pack(*values)


def parse(data: bytes, at: int = 0, *, order: str = "<", codec: str = "utf-8") -> Dh:
    """Read the header and its records at `at`."""
    if len(data) - at < FIXED_LENGTH:
        raise HeaderError("MQDH", "StrucLength", at, f"the data ends after {len(data) - at} bytes of 48")
    values = _FIXED[order].unpack_from(data, at)
    length, (fields, count, objects_at, puts_at) = values[2], values[7:]
    if not FIXED_LENGTH <= length <= len(data) - at:
        raise HeaderError(
            "MQDH", "StrucLength", at + 8, f"{length} is not between 48 and the {len(data) - at} bytes there"
        )
    if count > MAX_RECORDS:
        at_count = at + layout.STRUCTURES["MQDH"]["RecsPresent"]
        raise HeaderError(
            "MQDH", "RecsPresent", at_count, f"{count} destinations in one message; at most {MAX_RECORDS} are read"
        )
    record = struct.Struct(_record_format(fields, order))
    _check(count, objects_at, _RECORD_LENGTH, length, at, "ObjectRecOffset")
    if puts_at:
        _check(count, puts_at, record.size, length, at, "PutMsgRecOffset")
    destinations = tuple(
        _destination(
            data,
            at + objects_at + n * _RECORD_LENGTH,
            at + puts_at + n * record.size if puts_at else -1,
            fields,
            record,
            codec,
        )
        for n in range(count)
    )
    return Dh(length, values[3], values[4], values[5], values[6], fields, destinations)


def _check(count: int, begin: int, size: int, length: int, at: int, name: str) -> None:
    outside = not FIXED_LENGTH <= begin <= length - count * size
    if count < 0 or count > length or (count and outside):
        raise HeaderError(
            "MQDH",
            name,
            at + layout.STRUCTURES["MQDH"][name],
            f"{count} records from {begin} on lie outside StrucLength {length}",
        )


def _destination(
    data: bytes, object_at: int, put_at: int, flags: int, record: struct.Struct, codec: str
) -> Destination:
    queue = _text(data[object_at : object_at + 48], codec)
    manager = _text(data[object_at + 48 : object_at + 96], codec)
    if put_at < 0:
        return Destination(queue, manager)
    found = iter(record.unpack_from(data, put_at))
    values = {name: next(found) for flag, name, _ in _FIELDS if flags & flag}
    return Destination(queue, manager, **values)


def _text(raw: bytes, codec: str) -> str:
    return raw.decode(codec, "surrogateescape").partition("\0")[0].rstrip(" ")
