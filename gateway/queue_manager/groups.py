"""Groups and segments: logical order on MQPUT and MQGET, segmentation, completeness.

Section 7 of the MQI reference, Groups and segments. Pure over descriptors, except for new identifiers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.transmitted_segments import HEADERS_LENGTH
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import NO_ID, Descriptor
from gateway.queue_manager.objects.local_queue import LocalQueue

Part = tuple[bytes, bytes]
"""Descriptor and data of a message or of one of its segments."""
SEGMENT_BOUNDARY = 16
"""Segments made by the queue manager end at multiples of this, so that numbers are not split."""

_IN_GROUP = mq.MQMF_MSG_IN_GROUP | mq.MQMF_LAST_MSG_IN_GROUP
_SEGMENTED = mq.MQMF_SEGMENT | mq.MQMF_LAST_SEGMENT


@dataclass(slots=True)
class LogicalOrder:
    """The position of a handle in a group or a segmented message (MQPMO_LOGICAL_ORDER, MQGMO_LOGICAL_ORDER)."""

    group_id: bytes = bytes(24)
    sequence: int = 1
    offset: int = 0
    in_group: bool = False
    in_message: bool = False
    persistence: int = 0
    syncpoint: bool = False
    kept_by_queue_manager: bool = False
    """Whether the last call asked for logical order; if it did, the program is warned when it leaves a group open."""
    begun_at: int | None = None
    """When browsing: the token of the first message of the group or message; the next one is looked for behind it."""

    @property
    def open(self) -> bool:
        """Whether a group or a message has been begun and not ended."""
        return self.in_group or self.in_message

    @property
    def left_open(self) -> int:
        """The reason of the warning for leaving open a group or a message that was begun in logical order; 0: none."""
        if not self.kept_by_queue_manager or not self.open:
            return 0
        return mq.MQRC_INCOMPLETE_MSG if self.in_message else mq.MQRC_INCOMPLETE_GROUP

    def left_by(self, md: bytes, *, syncpoint: bool, removes: bool = False) -> int:
        """The reason of the warning for a message put, or removed, without logical order: 2185 or 2245 for one of the
        same group that differs from those before it, else the reason for what is left open; 0: none."""
        if self.left_open and self.group_id == md[descriptor.GROUP_ID]:
            if not removes and descriptor.integer(md, "persistence") != self.persistence:
                return mq.MQRC_INCONSISTENT_PERSISTENCE
            if syncpoint != self.syncpoint:
                return mq.MQRC_INCONSISTENT_UOW
        return self.left_open

    def place(self, md: bytes, *, syncpoint: bool) -> None:
        """Move to the position of a message put or got without logical order: a program that was restarted in the
        middle of a group names its place in this way, and goes on in logical order."""
        self.group_id, self.sequence, self.offset = physical_key(md)
        self.persistence, self.syncpoint = descriptor.integer(md, "persistence"), syncpoint

    def restore(self, before: LogicalOrder) -> None:
        """Return to an earlier position."""
        for each in fields(self):
            setattr(self, each.name, getattr(before, each.name))


def start_logical(core: Core, state: LogicalOrder, message: Descriptor, *, syncpoint: bool) -> None:
    """MQPMO_LOGICAL_ORDER: set group, sequence number and offset of the message, and check the order."""
    flags = message.flags
    if state.in_group and not flags & _IN_GROUP and not state.in_message:
        raise MQError(mq.MQRC_INCOMPLETE_GROUP, "the group on this handle is not ended: put its last message first")
    if state.in_message and not flags & _SEGMENTED:
        raise MQError(
            mq.MQRC_INCOMPLETE_MSG, "the segmented message on this handle is not ended: put its last segment first"
        )
    if state.open:
        if message.persistence != state.persistence:
            raise MQError(mq.MQRC_INCONSISTENT_PERSISTENCE, "all messages of a group have the same persistence")
        if syncpoint != state.syncpoint:
            raise MQError(mq.MQRC_INCONSISTENT_UOW, "all messages of a group are put inside syncpoint, or none")
    else:
        state.group_id = core.new_identifier() if flags & (_IN_GROUP | _SEGMENTED) else NO_ID
        state.sequence, state.offset = 1, 0
        state.persistence, state.syncpoint = message.persistence, syncpoint
    message.group_id, message.sequence, message.offset = state.group_id, state.sequence, state.offset


def advance_logical(state: LogicalOrder, flags: int, length: int) -> None:
    """Move on to the position of the next message."""
    state.in_message = bool(flags & _SEGMENTED) and not flags & mq.MQMF_LAST_SEGMENT
    if state.in_message:
        state.offset += length
        state.in_group = bool(flags & _IN_GROUP)
        return
    state.offset = 0
    state.in_group = bool(flags & _IN_GROUP) and not flags & mq.MQMF_LAST_MSG_IN_GROUP
    state.sequence = state.sequence + 1 if state.in_group else 1


def segments_of(core: Core, queue: LocalQueue | None, md: bytes, data: bytes, *, remote: bool = False) -> list[Part]:
    """The message, or its segments if it is too long for the queue and may be segmented. `remote`: the queue is a
    transmission queue, on which each segment has transmission headers as well."""
    flags = descriptor.integer(md, "flags")
    if queue is None or not flags & mq.MQMF_SEGMENTATION_ALLOWED:
        return [(md, data)]
    limit = min(queue.max_length, core.attribute("MAXMSGL")) - (HEADERS_LENGTH if remote else 0)
    if len(data) <= limit or limit < SEGMENT_BOUNDARY:
        return [(md, data)]
    return _cut(core, md, data, limit - limit % SEGMENT_BOUNDARY)


def _cut(core: Core, md: bytes, data: bytes, step: int) -> list[Part]:
    whole = Descriptor(md)
    if whole.group_id == NO_ID:
        whole.group_id = core.new_identifier()
    base, last_of_all = whole.offset, not whole.flags & mq.MQMF_SEGMENT or bool(whole.flags & mq.MQMF_LAST_SEGMENT)
    parts: list[Part] = []
    for begin in range(0, len(data), step):
        part = Descriptor(whole.pack())
        part.offset = base + begin
        part.flags |= mq.MQMF_SEGMENT
        if begin + step >= len(data) and last_of_all:
            part.flags |= mq.MQMF_LAST_SEGMENT
        part.original_length = len(data)
        if begin:
            part.msg_id = core.new_identifier()
            part.format = mq.MQFMT_NONE
        parts.append((part.pack(), data[begin : begin + step]))
    return parts


def group_status(md: bytes) -> tuple[bytes, bytes, bytes]:
    """GroupStatus, SegmentStatus and Segmentation of MQGMO."""
    flags = descriptor.integer(md, "flags")
    group = b"L" if flags & mq.MQMF_LAST_MSG_IN_GROUP else b"G" if flags & mq.MQMF_MSG_IN_GROUP else b" "
    segment = b"L" if flags & mq.MQMF_LAST_SEGMENT else b"S" if flags & mq.MQMF_SEGMENT else b" "
    return group, segment, b"A" if flags & mq.MQMF_SEGMENTATION_ALLOWED else b" "


def physical_key(md: bytes) -> tuple[bytes, int, int]:
    """Group, sequence number and offset: the logical order of messages and segments."""
    return md[descriptor.GROUP_ID], descriptor.integer(md, "sequence"), descriptor.integer(md, "offset")


def whole(first: bytes, last: bytes) -> bytes:
    """The descriptor of a reassembled message: no longer a segment, and last in its group if its last segment was. If
    its further segments do not go with these, it stays the descriptor of a segment."""
    if not descriptor.integer(last, "flags") & mq.MQMF_LAST_SEGMENT:
        return first
    message = Descriptor(first)
    message.flags |= descriptor.integer(last, "flags") & mq.MQMF_LAST_MSG_IN_GROUP
    message.flags &= ~_SEGMENTED
    message.original_length = -1
    if not message.flags & mq.MQMF_MSG_IN_GROUP:
        message.group_id = NO_ID
    return message.pack()


def agreeing(parts: list[bytes]) -> tuple[int, int]:
    """How many segments (descriptors, in order) are put together, and the reason of the warning if that is not all of
    them: 2243 or 2244 where character set or encoding changes."""
    first = parts[0]
    for at, one in enumerate(parts):
        for field, reason in (("ccsid", mq.MQRC_INCONSISTENT_CCSIDS), ("encoding", mq.MQRC_INCONSISTENT_ENCODINGS)):
            if descriptor.integer(one, field) != descriptor.integer(first, field):
                return at, reason
    return len(parts), 0


def is_complete_message(parts: list[tuple[bytes, int]]) -> bool:
    """Whether these segments (descriptor, length), in order, make up a whole message."""
    expected = 0
    for md, length in parts:
        if descriptor.integer(md, "offset") != expected:
            return False
        expected += length
    return bool(parts) and bool(descriptor.integer(parts[-1][0], "flags") & mq.MQMF_LAST_SEGMENT)


def is_complete_group(messages: list[tuple[bytes, int]]) -> bool:
    """Whether these messages (descriptor, length), in logical order, make up a whole group, each with all its
    segments."""
    sequence, at = 1, 0
    while at < len(messages):
        md = messages[at][0]
        if descriptor.integer(md, "sequence") != sequence:
            return False
        end = at + 1
        if descriptor.integer(md, "flags") & mq.MQMF_SEGMENT:
            while end < len(messages) and descriptor.integer(messages[end][0], "sequence") == sequence:
                end += 1
            if not is_complete_message(messages[at:end]):
                return False
        last = messages[end - 1][0]
        at, sequence = end, sequence + 1
        if descriptor.integer(last, "flags") & mq.MQMF_LAST_MSG_IN_GROUP:
            return at == len(messages)
    return False
