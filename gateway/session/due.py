"""What is due when, by name. What does not count any more, as the time of something that was replaced, is dropped a
little with each time that is noted: however many there are, no step takes long. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

LEAST = 1000
"""So many are not worth a look."""
AT_ONCE = 4
"""Times that are looked at when one is noted."""


class Due:
    """Times with names."""

    __slots__ = ("_counts", "_left", "_most", "_times")

    def __init__(self, counts: Callable[[float, str], bool]) -> None:
        self._counts = counts
        """Whether a time still counts for a name."""
        self._times: list[tuple[float, str]] = []
        self._left: list[tuple[float, str]] = []
        """Those that are still to be looked at, from the last on: what is left of a heap is one."""
        self._most = LEAST

    def __len__(self) -> int:
        return len(self._times) + len(self._left)

    def note(self, due: float, name: str) -> None:
        """This name is due then."""
        heappush(self._times, (due, name))
        if not self._left and len(self._times) > self._most:
            self._times, self._left = self._left, self._times
        for _ in range(min(AT_ONCE, len(self._left))):
            one = self._left.pop()
            if self._counts(*one):
                heappush(self._times, one)
            if not self._left:
                self._most = LEAST + 2 * len(self._times)

    def over(self, now: float) -> Iterator[str]:
        """The names that are due, those first that have been for longest."""
        while heap := min(filter(None, (self._times, self._left)), key=_first, default=None):
            if heap[0][0] > now:
                return
            yield heappop(heap)[1]


def _first(heap: list[tuple[float, str]]) -> tuple[float, str]:
    return heap[0]
