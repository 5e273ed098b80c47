"""Threads for calls that may wait for others: a directory, a web service, a name server. Unlike those of
`concurrent.futures` they do not delay the end of the process: a name server that hangs would delay it until it is
killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], None]


class WaitingThreads:
    """A limited number of threads, each started when all others are busy. Calls of its methods belong to one thread."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, call: Call) -> None:
        """Have `call`, which must not raise, called on a thread."""
        self._calls.put(call)
        if self._started < self._most and not self._idle.acquire(blocking=False):
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()

    def close(self) -> None:
        """Begin nothing any more; what is under way is not waited for."""
        while not self._calls.empty():
            self._calls.get()
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.release()
