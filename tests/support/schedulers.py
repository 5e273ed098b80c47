"""A clock that tests turn by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from threading import Condition


class ManualScheduler:
    """`ports.batch.Scheduler` without a reactor: `advance` moves time and runs timers, `run` makes pending calls."""

    def __init__(self, time: float = 1_800_000_000.0) -> None:
        self.time = time
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._soon: deque[Callable[[], None]] = deque()
        self._called = Condition()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        live = [True]
        heappush(self._timers, (self.time + seconds, next(self._numbers), lambda: call() if live[0] else None))
        return lambda: live.__setitem__(0, False)

    def soon(self, call: Callable[[], None]) -> None:
        with self._called:
            self._soon.append(call)
            self._called.notify()

    def run(self) -> None:
        """Make the calls that were asked for with `soon`."""
        while self._soon:
            self._soon.popleft()()

    def turn(self) -> bool:
        """Make those that were asked for until now; whether there were any."""
        calls = len(self._soon)
        for _ in range(calls):
            self._soon.popleft()()
        return calls > 0

    def run_until(self, met: Callable[[], bool], seconds: float = 60.0) -> None:
        """Make calls, also those that other threads have yet to ask for, until the condition is met."""
        while not met():
            with self._called:
                assert self._called.wait_for(lambda: bool(self._soon), seconds), "nothing was called in time"
            self.run()

    def advance(self, seconds: float) -> None:
        """Let time pass: timers run in order, each at its time."""
        until = self.time + seconds
        self.run()
        while self._timers and self._timers[0][0] <= until:
            due, _, call = heappop(self._timers)
            self.time = max(self.time, due)
            call()
            self.run()
        self.time = until

    def forget(self) -> None:
        """Drop every call and timer, as the end of a process would."""
        self._timers.clear()
        self._soon.clear()
