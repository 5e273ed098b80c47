"""Answers in rounds what programs have sent: what was in all their sockets is one batch with one commit.

The owner of the sockets hands in chunks and has `run` called soon after; there the calls are made, their commit is
shared, and what that commit lets happen (answers, gets that waited) follows in the same round. Neither sockets nor
threads are known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.ports.mqi import QueueManager

SECONDS = 0.005
"""How long a round may take chunks in; in a gateway, devices are served between two rounds."""


class FrameHandler(Protocol):
    """Reads and answers the frames of one program, without I/O."""

    def receive(self, chunk: bytes) -> None:
        """Handle bytes from the program."""

    def connection_lost(self) -> None:
        """The program has disconnected."""


class Rounds:
    """The programs of one queue manager."""

    def __init__(
        self,
        queue_manager: QueueManager,
        monotonic: Callable[[], float],
        plan: Callable[[], None],
        exchange: Callable[[], None] = lambda: None,
    ) -> None:
        """`plan` has `run` called soon, in the thread that owns the sockets; it may be called in any thread. `exchange`
        sends what has been answered and hands in what has come meanwhile, without waiting: that goes into the same
        commit."""
        self._queue_manager = queue_manager
        self._monotonic = monotonic
        self._plan = plan
        self._exchange = exchange
        self._chunks: deque[tuple[FrameHandler, bytes]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._running = self._planned = False

    def receive(self, program: FrameHandler, chunk: bytes) -> None:
        """Take what a program has sent."""
        self._chunks.append((program, chunk))
        if not (self._running or self._planned):
            self._have_run()

    def receive_each(self, arrived: Iterable[tuple[FrameHandler, bytes]]) -> None:
        """Take what several programs have sent."""
        self._chunks.extend(arrived)
        if self._chunks and not (self._running or self._planned):
            self._have_run()

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the thread that owns the sockets: in the running round, or in a round of its own."""
        self._calls.append(call)
        if not (self._running or self._planned):
            self._have_run()

    def lost(self, program: FrameHandler) -> None:
        """The program has disconnected: what it has sent is carried out, and then its unit of work is backed out."""
        said = [chunk for one, chunk in self._chunks if one is program]
        others = [entry for entry in self._chunks if entry[0] is not program]
        self._chunks.clear()  # a running round has the same object
        self._chunks.extend(others)
        for chunk in said:
            program.receive(chunk)
        program.connection_lost()

    def _have_run(self) -> None:
        self._planned = True
        self._plan()

    def run(self) -> None:
        """Make the calls that have come in, and what follows from them."""
        self._planned, self._running = False, True
        until, late = self._monotonic() + SECONDS, False
        try:
            with self._queue_manager.gathered() as commit:
                while self._calls or (self._chunks and not late):
                    late = self._make_calls(until, late=late)
                    commit()
        finally:
            self._running = False
        self._planned = False  # another thread's plan of just now may have been dealt with while the round ran
        if self._chunks or self._calls:  # a call of another thread may have come just now
            self._have_run()

    def _make_calls(self, until: float, *, late: bool) -> bool:
        """Make the calls that share a commit: waiting ones first, and those in chunks until it is late. Returns whether
        it is late."""
        calls, chunks, monotonic = self._calls, self._chunks, self._monotonic
        while calls or (chunks and not late):
            while calls:
                calls.popleft()()
            while chunks and not late:
                program, chunk = chunks.popleft()
                program.receive(chunk)
                late = monotonic() > until
                while calls:
                    calls.popleft()()
            if not late:
                self._exchange()
        return late
