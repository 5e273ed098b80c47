"""MQMD version 2 as the queue manager handles it: 364 bytes, whose fields are read in place, or unpacked to be changed.
Layout: MQMD of the MQI, little-endian (Encoding 546), natural alignment without gaps. Pure; the time is an argument."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from functools import lru_cache

LENGTH = 364
NO_ID = bytes(24)
NO_REPORT = bytes(4)
BLANK_DATE = b" " * 8
NATIVE = 546

REPORT = slice(8, 12)
MSG_ID = slice(48, 72)
CORREL_ID = slice(72, 96)
REPLY_TO_Q = slice(100, 148)
GROUP_ID = slice(324, 348)
FLAGS = slice(356, 360)
DEFAULT_EXTENSION = NO_ID + struct.pack("<iiii", 1, 0, 0, -1)

_INTEGER = struct.Struct("<i")
_FIXED = struct.Struct("<4s7i8s2i24s24si48s48s12s32s32si28s8s8s4s24s4i")
assert _FIXED.size == LENGTH  # noqa: S101  the layout itself

OFFSETS = {
    "version": 4, "report": 8, "type": 12, "expiry": 16, "feedback": 20, "encoding": 24, "ccsid": 28, "priority": 40,
    "persistence": 44, "backout_count": 96, "put_application_type": 272, "sequence": 348, "offset": 352, "flags": 356,
    "original_length": 360,
}  # fmt: skip


class Descriptor:
    """An unpacked MQMD; `pack` writes every field back."""

    __slots__ = (
        "accounting_token", "application_identity", "application_origin", "backout_count", "ccsid", "correl_id",
        "encoding", "expiry", "feedback", "flags", "format", "group_id", "msg_id", "offset", "original_length",
        "persistence", "priority", "put_application_name", "put_application_type", "put_date", "put_time",
        "reply_to_q", "reply_to_qmgr", "report", "sequence", "structure", "type", "user", "version",
    )  # fmt: skip

    def __init__(self, md: bytes) -> None:
        (
            self.structure, self.version, self.report, self.type, self.expiry, self.feedback, self.encoding, self.ccsid,
            self.format, self.priority, self.persistence, self.msg_id, self.correl_id, self.backout_count,
            self.reply_to_q, self.reply_to_qmgr, self.user, self.accounting_token, self.application_identity,
            self.put_application_type, self.put_application_name, self.put_date, self.put_time,
            self.application_origin, self.group_id, self.sequence, self.offset, self.flags, self.original_length,
        ) = _FIXED.unpack(md)  # fmt: skip

    def pack(self) -> bytes:
        """The 364 bytes of a version 2 descriptor."""
        return _FIXED.pack(
            b"MD  ", 2, self.report, self.type, self.expiry, self.feedback, self.encoding, self.ccsid,
            self.format, self.priority, self.persistence, self.msg_id, self.correl_id, self.backout_count,
            self.reply_to_q, self.reply_to_qmgr, self.user, self.accounting_token, self.application_identity,
            self.put_application_type, self.put_application_name, self.put_date, self.put_time,
            self.application_origin, self.group_id, self.sequence, self.offset, self.flags, self.original_length,
        )  # fmt: skip


_DEFAULT = (
    struct.pack("<4s7i8s2i", b"MD  ", 2, 0, 8, -1, 0, NATIVE, 0, b" " * 8, -1, 2)
    + bytes(48)
    + bytes(4)
    + b" " * 96
    + b" " * 12
    + bytes(32)
    + b" " * 32
    + bytes(4)
    + b" " * 28
    + b" " * 20
    + DEFAULT_EXTENSION
)


def default_descriptor(**fields: int | bytes) -> bytes:
    """An MQMD with the MQI's defaults and these fields, character fields padded with blanks."""
    md = Descriptor(_DEFAULT)
    for name, value in fields.items():
        setattr(md, name, value)
    return normalise(md).pack()


_CHARACTERS = {
    "format": 8, "reply_to_q": 48, "reply_to_qmgr": 48, "user": 12, "application_identity": 32,
    "put_application_name": 28, "put_date": 8, "put_time": 8, "application_origin": 4,
}  # fmt: skip


def normalise(md: Descriptor) -> Descriptor:
    """Cut character fields at the first NUL and pad them with blanks: the queue manager returns no NULs in them."""
    for name, length in _CHARACTERS.items():
        value = getattr(md, name)
        if len(value) != length or 0 in value:
            setattr(md, name, padded(value, length))
    return md


def padded(value: bytes | str, length: int) -> bytes:
    """A character field: cut at the first NUL, padded with blanks."""
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return raw.partition(b"\0")[0][:length].ljust(length)


def text(field: bytes) -> str:
    """A character field as text: up to the first NUL, without trailing blanks."""
    return field.partition(b"\0")[0].rstrip(b" ").decode("utf-8", "replace")


def integer(md: bytes, name: str) -> int:
    """The value of a number in a packed descriptor."""
    value: int = _INTEGER.unpack_from(md, OFFSETS[name])[0]
    return value


def with_integer(md: bytes, name: str, value: int) -> bytes:
    """A packed descriptor with one number changed."""
    offset = OFFSETS[name]
    return md[:offset] + _INTEGER.pack(value) + md[offset + 4 :]


def with_backout(md: bytes, backouts: int) -> bytes:
    """A packed descriptor with this BackoutCount."""
    return with_integer(md, "backout_count", backouts)


def message_id(queue_manager: str, sequence: int) -> bytes:
    """A MsgId: `AMQ `, the first 12 characters of the queue manager's name and 8 unique bytes."""
    return b"AMQ " + queue_manager.encode()[:12].ljust(12) + sequence.to_bytes(8, "big")


@lru_cache(maxsize=4)
def date_and_time(hundredths: int) -> bytes:
    """PutDate `YYYYMMDD` and PutTime `HHMMSSTH` in UTC."""
    seconds, fraction = divmod(hundredths, 100)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d%H%M%S}{fraction:02}".encode()


def stamp(md: bytes, identifier: bytes, now: float) -> bytes:
    """A packed descriptor with MsgId and put time set where they are missing."""
    if md[MSG_ID] == NO_ID:
        md = md[:48] + identifier + md[72:]
    if md[304:312] in {BLANK_DATE, bytes(8)}:
        md = md[:304] + date_and_time(int(now * 100)) + md[320:]
    return md


def with_remaining(md: bytes, expires: float | None, now: float) -> bytes:
    """A packed descriptor with the remaining Expiry, which is at least 1 for a message that is returned. It is never
    more than was given, even when the clock has been set back."""
    if expires is None:
        return md
    given, left = integer(md, "expiry"), max(1, int((expires - now) * 10))
    return with_integer(md, "expiry", min(given, left) if given > 0 else left)
