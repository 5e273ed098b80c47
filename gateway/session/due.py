"""What is due when, by name. Times that no longer count, such as those of something that was replaced, are removed a
few at a time whenever another is noted, so that no step takes long however many there are. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

LEAST = 1000
"""This many times are not worth cleaning up."""
AT_ONCE = 4
"""How many old times are checked when one is noted."""


class Due:
    """Times with names."""

    __slots__ = ("_counts", "_left", "_most", "_times")

    def __init__(self, counts: Callable[[float, str], bool]) -> None:
        self._counts = counts
        """Whether a time still counts for a name."""
        self._times: list[tuple[float, str]] = []
        self._left: list[tuple[float, str]] = []
        """Times that are still to be checked, the last ones first; what is left of a heap is still a heap."""
        self._most = LEAST

    def __len__(self) -> int:
        return len(self._times) + len(self._left)

    def note(self, due: float, name: str) -> None:
        """Note that a name is due at a time."""
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
        """Remove and yield the names that are due, the longest overdue first."""
        while heap := min(filter(None, (self._times, self._left)), key=_first, default=None):
            if heap[0][0] > now:
                return
            yield heappop(heap)[1]


def _first(heap: list[tuple[float, str]]) -> tuple[float, str]:
    return heap[0]
