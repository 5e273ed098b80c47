"""Taking back what a unit of handling has done half.

A unit is one record, one publication, one message from a queue, one connection that ends. Its rows go straight into the
open batch, beside those of all others. While it runs the batch notes how each of its columns was before; if the unit
meets a defect, they become that again, so that a commit has all of a unit or nothing of it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination

_NOTHING = object()


class Undo:
    """What takes back the changes of one unit, while it runs; units may lie in each other."""

    __slots__ = ("_lists", "_rows", "_steps", "batch", "outer")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.outer = batch.undo
        batch.undo = self
        self._rows = batch.rows
        self._lists = len(batch.after), len(batch.deliveries)
        self._steps: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    # -- what is noted before a change --

    def step(self, call: Callable[..., object], *args: object) -> None:
        """What takes back the next change."""
        self._steps.append((call, args))

    def key(self, table: dict[Any, Any], key: object) -> None:
        """What a table has under a key, or that it has nothing."""
        value = table.get(key, _NOTHING)
        if value is _NOTHING:
            self._steps.append((table.pop, (key, None)))
        else:
            self._steps.append((table.__setitem__, (key, value)))

    def length(self, column: list[Any]) -> None:
        """A column that is appended to."""
        self._steps.append((_cut, (column, len(column))))

    def destination(self, destination: Destination) -> None:
        """A destination that rows are appended to."""
        numbers = destination.rows, len(destination.policies), len(destination.released_rows)
        self._steps.append((destination.cut, numbers))

    # -- the end of the unit --

    def keep(self) -> None:
        """The unit is done; the one round it may still fail. After `take_back` nothing is left to keep."""
        if self.outer is not None:
            self.outer._steps += self._steps  # noqa: SLF001 -- of the same class
        self.batch.undo = self.outer

    def take_back(self, now: Batch) -> None:
        """The unit has failed. `now`: the open batch; if it is another one by now, what was done is committed."""
        self.batch.undo = self.outer
        steps, self._steps = self._steps, []
        if self.batch is not now:
            return
        for call, args in reversed(steps):
            with suppress(Exception):  # the others are taken back all the same
                call(*args)
        batch, (after, deliveries) = self.batch, self._lists
        del batch.after[after:], batch.deliveries[deliveries:]
        batch.rows = self._rows


def _cut(column: list[Any], length: int) -> None:
    del column[length:]
