"""A lane: the messages of one queue, key and priority, in order, as runs (first number, count, place). No input or
output.

A run is 24 bytes and stands for a whole batch of which nothing was taken. Takes in order only move the front of the
first run. Other takes go to a set of removed numbers, which is folded into the runs when it has grown to a quarter of
the lane.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct

from gateway.queue_manager.store.unit import LaneName

_RUN = Struct("=QQQ").pack
EMPTY = array("Q")
"""The runs of lanes that have none yet; never changed."""
FOLD_AT = 32
TRIM_AT = 3 * 1024
TRIM_FEW_AT = 3 * 8
"""Where few runs are left: a lane of one state record, which is replaced again and again, stays short."""
CUT_FROM = 4
"""From this number on, messages that leave the middle of a run cut it in two; fewer are noted one by one."""
CUT_UP_TO = 3 * 1024
"""The most entries of a lane whose runs are cut, as what follows is moved each time."""

Run = tuple[int, int, int]
"""The first number, the count, and the place of the first message."""
Released = list[tuple[int, int]]
"""Places of rows that are not needed any more, each with the number of such rows from there on."""


class Queue:
    """The lanes of one queue by key, and its depth over all of them."""

    __slots__ = ("depth", "lanes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: dict[bytes, Lane] = {}
        self.depth = 0


class Lane:
    """The messages of one queue, key and priority. `rank` is 9 - priority; `lower` is the key's lane of the next lower
    priority.
    """

    __slots__ = ("depth", "key", "lower", "queue", "rank", "removed", "runs", "skip", "start")

    def __init__(self, queue: Queue, key: bytes, rank: int) -> None:
        self.queue = queue
        self.key = key
        self.rank = rank
        self.lower: Lane | None = None
        self.runs = EMPTY
        self.start = 0
        self.depth = 0
        self.removed: set[int] | None = None
        self.skip = 0
        """Every number below this one is removed or locked: gets begin here."""

    def append(self, first: int, count: int, place: int) -> None:
        """Add a batch after all other messages."""
        runs = self.runs
        if not runs:
            self.runs = array("Q", (first, count, place))  # exactly one: many lanes never have more
        elif first < runs[-3]:
            self.insert(first, count, place)  # units may become visible in another order than they were prepared in
            return
        else:
            runs.frombytes(_RUN(first, count, place))  # faster than to extend it
        self.depth += count
        self.queue.depth += count

    def insert(self, first: int, count: int, place: int) -> None:
        """Add messages, none of which is in the lane, at the position given by their numbers (they were carried
        forward, or moved before a restart)."""
        if self.removed and not self.removed.isdisjoint(range(first, first + count)):
            self._fold()  # their old runs are still here
        at = self._first_after(first)
        if not self.runs:
            self.runs = array("Q")
        self.runs[at:at] = array("Q", (first, count, place))
        self.skip = min(self.skip, first)
        self.depth += count
        self.queue.depth += count

    def locate(self, number: int) -> int:
        """Return the index in `runs` of the run that `number` belongs to, or -1. The message itself may have been
        removed."""
        at = self._first_after(number) - 3
        if at >= self.start and number < self.runs[at] + self.runs[at + 1]:
            return at
        return -1

    def holds(self, number: int) -> bool:
        """Whether the message is in the lane."""
        return self.locate(number) >= 0 and not (self.removed and number in self.removed)

    def place(self, number: int) -> int:
        """Return the place of a message, or -1 if it is not in the lane."""
        at = self.locate(number)
        if at < 0 or (self.removed and number in self.removed):
            return -1
        return self.runs[at + 2] + number - self.runs[at]

    def place_of_run(self, first: int, count: int) -> int:
        """Return the place of the first of these messages if all are known to be there in one run, otherwise -1; `live`
        then says which of them are there."""
        at, removed = self.locate(first), self.removed
        if at < 0 or first + count > self.runs[at] + self.runs[at + 1]:
            return -1
        if removed and (first in removed if count == 1 else not removed.isdisjoint(range(first, first + count))):
            return -1
        return self.runs[at + 2] + first - self.runs[at]

    def _first_after(self, number: int) -> int:
        """Return the index of the first run that begins after `number`."""
        runs, start = self.runs, self.start
        if start >= len(runs) or number < runs[start]:
            return start
        if start + 3 >= len(runs) or number < runs[start + 3]:
            return start + 3
        low, high = start // 3 + 1, len(runs) // 3
        while low < high:
            middle = (low + high) // 2
            if runs[3 * middle] <= number:
                low = middle + 1
            else:
                high = middle
        return 3 * low

    def take(self, first: int, count: int, released: Released) -> int:
        """Remove the messages that are in the lane among `count` numbers from `first` on, wherever they are. Returns
        how many there were."""
        end, taken = first + count, 0
        while first < end:
            at = self.locate(first)
            if at < 0:
                at = self._first_after(first)
                if at >= len(self.runs) or self.runs[at] >= end:
                    break
                first = self.runs[at]
            stop = min(end, self.runs[at] + self.runs[at + 1])
            taken += self._take_in_run(at, first, stop, released)
            first = stop
        self.depth -= taken
        self.queue.depth -= taken
        return taken

    def shift(self, first: int, count: int) -> int:
        """Remove `count` messages from `first` on if the first run of the lane begins with them. Returns their place,
        or -1."""
        runs, at = self.runs, self.start
        if self.removed or at >= len(runs) or runs[at] != first or runs[at + 1] < count:
            return -1
        place = runs[at + 2]
        self._advance(count)
        self.depth -= count
        self.queue.depth -= count
        return place

    def _take_in_run(self, at: int, first: int, stop: int, released: Released) -> int:
        runs, removed = self.runs, self.removed
        place = runs[at + 2] + first - runs[at]
        if not removed:
            released.append((place, stop - first))
            taken = stop - first
        else:
            fresh = [number for number in range(first, stop) if number not in removed]
            released.extend((place + number - first, 1) for number in fresh)
            taken = len(fresh)
        if at == self.start and first == runs[at]:
            self._advance(stop - first)
            return taken
        if stop - first >= CUT_FROM and len(runs) <= CUT_UP_TO:
            self._cut_out(at, first, stop)
            return taken
        if removed is None:
            removed = self.removed = set()
        removed.update(range(first, stop))
        if len(removed) >= FOLD_AT and len(removed) * 4 > self.depth:
            self._fold()
        return taken

    def _cut_out(self, at: int, first: int, stop: int) -> None:
        """Drop numbers of a run, but not the first ones of the lane."""
        begin, length, place = self.runs[at : at + 3]
        pieces = array("Q", (begin, first - begin, place) if first > begin else ())
        if stop < begin + length:
            pieces.extend((stop, begin + length - stop, place + stop - begin))
        self.runs[at : at + 3] = pieces
        if self.removed:
            self.removed.difference_update(range(first, stop))

    def _advance(self, count: int) -> None:
        """Drop `count` numbers at the front of the first run, and removed ones that follow."""
        runs, removed, start = self.runs, self.removed, self.start
        if removed:
            removed.difference_update(range(runs[start], runs[start] + count))
        while True:
            if count == runs[start + 1]:
                start += 3
            else:
                runs[start] += count
                runs[start + 1] -= count
                runs[start + 2] += count
            if not removed or start >= len(runs) or runs[start] not in removed:
                break
            removed.discard(runs[start])
            count = 1
        left = len(runs) - start
        if not left or (start >= TRIM_AT and start >= left) or (start >= TRIM_FEW_AT and left <= TRIM_FEW_AT):
            del runs[:start]
            start = 0
        self.start = start

    def _fold(self) -> None:
        """Rewrite the runs without the removed numbers."""
        folded = array("Q")
        for run in self.live():
            folded.extend(run)
        self.runs, self.start, self.removed = folded, 0, None

    def relocate(self, first: int, count: int, place: int, released: Released) -> None:
        """Note that `count` messages from `first`, which are one part of a run, have their rows at `place` from now
        on."""
        at = self.locate(first)
        runs = self.runs
        begin, length, old = runs[at], runs[at + 1], runs[at + 2]
        pieces = array("Q")
        if first > begin:
            pieces.extend((begin, first - begin, old))
        pieces.extend((first, count, place))
        rest = begin + length - (first + count)
        if rest > 0:
            pieces.extend((first + count, rest, old + first + count - begin))
        runs[at : at + 3] = pieces
        released.append((old + first - begin, count))

    def live(self, after: int = -1) -> Iterator[Run]:
        """Yield the runs of the messages after number `after`, without removed ones. The lane must not change
        meanwhile."""
        runs, removed = self.runs, self.removed
        at = self.start
        if after >= 0:
            at = max(self._first_after(after) - 3, at)
        for index in range(at, len(runs), 3):
            first, count, place = runs[index], runs[index + 1], runs[index + 2]
            if first <= after:
                cut = after + 1 - first
                if cut >= count:
                    continue
                first, count, place = first + cut, count - cut, place + cut
            if removed:
                yield from cut_run((first, count, place), removed)
            else:
                yield first, count, place

    def live_at_once(self) -> list[Run]:
        """Return all that `live` yields: most lanes of a state queue have one run, of one record."""
        runs, at = self.runs, self.start
        if len(runs) == at + 3 and not self.removed:
            return [(runs[at], runs[at + 1], runs[at + 2])]
        return list(self.live())

    def first(self) -> Run | None:
        """Return the run of the oldest message, or None."""
        for first, _count, place in self.live():
            return first, 1, place
        return None


def cut_run(run: Run, without: set[int]) -> Iterator[Run]:
    """Yield the parts of a run that are not in the set."""
    first, count, place = run
    begin = first
    end = first + count
    absent = (
        (number for number in range(first, end) if number in without)
        if count < len(without)
        else iter(sorted(number for number in without if first <= number < end))
    )
    for number in absent:
        if number > begin:
            yield begin, number - begin, place + begin - first
        begin = number + 1
    if begin < end:
        yield begin, end - begin, place + begin - first


def append_in_python(
    queues: dict[str, Queue], groups: Sequence[tuple[LaneName, int]], at: int, first: int, place: int, /
) -> tuple[int, int]:
    """Add the rows of groups from `at` on to the ends of their lanes, as far as these lanes have runs already. Returns
    where that ends, and how many rows were added."""
    rows = 0
    while at < len(groups):
        name, count = groups[at]
        queue = queues.get(name[0])
        lane = queue.lanes.get(name[1]) if queue is not None else None
        if lane is None or lane.rank != name[2] or not lane.runs or first + rows < lane.runs[-3]:
            break
        lane.append(first + rows, count, place + rows)
        at += 1
        rows += count
    return at, rows


def depths_in_python(queues: dict[str, Queue], names: list[str], /) -> list[int]:
    """Return how many messages without a key each of these queues has."""
    found = []
    for name in names:
        queue, depth = queues.get(name), 0
        lane = queue.lanes.get(b"") if queue is not None else None
        while lane is not None:
            depth += lane.depth
            lane = lane.lower
        found.append(depth)
    return found


append, depths = append_in_python, depths_in_python
with suppress(ModuleNotFoundError):
    import gateway.queue_manager.store._rows as compiled_lanes

    append, depths = compiled_lanes.append, compiled_lanes.depths
