"""How long somebody is waited for who answers a question. What this process itself stood still in the meantime (it was
stopped, or its machine gave it no time) is not counted: the answer may have come long ago and was not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

STEP = 0.25
"""Seconds that are waited at a time. However long a step takes, no more of it is counted: what is beyond that this
process has stood still."""

Result = TypeVar("Result")


class Patience:
    """The seconds that are left for all of an answer, however it comes."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def call(self, call: Callable[[float], Result], step: float = STEP) -> Result:
        """What a call returns that is given so many seconds and can be repeated after a TimeoutError. TimeoutError: the
        time is over."""
        while self.left > 0:
            seconds, begun = min(step, self.left), time.monotonic()
            try:
                return call(seconds)
            except TimeoutError:
                continue
            finally:
                self.left -= min(time.monotonic() - begun, seconds)
        raise TimeoutError
