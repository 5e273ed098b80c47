"""How fast segments are zeroed: at full speed while the disk has nothing else to do, otherwise a little faster than
frames fill segments.

Zeroing three segments of a new journal at full speed costs the frames of the first second most of the disk, and a
segment is not needed before the current one is full.
"""

from __future__ import annotations

import threading

AHEAD, CATCHING_UP = 2, 3
"""Bytes zeroed for each byte of frames: a segment is ready when the one in use is half full. More while there is none
besides the reserve for a full disk."""
LOOK_SECONDS = 0.004
"""How long the disk must have been left alone to count as idle."""


class Pace:
    """Paces the zeroing. The writing threads note here what they write; the thread that zeroes asks. These are integers
    and flags that one thread sets and another reads, so there is no lock."""

    def __init__(self) -> None:
        self.placed = 0
        """Bytes of frames placed since the start."""
        self.writing = False
        """Whether a frame is on its way to the disk."""
        self.ahead = CATCHING_UP
        self._hurried = threading.Event()
        self._seen = 0
        self._credit = 0

    def hurry(self) -> None:
        """Zero at full speed: a frame waits for the segment that is being zeroed, or the store closes."""
        self._hurried.set()

    def calm(self) -> None:
        """Zero at the usual pace again: nothing waits any more."""
        self._hurried.clear()

    def wait(self, size: int) -> None:
        """Wait until `size` bytes may be zeroed."""
        while not self._hurried.is_set():
            placed, seen = self.placed, self._seen
            self._seen = placed
            self._credit = min(self._credit + self.ahead * (placed - seen), 8 * size)
            if self._credit >= size:
                self._credit -= size
                return
            if placed == seen and not self.writing:
                return
            self._hurried.wait(LOOK_SECONDS)
