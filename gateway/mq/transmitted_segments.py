"""Segments of one message behind transmission headers.

A message in segments for a remote queue is on the transmission queue as one message for each segment: MQXQH, then the
MQMDE that holds GroupId, Offset and MsgFlags, then the segment. Its own descriptor says nothing about groups and
segments, so neither MQGMO_COMPLETE_MSG nor a match by GroupId finds the others; whoever takes messages for their
destination puts them together by the MQMDE. Messages are `(md, data)` with md in our own form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout
from gateway.mq.constants import MQMF_LAST_MSG_IN_GROUP, MQMF_LAST_SEGMENT, MQMF_MSG_IN_GROUP
from gateway.mq.grouping import SEGMENTED
from gateway.mq.headers import mde, xqh
from gateway.mq.headers.chain import described_by
from gateway.mq.headers.header import read

HEADERS_LENGTH = xqh.LENGTH + mde.LENGTH
"""Bytes before a segment; `part_of` needs that much of the data."""
_FORMAT = slice(32, 40)
_MDE = layout.STRUCTURES["MQMDE"]
_GROUP_ID, _SEQUENCE, _FLAGS, _ORIGINAL = (
    xqh.LENGTH + _MDE[name] for name in ("GroupId", "MsgSeqNumber", "MsgFlags", "OriginalLength")
)


class Logical(NamedTuple):
    """What the segments of one message have in common. Segments that describe their data differently are not put
    together: no header could describe both."""

    group_id: bytes
    sequence: int
    encoding: int
    ccsid: int


class Part(NamedTuple):
    """One segment, without its data."""

    logical: Logical
    offset: int
    last: bool
    """Whether it ends the message."""
    length: int
    """Length of the segment, without the headers before it."""


def part_of(md: bytes, data: bytes, length: int | None = None) -> Part | None:
    """Returns the segment that a message on a transmission queue is; None for every other message. `data` is at least
    the first HEADERS_LENGTH bytes of its data, which is `length` bytes long."""
    if md[_FORMAT] != xqh.FORMAT or len(data) < HEADERS_LENGTH:
        return None
    try:
        header = read(described_by(md), data[:HEADERS_LENGTH], 0)
        extension = read(header.follows, data[:HEADERS_LENGTH], xqh.LENGTH) if header is not None else None
    except HeaderError:
        return None
    if extension is None or extension.name != "MQMDE" or len(extension.raw) != mde.LENGTH:
        return None
    flags = extension.number("MsgFlags")
    if not flags & SEGMENTED:
        return None
    group = extension["GroupId"]
    assert isinstance(group, bytes)  # noqa: S101 -- the layout says so
    follows = extension.follows
    whole = (len(data) if length is None else length) - HEADERS_LENGTH
    logical = Logical(group, extension.number("MsgSeqNumber"), follows.encoding, follows.ccsid)
    return Part(logical, extension.number("Offset"), bool(flags & MQMF_LAST_SEGMENT), whole)


def is_whole(parts: Sequence[Part]) -> bool:
    """Whether segments, in the order of their offsets, are a whole message."""
    end = 0
    for part in parts:
        if part.offset != end:
            return False
        end += part.length
    return bool(parts) and parts[-1].last


def joined(md: bytes, pieces: Sequence[bytes], original_length: int = -1) -> bytes:
    """Returns the data of the whole message: the headers of the first segment, changed to say that it is not one, and
    the data of the segments. `md` is the first segment's descriptor, `pieces` are their data in order;
    `original_length` is given where the end is missing."""
    first, last = pieces[0], pieces[-1]
    order = "<"
    header = read(described_by(md), first[:HEADERS_LENGTH], 0)
    if header is not None:
        order = ">" if header.follows.encoding & 15 == 1 else "<"
    number = struct.Struct(order + "i")
    flags = number.unpack_from(first, _FLAGS)[0] & ~SEGMENTED
    flags |= _flags_of_last(last, number) & MQMF_LAST_MSG_IN_GROUP
    front = bytearray(first[:HEADERS_LENGTH])
    if not flags & (MQMF_MSG_IN_GROUP | MQMF_LAST_MSG_IN_GROUP):
        front[_GROUP_ID : _GROUP_ID + 24] = bytes(24)
        number.pack_into(front, _SEQUENCE, 1)
    number.pack_into(front, _FLAGS, flags)
    number.pack_into(front, _ORIGINAL, original_length)
    return b"".join([bytes(front), *[piece[HEADERS_LENGTH:] for piece in pieces]])


def _flags_of_last(last: bytes, number: struct.Struct) -> int:
    flags: int = number.unpack_from(last, _FLAGS)[0]
    return flags
