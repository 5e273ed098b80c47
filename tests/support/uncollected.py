"""What a call leaves for the collector of cycles, told from what other threads of the process leave."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FrameType


def left_in_cycles(work: Callable[[], object], *packages: str) -> list[object]:
    """Objects and frames of these packages that only the collector frees. Others are not counted: a process of tests
    has servers of earlier ones in threads, and what they drop meanwhile is theirs."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        return [one for one in gc.garbage if _module(one).partition(".")[0] in packages]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _module(one: object) -> str:
    return str(one.f_globals.get("__name__") if isinstance(one, FrameType) else type(one).__module__)
