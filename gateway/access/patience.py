"""How long an answer is waited for. Time in which this process itself stood still (it was stopped, or its machine gave
it no time) does not count: the answer may have arrived long ago and was not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

STEP = 0.25
"""How many seconds are waited at a time. However long a step takes, no more than this counts: for the rest, this
process stood still."""

Result = TypeVar("Result")


class Patience:
    """The seconds that are left for the whole of an answer, however it arrives."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def call(self, call: Callable[[float], Result], step: float = STEP) -> Result:
        """The result of a call that is given a number of seconds, and is repeated after a TimeoutError. Raises
        TimeoutError when no time is left."""
        while self.left > 0:
            seconds, begun = min(step, self.left), time.monotonic()
            try:
                return call(seconds)
            except TimeoutError:
                continue
            finally:
                self.left -= min(time.monotonic() - begun, seconds)
        raise TimeoutError
