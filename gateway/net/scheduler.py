"""Clock, timers and calls from other threads, on Twisted's reactor: `ports.batch.Scheduler`."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.python import log


class Waker:
    """Calls from other threads for the reactor's thread, through one descriptor in the hub's epoll.

    Twisted's own waker costs a socket and a second poll for each call. Commits that are done in a thread come back this
    way.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls: deque[Callable[[], None]] = deque()
        self._told = False
        self._collectors: list[Callable[[], None]] = []

    def collect(self, call: Callable[[], None]) -> int:
        """The descriptor, for threads that write to it themselves; `call` is then called to collect what they have
        done."""
        self._collectors.append(call)
        return self.fd

    def call(self, call: Callable[[], None]) -> None:
        """Have `call` called soon, from any thread. The descriptor is written to only once until it is read."""
        self._calls.append(call)
        if not self._told:
            self._told = True
            os.eventfd_write(self.fd, 1)

    def accept(self) -> None:
        """Make the calls, as the descriptor is readable. What is added meanwhile is called in the next round."""
        os.eventfd_read(self.fd)
        self._told = False  # first: a call that is added from now on writes again
        for collect in self._collectors:
            self._run(collect)
        for _ in range(len(self._calls)):
            self._run(self._calls.popleft())

    @staticmethod
    def _run(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 -- as in Twisted, the other calls are still made
            log.err()


class ReactorScheduler:
    """Time and timers of the running reactor."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.now = time.time
        self.monotonic = time.monotonic
        self.waker: Waker | None = None
        """Through which other threads call, if there is a hub."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` after `seconds`; returns a function that cancels it."""
        delayed = self._reactor.callLater(seconds, call)

        def cancel() -> None:
            with contextlib.suppress(AlreadyCalled, AlreadyCancelled):
                delayed.cancel()

        return cancel

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the reactor thread, from any thread."""
        if self.waker is not None:
            self.waker.call(call)
        else:
            self._reactor.callFromThread(call)

    def collect(self, call: Callable[[], None]) -> int:
        """The descriptor with which threads signal that something is done (`ports.batch.Collecting`); -1: there is
        none."""
        return -1 if self.waker is None else self.waker.collect(call)
