"""The interpreter's collector of cycles, which the path of a message leaves with nothing to do.

Nothing that comes and goes with messages and connections is part of a cycle when it is over (tests hold that), so the
collector seldom finds anything, and its looks at tens of thousands of sessions would be pauses for every device. It is
therefore asked rarely; but what it is for may hold many messages, so the young objects are looked at each minute.
"""

from __future__ import annotations

import gc

EVERY_TICKS = 60
"""A look at what is new takes milliseconds; of a hundred thousand new objects the collector takes notice by itself."""


def settle() -> None:
    """The gateway is built and what exists now stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 10)


def look(ticks: int) -> None:
    """Each tick: now and then the young ones, never all."""
    if ticks % EVERY_TICKS == 0:
        gc.collect(1)
