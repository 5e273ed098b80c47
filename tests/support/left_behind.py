"""What tests leave behind in their process. Others would meet it: threads that use `random`, log, hold up all others
and keep descriptors open; programs that hold ports and the processor; a process that steps back behind all others, with
what it starts from then on.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS_THAT_STAY = {
    "gateway_template.py": "gateways begin as its copies, for all modules",
    "java": "the Spark session is that of the process",
    "resource_tracker": "one of Python's own for each process that uses multiprocessing",
}
THREADS_THAT_STAY = {
    "py4j": "Spark's, as long as its session",
    "pyspark": "likewise",
    "asyncio": "fsspec, which reads and writes tables, has a loop as long as the process",
    "gateway.queue_manager.batch.commit": "a queue manager that is not closed has it where the machine is slow",
    "concurrent.futures": "pyiceberg keeps a pool for the process; it has nothing to do",
}
"""By the modules of what they run."""


class LeftBehind:
    """What has begun since, and which test began it; and what is not as it was."""

    def __init__(self) -> None:
        self._before, self._state = _running(), _state()
        self._seen: dict[threading.Thread | int, str] = {}

    def after(self, test: str) -> None:
        """This test is over; what belongs to its module may go on."""
        for one in _running() - self._before - self._seen.keys():
            self._seen[one] = test

    def found(self, seconds: float = 60.0) -> list[str]:
        """Returns what has not ended by now. What is ending has some time for it."""
        deadline = time.monotonic() + seconds
        while left := [text for one in _running() - self._before if (text := self._described(one))]:
            if time.monotonic() > deadline:
                break
            gc.collect()  # the threads of an executor end with it
            time.sleep(0.05)
        return left + [
            f"{name}: {now}, was {self._state[name]}" for name, now in _state().items() if now != self._state[name]
        ]

    def _described(self, one: threading.Thread | int) -> str:
        """Returns nothing for what may stay."""
        of = f"since {self._seen.get(one, 'the end')}"
        if isinstance(one, threading.Thread):
            target = getattr(one, "_target", None)
            whose = type(getattr(target, "__self__", one)).__module__, getattr(target, "__module__", "")
            stays = any(module.startswith(tuple(THREADS_THAT_STAY)) for module in whose)
            return "" if stays else f"thread {one.name} in {getattr(target, '__qualname__', target)}, {of}"
        with suppress(OSError):
            words = Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] and not any(name in word for word in words[:3] for name in PROGRAMS_THAT_STAY):
                return f"process {one}: {' '.join(words)[:200]}, {of}"
        return ""  # it has ended


def _state() -> dict[str, object]:
    """What is cheap to ask for, and no test has to change."""
    return {
        "nice value": os.getpriority(os.PRIO_PROCESS, 0),
        "folder": Path.cwd(),
        "collector of cycles": (gc.isenabled(), gc.get_threshold()),
        "exempt from it": gc.get_freeze_count() > 0,
    }


def _running() -> set[threading.Thread | int]:
    """Threads begun in Python, and numbers of children."""
    found: set[threading.Thread | int] = {
        one for one in threading.enumerate() if not isinstance(one, threading._DummyThread)
    }
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended, or this kernel does not say
            found |= {int(child) for child in (task / "children").read_bytes().split()}
    return found
