"""A broker that takes long for everything, and does later what the test says."""

from __future__ import annotations

import itertools
from typing import Any

from broker_harness import Harness


class Slow(Harness):
    """Every look at the clock takes a while; what is planned for later waits until the test says so."""

    def start(self) -> None:
        looks = itertools.count()
        self.turns, self.planned = 0, list[Any]()
        self.clock.monotonic = lambda: next(looks) * 0.0005  # type: ignore[method-assign]
        self.clock.later = lambda _seconds, call: self.planned.append(call)  # type: ignore[method-assign, assignment, return-value]
        super().start()

    def later(self) -> bool:
        self.turns += 1
        assert self.turns < 2000, "it never ends"
        planned, self.planned = self.planned, []
        for call in planned:
            call()
        return bool(planned)
