"""The message descriptor, MQMD: built, read and changed as bytes.

Everywhere in the gateway a descriptor is 364 bytes, version 2, little-endian (`md`). Callers on the hot path slice and
splice it with the offsets below; `unpack` is for people and rules. Knows no queue manager and fills nothing in.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields
from typing import Any, TypedDict, Unpack

from gateway.errors import HeaderError
from gateway.mq import layout

LENGTH = 364
LENGTH_1 = 324

# Offsets of the numbers and slices of the rest (a test compares them with the layout table).
AT_VERSION, AT_REPORT, AT_MSG_TYPE, AT_EXPIRY, AT_FEEDBACK, AT_ENCODING, AT_CCSID = 4, 8, 12, 16, 20, 24, 28
AT_PRIORITY, AT_PERSISTENCE, AT_BACKOUT_COUNT, AT_PUT_APPL_TYPE = 40, 44, 96, 272
AT_MSG_SEQ_NUMBER, AT_OFFSET, AT_MSG_FLAGS, AT_ORIGINAL_LENGTH = 348, 352, 356, 360
FORMAT, MSG_ID, CORREL_ID = slice(32, 40), slice(48, 72), slice(72, 96)
REPLY_TO_Q, REPLY_TO_Q_MGR = slice(100, 148), slice(148, 196)
USER_IDENTIFIER, ACCOUNTING_TOKEN, APPL_IDENTITY_DATA = slice(196, 208), slice(208, 240), slice(240, 272)
PUT_APPL_NAME, PUT_DATE, PUT_TIME, APPL_ORIGIN_DATA = slice(276, 304), slice(304, 312), slice(312, 320), slice(320, 324)
GROUP_ID = slice(324, 348)
DESCRIBED = slice(24, 40)
"""Encoding, CodedCharSetId and Format together: what is said about the data."""
VERSION_2_FIELDS = slice(324, 364)
"""GroupId to OriginalLength: what an MQMDE carries for a version-1 descriptor."""

_V1 = {order: layout.codec("MQMD", 1, order) for order in "<>"}
_V2 = {order: layout.codec("MQMD", 2, order) for order in "<>"}
_INT = struct.Struct("<i")
_PACK_INT = _INT.pack
NO_VERSION_2_FIELDS = struct.pack("<24siiii", b"", 1, 0, 0, -1)
"""The version-2 fields at their defaults."""
# Queue managers cut these to length; a name or a reply address that does not fit is an error.
_CUT = {"UserIdentifier", "ApplIdentityData", "PutApplName", "PutDate", "PutTime", "ApplOriginData"}


class Fields(TypedDict, total=False):
    """Values of fields by name; text is given without padding."""

    report: int
    msg_type: int
    expiry: int
    feedback: int
    encoding: int
    coded_char_set_id: int
    format: str | bytes
    priority: int
    persistence: int
    msg_id: bytes
    correl_id: bytes
    backout_count: int
    reply_to_q: str | bytes
    reply_to_q_mgr: str | bytes
    user_identifier: str | bytes
    accounting_token: bytes
    appl_identity_data: str | bytes
    put_appl_type: int
    put_appl_name: str | bytes
    put_date: str | bytes
    put_time: str | bytes
    appl_origin_data: str | bytes
    group_id: bytes
    msg_seq_number: int
    offset: int
    msg_flags: int
    original_length: int


@dataclass(slots=True)
class Mqmd:
    """A descriptor as values: text without padding, identifiers as bytes. The fields are in the order of the
    structure."""

    version: int = 2
    report: int = 0
    msg_type: int = 8
    expiry: int = -1
    feedback: int = 0
    encoding: int = 546
    coded_char_set_id: int = 0
    format: str = ""
    priority: int = -1
    persistence: int = 2
    msg_id: bytes = bytes(24)
    correl_id: bytes = bytes(24)
    backout_count: int = 0
    reply_to_q: str = ""
    reply_to_q_mgr: str = ""
    user_identifier: str = ""
    accounting_token: bytes = bytes(32)
    appl_identity_data: str = ""
    put_appl_type: int = 0
    put_appl_name: str = ""
    put_date: str = ""
    put_time: str = ""
    appl_origin_data: str = ""
    group_id: bytes = bytes(24)
    msg_seq_number: int = 1
    offset: int = 0
    msg_flags: int = 0
    original_length: int = -1

    def pack(self) -> bytes:
        """Returns the 364 bytes of version 2, whatever `version` says."""
        values = astuple(self)[1:]
        return _V2["<"].pack(b"MD  ", 2, *map(_fitted, _FIELDS, values))


_FIELDS = layout.STRUCTURES["MQMD"].fields[2:]
_NAMES = tuple(field.name for field in fields(Mqmd))[1:]
_FIELD_OF = dict(zip(_NAMES, _FIELDS, strict=True))
_TEXT = tuple(field.is_text for field in _FIELDS)
_NO_V2_VALUES = (bytes(24), 1, 0, 0, -1)


def build(**values: Unpack[Fields]) -> bytes:
    """Returns a descriptor: version 2, 364 bytes, little-endian; fields not given have MQ's defaults."""
    return patch(DEFAULT, **values)


def patch(md: bytes, **values: Unpack[Fields]) -> bytes:
    """Returns `md` with other values; use the `with_` functions where speed counts."""
    changed = bytearray(md)
    for name, value in values.items():
        field = _FIELD_OF[name]
        changed[field.offset : field.end] = _raw(field, value)
    return bytes(changed)


def _raw(field: layout.Field, value: object) -> bytes:
    fitted = _fitted(field, value)
    return _PACK_INT(fitted) if isinstance(fitted, int) else fitted


def _fitted(field: layout.Field, value: object) -> int | bytes:
    if field.code == "i" and isinstance(value, int):
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            raise HeaderError("MQMD", field.name, field.offset, f"{value} is not a 32-bit number")
        return value
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if field.code == "i" or not isinstance(raw, bytes):
        raise HeaderError("MQMD", field.name, field.offset, f"{value!r} is not a value of type {field.type}")
    if len(raw) > field.size:
        if field.name not in _CUT:
            raise HeaderError(
                "MQMD", field.name, field.offset, f"{value!r} is longer than {field.size} bytes: shorten it"
            )
        raw = raw[: field.size].decode("utf-8", "ignore").encode() if isinstance(value, str) else raw[: field.size]
    return raw.ljust(field.size) if field.is_text else raw.ljust(field.size, b"\0")


DEFAULT = Mqmd().pack()
"""MQMD_DEFAULT, version 2, character fields blank."""


def unpack(md: bytes, at: int = 0, *, order: str = "<", codec: str = "utf-8") -> Mqmd:
    """Returns a descriptor of either version as values; a version-1 one gets the defaults of version 2."""
    if len(md) - at < LENGTH_1:
        raise HeaderError("MQMD", "StrucId", at, f"a descriptor has 324 or 364 bytes, but here are {len(md) - at}")
    version = int.from_bytes(md[at + 4 : at + 8], "little" if order == "<" else "big")
    if version >= 2 and len(md) - at >= LENGTH:
        values = _V2[order].unpack_from(md, at)[2:]
    else:
        values = _V1[order].unpack_from(md, at)[2:] + _NO_V2_VALUES
    flat: list[Any] = [_text(value, codec) if text else value for value, text in zip(values, _TEXT, strict=True)]
    return Mqmd(version, *flat)


def _text(raw: bytes, codec: str) -> str:
    # A character field ends at its length or its first NUL; blanks at the end say nothing.
    return raw.decode(codec, "surrogateescape").partition("\0")[0].rstrip(" ")


def text(md: bytes, where: slice) -> str:
    """Returns one character field without its padding: `text(md, REPLY_TO_Q)`."""
    return _text(md[where], "utf-8")


def number(md: bytes, at: int) -> int:
    """Returns one number: `number(md, AT_EXPIRY)`."""
    value: int = _INT.unpack_from(md, at)[0]
    return value


def version_2(md: bytes) -> bytes:
    """Returns a version-1 descriptor (324 bytes) extended to 364, and a version-2 one as it is."""
    if len(md) >= LENGTH and md[AT_VERSION] == 2:
        return md[:LENGTH]
    return md[:4] + _PACK_INT(2) + md[8:LENGTH_1] + NO_VERSION_2_FIELDS


def version_1(md: bytes) -> bytes:
    """Returns the first 324 bytes with Version 1: what an MQXQH embeds. What only version 2 has is lost: see mde.py."""
    return md[:4] + _PACK_INT(1) + md[8:LENGTH_1]


def split(md: bytes, where: slice) -> tuple[bytes, bytes]:
    """Returns what comes before and after a varying field, so that `head + value + tail` is a descriptor."""
    return md[: where.start], md[where.stop :]


def with_number(md: bytes, at: int, value: int) -> bytes:
    """Returns `md` with another number at one of the AT_ offsets."""
    return md[:at] + _PACK_INT(value) + md[at + 4 :]


def with_described(md: bytes, encoding: int, ccsid: int, format_name: bytes) -> bytes:
    """Returns `md` with another description of its data; `format_name` is eight bytes."""
    return md[:24] + _PACK_INT(encoding) + _PACK_INT(ccsid) + format_name + md[40:]


def with_format(md: bytes, format_name: bytes) -> bytes:
    """Returns `md` with another Format (eight bytes, blank-padded)."""
    return md[:32] + format_name.ljust(8) + md[40:]


def with_msg_id(md: bytes, msg_id: bytes) -> bytes:
    """Returns `md` with another MsgId (24 bytes)."""
    return md[:48] + msg_id + md[72:]


def with_correl_id(md: bytes, correl_id: bytes) -> bytes:
    """Returns `md` with another CorrelId (24 bytes)."""
    return md[:72] + correl_id + md[96:]


def with_expiry(md: bytes, tenths_of_seconds: int) -> bytes:
    """Returns `md` with another Expiry; -1 means never."""
    return md[:16] + _PACK_INT(tenths_of_seconds) + md[20:]


def with_persistence(md: bytes, persistence: int) -> bytes:
    """Returns `md` with another Persistence: 0, 1, or 2 for the queue's default."""
    return md[:44] + _PACK_INT(persistence) + md[48:]
