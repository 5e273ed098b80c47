"""A clock that tests turn by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class ManualScheduler:
    """`ports.batch.Scheduler` without a reactor: `advance` moves time and runs what is due."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._soon: list[Callable[[], None]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        live = [True]
        heapq.heappush(self._timers, (self._now + seconds, next(self._numbers), lambda: call() if live[0] else None))
        return lambda: live.__setitem__(0, False)

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def run_soon(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def advance(self, seconds: float) -> None:
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._now, _, call = heapq.heappop(self._timers)
            call()
            self.run_soon()
        self._now = until
