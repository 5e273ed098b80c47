"""Writes log lines without ever waiting for their reader: a reader that stands still (a log shipper that hangs, a
terminal that is held) would make every device wait. Lines are kept for it meanwhile, up to a limit."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

ATOMIC = 4096
"""PIPE_BUF of Linux: a pipe that is writable takes this much at once (pipe(7)), and so does a socket."""
MOST_WAITING = 1 << 20
"""The most bytes of lines that are kept for a reader that stands still."""
PATIENCE = 2
"""How many milliseconds to wait for room."""
SECONDS_AT_ONCE = 0.05
"""How long to write for a reader that reads slowly: the same thread serves devices."""
SECONDS_AT_THE_END = 1.0
"""How long the end of the process waits for the reader."""


def _never_waiting(descriptor: int) -> int:
    """Returns a descriptor that never waits. A terminal is writable as soon as it has room for one byte, but then a
    write waits until there is room for everything: it is opened again, so that those who share it with this process are
    not affected."""
    if os.isatty(descriptor):
        with suppress(OSError):  # it belongs to somebody else, as after `su`
            return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return descriptor


class LogOutput:
    """A stream of lines; one without a descriptor is written as it is."""

    def __init__(self, stream: IO[str], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._monotonic = monotonic
        self._waiting = bytearray()
        self._since = 0.0
        self.lost = 0
        """Number of lines for which there was no room, or that could not be written."""
        self._poll = select.poll()
        try:
            self._descriptor = _never_waiting(stream.fileno())
            self._poll.register(self._descriptor, select.POLLOUT)
        except (OSError, ValueError):
            self._descriptor = -1

    @property
    def unread(self) -> float:
        """For how many seconds lines have waited to be read; 0 if none wait."""
        return max(0.001, self._monotonic() - self._since) if self._waiting else 0.0

    def write(self, line: str) -> bool:
        """Write a line, or keep it; returns False if it is lost."""
        if self._descriptor < 0:
            self._stream.write(line)
            self._stream.flush()
            return True
        data = line.encode("utf-8", "backslashreplace")
        lost = self.lost
        if not self.go_on() and len(self._waiting) + len(data) > MOST_WAITING:
            self.lost += 1
            return False
        if not self._waiting:
            self._since = self._monotonic()
        self._waiting += data
        self.go_on()
        return self.lost == lost

    def go_on(self) -> bool:
        """Write what waits, as far as it is read; returns whether nothing waits any more. A reader that reads gets a
        moment for each piece, one that stands still gets none."""
        waiting, patience = self._waiting, 0
        until = self._monotonic() + SECONDS_AT_ONCE if waiting else 0.0
        while waiting:
            if not self._poll.poll(patience):
                return False
            whole = waiting.rfind(b"\n", 0, ATOMIC) + 1  # so that no other process writes into the middle of a line
            try:
                written = os.write(self._descriptor, waiting[: whole or ATOMIC])
            except BlockingIOError:  # others have filled it in the meantime
                return False
            except OSError:  # a full disk, or a pipe that nobody will read any more
                self.lost += waiting.count(b"\n")
                waiting.clear()
                return True
            del waiting[:written]
            patience = PATIENCE
            if waiting and self._monotonic() > until:
                return False
        return True

    def finish(self) -> None:
        """Give the reader a moment before the process ends."""
        until = self._monotonic() + SECONDS_AT_THE_END
        while not self.go_on() and (left := until - self._monotonic()) > 0:
            self._poll.poll(left * 1000)
