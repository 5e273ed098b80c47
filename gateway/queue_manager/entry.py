"""Holding the queue manager's lock, and calling afterwards what must not run under it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from types import TracebackType


class Entry:
    """The context manager of `with core.entered()`: it holds the lock. One instance serves all."""

    __slots__ = ("_acquire", "_call_afterwards", "_release", "afterwards", "depth", "holder")

    def __init__(self, lock: threading.RLock, call_afterwards: Callable[[], None]) -> None:
        self._acquire, self._release = lock.acquire, lock.release
        self._call_afterwards = call_afterwards
        self.afterwards: deque[Callable[[], None]] = deque()
        """Calls that are made when the lock has been released."""
        self.depth = 0
        """How often the thread that holds the lock has taken it."""
        self.holder = 0
        """The thread that holds the lock; 0: none does."""

    def __enter__(self) -> None:
        self._acquire()
        if not self.depth:
            self.holder = get_ident()
        self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.depth -= 1
        last = self.depth == 0
        if last:
            self.holder = 0
        self._release()
        if last and self.afterwards:
            self._call_afterwards()
