"""Taking back what a unit of handling has half done.

A unit is one record, one publication, one message from a queue, or one connection that ends. Its rows go straight into
the open batch, beside those of all others. While it runs, the batch notes how each of its columns was before; if the
unit meets a defect, the columns become that again, so that a commit has all of a unit or nothing of it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination

_NOTHING = object()


class Undo:
    """Takes back the changes of one unit while it runs; units may be nested."""

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
        """Note the call that takes back the next change."""
        self._steps.append((call, args))

    def key(self, table: dict[Any, Any], key: object) -> None:
        """Note what a table has under a key, or that it has nothing."""
        value = table.get(key, _NOTHING)
        if value is _NOTHING:
            self._steps.append((table.pop, (key, None)))
        else:
            self._steps.append((table.__setitem__, (key, value)))

    def length(self, column: list[Any]) -> None:
        """Note the length of a column that is about to be appended to."""
        self._steps.append((_cut, (column, len(column))))

    def destination(self, destination: Destination) -> None:
        """Note the state of a destination that rows are about to be appended to."""
        numbers = destination.rows, len(destination.policies), len(destination.released_rows)
        self._steps.append((destination.cut, numbers))

    # -- the end of the unit --

    def keep(self) -> None:
        """The unit is done: hand its steps to the enclosing unit, which may still fail. After `take_back` nothing is
        left to keep."""
        if self.outer is not None:
            self.outer._steps += self._steps  # noqa: SLF001 -- of the same class
        self.batch.undo = self.outer

    def take_back(self, now: Batch) -> None:
        """The unit has failed: undo its changes. `now` is the open batch; if it is no longer the unit's own, what the
        unit did is committed and stays."""
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
