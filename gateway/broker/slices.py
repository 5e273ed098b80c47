"""Work on many things at once, done in slices, so that a second in which a hundred thousand sessions expire keeps
nobody waiting. Pure.

A piece of work is an iterator that does one thing with each step. When its time is up it goes on in later turns of the
reactor; the same work is not begun again before it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.context import Context

SLICE_SECONDS = 0.01
"""Time in one turn for all such work together."""
TICK_SECONDS = 0.002
"""Time for each look at all connections or sessions in the turn in which it is due; the rest is done in later turns."""
MOST_IN_A_TURN = 10
"""At most this many pieces of work share a turn equally: brief work does not wait for turns that other work fills
alone."""


class Slices:
    """The work that is under way."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._under_way: dict[str, Iterator[None]] = {}
        """By name; what has waited longest comes first."""
        self._planned = False

    def run(self, name: str, work: Callable[[], Iterator[None]], seconds: float = SLICE_SECONDS) -> None:
        """Begin some work, unless work begun under this name is still going on. As much as `seconds` allow is done at
        once; they are fewer where many may begin work in one turn."""
        if name not in self._under_way:
            self._under_way[name] = work()
            self._step(name, self.context.scheduler.monotonic() + seconds)
            self._plan()

    def _step(self, name: str, until: float) -> None:
        """Continue some work until its time is up. Work that raises is over."""
        work, monotonic = self._under_way.pop(name), self.context.scheduler.monotonic
        is_bounded = self.context.bounds is not None
        for _ in work:
            if is_bounded:
                self.context.close_full()
            if monotonic() > until:
                self._under_way[name] = work
                return

    def _plan(self) -> None:
        if self._under_way and not self._planned:
            self._planned = True
            self.context.scheduler.later(0.0, self._go_on)

    def _go_on(self) -> None:
        context = self.context
        context.now = context.scheduler.now()
        self._planned = False
        monotonic, names = context.scheduler.monotonic, list(self._under_way)
        over = monotonic() + SLICE_SECONDS
        share = SLICE_SECONDS / min(len(names), MOST_IN_A_TURN)
        for name in names:
            until = min(over, monotonic() + share)
            context.set_aside.run("call", name, partial(self._step, name, until))
            if monotonic() > over:
                break
        self._plan()
        context.flush()
