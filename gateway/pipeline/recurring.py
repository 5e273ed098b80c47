"""Whether the heads of chunks come back in later chunks, as far as samples of them tell. Pure.

In a small chunk of a large fleet every head is another one, and still each of them comes back with its device. Decoding
each once pays when they are few enough to be remembered: how many there are is estimated as animals of a wood are
counted, by how many of a new sample have been seen before.
"""

from __future__ import annotations

from collections.abc import Iterable

SAMPLE = 256
"""Heads of a chunk that are looked at, chosen by chance."""
LEAST_SEEN = 8
"""Fewer that were seen before say nothing."""
MOST_KEPT = 32_768
"""Marks of heads; beyond these it begins anew."""


class Recurrence:
    """See the module."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._seen: set[int] = set()

    def comes_back(self, sample: Iterable[bytes]) -> bool:
        """Whether all heads there are would fit what is remembered, twice over. The sample is kept in mind."""
        marks = set(map(hash, sample))
        again = len(marks & self._seen)
        few = again >= LEAST_SEEN and 2 * len(marks) * len(self._seen) <= again * self._remembered
        if len(self._seen) > MOST_KEPT:
            self._seen.clear()
        self._seen |= marks
        return few
