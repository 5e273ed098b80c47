"""Which worker commits a unit, and in which order outcomes are told. Pure.

Two units that touch the same lane (an application queue, or one key of a state queue) go to the same worker as long as
the first is in progress, so that the order for each device is kept whatever the number of connections. A unit that
touches lanes of several busy workers waits until their units are finished, and later units wait with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gateway.ports.batch import Done, Outcome, Unit

Lane = tuple[str, bytes]


def lanes_of(unit: Unit) -> set[Lane]:
    """Returns the lanes that a unit touches."""
    lanes: set[Lane] = {(puts.queue, puts.key) for puts in unit.puts}
    lanes.update((takes.queue, takes.key) for takes in unit.takes)
    lanes.update((replace.queue, replace.key) for replace in unit.replaces)
    for moves in unit.moves:
        lanes.add((moves.queue, moves.key))
        lanes.add((moves.to_queue, moves.to_key))
    return lanes


class Partition:
    """Assigns units to workers by number."""

    def __init__(self, workers: int) -> None:
        self._busy: dict[Lane, list[int]] = {}
        """By lane: the worker, and its number of units in progress."""
        self._loads = [0] * workers

    def assign(self, lanes: Iterable[Lane]) -> int | None:
        """Returns the worker for a unit with these lanes, counted as busy from now on; None if the unit has to wait."""
        lanes = list(lanes)
        workers = {self._busy[lane][0] for lane in lanes if lane in self._busy}
        if len(workers) > 1:
            return None
        worker = workers.pop() if workers else self._loads.index(min(self._loads))
        self._loads[worker] += 1
        for lane in lanes:
            self._busy.setdefault(lane, [worker, 0])[1] += 1
        return worker

    def release(self, worker: int, lanes: Iterable[Lane]) -> None:
        """A unit is finished: its lanes are free again."""
        self._loads[worker] -= 1
        for lane in lanes:
            entry = self._busy[lane]
            entry[1] -= 1
            if not entry[1]:
                del self._busy[lane]


class Submission:
    """One unit between `submit` and `done`."""

    __slots__ = ("_lanes", "done", "outcome", "unit", "worker")

    def __init__(self, unit: Unit, done: Done) -> None:
        self.unit = unit
        self.done = done
        self._lanes: set[Lane] | None = None
        self.worker: int | None = None
        self.outcome: Outcome | None = None

    @property
    def lanes(self) -> set[Lane]:
        """The lanes that the unit touches, worked out only if there are other units."""
        if self._lanes is None:
            self._lanes = lanes_of(self.unit)
        return self._lanes


class Queue:
    """Submissions in order: which can be started, and whose outcome can be told."""

    def __init__(self, workers: int) -> None:
        self._partition = Partition(workers)
        self._waiting: deque[Submission] = deque()
        self.order: deque[Submission] = deque()
        """Submissions whose outcome has not been told, whether finished or not."""
        self._alone: Submission | None = None
        """The only submission in progress, as long as there is no other: it needs no partition."""

    def add(self, submission: Submission) -> Sequence[Submission]:
        """Add a submission; returns those that can be started now, with `worker` filled in."""
        self.order.append(submission)
        if len(self.order) == 1:
            self._alone, submission.worker = submission, 0
            return (submission,)
        if self._alone is not None:
            self._partition.assign(self._alone.lanes)  # nobody else is busy: this gives the first worker, which has it
            self._alone = None
        self._waiting.append(submission)
        return self._start()

    def finish(self, submission: Submission, outcome: Outcome) -> tuple[list[Submission], Sequence[Submission]]:
        """Record an outcome; returns the submissions whose outcome can be told now, and those that can be started."""
        submission.outcome = outcome
        if submission is self._alone:
            self._alone = None
            self.order.clear()
            return [submission], ()
        if submission.worker is not None:
            self._partition.release(submission.worker, submission.lanes)
        told = []
        while self.order and self.order[0].outcome is not None:
            told.append(self.order.popleft())
        return told, self._start()

    def _start(self) -> Sequence[Submission]:
        started = []
        while self._waiting:
            worker = self._partition.assign(self._waiting[0].lanes)
            if worker is None:
                break
            submission = self._waiting.popleft()
            submission.worker = worker
            started.append(submission)
        return started
