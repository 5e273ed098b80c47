"""The sockets of connections to a directory, as the LDAP library uses them: bounded in time and size, and letting other
threads work."""

from __future__ import annotations

import threading
from typing import Any

from gateway.access.patience import Patience

MAX_ANSWER = 4 << 20
"""How many bytes the answer to one question may have. The library copies all it has with each piece that arrives."""


class Bounded:
    """The socket of a connection whose answers have the timeout as a whole, however they arrive: a server that sends a
    byte now and then is as slow as one that sends none."""

    def __init__(self, there: Any, timeout: float) -> None:
        self.there, self._timeout = there, timeout
        self._begin()

    def _begin(self) -> None:
        self._patience, self._room = Patience(self._timeout), MAX_ANSWER
        self.there.settimeout(self._timeout)

    def sendall(self, data: bytes) -> None:
        """Send a question; its answer has all of the timeout."""
        self._begin()
        self.there.sendall(data)

    def recv(self, size: int) -> bytes:
        """As a socket does. Raises OSError or TimeoutError beyond the bounds."""
        if self._room <= 0:
            raise OSError(f"the answer has more than {MAX_ANSWER} bytes")

        def receive(seconds: float) -> bytes:
            self.there.settimeout(seconds)
            received: bytes = self.there.recv(size)
            return received

        try:
            received = self._patience.call(receive)
        except TimeoutError:
            raise TimeoutError("the answer takes longer than `timeout`") from None
        self._room -= len(received)
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self.there, name)


class Yielding:
    """The socket of a connection that lets another thread work on its answer while this one waits for the server. The
    library is written in Python, and threads that work at the same time keep the interpreter from the reactor's
    thread."""

    def __init__(self, there: Any, working: threading.Lock) -> None:
        self._there, self._working = there, working

    def recv(self, size: int) -> bytes:
        """As a socket does."""
        self._working.release()
        try:
            received: bytes = self._there.recv(size)
        finally:
            self._working.acquire()
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._there, name)
