"""How long a disk is not trusted after a write that hung: a write on the caller's thread stops everything as long as it
lasts, probes included, and the next one may hang too.
"""

from __future__ import annotations

HANGING = 1.0
"""Seconds: a write that takes longer has hung."""
SHORTEST, LONGEST = 60.0, 3600.0
"""Seconds without a write that hangs until the disk is trusted again: each time it was in vain twice as many."""


class Distrust:
    """Begins with a write that hangs."""

    def __init__(self) -> None:
        self.begun = False
        """A write has hung, and no other one has been tried since."""
        self._seconds = SHORTEST
        self._until = float("-inf")

    def hung(self, since: float, seconds: float) -> None:
        """A write has hung, whoever waited for it."""
        if since > self._until + LONGEST:
            self._seconds = SHORTEST
        elif since > self._until:
            self._seconds = min(2 * self._seconds, LONGEST)
        self._until = since + seconds + self._seconds
        self.begun = True

    def lasts(self, now: float) -> bool:
        """Whether the caller's thread is not to try a write yet; otherwise it is about to."""
        self.begun = self.begun and now < self._until
        return self.begun
