"""Rates of connections and of bytes: who is too fast is turned away, or read more slowly. Bounded memory."""

from __future__ import annotations

from collections.abc import Callable

MAX_ADDRESSES = 65_536


class Bucket:
    """Lets `rate` a second through, and bursts of one second's worth."""

    __slots__ = ("_filled", "_left", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._left = rate
        self._filled = now

    def take(self, amount: float, now: float) -> float:
        """Take `amount`; the answer is how many seconds too early that was (0: in time)."""
        self._left = min(self.rate, self._left + (now - self._filled) * self.rate)
        self._filled = now
        self._left -= amount
        return 0.0 if self._left >= 0 else -self._left / self.rate


class ConnectRates:
    """New connections of the process, and from each address."""

    def __init__(self, rate: int, per_address: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = Bucket(rate, clock()) if rate else None
        self._per_address = per_address
        self._addresses: dict[str, Bucket] = {}

    def admit(self, address: str) -> bool:
        """Whether a connection from this address is in time."""
        now = self._clock()
        if self._all is not None and self._all.take(1, now):
            return False
        if not self._per_address:
            return True
        bucket = self._addresses.get(address)
        if bucket is None:
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.clear()
            bucket = self._addresses[address] = Bucket(self._per_address, now)
        return not bucket.take(1, now)
