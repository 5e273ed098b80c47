"""Twisted's reactor behind the hub: the process waits in the hub's epoll, and serves devices first.

Nearly all events are on the hub's sockets. With the hub's epoll inside the reactor's, each round would cost a second
wait, a second wake-up in the kernel and the reactor's dispatch. Here the hub's epoll contains the reactor's, which has
the timers' waker, signals, TLS and HTTP, and is polled when it has an event.

Timers use a clock that never jumps. Twisted's use the time of day: set back by an hour, it would stop every retry,
keep-alive and expiry for that hour.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

_HIDDEN = "OpenSSL" not in sys.modules
if _HIDDEN:  # Twisted would import it for its own TLS, which is not used here and takes 8 MB
    sys.modules["OpenSSL"] = None  # type: ignore[assignment]

from twisted.internet.epollreactor import EPollReactor  # noqa: E402
from twisted.internet.main import installReactor  # noqa: E402

if _HIDDEN:
    del sys.modules["OpenSSL"]


class First(Protocol):
    """What the process waits in, which is the hub."""

    def wait(self, seconds: float) -> bool:
        """Wait at most this long and serve what is ready. Returns True if the reactor has events too."""

    def watch(self, fd: int) -> None:
        """Watch the reactor's descriptor too."""


class HubReactor(EPollReactor):
    """The reactor of the process."""

    seconds = staticmethod(time.monotonic)
    _first: First | None = None

    def serve_first(self, first: First) -> None:
        """From now on wait in this, and through it for the reactor's own descriptors."""
        first.watch(self._poller.fileno())
        self._first = first

    def doPoll(self, timeout: float | None) -> None:
        """Wait and serve once. The hub reports its own errors."""
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
