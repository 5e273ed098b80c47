"""MQMDE, the version-2 fields of a descriptor in front of the data, for a descriptor that is version 1."""

from __future__ import annotations

import struct
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd

LENGTH = 72
FORMAT = b"MQHMDE  "
INHERIT = -2
"""MQCCSI_INHERIT."""

_CODEC = {order: layout.codec("MQMDE", 2, order) for order in "<>"}
_V2_FIELDS = struct.Struct("<24siiii")


def is_needed(md: bytes) -> bool:
    """Whether a version-2 descriptor says anything that a version-1 one cannot."""
    return md[mqmd.VERSION_2_FIELDS] != mqmd.NO_VERSION_2_FIELDS


def build(md: bytes) -> bytes:
    """Returns the extension with the version-2 fields of `md`; it describes the data as `md` does."""
    fields = _V2_FIELDS.unpack_from(md, mqmd.GROUP_ID.start)
    encoding, ccsid = mqmd.number(md, mqmd.AT_ENCODING), mqmd.number(md, mqmd.AT_CCSID)
    return _CODEC["<"].pack(b"MDE ", 2, LENGTH, encoding, ccsid, md[mqmd.FORMAT], 0, *fields)


class Mde(NamedTuple):
    """The twelve fields in their order."""

    struc_id: bytes
    version: int
    struc_length: int
    encoding: int
    coded_char_set_id: int
    format: bytes
    flags: int
    group_id: bytes
    msg_seq_number: int
    offset: int
    msg_flags: int
    original_length: int


def merge(md: bytes, data: bytes, at: int = 0, *, order: str = "<") -> bytes:
    """Returns the version-2 descriptor that `md` (either version) and the extension at `at` form together. A
    CodedCharSetId of MQCCSI_INHERIT is that of `md`: a descriptor inherits from nothing."""
    found = parse(data, at, order=order)
    ccsid = mqmd.number(md, mqmd.AT_CCSID) if found.coded_char_set_id == INHERIT else found.coded_char_set_id
    whole = mqmd.with_described(mqmd.version_2(md), found.encoding, ccsid, found.format)
    return whole[: mqmd.GROUP_ID.start] + _V2_FIELDS.pack(*found[7:])


def parse(data: bytes, at: int = 0, *, order: str = "<") -> Mde:
    """Read the extension at `at`. Raises HeaderError for one that a queue manager would take for data."""
    if len(data) - at < LENGTH:
        raise HeaderError("MQMDE", "StrucLength", at, f"the data ends after {len(data) - at} bytes of 72")
    found = Mde(*_CODEC[order].unpack_from(data, at))
    if found.version != 2:
        raise HeaderError("MQMDE", "Version", at + 4, f"{found.version} is not 2: is the byte order right?")
    if found.struc_length != LENGTH:
        raise HeaderError("MQMDE", "StrucLength", at + 8, f"{found.struc_length} is not 72")
    return found
