"""How long a disk is not trusted after a write that hung. A write on the caller's thread stops everything as long as it
lasts, probes included, and the next one may hang too."""

from __future__ import annotations

HANGING = 1.0
"""A write that takes more seconds than this has hung."""
SHORTEST, LONGEST = 60.0, 3600.0
"""Seconds without a hanging write until the disk is trusted again; doubled each time that this was in vain."""


class Distrust:
    """Begins when a write hangs, and lasts until the disk has behaved for a while."""

    def __init__(self) -> None:
        self.begun = False
        """Whether a write has hung, and no other one has been tried since."""
        self._seconds = SHORTEST
        self._until = float("-inf")

    def hung(self, since: float, seconds: float) -> None:
        """Note that a write has hung, whoever waited for it."""
        if since > self._until + LONGEST:
            self._seconds = SHORTEST
        elif since > self._until:
            self._seconds = min(2 * self._seconds, LONGEST)
        self._until = since + seconds + self._seconds
        self.begun = True

    def lasts(self, now: float) -> bool:
        """Whether the caller's thread is not to try a write yet; if it may, it is about to."""
        self.begun = self.begun and now < self._until
        return self.begun
