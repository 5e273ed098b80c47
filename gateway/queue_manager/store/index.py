"""The index of a store: queues, lanes, state records, backout counts. Derived from frames, in order; no input or
output.

A running store and one that recovers use the same functions: what a frame says is applied, and the extent of the frame
remembers which extents it refers to. `hidden` holds the numbers of messages that are locked by a unit of work, or that
leave in a frame which is not applied yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gateway.queue_manager.store.lanes import Lane, Queue, Released, Run, append, depths
from gateway.queue_manager.store.numbers import Numbers, parted
from gateway.queue_manager.store.place import BLOCK_BITS, NUMBER_BITS, NUMBER_MASK, PRIORITIES, ROW_BITS, VOLATILE
from gateway.queue_manager.store.replaced import Records, put_in_place, stand_alone
from gateway.queue_manager.store.rows import one_run
from gateway.queue_manager.store.space import Extent, Space
from gateway.queue_manager.store.unit import LaneName, Replaced, TokenRun

__all__ = [
    "Found",
    "Index",
    "LaneName",
    "MoveRun",
    "TokenRun",
    "consecutive",
    "first_visible",
    "neighbours",
    "spans",
    "visible",
]


_NEW = tuple.__new__


class Found(NamedTuple):
    """The result of looking tokens up: runs in the order given, each with whether it is non-persistent, and the tokens
    that were not there.
    """

    runs: list[tuple[TokenRun, bool]]
    missing: list[int]


class MoveRun(NamedTuple):
    """Messages that become the numbers from `to_first` on of another lane."""

    lane: LaneName
    to_lane: LaneName
    first: int
    to_first: int
    length: int


class Index:
    """The queues of a store with their messages, and its small records."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.depths: Callable[[list[str]], list[int]] = partial(depths, self.queues)
        """How many messages without a key are on each of these queues."""
        self.space = Space()
        self.hidden = Numbers()
        self.backouts: dict[int, int] = {}
        self.state: dict[bytes, bytes] = {}
        self.state_slots: dict[bytes, int] = {}

    # ---- lanes

    def find(self, name: LaneName) -> Lane | None:
        """The lane, if it has or had messages."""
        queue = self.queues.get(name[0])
        lane = queue.lanes.get(name[1]) if queue else None
        while lane is not None and lane.rank < name[2]:
            lane = lane.lower
        return lane if lane is not None and lane.rank == name[2] else None

    def lane(self, name: LaneName) -> Lane:
        """The lane, which is created if there is none."""
        queue = self.queues.get(name[0])
        if queue is None:
            queue = self.queues[name[0]] = Queue(name[0])
        head = queue.lanes.get(name[1])
        if head is not None and head.rank == name[2]:
            return head
        above, below = None, head
        while below is not None and below.rank < name[2]:
            above, below = below, below.lower
        if below is not None and below.rank == name[2]:
            return below
        lane = Lane(queue, name[1], name[2])
        lane.lower = below
        if above is None:
            queue.lanes[name[1]] = lane
        else:
            above.lower = lane
        return lane

    def chain(self, queue: str, key: bytes) -> Iterator[Lane]:
        """The lanes of a key, highest priority first."""
        entry = self.queues.get(queue)
        lane = entry.lanes.get(key) if entry else None
        while lane is not None:
            yield lane
            lane = lane.lower

    def _forget_if_empty(self, lane: Lane) -> None:
        """Remove the lanes of a key without messages: keys come and go with sessions. Queues without keys keep their
        lanes.
        """
        lanes, key = lane.queue.lanes, lane.key
        if not any(each.depth for each in self.chain(lane.queue.name, key)):
            lanes.pop(key, None)
            if not lanes:
                self.queues.pop(lane.queue.name, None)

    def forget(self, queue: str) -> None:
        """Forget a deleted queue; nothing is kept of one that is empty."""
        entry = self.queues.get(queue)
        if entry is not None and not entry.depth:
            del self.queues[queue]

    # ---- applying what a frame says

    def put(self, groups: Sequence[tuple[LaneName, int]], first: int, place: int) -> int:
        """Add the new messages of a frame, whose rows begin at `place`, by lane; returns how many there are."""
        at, rows = append(self.queues, groups, 0, first, place)
        while at < len(groups):
            name, count = groups[at]
            self.lane(name).append(first + rows, count, place + rows)
            rows += count
            at, more = append(self.queues, groups, at + 1, first + rows, place + rows)
            rows += more
        if rows:
            self._count_rows(place >> ROW_BITS, rows)
        return rows

    def _count_rows(self, frame: int, rows: int) -> None:
        """Count `rows` live rows in `frame`."""
        if frame & VOLATILE:
            self.space.volatile[frame] = self.space.volatile.get(frame, 0) + rows
            return
        extent = self.space.by_slot[frame >> BLOCK_BITS]
        extent.live += rows
        extent.rows += rows

    def take(self, runs: Sequence[TokenRun], by: Extent | None) -> None:
        """Remove messages. Unknown ones are ignored: their segment was recycled, or they were moved."""
        released: Released = []
        queues = self.queues
        for name, first, count in runs:
            queue = queues.get(name[0])
            lane = queue.lanes.get(name[1]) if queue is not None else None
            if lane is None or lane.rank != name[2]:
                lane = self.find(name)
            if lane is None:
                continue
            place = lane.shift(first, count)
            if place >= 0:  # as nearly always
                released.append((place, count))
            else:
                lane.take(first, count, released)
            if not lane.depth and lane.key:
                self._forget_if_empty(lane)
        self._forget_numbers(runs)
        self.space.release(released, by)

    def _forget_numbers(self, gone: Sequence[TokenRun]) -> None:
        if self.hidden:
            self.hidden.remove(*parted(gone))
        if self.backouts:
            for _lane, first, count in gone:
                numbers = range(first, first + count)
                for number in self.backouts.keys() & numbers if count > 1 else numbers:
                    self.backouts.pop(number, None)

    def replace(self, replaced: Replaced, first: int, place: int, by: Extent) -> None:
        """Let messages take the place of others, each alone in its lane; their rows begin at `place`."""
        queue, numbers = self.queues.get(replaced.queue), replaced.numbers
        lanes = queue.lanes if queue is not None else {}
        been, others = put_in_place(lanes, replaced.rank, replaced.keys, numbers, first, place)
        self._count_rows(place >> ROW_BITS, len(numbers) - len(others))
        if self.hidden:
            self.hidden.remove(numbers, [])
        if self.backouts:
            for number in numbers:
                self.backouts.pop(number, None)
        self.space.release(been, by)
        for row in others:  # what was there has changed since
            name = replaced.queue, replaced.keys[row], replaced.rank
            self.put([(name, 1)], first + row, place + row)
            self.take([TokenRun(name, numbers[row], 1)], by)

    def move(self, run: MoveRun, by: Extent | None) -> None:
        """Move messages from one lane to the end of another. Their rows stay where they are."""
        source = self.find(run.lane)
        if source is None:
            return
        target = self.lane(run.to_lane)
        whole = source.shift(run.first, run.length) if source is not target else -1
        if whole >= 0:  # as nearly always
            parts = [(run.first, run.length, whole)]
        else:
            parts = list(spans(source, run.first, run.length))
        for first, count, place in parts:
            if whole < 0:
                source.take(first, count, [])
            to_first = run.to_first + first - run.first
            target.append(to_first, count, place)
            self.space.moved(place, to_first, count, target)
            self.space.refer(by, place)
            self._move_numbers(first, to_first, count)
        if not source.depth and source.key:
            self._forget_if_empty(source)

    def _move_numbers(self, first: int, to_first: int, count: int) -> None:
        if self.hidden:
            self.hidden.difference_update(range(first, first + count))
        if self.backouts:
            for number in range(first, first + count):
                if number in self.backouts:
                    self.backouts[to_first + number - first] = self.backouts.pop(number)

    def carry(self, name: LaneName, first: int, count: int, place: int, by: Extent | None) -> None:
        """Messages were written again at `place`, unchanged; their old rows are no longer needed."""
        lane = self.lane(name)
        released: Released = []
        kept = list(spans(lane, first, count))
        for begin, length, _old in kept:
            lane.relocate(begin, length, place + begin - first, released)
        begin = first
        for number, length, _old in [*kept, (first + count, 0, 0)]:
            if number > begin:  # recovery: the segment of the first copy is gone
                lane.insert(begin, number - begin, place + begin - first)
            begin = number + length
        self._count_rows(place >> ROW_BITS, count)
        self.space.release(released, by)

    def back_out(self, name: LaneName, number: int, count: int, by: Extent | None) -> None:
        """Set the backout count of a message."""
        lane = self.find(name)
        place = lane.place(number) if lane is not None else -1
        if place >= 0:
            self.backouts[number] = count
            self.space.refer(by, place)

    def put_state(self, key: bytes, value: bytes | None, by: Extent) -> None:
        """Add, replace or remove (None) a small record."""
        old = self.state_slots.pop(key, None)
        if old is not None and old in self.space.by_slot:
            extent = self.space.by_slot[old]
            extent.state -= 1
            by.refs.add(extent.serial)
            self.space.changed = True
        if value is None:
            self.state.pop(key, None)
            return
        self.state[key] = value
        self.state_slots[key] = by.slot
        by.state += 1

    # ---- questions

    def replaceable(self, queue: str, records: Records, head: bytes) -> tuple[Replaced | None, Records]:
        """Split state records: those that can take the place of the one message of their keys, and the others."""
        known = self.queues.get(queue)
        if known is None or self.hidden:
            return None, records
        found = Replaced(queue, PRIORITIES - 1, head)
        others = stand_alone(known.lanes, found.rank, records, found.keys, found.numbers, found.bodies)
        return found if found.keys else None, others

    def alone(self, queue: str, key: bytes) -> TokenRun | None:
        """The one message of a key, as for most state records; None if there is another number of them, or if it is
        non-persistent or may be hidden."""
        entry = self.queues.get(queue)
        lane = entry.lanes.get(key) if entry is not None else None
        if lane is None or lane.depth != 1 or lane.lower is not None or lane.removed or self.hidden:
            return None
        runs, at = lane.runs, lane.start
        if runs[at + 2] >> ROW_BITS & VOLATILE:
            return None
        return _NEW(TokenRun, ((queue, key, lane.rank), runs[at], 1))

    def run_of(self, queue: str, key: bytes, token: int, count: int) -> tuple[TokenRun, bool] | None:
        """So many messages with consecutive tokens, and whether they are non-persistent; None if they are not all there
        in one run: `runs_of` then says which are."""
        name, number = (queue, key, token >> NUMBER_BITS), token & NUMBER_MASK
        entry = self.queues.get(queue)
        lane = entry.lanes.get(key) if entry is not None else None
        if lane is None or lane.rank != name[2]:
            lane = self.find(name)
        place = -1
        if lane is not None:
            runs, at = lane.runs, lane.start
            first = not lane.removed and at < len(runs) and runs[at] == number and count <= runs[at + 1]
            place = runs[at + 2] if first else lane.place_of_run(number, count)  # the first, as nearly always
        return (TokenRun(name, number, count), bool(place >> ROW_BITS & VOLATILE)) if place >= 0 else None

    def runs_of(self, queue: str, key: bytes, wanted: Iterable[tuple[int, int]]) -> Found:
        """Look up runs of tokens (first, count)."""
        runs: list[tuple[TokenRun, bool]] = []
        missing: list[int] = []
        for first, count in wanted:
            name = (queue, key, first >> NUMBER_BITS)
            lane = self.find(name)
            place = lane.place_of_run(first & NUMBER_MASK, count) if lane is not None else -1
            if place >= 0:  # as nearly always
                runs.append((TokenRun(name, first & NUMBER_MASK, count), bool(place >> ROW_BITS & VOLATILE)))
                continue
            shift = first & ~NUMBER_MASK
            begin = first
            for at, length, place in spans(lane, first & NUMBER_MASK, count) if lane is not None else ():
                missing.extend(range(begin, shift + at))
                runs.append((TokenRun(name, at, length), bool(place >> ROW_BITS & VOLATILE)))
                begin = shift + at + length
            missing.extend(range(begin, first + count))
        return Found(runs, missing)

    def show(self, queue: str, key: bytes, tokens: Iterable[int]) -> None:
        """Unlock messages."""
        numbers = [token & NUMBER_MASK for token in tokens]
        if not numbers:
            return
        self.hidden.difference_update(numbers)
        lowest = min(numbers)
        for lane in self.chain(queue, key):
            lane.skip = min(lane.skip, lowest)

    def browse(self, queue: str, key: bytes, after: int | None, limit: int, *, locked: bool) -> list[tuple[int, Run]]:
        """The next runs after a token (None: all) by priority, with their ranks; at most `limit` messages."""
        runs: list[tuple[int, Run]] = []
        rank, number = (after >> NUMBER_BITS, after & NUMBER_MASK) if after is not None else (0, -1)
        for lane in self.chain(queue, key):
            if lane.rank < rank:
                continue
            if limit == 1 and not locked:  # as a get asks
                found = first_visible(lane, number if lane.rank == rank else -1, self.hidden)
                if found is not None:
                    return [*runs, (lane.rank, found)]
                continue
            for run in visible(lane, number if lane.rank == rank else -1, None if locked else self.hidden):
                first, count, place = run
                runs.append((lane.rank, (first, min(count, limit), place)))
                limit -= count
                if limit <= 0:
                    return runs
        return runs

    def keys(self, queue: str) -> Iterable[bytes]:
        """The keys that messages of a queue have, as long as it does not change."""
        entry = self.queues.get(queue)
        return entry.lanes if entry else ()

    def lanes_of(self, queue: str) -> list[Lane]:
        """The lanes of every key of a queue."""
        entry = self.queues.get(queue)
        found: list[Lane] = []
        for first in entry.lanes.values() if entry else ():
            lane: Lane | None = first
            while lane is not None:
                found.append(lane)
                lane = lane.lower
        return found

    def depth_of_all(self, queue: str, /) -> int:
        """How many messages a queue has under all keys together."""
        entry = self.queues.get(queue)
        return entry.depth if entry is not None else 0

    def depth(self, queue: str, key: bytes = b"", least: int = 0) -> int:
        """How many messages a key has of at least this priority, locked ones included."""
        entry = self.queues.get(queue)
        lane = entry.lanes.get(key) if entry is not None else None
        if lane is not None and lane.lower is None and not least:  # as nearly always
            return lane.depth
        depth, lowest = 0, PRIORITIES - 1 - least
        while lane is not None and lane.rank <= lowest:
            depth += lane.depth
            lane = lane.lower
        return depth


def consecutive(tokens: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending runs (first, count) of consecutive tokens; duplicates count once."""
    run = _one_run(tokens)
    if run is not None:
        yield run
        return
    ordered = sorted(set(tokens))
    if not ordered:
        return
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        yield ordered[0], len(ordered)
        return
    first = previous = ordered[0]
    for token in ordered[1:]:
        if token != previous + 1:
            yield first, previous + 1 - first
            first = token
        previous = token
    yield first, previous + 1 - first


def _one_run(tokens: Iterable[int]) -> tuple[int, int] | None:
    """The run that the tokens are, which is the usual case: what was fetched in order is taken in order. None: there
    may be several runs, or none."""
    if isinstance(tokens, range):
        return (tokens.start, len(tokens)) if tokens and tokens.step == 1 else None
    return (tokens[0], len(tokens)) if isinstance(tokens, list) and one_run(tokens) else None


def neighbours(tokens: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive tokens in the order given; duplicates count once."""
    run = _one_run(tokens)
    if run is not None:
        yield run
        return
    first = count = 0
    for token in dict.fromkeys(tokens):
        if count and token == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = token, 1
    if count:
        yield first, count


def spans(lane: Lane, first: int, count: int) -> Iterator[Run]:
    """The runs of those of `count` numbers from `first` that are in the lane."""
    end = first + count
    for begin, length, place in lane.live(first - 1):
        if begin >= end:
            return
        yield begin, min(length, end - begin), place


def first_visible(lane: Lane, after: int, hidden: Numbers) -> Run | None:
    """The first message of a lane that is not hidden; remembers how far its front is hidden, as `visible` does."""
    for first, count, place in lane.live(max(after, lane.skip - 1)):
        number = hidden.first_outside(first, count)
        if number >= 0:
            if after < lane.skip:
                lane.skip = number
            return number, 1, place + number - first
    return None


def visible(lane: Lane, after: int, hidden: Numbers | None) -> Iterator[Run]:
    """The runs that are not hidden. Remembers how far the front of the lane is hidden, so that many open gets stay
    cheap.
    """
    if not hidden:
        yield from lane.live(after)
        return
    front = after < lane.skip
    for run in lane.live(max(after, lane.skip - 1)):
        for part in hidden.cut(run):
            if front:
                lane.skip, front = part[0], False
            yield part
