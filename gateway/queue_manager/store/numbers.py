"""A set of message numbers in which a long run of consecutive numbers costs nothing per number: a frame mostly takes
one run from the front of a queue. No input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.queue_manager.store.lanes import Run, cut_run
from gateway.queue_manager.store.unit import LaneName

LONG = 16
"""Runs of at least this many numbers are kept as runs."""
MOST_RUNS = 32
"""The most runs: searching more would be no faster than a set."""


class Numbers:
    """A set of numbers, with methods of `set`."""

    __slots__ = ("_runs", "_single")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._runs: list[range] = []
        self._single: set[int] = set(numbers)

    def __bool__(self) -> bool:
        return bool(self._runs or self._single)

    def __contains__(self, number: int) -> bool:
        return number in self._single or any(number in run for run in self._runs)

    def among(self, numbers: range) -> list[int]:
        """The numbers of a run that are in the set, in any order."""
        found = self._single.intersection(numbers) if self._single else set()
        for run in self._runs:
            found.update(range(max(run.start, numbers.start), min(run.stop, numbers.stop)))
        return list(found)

    def update(self, numbers: Iterable[int]) -> None:
        """Add numbers."""
        if isinstance(numbers, range) and len(numbers) >= LONG and len(self._runs) < MOST_RUNS:
            self._runs.append(numbers)
        else:
            self._single.update(numbers)

    def difference_update(self, numbers: Iterable[int]) -> None:
        """Remove numbers."""
        if isinstance(numbers, range):
            if self._single:
                self._single.difference_update(numbers)
            runs, start, stop = self._runs, numbers.start, numbers.stop
            if runs:
                self._runs = [run for run in runs if run.stop <= start or stop <= run.start]
                if len(self._runs) + 1 < len(runs) or numbers not in runs:
                    self._runs = [rest for run in runs for rest in _without(run, numbers)]
            return
        removed = set(numbers)
        broken = [run for run in self._runs if not removed.isdisjoint(run)]
        self._runs = [run for run in self._runs if run not in broken]
        self._single.update(*broken)
        self._single -= removed

    def add(self, short: list[int], long: list[range]) -> None:
        """Add numbers as `parted` returns them."""
        self._single.update(short)
        for numbers in long:
            self.update(numbers)

    def remove(self, short: list[int], long: list[range]) -> None:
        """Remove numbers as `parted` returns them."""
        for numbers in long:
            self.difference_update(numbers)
        if short and self._runs:
            self.difference_update(short)
        elif short:
            self._single.difference_update(short)

    def isdisjoint(self, numbers: Iterable[int]) -> bool:
        """Whether none of the numbers is in the set."""
        if not self._runs:
            return self._single.isdisjoint(numbers)
        asked = set(numbers)
        if not asked:
            return True
        low, high = min(asked), max(asked)
        close = [run for run in self._runs if run.start <= high and low < run.stop]
        return self._single.isdisjoint(asked) and all(asked.isdisjoint(run) for run in close)

    def first_outside(self, first: int, count: int) -> int:
        """The first of these numbers that is not in the set; -1 if all are."""
        single, runs, end = self._single, self._runs, first + count
        while first < end:
            if first not in single:
                over = next((run for run in runs if first in run), None) if runs else None
                if over is None:
                    return first
                first = over.stop - 1
            first += 1
        return -1

    def cut(self, run: Run) -> Iterator[Run]:
        """The parts of a run of messages that are not in the set."""
        parts = [run]
        for absent in self._runs:
            parts = [
                (rest.start, len(rest), place + rest.start - first)
                for first, count, place in parts
                for rest in _without(range(first, first + count), absent)
            ]
        for part in parts:
            if self._single:
                yield from cut_run(part, self._single)
            else:
                yield part


def parted(runs: Iterable[tuple[LaneName, int, int]]) -> tuple[list[int], list[range]]:
    """Split runs into the numbers of short runs, and the long runs."""
    short: list[int] = []
    long: list[range] = []
    for _, first, count in runs:
        if count == 1:
            short.append(first)
        elif count < LONG:
            short += range(first, first + count)
        else:
            long.append(range(first, first + count))
    return short, long


def _without(run: range, absent: range) -> Iterator[range]:
    """The parts of a run that are not in another run, in order."""
    if absent.start >= run.stop or absent.stop <= run.start:
        yield run
        return
    if run.start < absent.start:
        yield range(run.start, absent.start)
    if absent.stop < run.stop:
        yield range(absent.stop, run.stop)
