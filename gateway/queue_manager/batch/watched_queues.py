"""Queues that only messages of devices name: rules may make a queue's name from the topic."""

from __future__ import annotations

from heapq import nsmallest
from math import inf
from time import monotonic

from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue

NAMES_REMEMBERED = 10_000
MOST_WATCHED = 500
"""The same number as on IBM MQ."""
SECONDS = 10.0
"""Seconds between two choices of the fullest: looking at ten thousand queues costs some milliseconds."""


class WatchedQueues:
    """The queues that units have named, of which the fullest are watched."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.names: set[str] = set()
        self._fullest: set[str] = set()
        self._until = -inf

    def fullest(self) -> set[str]:
        """The queues to be watched, at most MOST_WATCHED, chosen by how many tenths of their MAXDEPTH they hold, so
        that the choice seldom changes."""
        queues, now = self._core.queues, monotonic()
        if len(self.names) <= MOST_WATCHED:
            return {name for name in self.names if name in queues}
        if now >= self._until:
            self._until = now + SECONDS
            there = (queue for name in self.names if (queue := queues.get(name)) is not None)
            self._fullest = {queue.name for queue in nsmallest(MOST_WATCHED, there, key=self._place)}
        return self._fullest

    def _place(self, queue: LocalQueue) -> tuple[int, str]:
        return -(10 * self._core.depth(queue) // max(1, queue.max_depth)), queue.name
