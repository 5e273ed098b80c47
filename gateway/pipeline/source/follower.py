"""A second index of a journal, kept up to date by reading what its owner writes. Read-only, in any process.

The owner's own functions apply the frames, so the follower knows the same queues, lanes, numbers and state records, a
frame later. It answers what a batch needs: which messages lie where. Persistent messages only: the others are in
their owner's memory.
"""

from __future__ import annotations

from pathlib import Path
from struct import error

from gateway.errors import StoreCorrupt
from gateway.pipeline.source.lookup import Lookup, Run
from gateway.pipeline.source.segments import Segments, Use
from gateway.queue_manager.journal.decode import FrameHeader, Sections
from gateway.queue_manager.journal.layout import BLOCK, GROUP, Kind, header_area, padded
from gateway.queue_manager.journal.recovery import changes_of
from gateway.queue_manager.journal.segment import Listed, SegmentHeader
from gateway.queue_manager.store.changes import Changes, apply
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.lanes import LaneName
from gateway.queue_manager.store.place import ROW_BITS, frame_of, slot_of
from gateway.queue_manager.store.space import BIG_ROW

ONLY_ROWS = {
    Kind.GROUPS, Kind.HEAD_OFFSETS, Kind.HEADS, Kind.HEAD_INDEX, Kind.BODY_OFFSETS, Kind.BODIES, Kind.BODY_INDEX,
    Kind.MSG_IDS, Kind.CORREL_IDS, Kind.PUT_TIMES,
}  # fmt: skip
"""Most frames have nothing else, and say to an index no more than how many rows of which lane they have."""

NONE = 0, memoryview(b"")


class _Position:
    """How far one use of a segment has been read."""

    __slots__ = ("lanes", "offset", "sequence", "use")

    def __init__(self, use: Use, offset: int, sequence: int) -> None:
        self.use = use
        self.offset = offset
        self.sequence = sequence
        self.lanes: list[LaneName] = []


def _groups(frame: FrameHeader, sections: Sections, lanes: list[LaneName]) -> list[tuple[LaneName, int]]:
    try:
        return [(lanes[lane], rows) for lane, rows in GROUP.iter_unpack(sections.get(Kind.GROUPS, NONE)[1])]
    except (IndexError, error) as problem:
        raise StoreCorrupt(f"frame {frame.sequence}: {problem}") from problem


class Follower(Lookup):
    """See the module. Call `poll` before asking."""

    def __init__(self, folder: Path) -> None:
        self.segments = Segments(folder)
        super().__init__(Index())
        self.next_number = 1
        self._positions: dict[int, _Position] = {}

    def poll(self) -> None:
        """Read what is new. Starts again from nothing when a segment was given back before it was read to its end."""
        if not self._advance():
            self.segments.forget()
            self.index, self._positions = Index(), {}
            for _ in range(3):
                if self._advance():
                    return
                self.index, self._positions = Index(), {}

    def _advance(self) -> bool:
        headers = self.segments.headers()
        if not headers:
            return True
        newest = headers[-1]
        listed = {each.serial: each for each in newest.listed}
        for header in headers:
            if header is not newest and header.serial not in listed:
                continue
            if not self._read(header, listed.get(header.serial)):
                return False
            self.index.space.collect()
        return True

    def _read(self, header: SegmentHeader, listed: Listed | None) -> bool:
        """Apply the new frames of one segment; False when it is not the use it was."""
        position = self._positions.get(header.serial)
        if position is None:
            if header.slot in self.index.space.by_slot:
                return False
            position = self._begin(header)
        if not self._apply_new(position, listed):
            return False
        if listed is None:
            return True
        extent = self.index.space.by_slot.get(header.slot)
        if extent is not None and not extent.sealed:
            self.index.space.seal(extent)
        return position.sequence > listed.last_sequence

    def _apply_new(self, position: _Position, listed: Listed | None) -> bool:
        """Up to the last whole frame; False when the segment was given another use meanwhile. The mapping is not
        pinned, so what was read counts only when the use is still the same afterwards."""
        try:
            while listed is None or position.sequence <= listed.last_sequence:
                if not self._apply_next(position):
                    break
        except StoreCorrupt:
            if self.segments.is_still(position.use):
                raise
        return self.segments.is_still(position.use)

    def _begin(self, header: SegmentHeader) -> _Position:
        self.next_number = max(self.next_number, header.first_number)
        self.index.space.open(header.serial, header.slot)
        use = Use(header.slot, header.serial, header.salt)
        position = _Position(use, 2 * header_area(header.size), header.first_sequence)
        self._positions[header.serial] = position
        return position

    def _apply_next(self, position: _Position) -> bool:
        use, offset = position.use, position.offset
        frame = self.segments.frame(use, offset, position.sequence)
        if frame is None:
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

    def uses(self, runs: list[Run]) -> dict[int, Use]:
        """The uses of the segments that runs lie in, for a reader in another process."""
        by_slot = {position.use.slot: position.use for position in self._positions.values()}
        return {slot: by_slot[slot] for slot in {slot_of(run.place >> ROW_BITS) for run in runs}}
