"""Twisted's reactor with the hub in front: devices are waited for at first hand, everything else behind them.

The hub's sockets are nearly all there is to do. Behind the reactor's epoll each round of theirs costs a second wait,
a second wake-up in the kernel, and the reactor's dispatch. Here it is the other way round: the hub's epoll watches the
reactor's, which has timers' waker, signals, TLS and HTTP, and is looked at when it has something.

Timers go by a clock that never jumps. Twisted's go by the time of day: set back by an hour, it would stop every retry,
keep-alive and expiry for that hour.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor


class First(Protocol):
    """What is waited for at first hand."""

    def wait(self, seconds: float) -> bool:
        """Wait so long at most and do what there is to do; whether the reactor has something to do."""

    def watch(self, fd: int) -> None:
        """Look after the reactor's descriptor too."""


class HubReactor(EPollReactor):
    """See the module."""

    seconds = staticmethod(time.monotonic)
    _first: First | None = None

    def serve_first(self, first: First) -> None:
        """From now on this is waited for, and the reactor's own descriptors behind it."""
        first.watch(self._poller.fileno())
        self._first = first

    def doPoll(self, timeout: float | None) -> None:
        """One pass. Errors of the first are its own to tell."""
        first = self._first
        if first is None:
            super().doPoll(timeout)
        elif first.wait(-1.0 if timeout is None else float(timeout)):
            super().doPoll(0)

    doIteration = doPoll


def install() -> Any:
    """Make this the reactor of the process."""
    reactor = HubReactor()
    installReactor(reactor)
    return reactor
