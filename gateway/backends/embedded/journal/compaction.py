"""Carrying survivors forward: what is still needed of an old segment is written again, in ordinary frames, a bounded
step at a time.

A step reads a few frames of the segment, checks them, and keeps what is live. When enough has come together, or the
segment is at its end, that becomes one frame. What leaves in a frame under way is left alone; what left since it was
read is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, repeat
from operator import itemgetter
from typing import NamedTuple, Protocol

from gateway.backends.embedded.journal.ahead import ReadAhead
from gateway.backends.embedded.journal.decode import (
    FrameHeader,
    Links,
    Rows,
    links_of,
    numbers_in,
    rows_of,
    sections_of,
)
from gateway.backends.embedded.journal.encode import Columns
from gateway.backends.embedded.journal.layout import BLOCK, FrameFlag, Kind, padded
from gateway.backends.embedded.journal.plan import Plan
from gateway.backends.embedded.journal.segment import Segment
from gateway.backends.embedded.store.changes import stretches
from gateway.backends.embedded.store.index import Index, LaneName, spans
from gateway.backends.embedded.store.place import ROW_BITS, ROW_MASK, frame_of
from gateway.backends.embedded.store.space import Extent
from gateway.backends.embedded.store.under_way import UnderWay
from gateway.backends.embedded.store.unit import NO_ID

READ_STEP = 512 * 1024
CARRY_STEP = 128 * 1024
ROW_COST = 64


class Survivor(NamedTuple):
    """One message to be written again."""

    lane: LaneName
    number: int
    place: int
    head: bytes
    body: bytes
    msg_id: bytes
    correl_id: bytes
    expiry: int
    put_time: int


class Holder(Protocol):
    """What carrying forward asks of the store."""

    index: Index
    under_way: UnderWay


class Walk:
    """One segment on its way to being free."""

    def __init__(self, holder: Holder, extent: Extent, segment: Segment) -> None:
        self.holder = holder
        self.extent = extent
        self.segment = segment
        self.done = False
        self._ahead = ReadAhead()
        self._offset = segment.begin
        self._lanes: list[LaneName] = []
        self._moved = _moved_by_frame(extent)
        self._survivors: list[Survivor] = []
        self._fresh = 0
        """Survivors from here on were read in this step: the index cannot have changed since."""
        self._size = 0

    def step(self, number: int) -> Plan | None:
        """Read on; a plan once there is a frame's worth. `number` is the next message number, which carrying does not
        use up.
        """
        if self.holder.index.space.by_slot.get(self.extent.slot) is not self.extent:
            self.done = True  # free already, and perhaps in use again
            return None
        budget, self._fresh = READ_STEP, len(self._survivors)
        while budget > 0 and self._size < CARRY_STEP and self._offset < self.segment.end and self.extent.live:
            budget -= self._read_frame()
        self.done = self._offset >= self.segment.end or not self.extent.live
        if self._size < CARRY_STEP and not self.done:
            return None
        return self._plan(number)

    def _read_frame(self) -> int:
        header, data = self._ahead.frame(self.segment, self._offset)
        sections = sections_of(data, 0, header)
        links = links_of(sections, self._lanes, header.sequence)
        frame = frame_of(self.segment.slot, self._offset // BLOCK)
        self._offset += padded(header.length)
        living = list(self._living(frame, header, links, numbers_in(sections, Kind.NUMBERS, header.rows)))
        if living:
            rows = rows_of(header, sections)
            for lane, first, count, place in living:
                self._keep(lane, first, count, place, rows)
        return padded(header.length)

    def _living(
        self, frame: int, header: FrameHeader, links: Links, numbers: object
    ) -> Iterator[tuple[LaneName, int, int, int]]:
        """Runs of this frame's rows that are still needed, under the lane and number they have now."""
        row = 0
        carried = numbers if header.flags & FrameFlag.CARRIED else None
        for name, rows in links.groups:
            lane = self.holder.index.find(name)
            begin = header.first_number + row
            runs = [(begin, rows)] if carried is None else stretches(carried[row : row + rows])  # type: ignore[index]
            row += rows
            if lane is not None:
                for first, count in runs:
                    yield from ((name, *span) for span in spans(lane, first, count) if span[2] >> ROW_BITS == frame)
        for name, first, count, place in self._moved.get(frame, ()):
            lane = self.holder.index.find(name)
            if lane is not None:
                yield from ((name, *span) for span in spans(lane, first, count) if span[2] == place + span[0] - first)

    def _keep(self, lane: LaneName, first: int, count: int, place: int, rows: Rows) -> None:
        begin = place & ROW_MASK
        cut = slice(begin, begin + count)
        bodies, time = rows.bodies[cut], rows.time
        columns = zip(
            repeat(lane),
            range(first, first + count),
            range(place, place + count),
            rows.heads[cut],
            bodies,
            rows.msg_ids[cut] if rows.msg_ids is not None else repeat(NO_ID),
            rows.correl_ids[cut] if rows.correl_ids is not None else repeat(NO_ID),
            rows.expiries[cut] if rows.expiries is not None else repeat(0),
            [each or time for each in rows.put_times[cut]] if rows.put_times is not None else repeat(time),
        )
        self._survivors += map(tuple.__new__, repeat(Survivor), columns)
        self._size += sum(map(len, bodies)) + ROW_COST * count

    def _plan(self, number: int) -> Plan | None:
        index = self.holder.index
        old, fresh = self._survivors[: self._fresh], self._survivors[self._fresh :]
        spares = self.holder.under_way.spares_message
        kept = [survivor for survivor in old if self._still_there(survivor)]
        kept += fresh if self.holder.under_way.idle else [each for each in fresh if spares(each.number)]
        kept.sort()
        self._survivors, self._size = [], 0
        state = self._state() if self.done else {}
        if not kept and not state:
            return None
        groups = [(lane, len(list(several))) for lane, several in groupby(kept, itemgetter(0))]
        counts = index.backouts
        backouts = [(each.lane, each.number, counts[each.number]) for each in kept if each.number in counts]
        plan = Plan(number, Links(groups, [], [], backouts, state), next_number=number)
        plan.rows = len(kept)
        if kept:
            plan.columns = _columns(kept)
        return plan

    def _still_there(self, survivor: Survivor) -> bool:
        lane = self.holder.index.find(survivor.lane)
        return (
            lane is not None
            and lane.place(survivor.number) == survivor.place
            and self.holder.under_way.spares_message(survivor.number)
        )

    def _state(self) -> dict[bytes, bytes | None]:
        index = self.holder.index
        return {
            key: index.state[key]
            for key, slot in index.state_slots.items()
            if slot == self.extent.slot and self.holder.under_way.spares_state(key)
        }


def _columns(kept: list[Survivor]) -> Columns:
    msg_ids, correl_ids = [each.msg_id for each in kept], [each.correl_id for each in kept]
    expiries = [each.expiry for each in kept]
    return Columns(
        [each.head for each in kept],
        [each.body for each in kept],
        msg_ids if any(each != NO_ID for each in msg_ids) else None,
        correl_ids if any(each != NO_ID for each in correl_ids) else None,
        expiries if any(expiries) else None,
        [each.put_time for each in kept],
        [each.number for each in kept],
        shared=True,
    )


def _moved_by_frame(extent: Extent) -> dict[int, list[tuple[LaneName, int, int, int]]]:
    found: dict[int, list[tuple[LaneName, int, int, int]]] = {}
    moved = extent.moved
    for at, lane in enumerate(extent.moved_lanes):
        place, first, count = moved[3 * at : 3 * at + 3]
        name = lane.queue.name, lane.key, lane.rank
        found.setdefault(place >> ROW_BITS, []).append((name, first, count, place))
    return found
