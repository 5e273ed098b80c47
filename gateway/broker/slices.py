"""Work on many things at once, in slices: what comes of a second in which a hundred thousand sessions expire keeps
nobody waiting. Pure.

A piece of work is an iterator that has done one thing more with each step. It goes on in later turns of the reactor
when its time is up; the same work is not begun again before it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.context import Context

SLICE_SECONDS = 0.01
"""In one turn, for all such work together."""
TICK_SECONDS = 0.002
"""For each look at all connections or sessions, in the turn in which it is due; the rest comes in later ones."""
MOST_IN_A_TURN = 10
"""So many share a turn: what is done soon does not wait for turns that others take whole."""


class Slices:
    """What is under way."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._under_way: dict[str, Iterator[None]] = {}
        """By name, what has waited longest first."""
        self._planned = False

    def run(self, name: str, work: Callable[[], Iterator[None]], seconds: float = SLICE_SECONDS) -> None:
        """Begin some work, unless what was begun under this name goes on still; as much as there is time for is done
        at once, `seconds` where many may begin some in one turn."""
        if name not in self._under_way:
            self._under_way[name] = work()
            self._step(name, self.context.scheduler.monotonic() + seconds)
            self._plan()

    def _step(self, name: str, until: float) -> None:
        """Go on with some work. What it raises ends it."""
        work, monotonic = self._under_way.pop(name), self.context.scheduler.monotonic
        for _ in work:
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
