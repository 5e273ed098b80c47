"""Attempts to commit on IBM MQ, one at a time, each together with the progress it makes, so that the progress never
goes back.

An attempt that is not answered in time counts as lost, although it may still be committed. The progress is then read on
the link after the attempt, before anything else is tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gateway.backends.buffer.link import Link, Verdict
from gateway.backends.buffer.progress import Progress
from gateway.ports.batch import Scheduler, Unit

ANSWER_SECONDS = 10.0
"""A queue manager that has not answered for this long counts as away."""
Advance = Callable[[Progress], Progress]
Told = Callable[[Verdict], None]


class _Attempt(NamedTuple):
    unit: Unit
    advance: Advance
    told: Told


class AttemptQueue:
    """Attempts on the link, one at a time."""

    def __init__(self, link: Link, scheduler: Scheduler) -> None:
        self._link = link
        self._scheduler = scheduler
        self._waiting: deque[_Attempt] = deque()
        self._running: _Attempt | None = None
        self._cancel: Callable[[], None] = lambda: None
        self.on_silent: Callable[[str], None] = lambda _why: None
        """Called when an attempt has not been answered."""
        self.progress: Progress | None = None
        """The progress on IBM MQ; None while there is no connection, or the last unit is in doubt."""
        self.most_rows = 5000
        """The most messages of a unit of work: half of what the queue manager allows."""

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
        self._running = attempt
        progress = attempt.advance(self.progress)
        self._cancel = self._scheduler.later(ANSWER_SECONDS, lambda: self._silent(attempt, progress))
        self._link.commit(attempt.unit, progress.encode(), lambda verdict: self._answered(attempt, progress, verdict))

    def _silent(self, attempt: _Attempt, progress: Progress) -> None:
        self.on_silent(f"IBM MQ has not answered for {ANSWER_SECONDS:.0f} s")
        self._answered(attempt, progress, Verdict(lost=True))

    def _answered(self, attempt: _Attempt, progress: Progress, verdict: Verdict) -> None:
        if self._running is not attempt:  # it was given up
            return
        self._running = None
        self._cancel()
        if verdict.lost:
            self.progress = None  # until a new connection has read it
            self._link.look()
        elif verdict.committed and self.progress is not None:
            self.progress = progress
        attempt.told(verdict)
        self._next()
