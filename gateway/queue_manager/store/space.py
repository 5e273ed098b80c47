"""Which segments are still needed: those with live rows or live state records, and those that must not be recycled
before others. No input or output.

The rule (reference/journal-format.md, "Recycling"): a segment is free when nothing in it is live and every segment to
which its takes, moves, backout counts, overwritten state and relocations refer is free too. Otherwise a take could be
forgotten before its put.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import BLOCK_BITS, ROW_BITS, VOLATILE

BIG_ROW = 64 * 1024
"""Rows at least this long are accounted one by one, so that a few of them do not distort the average of their segment.
"""


class Extent:
    """What one use of a segment holds."""

    __slots__ = (
        "big",
        "big_bytes",
        "carried",
        "live",
        "moved",
        "moved_lanes",
        "moves",
        "numbers",
        "readable",
        "refs",
        "rows",
        "said",
        "sealed",
        "serial",
        "slot",
        "state",
        "used",
    )

    def __init__(self, serial: int, slot: int) -> None:
        self.serial = serial
        self.slot = slot
        self.live = 0
        self.rows = 0
        self.state = 0
        self.used = 0
        self.sealed = False
        self.readable = True
        """False once one of its frames was found damaged: its live messages cannot be carried forward."""
        self.refs: set[int] = set()
        self.said = 0
        """Takes, backout counts and state records of its frames."""
        self.moves = False
        """Whether one of its frames moves messages."""
        self.numbers = self.carried = 0, 0
        """The range of numbers of the messages that its frames put or moved there; and that of carried messages."""
        self.big: dict[int, int] = {}
        self.big_bytes = 0
        self.moved = array("Q")
        self.moved_lanes: list[Lane] = []
        """Runs (place, first number, count) of messages that moved to other lanes than the frame says, and those
        lanes."""

    @property
    def live_bytes(self) -> int:
        """About how many of its bytes are still needed."""
        if not self.live:
            return 4096 * min(self.state, 1)
        small_rows, small_live = self.rows - len(self.big), self.live
        big_live = sum(self.big.values())
        small_live -= sum(1 for length in self.big.values() if length)
        small = max(self.used - self.big_bytes, 0)
        return big_live + (small * small_live // small_rows if small_rows > 0 else 0)


class Space:
    """All extents that are in use."""

    def __init__(self) -> None:
        self.by_slot: dict[int, Extent] = {}
        self.serials: set[int] = set()
        self.volatile: dict[int, int] = {}
        """Live rows of each non-persistent batch."""
        self.dead_batches: list[int] = []
        self.changed = False

    def open(self, serial: int, slot: int) -> Extent:
        """Take a segment into use; the caller seals the one before it, if any."""
        extent = self.by_slot[slot] = Extent(serial, slot)
        self.serials.add(serial)
        return extent

    def big_row(self, place: int, length: int) -> None:
        """Note that a row of at least BIG_ROW bytes lies at `place`."""
        extent = self.by_slot[place >> ROW_BITS + BLOCK_BITS]
        extent.big[place] = length
        extent.big_bytes += length

    def refer(self, by: Extent | None, place: int) -> None:
        """Note that the extent `by` says something about the row at `place`: it must not be recycled before that row's
        extent."""
        frame = place >> ROW_BITS
        if by is not None and not frame & VOLATILE:
            by.refs.add(self.by_slot[frame >> BLOCK_BITS].serial)

    def release(self, released: Iterable[tuple[int, int]], by: Extent | None) -> None:
        """Note that rows are no longer needed, because of something in the extent `by`."""
        for place, count in released:
            frame = place >> ROW_BITS
            if frame & VOLATILE:
                self._release_volatile(frame, count)
                continue
            extent = self.by_slot[frame >> BLOCK_BITS]
            extent.live -= count
            if extent.big:
                for row in range(place, place + count):
                    if row in extent.big:
                        extent.big[row] = 0
            if by is not None:
                by.refs.add(extent.serial)
            if not extent.live:
                self.changed = True

    def _release_volatile(self, frame: int, count: int) -> None:
        left = self.volatile[frame] - count
        if left:
            self.volatile[frame] = left
        else:
            del self.volatile[frame]
            self.dead_batches.append(frame)

    def moved(self, place: int, first: int, count: int, lane: Lane) -> None:
        """Note that the rows from `place` on are now messages of `lane`, numbered from `first` on."""
        frame = place >> ROW_BITS
        if not frame & VOLATILE:
            extent = self.by_slot[frame >> BLOCK_BITS]
            extent.moved.extend((place, first, count))
            extent.moved_lanes.append(lane)

    def collect(self) -> list[Extent]:
        """Remove and return the extents that are free by the rule."""
        freed: list[Extent] = []
        again = self.changed
        self.changed = False
        while again:
            again = False
            for extent in list(self.by_slot.values()):
                if self._is_free(extent):
                    del self.by_slot[extent.slot]
                    self.serials.discard(extent.serial)
                    freed.append(extent)
                    again = True
        return freed

    def _is_free(self, extent: Extent) -> bool:
        if not extent.sealed or extent.live or extent.state:
            return False
        extent.refs &= self.serials
        extent.refs.discard(extent.serial)
        return not extent.refs

    def said_again(self, extent: Extent) -> None:
        """Note that everything the extent says has been written again, so that it may go. Extents that waited for it
        now wait for what it waited for."""
        for other in self.by_slot.values():
            if extent.serial in other.refs or not other.sealed:
                other.refs |= extent.refs
        extent.refs.clear()
        self.changed = True

    def seal(self, extent: Extent) -> None:
        """Note that nothing more is written into the segment."""
        extent.sealed = True
        self.changed = True
