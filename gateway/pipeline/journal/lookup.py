"""Where messages lie in a journal: `Lookup` asks an index, `Follower` keeps an index of its own in any process.

The follower reads what the journal's owner has committed and applies the frames with the owner's own functions, so it
has the same queues, lanes, numbers and state records, one frame later. Messages that are not persistent are in their
owner's memory, where no reader can get them: a lookup lists only persistent ones, whoever asks it.
"""

from __future__ import annotations

import fnmatch
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from gateway.errors import StoreCorrupt
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.journal.segments import Segments, SegmentUse
from gateway.queue_manager.journal.decode import FrameHeader, Sections, frame_at, header_at
from gateway.queue_manager.journal.layout import BLOCK, GROUP, Kind, header_area, padded
from gateway.queue_manager.journal.recovery import changes_of, frame_beyond
from gateway.queue_manager.journal.segment import Listed, SegmentHeader, segment_path
from gateway.queue_manager.store.changes import Changes, apply
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import ROW_BITS, VOLATILE, frame_of, slot_of
from gateway.queue_manager.store.space import BIG_ROW
from gateway.queue_manager.store.unit import LaneName


class MessageRun(NamedTuple):
    """Messages with consecutive numbers in consecutive rows of one frame."""

    queue: str
    priority: int
    first: int
    """Number of the first message."""
    rows: int
    place: int
    """Frame and row of the first message."""

    def skipping(self, rows: int) -> MessageRun:
        """The run without its first `rows` messages."""
        return self._replace(first=self.first + rows, rows=self.rows - rows, place=self.place + rows)


class Lookup:
    """Answers which messages of some queues lie where, from an index."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def queues(self, patterns: str) -> list[str]:
        """The queues that a comma-separated list of names and patterns matches."""
        return matching(patterns, self.index.queues)

    def runs(
        self, patterns: str, low: int, high: int | None = None, limit: int | None = None, *, in_memory: bool = False
    ) -> list[MessageRun]:
        """The messages of these queues from number `low` on, in the order of numbers; at most `limit` of them. Lanes
        are given numbers group by group, so runs of several lanes never interleave. `in_memory`: include those that are
        not persistent."""
        listed: list[MessageRun] = []
        left = limit
        lanes = (self._lane_runs(queue, lane, low, high, in_memory) for queue, lane in self._lanes(patterns))
        for run in merge(*lanes, key=attrgetter("first")):
            if left is not None and run.rows >= left:
                listed.append(run._replace(rows=left))
                break
            listed.append(run)
            left = None if left is None else left - run.rows
        return listed

    def count(self, patterns: str, low: int, high: int | None = None) -> int:
        """The number of messages that `runs` would list."""
        return sum(run.rows for queue, lane in self._lanes(patterns) for run in self._lane_runs(queue, lane, low, high))

    def bytes_of(self, run: MessageRun) -> int:
        """The size of a run, estimated from the mean row of its segment."""
        extent = self.index.space.by_slot.get(slot_of(run.place >> ROW_BITS))
        return extent.used * run.rows // max(1, extent.rows) if extent else 0

    def within(self, runs: list[MessageRun], size: int) -> list[MessageRun]:
        """The first runs that together stay below `size` bytes; at least one."""
        kept: list[MessageRun] = []
        for run in runs:
            size -= self.bytes_of(run)
            if size < 0 and kept:
                break
            kept.append(run)
        return kept

    def backouts(self, low: int, high: int) -> dict[int, int]:
        """Backout counts, by message number, of the messages between two numbers that were ever backed out."""
        return {number: count for number, count in self.index.backouts.items() if low <= number < high}

    def _lanes(self, patterns: str) -> Iterator[tuple[str, Lane]]:
        """Lanes of application queues: their key is empty, unlike those of the gateway's state queues."""
        for name in self.queues(patterns):
            lane = self.index.queues[name].lanes.get(b"")
            while lane is not None:
                yield name, lane
                lane = lane.lower

    @staticmethod
    def _lane_runs(queue: str, lane: Lane, low: int, high: int | None, in_memory: bool = False) -> Iterator[MessageRun]:
        for first, count, place in lane.live(low - 1):
            if high is not None and first + count > high:
                count = high - first
                if count <= 0:
                    return
            if in_memory or not place >> ROW_BITS & VOLATILE:
                yield MessageRun(queue, 9 - lane.rank, first, count, place)


def matching(patterns: str, names: Iterable[str]) -> list[str]:
    """The names that a comma-separated list of names and patterns matches, in order."""
    listed = [part.strip() for part in patterns.split(",") if part.strip()]
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in listed))


def first_since(segments: Segments, runs: list[MessageRun], uses: dict[int, SegmentUse], micros: int) -> int | None:
    """The number of the first message committed at that time or later; frames lie in the order of their times."""

    def commit_time(run: MessageRun) -> int:
        frame = run.place >> ROW_BITS
        return segments.commit_time(uses[slot_of(frame)], frame)

    at = bisect_left(runs, micros, key=commit_time)
    return runs[at].first if at < len(runs) else None


# ---- an index that follows the journal

ONLY_ROWS = {
    Kind.GROUPS, Kind.HEAD_OFFSETS, Kind.HEADS, Kind.HEAD_INDEX, Kind.BODY_OFFSETS, Kind.BODIES, Kind.BODY_INDEX,
    Kind.MSG_IDS, Kind.CORREL_IDS, Kind.PUT_TIMES,
}  # fmt: skip
"""Sections of a frame that only adds rows, as most do: the index needs no more of it than the rows of each lane."""

NONE = 0, memoryview(b"")
ATTEMPTS = 4
LOOKED_BEYOND = 1 << 20
"""Bytes behind the last frame in which a later one is looked for. If a longer frame has a damaged length, those behind
it are noticed when the segment is full."""


class _Position:
    """How far one use of a segment has been read."""

    __slots__ = ("lanes", "offset", "sequence", "use")

    def __init__(self, use: SegmentUse, offset: int, sequence: int) -> None:
        self.use = use
        self.offset = offset
        self.sequence = sequence
        self.lanes: list[LaneName] = []


def _groups(frame: FrameHeader, sections: Sections, lanes: list[LaneName]) -> list[tuple[LaneName, int]]:
    try:
        return [(lanes[lane], rows) for lane, rows in GROUP.iter_unpack(sections.get(Kind.GROUPS, NONE)[1])]
    except (IndexError, struct.error) as problem:
        raise StoreCorrupt(f"frame {frame.sequence}: {problem}") from problem


class Follower(Lookup):
    """A lookup whose index is kept up to date by reading the journal's files. Call `poll` before asking."""

    def __init__(self, folder: Path) -> None:
        self.segments = Segments(folder)
        super().__init__(Index())
        self.next_number = 1
        self._positions: dict[int, _Position] = {}

    def poll(self) -> None:
        """Read what was written since. Everything is read again if a segment was recycled before its end was read.
        Raises QueueUnreachable if that does not help: what is missing is never taken for what is not there."""
        for _ in range(ATTEMPTS):
            if self._advance():
                return
            self.segments.forget()
            self.index, self._positions = Index(), {}
        raise QueueUnreachable(
            f"{self.segments.folder}: segments that the youngest one lists are missing, or are used again before they "
            "are read; the log and `/readyz` of its gateway tell of missing files, or, where none runs, "
            "`mqgate journal check`"
        )

    def _advance(self) -> bool:
        """Read what was written since. Returns False if everything has to be read again."""
        last = self.segments.committed()
        if not self._advance_to(inf if last is None else last):
            return False
        owner = self.segments.committed() if last is None else None
        return owner is None or self._last_read() <= owner  # one that has begun meanwhile: its writes may fail

    def _last_read(self) -> int:
        return max([position.sequence for position in self._positions.values()], default=1) - 1

    def _advance_to(self, last: float) -> bool:
        headers = self.segments.headers()
        if not headers:
            return True
        newest = headers[-1]
        listed = {each.serial: each for each in newest.listed}
        if listed.keys() - {header.serial for header in headers}:
            return False
        for header in headers:
            if header is not newest and header.serial not in listed:
                continue
            if not self._read(header, listed.get(header.serial), last):
                return False
            self.index.space.collect()
        return True

    def _read(self, header: SegmentHeader, listed: Listed | None, last: float) -> bool:
        """Apply the new frames of one segment. Returns False if the segment was recycled, or more was read than
        counts."""
        position = self._positions.get(header.serial)
        if position is None:
            if header.slot in self.index.space.by_slot:
                return False
            position = self._begin(header)
        if listed is not None:
            last = listed.last_sequence
        if not self._apply_new(position, last, is_listed=listed is not None):
            return False
        if listed is None:
            return True
        extent = self.index.space.by_slot.get(header.slot)
        if extent is not None and not extent.sealed:
            self.index.space.seal(extent)
        return position.sequence == listed.last_sequence + 1  # beyond it was a frame whose write had failed

    def _apply_new(self, position: _Position, last: float, *, is_listed: bool) -> bool:
        """Apply frames up to the last whole one that counts. Returns False if the segment was recycled meanwhile: the
        mapping is not pinned, so what was read counts only if the segment is still in the same use afterwards. Raises
        StoreCorrupt if a frame is not whole and others are behind it, which would be missed silently."""
        try:
            while position.sequence <= last:
                if not self._apply_next(position, is_listed=is_listed):
                    break
        except StoreCorrupt:
            if self.segments.is_still(position.use):
                raise
        return self.segments.is_still(position.use)

    def _begin(self, header: SegmentHeader) -> _Position:
        self.next_number = max(self.next_number, header.first_number)
        self.index.space.open(header.serial, header.slot)
        use = SegmentUse(header.slot, header.serial, header.salt)
        position = _Position(use, 2 * header_area(header.size), header.first_sequence)
        self._positions[header.serial] = position
        return position

    def _apply_next(self, position: _Position, *, is_listed: bool) -> bool:
        use, offset = position.use, position.offset
        frame = self.segments.frame(use, offset, position.sequence)
        if frame is None:
            if is_listed or self._has_hole(position):
                path = segment_path(self.segments.folder, use.slot)
                raise StoreCorrupt(f"{path}: damaged at byte {offset}: docs/runbooks/damaged-frame.md")
            return False
        sections = self.segments.sections(use, offset, frame)
        place = frame_of(use.slot, offset // BLOCK)
        if frame.length < BIG_ROW and frame.flags == 0 and sections.keys() <= ONLY_ROWS:
            changes = Changes(place, frame.first_number, _groups(frame, sections, position.lanes), used=frame.length)
        else:
            changes = changes_of(place, frame, sections, position.lanes)
        extent = self.index.space.by_slot.get(use.slot)
        apply(self.index, extent, changes)
        if changes.numbers is None:
            moved = sum([int(move[4]) for move in changes.moves])  # MoveRun.count; tuple.count to type checkers
            self.next_number = max(self.next_number, frame.first_number + frame.rows + moved)
        position.offset += padded(frame.length)
        position.sequence += 1
        return True

    def _has_hole(self, position: _Position) -> bool:
        """Whether a later frame lies behind one that is not whole, in the segment that is being written. That one was
        durable when the later one was begun, so it is whole by now if it merely had not been written yet."""
        use, end = position.use, position.offset
        segment = self.segments.segment(use.slot)
        header = segment.header()
        if header is None:
            return False
        torn = header_at(segment.data, end)
        beyond = frame_at(segment.data, end + padded(torn.length), header.salt) if torn is not None else None
        if beyond is None or beyond.sequence <= position.sequence:
            beyond = frame_beyond(segment.data[: end + LOOKED_BEYOND], end, header, position.sequence)
        if beyond is None:
            return False
        return self.segments.frame(use, end, position.sequence) is None

    def uses(self, runs: list[MessageRun]) -> dict[int, SegmentUse]:
        """The uses of the segments in which these runs lie, for a reader in another process."""
        by_slot = {position.use.slot: position.use for position in self._positions.values()}
        return {slot: by_slot[slot] for slot in {slot_of(run.place >> ROW_BITS) for run in runs}}
