"""What a frame does to an index. A running store and one that recovers change their index by the same function. No
input or output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.queue_manager.store.index import Index, LaneName, MoveRun, TokenRun
from gateway.queue_manager.store.place import ROW_BITS
from gateway.queue_manager.store.space import BIG_ROW, Extent
from gateway.queue_manager.store.unit import Replaced


class Changes(NamedTuple):
    """The changes of one frame. The rows of `groups` follow one another in `frame`, from row 0."""

    frame: int
    first_number: int
    groups: Sequence[tuple[LaneName, int]] = ()
    numbers: Sequence[int] | None = None
    """The numbers of carried rows; None: the rows are new and count up from `first_number`."""
    takes: Sequence[TokenRun] = ()
    moves: Sequence[MoveRun] = ()
    backouts: Sequence[tuple[LaneName, int, int]] = ()
    state: dict[bytes, bytes | None] = {}  # noqa: RUF012  (never changed)
    used: int = 0
    """Bytes of the frame, without padding."""
    longest: int = 0
    """Length of the longest body; it tells whether any row is big enough to be accounted alone."""
    lengths: Sequence[int] = ()
    """Lengths of all bodies; given only if `longest` is that of a big row."""
    replaced: Sequence[Replaced] = ()
    """State records replaced in place. Their rows come after those of `groups`, and their takes after the others. A
    frame that is read has none: there they are among `groups` and `takes`."""

    @property
    def all_groups(self) -> list[tuple[LaneName, int]]:
        """The groups of all rows."""
        return [*self.groups, *[(name, rows) for one in self.replaced for name, rows in one.puts.groups or ()]]


def apply(index: Index, extent: Extent | None, changes: Changes) -> None:
    """Make the changes visible. `extent` is the frame's; None for non-persistent changes, which have no frame."""
    if extent is not None:
        extent.used += changes.used
        extent.said += len(changes.takes) + len(changes.backouts) + len(changes.state)
    place = changes.frame << ROW_BITS
    if changes.numbers is not None:
        _carry(index, extent, changes)
    else:
        _put(index, extent, changes, place)
    if changes.longest >= BIG_ROW:
        _note_big_rows(index, changes)
    for move in changes.moves:
        index.move(move, extent)
        if extent is not None:
            extent.moves = True
            extent.numbers = _widened(extent.numbers, move.to_first, move.to_first + move.length)
    if changes.takes:
        index.take(changes.takes, extent)
    for name, number, count in changes.backouts:
        index.back_out(name, number, count, extent)
    if changes.state and extent is not None:
        for key, value in changes.state.items():
            index.put_state(key, value, extent)


def _put(index: Index, extent: Extent | None, changes: Changes, place: int) -> None:
    first = changes.first_number
    number = first + index.put(changes.groups, first, place)
    if extent is None:
        return
    for one in changes.replaced:
        index.replace(one, number, place + number - first, extent)
        extent.said += len(one.keys)
        number += len(one.keys)
    if number > first:
        extent.numbers = _widened(extent.numbers, first, number)


def _widened(numbers: tuple[int, int], first: int, end: int) -> tuple[int, int]:
    """The range widened to hold these numbers."""
    return (min(numbers[0], first), max(numbers[1], end)) if numbers[1] else (first, end)


def _note_big_rows(index: Index, changes: Changes) -> None:
    for row, length in enumerate(changes.lengths):
        if length >= BIG_ROW:
            index.space.big_row((changes.frame << ROW_BITS) + row, length)


def _carry(index: Index, extent: Extent | None, changes: Changes) -> None:
    numbers = changes.numbers or ()
    row = 0
    if extent is not None and numbers:
        extent.carried = _widened(extent.carried, min(numbers), max(numbers) + 1)
    for name, rows in changes.groups:
        for first, count in consecutive_runs(numbers[row : row + rows]):
            index.carry(name, first, count, (changes.frame << ROW_BITS) + row, extent)
            row += count


def consecutive_runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as runs of consecutive ones: first number and count."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[begin], at - begin
            begin = at
