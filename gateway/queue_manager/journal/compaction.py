"""Carrying forward: the messages of an old segment that are still needed are written again, in ordinary frames, a
bounded step at a time.

A step reads a few frames of the segment, checks them, and keeps what is live. When there is enough for a frame, or the
segment is at its end, a frame is made of that. Messages that leave in a frame under way are left alone; those that left
since they were read are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from gateway.queue_manager.journal.decode import FrameHeader, Links, Rows, links_of, numbers_in, rows_of, sections_of
from gateway.queue_manager.journal.encode import Columns
from gateway.queue_manager.journal.layout import BLOCK, FrameFlag, Kind, padded
from gateway.queue_manager.journal.plan import Plan
from gateway.queue_manager.journal.read_ahead import ReadAhead
from gateway.queue_manager.journal.segment import Segment
from gateway.queue_manager.store.changes import consecutive_runs
from gateway.queue_manager.store.index import Index, LaneName, spans
from gateway.queue_manager.store.place import ROW_BITS, ROW_MASK, frame_of
from gateway.queue_manager.store.space import Extent
from gateway.queue_manager.store.under_way import UnderWay
from gateway.queue_manager.store.unit import NO_ID

READ_STEP = 512 * 1024
LEAST_CARRIED, MOST_CARRIED = 32 * 1024, 128 * 1024
"""Bytes that make a frame, at least and at most: as many as were written since the step before, so that room is made as
fast as it is used, and a commit that waits for the step waits no longer than the commit before took."""
FRAME_COST = 96 * 1024
"""The least that reading a frame counts in the shortest step, and proportionally less in longer ones: a small frame
takes as long as this many bytes of a large one."""
ROW_COST = 64
RUN_COST = 256
"""What each run of consecutive messages of a lane counts beside its bytes, whether it goes into a frame or is looked at
in one: a frame may have thousands of lanes, of sessions with a message each."""
MOST_IN_A_RUN = 256
"""The most messages that are looked at together: they may have become as many runs."""

T = TypeVar("T", bytes, int)
_LANE, _LANE_AND_FIRST = itemgetter(0), itemgetter(0, 1)


class Survivors(NamedTuple):
    """Messages to be written again: consecutive numbers of a lane that lie in one frame. Columns as in `Rows`."""

    lane: LaneName
    first: int
    length: int
    place: int
    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    msg_ids: Sequence[bytes] | None
    correl_ids: Sequence[bytes] | None
    expiries: Sequence[int] | None
    put_times: Sequence[int]

    def cut(self, first: int, count: int) -> Survivors:
        """The `count` messages from the number `first` on."""
        if count == self.length:
            return self
        at = first - self.first
        columns = [None if column is None else column[at : at + count] for column in self[4:]]
        return Survivors(self.lane, first, count, self.place + at, *columns)  # type: ignore[arg-type]


class Walk:
    """A segment that is being freed."""

    def __init__(self, index: Index, under_way: UnderWay, extent: Extent, segment: Segment) -> None:
        self._index = index
        self._under_way = under_way
        self.extent = extent
        self.segment = segment
        self.done = False
        self._ahead = ReadAhead()
        self._offset = segment.begin
        """The offset of the next frame."""
        self._frame: Iterator[int] | None = None
        """The frame that is being read, if it is not at its end."""
        self._lanes: list[LaneName] = []
        self._moved = _moved_by_frame(extent)
        self._survivors: list[Survivors] = []
        self._fresh = 0
        """Index of the first survivors that were read in this step: the index of the store cannot have changed since.
        """
        self._size = 0

    def step(self, number: int, written: int) -> Plan | None:
        """Read on; returns a plan once there is a frame's worth. `number` is the next message number, which carrying
        does not use up; `written` says how many bytes of frames were written since the step before."""
        if self._index.space.by_slot.get(self.extent.slot) is not self.extent:
            self.done = True  # free already, and perhaps in use again
            return None
        budget, self._fresh = READ_STEP, len(self._survivors)
        enough = min(max(LEAST_CARRIED, written), MOST_CARRIED)
        least = FRAME_COST * LEAST_CARRIED // enough
        while budget > 0 and self._size < enough and not self._is_over:
            budget -= self._read_on(least)
        self.done = self._is_over
        if self._size < enough and not self.done:
            return None
        return self._plan(number)

    @property
    def _is_over(self) -> bool:
        return not self.extent.live or (self._frame is None and self._offset >= self.segment.end)

    def _read_on(self, least: int) -> int:
        """Read one more run of messages; returns what that counts."""
        if self._frame is None:
            self._frame = self._runs_of_frame(least)
        counts = next(self._frame, None)
        if counts is None:
            self._frame = None
        return counts or 0

    def _runs_of_frame(self, least: int) -> Iterator[int]:
        """Read the next frame, one run in each step, and yield what the run counts: together as much as the frame has
        bytes, or `least`, or as many runs do. What is live is found out when a run is reached: other steps may lie
        between."""
        header, data = self._ahead.frame(self.segment, self._offset)
        sections = sections_of(data, 0, header)
        links = links_of(sections, self._lanes, header.sequence)
        frame = frame_of(self.segment.slot, self._offset // BLOCK)
        self._offset += padded(header.length)
        rows, counted = None, 0
        for lane, living in self._living(frame, header, links, numbers_in(sections, Kind.NUMBERS, header.rows)):
            for first, count, place in living:
                rows = rows or rows_of(header, sections)
                self._keep(lane, first, count, place, rows)
            counted += RUN_COST
            yield RUN_COST
        yield max(0, padded(header.length) - counted, least - counted)

    def _living(
        self, frame: int, header: FrameHeader, links: Links, numbers: object
    ) -> Iterator[tuple[LaneName, list[tuple[int, int, int]]]]:
        """For each run of this frame's rows, what is still needed, under the lane and number that it has now."""
        row = 0
        carried = numbers if header.flags & FrameFlag.CARRIED else None
        for name, rows in links.groups:
            begin = header.first_number + row
            runs = [(begin, rows)] if carried is None else consecutive_runs(carried[row : row + rows])  # type: ignore[index]
            row += rows
            for first, count in chain.from_iterable([_pieces(*run) for run in runs]):
                yield name, [span for span in self._spans(name, first, count) if span[2] >> ROW_BITS == frame]
        for name, begin, length, place in self._moved.get(frame, ()):
            for first, count in _pieces(begin, length):
                found = self._spans(name, first, count)
                yield name, [span for span in found if span[2] == place + span[0] - begin]

    def _spans(self, name: LaneName, first: int, count: int) -> Iterator[tuple[int, int, int]]:
        lane = self._index.find(name)
        return iter(()) if lane is None else spans(lane, first, count)

    def _keep(self, lane: LaneName, first: int, count: int, place: int, rows: Rows) -> None:
        begin = place & ROW_MASK
        cut = slice(begin, begin + count)
        bodies, time = rows.bodies[cut], rows.time
        run = Survivors(
            lane, first, count, place, rows.heads[cut], bodies,
            rows.msg_ids[cut] if rows.msg_ids is not None else None,
            rows.correl_ids[cut] if rows.correl_ids is not None else None,
            rows.expiries[cut] if rows.expiries is not None else None,
            [each or time for each in rows.put_times[cut]] if rows.put_times is not None else [time] * count,
        )  # fmt: skip
        self._survivors.append(run)
        self._size += sum(map(len, bodies)) + ROW_COST * count + RUN_COST

    def _plan(self, number: int) -> Plan | None:
        old, fresh = self._survivors[: self._fresh], self._survivors[self._fresh :]
        kept = [part for run in old for part in self._still_there(run)]
        kept += fresh
        if not self._under_way.idle:
            kept = [part for run in kept for part in self._spared(run)]
        kept.sort(key=_LANE_AND_FIRST)
        self._survivors, self._size = [], 0
        state = self._state() if self.done else {}
        if not kept and not state:
            return None
        groups = [(lane, sum([run.length for run in several])) for lane, several in groupby(kept, _LANE)]
        plan = Plan(number, Links(groups, [], [], self._backouts(kept), state), next_number=number)
        plan.rows = sum([rows for _lane, rows in groups])
        if kept:
            plan.columns = _columns(kept)
        return plan

    def _still_there(self, run: Survivors) -> Iterator[Survivors]:
        """The parts that were neither taken nor moved since they were read."""
        lane = self._index.find(run.lane)
        if lane is not None:
            for first, count, place in spans(lane, run.first, run.length):
                if place == run.place + first - run.first:
                    yield run.cut(first, count)

    def _spared(self, run: Survivors) -> Iterator[Survivors]:
        spares = self._under_way.spares_message
        numbers = [number for number in range(run.first, run.first + run.length) if spares(number)]
        return (run.cut(first, count) for first, count in consecutive_runs(numbers))

    def _backouts(self, kept: list[Survivors]) -> list[tuple[LaneName, int, int]]:
        counts = self._index.backouts
        if not counts:
            return []
        numbers = [(run.lane, number) for run in kept for number in range(run.first, run.first + run.length)]
        return [(lane, number, counts[number]) for lane, number in numbers if number in counts]

    def _state(self) -> dict[bytes, bytes | None]:
        index = self._index
        return {
            key: index.state[key]
            for key, slot in index.state_slots.items()
            if slot == self.extent.slot and self._under_way.spares_state(key)
        }


def _pieces(first: int, count: int) -> list[tuple[int, int]]:
    """Consecutive numbers, cut into runs that are not too long."""
    if count <= MOST_IN_A_RUN:
        return [(first, count)]
    end = first + count
    return [(begin, min(MOST_IN_A_RUN, end - begin)) for begin in range(first, end, MOST_IN_A_RUN)]


def _columns(kept: list[Survivors]) -> Columns:
    return Columns(
        list(chain.from_iterable([run.heads for run in kept])),
        list(chain.from_iterable([run.bodies for run in kept])),
        _where_any([run.msg_ids for run in kept], kept, NO_ID),
        _where_any([run.correl_ids for run in kept], kept, NO_ID),
        _where_any([run.expiries for run in kept], kept, 0),
        list(chain.from_iterable([run.put_times for run in kept])),
        list(chain.from_iterable([range(run.first, run.first + run.length) for run in kept])),
        shared=True,
    )


def _where_any(parts: list[Sequence[T] | None], kept: list[Survivors], none: T) -> list[T] | None:
    """A column of values that most messages lack; None if all do."""
    values: list[T] = []
    for part, run in zip(parts, kept, strict=True):
        values += [none] * run.length if part is None else part
    return values if any(each != none for each in values) else None


def _moved_by_frame(extent: Extent) -> dict[int, list[tuple[LaneName, int, int, int]]]:
    found: dict[int, list[tuple[LaneName, int, int, int]]] = {}
    moved = extent.moved
    for at, lane in enumerate(extent.moved_lanes):
        place, first, count = moved[3 * at : 3 * at + 3]
        name = lane.queue.name, lane.key, lane.rank
        found.setdefault(place >> ROW_BITS, []).append((name, first, count, place))
    return found
