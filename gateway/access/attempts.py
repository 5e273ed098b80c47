"""Limits on guessing passwords: each failure delays the next answer longer, and few hashes are computed at a time.

Counted by address; an IPv6 client by its /64, which one subscriber has. Bounded memory: the oldest address is forgotten
first. No I/O; the time is an argument.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

DELAY_FROM, DELAY_MOST = 0.25, 5.0
FORGET_SECONDS = 60.0
MAX_ADDRESSES = 10_000
MAX_PENDING = 1024
MAX_PENDING_OF_ADDRESS = 256
"""Hashes take tens of milliseconds: beyond this, a client would give up before its turn came."""


class Attempts:
    """The recent failures of each address, and the checks under way."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._pending: Counter[str] = Counter()
        self._all = 0

    def begin(self, address: str) -> bool:
        """Begin a check. False: too many are under way, in all or from this address."""
        if self._all >= MAX_PENDING or self._pending[address] >= MAX_PENDING_OF_ADDRESS:
            return False
        self._pending[address] += 1
        self._all += 1
        return True

    def end(self, address: str) -> None:
        """A check that had begun has ended."""
        self._all -= 1
        self._pending[address] -= 1
        if not self._pending[address]:
            del self._pending[address]

    def succeeded(self, address: str) -> None:
        """Forget the failures of this address."""
        self._failures.pop(address, None)

    def failed(self, address: str, now: float) -> float:
        """Count a failure. Returned is the delay of its answer: doubled with each failure from the same address, and
        reset after a minute without one."""
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures.popitem(last=False)
        self._failures[address] = (count, now)
        return float(min(DELAY_FROM * 2 ** min(count - 1, 10), DELAY_MOST))
