"""Guessing passwords takes time: each failure delays the next refusal longer.

Failures are counted by address, those of an IPv6 client by its /64, which belongs to one subscriber. Memory is bounded:
the oldest address is forgotten first. No I/O; the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict

DELAY_FROM, DELAY_MOST = 1.0, 5.0
"""Counted from the arrival of a password, so that the delay does not reveal how long its check took."""
FORGET_SECONDS = 60.0
MAX_ADDRESSES = 10_000


class Attempts:
    """The recent failures of each address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def failed(self, address: str, now: float) -> float:
        """Count a failure; returns the delay of its answer, which doubles with each failure from the same address and
        is reset after a minute without one. A success does not reset it, because a guesser may have a password of his
        own."""
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures.popitem(last=False)
        self._failures[address] = (count, now)
        return float(min(DELAY_FROM * 2 ** min(count - 1, 10), DELAY_MOST))
