"""What the tests of the embedded queue manager share: a scheduler that runs when told, and messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from threading import Condition

from gateway.backends.embedded.descriptor import default_descriptor


class ManualScheduler:
    """Implements `ports.batch.Scheduler`: time moves by `advance`, calls run by `run`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.time = start
        self._soon: deque[Callable[[], None]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._serial = 0
        self._called = Condition()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        self._serial += 1
        serial = self._serial
        heappush(self._later, (self.time + seconds, serial, call))
        return lambda: self._cancelled.add(serial)

    def soon(self, call: Callable[[], None]) -> None:
        with self._called:
            self._soon.append(call)
            self._called.notify()

    def run_until(self, met: Callable[[], bool], seconds: float = 10.0) -> None:
        """Run calls, also those other threads still have to make, until the condition is met."""
        while not met():
            with self._called:
                assert self._called.wait_for(lambda: bool(self._soon), seconds), "nothing was called in time"
            self.run()

    def run(self) -> None:
        while self._soon:
            self._soon.popleft()()

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.run()
        while self._later and self._later[0][0] <= self.time:
            _, serial, call = heappop(self._later)
            if serial not in self._cancelled:
                call()
                self.run()


def md(**fields: int | bytes) -> bytes:
    """A descriptor with the MQI's defaults."""
    return default_descriptor(**fields)
