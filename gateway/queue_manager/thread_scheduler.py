"""A clock and a thread for queue managers where there is no reactor: the standalone server and the command line."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from types import TracebackType
from typing import Self

_FEW = 64
"""Cancelled calls that may lie among the others before they are removed."""


Call = Callable[[], None] | None
"""A call; None: it has been cancelled, or has been made."""
_Entry = tuple[float, int, list[Call]]
"""When a call is due, its number (so that no two are compared by what follows), and the call. Nearly every MQGET that
waits makes such an entry, and tuples are compared in C."""


class ThreadScheduler:
    """Implements `ports.batch.Scheduler` with one thread, running from `with` to its end.

    The thread is woken only for what is due before it would look by itself: nearly every wait of an MQGET is cancelled
    long before its time, and waking a thread costs more than the get.
    """

    now = staticmethod(time.time)
    """Seconds since the epoch."""
    monotonic = staticmethod(time.monotonic)
    """Seconds that never jump."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._cancelled = 0
        """How many of the entries are cancelled."""
        self._serial = itertools.count()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._looks_at = -inf
        """When the thread next looks by itself; minus infinity while it is looking, or about to."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in the scheduler's thread after `seconds`; returns a function that cancels it."""
        at = time.monotonic() + seconds
        kept: list[Call] = [call]
        with self._lock:
            heapq.heappush(self._entries, (at, next(self._serial), kept))
            if at < self._looks_at:
                self._looks_at = -inf
                self._changed.notify()
        return partial(self._cancel, kept)

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the scheduler's thread as soon as possible."""
        self.later(0, call)

    def _cancel(self, kept: list[Call]) -> None:
        with self._lock:
            if kept[0] is None:  # it has run
                return
            kept[0] = None
            self._cancelled += 1
            if self._cancelled > _FEW and self._cancelled > len(self._entries) // 2:
                self._entries = [one for one in self._entries if one[2][0] is not None]
                heapq.heapify(self._entries)
                self._cancelled = 0

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Call:
        with self._lock:
            while not self._ended:
                entries = self._entries
                while entries and entries[0][2][0] is None:
                    heapq.heappop(entries)
                    self._cancelled -= 1
                wait = entries[0][0] - time.monotonic() if entries else None
                if wait is not None and wait <= 0:
                    kept = heapq.heappop(entries)[2]
                    call, kept[0] = kept[0], None
                    return call
                self._looks_at = entries[0][0] if entries else inf
                self._changed.wait(wait)
                self._looks_at = -inf
        return None
