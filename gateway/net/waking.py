"""Calls from other threads for the reactor's: one descriptor that says there are some, behind the hub's epoll.

Twisted's own way leads through its waker's socket and a second look at its descriptors; a commit that comes back from a
thread takes this way for each batch.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from twisted.python import log


class Waker:
    """Filled by any thread, emptied by the reactor's."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls: deque[Callable[[], None]] = deque()
        self._told = False
        self._collectors: list[Callable[[], None]] = []

    def collect(self, call: Callable[[], None]) -> int:
        """The descriptor, for threads that write to it themselves; `call` then looks what they have done."""
        self._collectors.append(call)
        return self.fd

    def call(self, call: Callable[[], None]) -> None:
        """Have it called soon. The descriptor is written to once until it is looked at."""
        self._calls.append(call)
        if not self._told:
            self._told = True
            os.eventfd_write(self.fd, 1)

    def accept(self) -> None:
        """The descriptor is readable: call what waits. What is added meanwhile has its turn in the next round."""
        os.eventfd_read(self.fd)
        self._told = False  # before the look: what is added after it says so again
        for collect in self._collectors:
            self._run(collect)
        for _ in range(len(self._calls)):
            self._run(self._calls.popleft())

    @staticmethod
    def _run(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 -- as Twisted does: the others go on
            log.err()
