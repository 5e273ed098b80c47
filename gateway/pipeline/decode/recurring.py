"""Whether the heads of chunks come back in later chunks. Pure.

In a small chunk of a large fleet every head is another one, and still each of them comes back with its device. Decoding
each once pays when they are few enough to be remembered: how many there are is estimated as animals of a wood are
counted, by how many of those met now have been met before.
"""

from __future__ import annotations

LEAST_SEEN = 8
"""Fewer that were seen before say nothing."""


def come_back(met: int, again: int, seen: int, remembered: int) -> bool:
    """Whether all heads there are would fit what is remembered, twice over. `met`: heads of a chunk; `again`: those of
    them that were among the `seen` ones before it."""
    return again >= LEAST_SEEN and 2 * met * seen <= again * remembered
