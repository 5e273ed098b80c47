"""Queues that nothing but the messages of devices names: rules may make a queue's name from the topic."""

from __future__ import annotations

from heapq import nsmallest
from math import inf
from time import monotonic

from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue

NAMES_REMEMBERED = 10_000
MOST_WATCHED = 500
"""As many as are watched on IBM MQ."""
SECONDS = 10.0
"""They are told apart so often: who asks for ten thousand queues pays some milliseconds."""


class WatchedQueues:
    """The queues that units have named, of which the fullest are watched."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.names: set[str] = set()
        self._fullest: set[str] = set()
        self._until = -inf

    def fullest(self) -> set[str]:
        """As many as are watched, by the tenth of their MAXDEPTH that they hold: which ones they are changes seldom."""
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
