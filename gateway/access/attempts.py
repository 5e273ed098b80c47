"""Guesses at passwords: answered late, the later the more there were, and never more at once than can be worked off.

Counted by address (an IPv6 client by its /64, which is one subscriber's). Bounded memory: the oldest address is
forgotten first. No I/O; the time is an argument.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

DELAY_FROM, DELAY_MOST = 0.25, 5.0
FORGET_SECONDS = 60.0
MAX_ADDRESSES = 10_000
MAX_PENDING = 1024
MAX_PENDING_OF_ADDRESS = 256
"""Hashes take tens of milliseconds: what waits longer than a client's patience need not be begun."""


class Attempts:
    """Failures of a while ago, and checks under way."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._pending: Counter[str] = Counter()
        self._all = 0

    def begin(self, address: str) -> bool:
        """Whether a check may begin now; False: too many are under way, of all or from there."""
        if self._all >= MAX_PENDING or self._pending[address] >= MAX_PENDING_OF_ADDRESS:
            return False
        self._pending[address] += 1
        self._all += 1
        return True

    def end(self, address: str) -> None:
        """A check that began is over."""
        self._all -= 1
        self._pending[address] -= 1
        if not self._pending[address]:
            del self._pending[address]

    def succeeded(self, address: str) -> None:
        """Its failures are forgiven."""
        self._failures.pop(address, None)

    def failed(self, address: str, now: float) -> float:
        """How late to say so: doubled with each failure from the same address, forgotten after a minute without."""
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures.popitem(last=False)
        self._failures[address] = (count, now)
        return float(min(DELAY_FROM * 2 ** min(count - 1, 10), DELAY_MOST))
