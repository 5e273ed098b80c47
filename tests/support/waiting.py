"""Waiting for what another process or thread does: as short as it takes, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def until(met: Callable[[], object], seconds: float = 60.0) -> None:
    """Until it is so."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def until_idle(pid: int) -> None:
    """Until no thread of a process has anything to compute, however late it gets a processor."""
    threads, deadline, quiet = Path(f"/proc/{pid}/task"), time.monotonic() + 60, 0
    while quiet < 5:
        assert time.monotonic() < deadline, "it is still at it"
        time.sleep(0.02)
        with suppress(OSError):  # one of them has just ended
            states = [stat.read_text().rpartition(") ")[2][0] for stat in threads.glob("*/stat")]
            quiet = 0 if "R" in states else quiet + 1
