"""The clock and the reactor for the core: `ports.batch.Scheduler` over Twisted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled

from gateway.net.waking import Waker


class ReactorScheduler:
    """Time and timers of the running reactor."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.now = time.time
        self.monotonic = time.monotonic
        self.waker: Waker | None = None
        """The short way from other threads, where there is a hub."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` after `seconds`; the answer cancels it."""
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
        """See `ports.batch.Collecting`."""
        return -1 if self.waker is None else self.waker.collect(call)
