"""The way to IBM MQ: one attempt at a time, each with the progress it makes, so that the progress never goes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gateway.backends.buffer.link import Link, Verdict
from gateway.backends.buffer.progress import Progress
from gateway.ports.batch import Unit

Advance = Callable[[Progress], Progress]
Told = Callable[[Verdict], None]


class _Attempt(NamedTuple):
    unit: Unit
    advance: Advance
    told: Told


class Tube:
    """See the module."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: deque[_Attempt] = deque()
        self._running = False
        self.progress: Progress | None = None
        """What is on IBM MQ; None while there is no connection, or the last unit's fate is not known."""
        self.most_rows = 5000
        """So many messages the queue manager lets a unit of work have, with room to spare."""

    def commit(self, unit: Unit, advance: Advance, told: Told) -> None:
        """Try the unit once, after those that wait."""
        self._waiting.append(_Attempt(unit, advance, told))
        self._next()

    def _next(self) -> None:
        while self._waiting and not self._running:
            self._try(self._waiting.popleft())

    def _try(self, attempt: _Attempt) -> None:
        if self.progress is None:
            attempt.told(Verdict(lost=True))
            return
        self._running = True
        progress = attempt.advance(self.progress)
        self._link.commit(attempt.unit, progress.encode(), lambda verdict: self._answered(attempt, progress, verdict))

    def _answered(self, attempt: _Attempt, progress: Progress, verdict: Verdict) -> None:
        self._running = False
        if verdict.lost:
            self.progress = None  # until a new connection has looked
            self._link.look()
        elif verdict.committed and self.progress is not None:
            self.progress = progress
        attempt.told(verdict)
        self._next()
