"""A clock and a thread for queue managers where there is no reactor: the standalone server and the command line."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_Entry = tuple[float, int, Callable[[], None]]


class ThreadScheduler:
    """Implements `ports.batch.Scheduler` with one thread, running from `with` to its end."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._cancelled: set[int] = set()
        self._serial = itertools.count()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in the scheduler's thread after `seconds`; the answer cancels it."""
        with self._changed:
            serial = next(self._serial)
            heapq.heappush(self._entries, (time.monotonic() + seconds, serial, call))
            self._changed.notify()

        def cancel() -> None:
            with self._changed:
                self._cancelled.add(serial)
                self._changed.notify()

        return cancel

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the scheduler's thread."""
        self.later(0, call)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._ended:
                self._drop_cancelled()
                wait = self._entries[0][0] - time.monotonic() if self._entries else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._entries)[2]
                self._changed.wait(wait)
        return None

    def _drop_cancelled(self) -> None:
        """Remove the entries that have been cancelled."""
        if self._cancelled:
            self._entries = [entry for entry in self._entries if entry[1] not in self._cancelled]
            heapq.heapify(self._entries)
            self._cancelled.clear()
