"""Token buckets and shares: connections beyond them are refused, clients beyond them are read later. Bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

MAX_ADDRESSES = 65_536
MAX_DEBT = 5.0
"""Seconds of its rate that a bucket can owe: the longest delay after a burst."""


class Bucket:
    """Lets `rate` a second through, and bursts of one second's worth."""

    __slots__ = ("_filled", "_left", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._left = rate
        self._filled = now

    def take(self, amount: float, now: float) -> float:
        """Take `amount`. Returns by how many seconds that was too early; 0: it was not."""
        left = min(self.rate, self._left + (now - self._filled) * self.rate) - amount
        self._filled = now
        self._left = max(left, -MAX_DEBT * self.rate)
        return 0.0 if self._left >= 0 else -self._left / self.rate


class ClientRates(NamedTuple):
    """What clients of one listener may send in a second; 0 is no limit."""

    bytes: int
    publishes: int
    total_bytes: tuple[int, int] = (0, 0)
    """All clients together: of the listener, of the process."""
    total_publishes: tuple[int, int] = (0, 0)


Pair = tuple[Bucket | None, Bucket | None]
"""For bytes and for publications."""


def pair(bytes_rate: int, publish_rate: int, now: float) -> Pair:
    """Buckets for the rates that there are."""
    return (Bucket(bytes_rate, now) if bytes_rate else None, Bucket(publish_rate, now) if publish_rate else None)


class SendRates:
    """Buckets of clients, listeners and the process. Those of a client are kept on its link, in `buckets`."""

    def __init__(self, by_listener: dict[str, ClientRates], clock: Callable[[], float]) -> None:
        now = clock()
        self._rates = by_listener
        self.limited = bool(by_listener)
        """Whether clients of any listener are limited."""
        self._clock = clock
        totals = next(iter(by_listener.values()), ClientRates(0, 0))
        self._process = pair(totals.total_bytes[1], totals.total_publishes[1], now)
        self._listeners = {
            name: pair(one.total_bytes[0], one.total_publishes[0], now) for name, one in by_listener.items()
        }

    def __contains__(self, listener: str) -> bool:
        return listener in self._rates

    def own(self, listener: str) -> Pair:
        """Buckets for a new client."""
        rates = self._rates[listener]
        return pair(rates.bytes, rates.publishes, self._clock())

    def early(self, listener: str, own: Pair, amounts: tuple[int, int]) -> float:
        """Take so many bytes and publications. Returns by how many seconds that was too early."""
        now = self._clock()
        found = 0.0
        for buckets in (own, self._listeners[listener], self._process):
            for bucket, amount in zip(buckets, amounts, strict=True):
                if bucket is not None:
                    found = max(found, bucket.take(amount, now))
        return found


class ConnectRates:
    """New connections, of all and from each address."""

    def __init__(self, rate: int, per_address: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = Bucket(rate, clock()) if rate else None
        self._per_address = per_address
        self._addresses: dict[str, Bucket] = {}

    def admit(self) -> bool:
        """Whether one more connection is within the rate."""
        return self._all is None or not self._all.take(1, self._clock())

    def admit_from(self, address: str) -> bool:
        """Whether one more from this address is."""
        if not self._per_address:
            return True
        now = self._clock()
        bucket = self._addresses.get(address)
        if bucket is None:
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.clear()
            bucket = self._addresses[address] = Bucket(self._per_address, now)
        return not bucket.take(1, now)


class Shares:
    """Open connections by address, where addresses have a share: at most one entry a connection."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Count one more from this address. False: it has used up its share."""
        if self.most and self._open[address] >= self.most:
            return False
        if self.most:
            self.hold(address)
        return True

    def hold(self, address: str) -> None:
        """Count one more, whether its share is used up or not."""
        self._open[address] += 1

    def give_back(self, address: str) -> None:
        """One from this address has ended."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
