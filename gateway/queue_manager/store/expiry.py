"""When messages expire: numbers by the second they are due in. No input or output.

24 bytes a message that has an expiry. Entries of messages that went in the meantime stay until they are due: whoever
asks checks that the message is still there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from gateway.queue_manager.store.lanes import LaneName

SECOND = 1_000_000


class Due:
    """The messages due in one second."""

    __slots__ = ("lanes", "numbers")

    def __init__(self) -> None:
        self.numbers = array("Q")
        """First number and count of each run, one after the other."""
        self.lanes: list[LaneName] = []

    def add(self, lane: LaneName, first: int, count: int) -> None:
        """One more run."""
        self.numbers.extend((first, count))
        self.lanes.append(lane)

    def __iter__(self) -> Iterator[tuple[LaneName, int, int]]:
        numbers = self.numbers
        for at, lane in enumerate(self.lanes):
            yield lane, numbers[2 * at], numbers[2 * at + 1]


class Expiring:
    """All messages that will expire."""

    def __init__(self) -> None:
        self._seconds: dict[int, Due] = {}

    def __bool__(self) -> bool:
        return bool(self._seconds)

    def add(self, lane: LaneName, first: int, expiries: Sequence[int]) -> None:
        """Messages numbered from `first` on and when they expire (microseconds, 0: never)."""
        if not expiries:
            return
        if expiries[0] == expiries[-1] and len(set(expiries)) == 1:
            if expiries[0]:
                self.add_run(lane, first, len(expiries), expiries[0])
            return
        begin = 0
        for at in range(1, len(expiries) + 1):
            if at == len(expiries) or expiries[at] != expiries[begin]:
                if expiries[begin]:
                    self.add_run(lane, first + begin, at - begin, expiries[begin])
                begin = at

    def add_run(self, lane: LaneName, first: int, count: int, expiry: int) -> None:
        """The same for messages that expire together."""
        second = -(-expiry // SECOND)
        due = self._seconds.get(second)
        if due is None:
            due = self._seconds[second] = Due()
        due.add(lane, first, count)

    def take_due(self, now: int) -> list[tuple[LaneName, int, int]]:
        """The runs that are due by `now` (microseconds); they are forgotten here."""
        seconds = [second for second in self._seconds if second * SECOND <= now]
        return [run for second in sorted(seconds) for run in self._seconds.pop(second)]
