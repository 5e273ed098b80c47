"""Token buckets and shares: connections beyond them are refused, clients beyond them are read later. Bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

MAX_ADDRESSES = 65_536
MAX_DEBT = 5.0
"""How many seconds of its rate a bucket can owe, which is the longest delay after a burst."""


class Bucket:
    """Lets `rate` a second pass, and bursts of one second's worth."""

    __slots__ = ("_filled", "_left", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._left = rate
        self._filled = now

    def take(self, amount: float, now: float) -> float:
        """Take `amount`; returns by how many seconds that was too early (0: it was not)."""
        rate = self.rate
        left = self._left + (now - self._filled) * rate
        self._filled = now
        self._left = left = (left if left < rate else rate) - amount  # noqa: FURB136 -- one call less
        if left >= 0:
            return 0.0
        self._left = left = max(left, -MAX_DEBT * rate)
        return -left / rate


class ClientRates(NamedTuple):
    """What clients of one listener may send in a second; 0 is no limit."""

    bytes: int
    publishes: int
    total_bytes: tuple[int, int] = (0, 0)
    """All clients together: those of the listener, and those of the process."""
    total_publishes: tuple[int, int] = (0, 0)


Buckets = tuple[tuple[Bucket, bool], ...]
"""The buckets that a client takes from, each with whether it is for bytes (or for publications)."""


def buckets_for(bytes_rate: int, publish_rate: int, now: float) -> Buckets:
    """Buckets for the rates that are limited."""
    rates = ((bytes_rate, True), (publish_rate, False))
    return tuple([(Bucket(rate, now), is_bytes) for rate, is_bytes in rates if rate])


class SendRates:
    """Buckets of clients, listeners and the process. A client's are kept on its link, in `buckets`."""

    def __init__(self, by_listener: dict[str, ClientRates], clock: Callable[[], float]) -> None:
        now = clock()
        self._rates = by_listener
        self.limited = bool(by_listener)
        """Whether clients of any listener are limited."""
        self.now = clock
        totals = next(iter(by_listener.values()), ClientRates(0, 0))
        process = buckets_for(totals.total_bytes[1], totals.total_publishes[1], now)
        self._together = {
            name: buckets_for(one.total_bytes[0], one.total_publishes[0], now) + process
            for name, one in by_listener.items()
        }

    def of_client(self, listener: str) -> Buckets:
        """The buckets that a new client takes from; none if clients of its listener are not limited."""
        rates = self._rates.get(listener)
        if rates is None:
            return ()
        return buckets_for(rates.bytes, rates.publishes, self.now()) + self._together[listener]


def take(buckets: Buckets, size: int, published: int, now: float) -> float:
    """Take this many bytes and publications; returns by how many seconds that was too early."""
    found = 0.0
    for bucket, is_bytes in buckets:
        early = bucket.take(size if is_bytes else published, now)
        if early:
            found = max(found, early)
    return found


class ConnectRates:
    """Limits new connections, in all and from each address."""

    def __init__(self, rate: int, per_address: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = Bucket(rate, clock()) if rate else None
        self._per_address = per_address
        self._addresses: dict[str, Bucket] = {}

    def admit(self) -> bool:
        """Whether one more connection is within the rate."""
        return self._all is None or not self._all.take(1, self._clock())

    def admit_from(self, address: str) -> bool:
        """Whether one more connection from this address is within the rate."""
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
    """Counts open connections by address, if addresses have a share; there is at most one entry per connection."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Count one more from this address, and return True; False if the address has used up its share."""
        if self.most and self._open[address] >= self.most:
            return False
        if self.most:
            self.hold(address)
        return True

    def hold(self, address: str) -> None:
        """Count one more from this address, whether its share is used up or not."""
        self._open[address] += 1

    def give_back(self, address: str) -> None:
        """Note that a connection from this address has ended."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
