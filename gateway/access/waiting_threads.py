"""Threads for calls that may wait for others: for a directory, a web service, a name server. They do not keep the
process when it ends, as those of `concurrent.futures` do: a name server that hangs kept it until it was killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], None]


class WaitingThreads:
    """At most so many, each started when all others are busy. Calls belong to one thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, call: Call) -> None:
        """Have it called on a thread; it raises nothing."""
        self._calls.put(call)
        if self._started < self._most and not self._idle.acquire(blocking=False):
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()

    def close(self) -> None:
        """Nothing is begun any more; what is under way is not waited for."""
        while not self._calls.empty():
            self._calls.get()
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.release()
