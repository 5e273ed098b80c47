"""Messages in segments and groups, as a queue manager makes them."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.mq.constants import (
    MQMF_LAST_MSG_IN_GROUP,
    MQMF_LAST_SEGMENT,
    MQMF_MSG_IN_GROUP,
    MQMF_SEGMENT,
    MQMF_SEGMENTATION_ALLOWED,
    MQRC_INCOMPLETE_MSG,
    MQRC_INCONSISTENT_CCSIDS,
    MQRC_INCONSISTENT_ENCODINGS,
    MQRC_INCONSISTENT_PERSISTENCE,
    MQRC_MSG_TOO_BIG_FOR_Q,
)
from gateway.mq.grouping import SEGMENTED, reassembled

SEGMENT_UNIT = 16
"""A queue manager cuts at multiples of 16 bytes, so that no number or character is divided."""
Message = tuple[bytes, bytes]


def may_be_cut(md: bytes) -> bool:
    """Whether the program allows segmentation (MQMF_SEGMENTATION_ALLOWED)."""
    return bool(mqmd.number(md, mqmd.AT_MSG_FLAGS) & MQMF_SEGMENTATION_ALLOWED)


def is_segment(md: bytes) -> bool:
    """Whether a message is part of a longer one."""
    return bool(mqmd.number(md, mqmd.AT_MSG_FLAGS) & SEGMENTED)


def segments(md: bytes, data: bytes, max_length: int, *, group_id: bytes) -> list[Message]:
    """The message cut into segments of at most `max_length` bytes; itself when it fits.

    `group_id` is used where the message has none. Cutting what is a segment itself goes on from its Offset.
    """
    if len(data) <= max_length:
        return [(md, data)]
    size = max_length // SEGMENT_UNIT * SEGMENT_UNIT
    if not may_be_cut(md) or not size:
        why = f"{len(data)} bytes are more than {max_length} and may not be cut into segments"
        raise MQError(MQRC_MSG_TOO_BIG_FOR_Q, why)
    flags, base = mqmd.number(md, mqmd.AT_MSG_FLAGS), mqmd.number(md, mqmd.AT_OFFSET)
    last = flags & MQMF_LAST_SEGMENT or not flags & SEGMENTED
    whole = mqmd.patch(md, group_id=group_id) if not any(md[mqmd.GROUP_ID]) else md
    found = []
    for at in range(0, len(data), size):
        final = last and at + size >= len(data)
        own = flags & ~SEGMENTED | MQMF_SEGMENT | (MQMF_LAST_SEGMENT if final else 0)
        part = mqmd.with_number(mqmd.with_number(whole, mqmd.AT_OFFSET, base + at), mqmd.AT_MSG_FLAGS, own)
        found.append((part, data[at : at + size]))
    return found


def complete(parts: Sequence[Message]) -> Message:
    """The logical message the segments are, in any order; MQError says what does not fit (2242, 2243, 2244, 2185)."""
    ordered = sorted(parts, key=_offset)
    first = ordered[0][0]
    expected = 0
    for md, data in ordered:
        _check_alike(first, md)
        if _offset((md, data)) != expected:
            raise MQError(MQRC_INCOMPLETE_MSG, f"the segment at offset {expected} is missing")
        expected += len(data)
    if not mqmd.number(ordered[-1][0], mqmd.AT_MSG_FLAGS) & MQMF_LAST_SEGMENT:
        raise MQError(MQRC_INCOMPLETE_MSG, f"the last segment is missing, {expected} bytes are there")
    return reassembled(first), b"".join(data for _, data in ordered)


def _offset(message: Message) -> int:
    return mqmd.number(message[0], mqmd.AT_OFFSET)


def _check_alike(first: bytes, md: bytes) -> None:
    for at, reason, what in (
        (mqmd.AT_CCSID, MQRC_INCONSISTENT_CCSIDS, "character sets"),
        (mqmd.AT_ENCODING, MQRC_INCONSISTENT_ENCODINGS, "encodings"),
        (mqmd.AT_PERSISTENCE, MQRC_INCONSISTENT_PERSISTENCE, "persistence"),
    ):
        if mqmd.number(first, at) != mqmd.number(md, at):
            raise MQError(reason, f"segments of one message differ in their {what}")


def group(messages: Sequence[Message], group_id: bytes) -> list[Message]:
    """The messages as one group: GroupId, MsgSeqNumber from 1, flags."""
    found = []
    for number, (md, data) in enumerate(messages, 1):
        flags = mqmd.number(md, mqmd.AT_MSG_FLAGS) | MQMF_MSG_IN_GROUP
        if number == len(messages):
            flags |= MQMF_LAST_MSG_IN_GROUP
        found.append((mqmd.patch(md, group_id=group_id, msg_seq_number=number, msg_flags=flags), data))
    return found
