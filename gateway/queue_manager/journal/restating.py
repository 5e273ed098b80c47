"""Restating: what a segment without live messages says of messages in other segments is written again in a few frames,
a bounded step at a time. Then nothing depends on the segment any more.

Each take of a program is a frame of its own, padded to a block, and may not be forgotten before the message it takes.
On a full disk that is emptied one message at a time, such segments would fill all the room that the messages leave.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from gateway.queue_manager.journal.decode import Links, links_of, sections_of
from gateway.queue_manager.journal.layout import padded
from gateway.queue_manager.journal.plan import Plan
from gateway.queue_manager.journal.read_ahead import ReadAhead
from gateway.queue_manager.journal.segment import Segment
from gateway.queue_manager.store.index import Index, LaneName, TokenRun
from gateway.queue_manager.store.space import Extent
from gateway.queue_manager.store.under_way import UnderWay

READ_STEP = 512 * 1024
MOST_TAKES = 8192
"""Runs of taken messages that make a frame: 128 KiB."""


class Restating:
    """Frees a segment without live messages. Used like `compaction.Walk`."""

    def __init__(self, index: Index, under_way: UnderWay, extent: Extent, segment: Segment) -> None:
        self._index = index
        self._under_way = under_way
        self.extent = extent
        self.segment = segment
        self.done = False
        self._ahead = ReadAhead()
        self._offset = segment.begin
        self._lanes: list[LaneName] = []
        self._taken: dict[LaneName, list[tuple[int, int]]] = {}
        self._runs = 0
        self._counted: dict[int, LaneName] = {}
        self._removed: set[bytes] = set()
        self._present = _Ranges(index.space.by_slot.values())

    def step(self, number: int, _written: int) -> Plan | None:
        """Read on; returns a plan once there is a frame's worth, or the segment is at its end."""
        if self._index.space.by_slot.get(self.extent.slot) is not self.extent:
            self.done = True  # free already
            return None
        budget = READ_STEP
        while budget > 0 and self._runs < MOST_TAKES and self._offset < self.segment.end:
            budget -= self._read_frame()
        self.done = self._offset >= self.segment.end
        if not self.done and self._runs < MOST_TAKES:
            return None
        return self._plan(number)

    def _read_frame(self) -> int:
        header, data = self._ahead.frame(self.segment, self._offset)
        size = padded(header.length)
        self._offset += size
        links = links_of(sections_of(data, 0, header), self._lanes, header.sequence)
        for lane, first, count in links.takes:
            if self._present.hold(first, count):
                self._taken.setdefault(lane, []).append((first, count))
                self._runs += 1
        for lane, number, _times in links.backouts:
            self._counted[number] = lane
        self._removed.update(key for key, value in links.state.items() if value is None)
        return size

    def _plan(self, number: int) -> Plan | None:
        takes = [TokenRun(lane, *run) for lane, runs in self._taken.items() for run in _joined(runs)]
        backouts, state = (self._backouts(), self._state()) if self.done else ([], {})
        self._taken, self._runs = {}, 0
        if not (takes or backouts or state):
            return None
        return Plan(number, Links([], takes, [], backouts, state), next_number=number)

    def _backouts(self) -> list[tuple[LaneName, int, int]]:
        index, found = self._index, []
        for number, name in self._counted.items():
            lane, times = index.find(name), index.backouts.get(number)
            if lane and times and lane.place(number) >= 0 and self._under_way.spares_message(number):
                found.append((name, number, times))
        return found

    def _state(self) -> dict[bytes, bytes | None]:
        """Records that were removed, and not added again since."""
        known, spares = self._index.state, self._under_way.spares_state
        return {key: None for key in self._removed if key not in known and spares(key)}


class _Ranges:
    """The numbers of the messages that the segments in use put, moved or carried, as joined ranges."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        ranges = sorted(each for extent in extents for each in (extent.numbers, extent.carried) if each[1] > each[0])
        self._ends: list[int] = []
        self._begins: list[int] = []
        for begin, end in ranges:
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def hold(self, first: int, count: int) -> bool:
        """Whether any of these numbers is in a range."""
        at = bisect_right(self._ends, first)
        return at < len(self._begins) and self._begins[at] < first + count


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The runs in ascending order, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if joined and first <= sum(joined[-1]):
            begin, length = joined[-1]
            joined[-1] = begin, max(length, first + count - begin)
        else:
            joined.append((first, count))
    return joined
