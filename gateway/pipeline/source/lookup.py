"""Questions to a journal's index: which messages of these queues lie where. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import ROW_BITS, slot_of


class Run(NamedTuple):
    """Messages with consecutive numbers whose rows lie behind one another in one frame."""

    queue: str
    priority: int
    first: int
    rows: int
    place: int


class Lookup:
    """See the module."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def queues(self, patterns: str) -> list[str]:
        """The queues that a comma-separated list of names and patterns means."""
        return matching(patterns, self.index.queues)

    def runs(self, patterns: str, low: int, high: int | None = None, limit: int | None = None) -> list[Run]:
        """What lies on these queues from number `low` on, in the order of numbers; at most `limit` messages. Lanes are
        given numbers group by group, so runs of several lanes never interleave."""
        found: list[Run] = []
        left = limit
        for run in merge(
            *(self._lane_runs(queue, lane, low, high) for queue, lane in self._lanes(patterns)), key=_first
        ):
            if left is not None and run.rows >= left:
                found.append(run._replace(rows=left))
                break
            found.append(run)
            left = None if left is None else left - run.rows
        return found

    def count(self, patterns: str, low: int, high: int | None = None) -> int:
        """How many messages that is."""
        return sum(run.rows for queue, lane in self._lanes(patterns) for run in self._lane_runs(queue, lane, low, high))

    def bytes_of(self, run: Run) -> int:
        """About how many bytes of its segment a run has."""
        extent = self.index.space.by_slot.get(slot_of(run.place >> ROW_BITS))
        return extent.used * run.rows // max(1, extent.rows) if extent else 0

    def within(self, runs: list[Run], size: int) -> list[Run]:
        """The first runs, as many as stay below `size` bytes; one at least."""
        kept: list[Run] = []
        for run in runs:
            size -= self.bytes_of(run)
            if size < 0 and kept:
                break
            kept.append(run)
        return kept

    def _lanes(self, patterns: str) -> Iterator[tuple[str, Lane]]:
        """Of application queues: they have one key, the empty one; the gateway's state queues have others."""
        for name in self.queues(patterns):
            lane = self.index.queues[name].lanes.get(b"")
            while lane is not None:
                yield name, lane
                lane = lane.lower

    @staticmethod
    def _lane_runs(queue: str, lane: Lane, low: int, high: int | None) -> Iterator[Run]:
        for first, count, place in lane.live(low - 1):
            if high is not None and first + count > high:
                count = high - first
                if count <= 0:
                    return
            yield Run(queue, 9 - lane.rank, first, count, place)


def _first(run: Run) -> int:
    return run.first


def matching(patterns: str, names: Iterable[str]) -> list[str]:
    """The names that a comma-separated list of names and patterns means, in order."""
    wanted = [part.strip() for part in patterns.split(",") if part.strip()]
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted))
