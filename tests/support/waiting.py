"""Waiting for what another process or thread does: as short as it takes, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(met: Callable[[], object], seconds: float = 60.0) -> None:
    """Until it is so."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
