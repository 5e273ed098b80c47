"""Which rows of a batch belong to one publication: all of them are committed together, or none is. Pure.

Nothing asks for this unless something fails. Then hundreds of queues may have refused, each with a few publications,
and those of one queue are found without a look at all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gateway.broker.batch import Destination, Row
    from gateway.session.connection import Connection

    LinkedRun = tuple[tuple[Destination, ...], tuple[int, ...], int, Connection | None]
    """Consecutive publications with the same destinations: these, the first row of each, how many there are, and who
    waits for them. A plain tuple: the compiled fast lane makes it."""


class LinkedRows(NamedTuple):
    """The rows of a publication that has several destinations, or may have had several: all are committed together, or
    none; and while one waits, so does what the same connection sends to any of these destinations."""

    rows: list[Row]
    connection: Connection | None

    def reaches(self, destinations: Iterable[Destination]) -> bool:
        """Whether one of its rows is in one of these destinations."""
        return any(one in destinations for one, _ in self.rows)


class Links:
    """The linked rows of one batch, in order."""

    __slots__ = ("_all", "_at", "_indexed", "_of", "runs")

    def __init__(self) -> None:
        self.runs: list[LinkedRun] = []
        """Linked rows as they were noted; `all` turns them into `LinkedRows`."""
        self._all: list[LinkedRows] = []
        self._at: dict[Destination, list[LinkedRows]] = {}
        """Linked rows by destination; `_of` has them by connection and destination. Only those indexed so far, and some
        may have left a destination since."""
        self._of: dict[tuple[Connection | None, Destination], list[LinkedRows]] = {}
        self._indexed = 0

    def all(self) -> list[LinkedRows]:
        """All linked rows, publication by publication, in the list that is kept: callers may append to it."""
        for destinations, firsts, count, connection in self.runs:
            for at in range(count):
                rows = [(one, first + at) for one, first in zip(destinations, firsts, strict=True)]
                self._all.append(LinkedRows(rows, connection))
        self.runs.clear()
        return self._all

    def at(self, destinations: Iterable[Destination]) -> list[LinkedRows]:
        """The publications that have a row in one of these destinations."""
        self._index()
        found = {id(link): link for one in destinations for link in self._at.get(one, ()) if link.reaches((one,))}
        return list(found.values())

    def of(self, connection: Connection | None, destination: Destination) -> Iterator[LinkedRows]:
        """The publications of a connection that have a row in a destination."""
        self._index()
        return (link for link in self._of.get((connection, destination), ()) if link.reaches((destination,)))

    def renumber(self, destination: Destination, firsts: list[int], elsewhere: dict[int, Row]) -> None:
        """Follow the rows of a destination: each has become those from `firsts[row]` to `firsts[row + 1]`, or has gone
        `elsewhere`."""
        for link in self.at((destination,)):
            rows, link.rows[:] = list(link.rows), ()
            for one, number in rows:
                if one is not destination:
                    link.rows.append((one, number))
                elif number in elsewhere:
                    link.rows.append(elsewhere[number])
                    self._note(link, elsewhere[number][0])
                else:
                    link.rows.extend((one, at) for at in range(firsts[number], firsts[number + 1]))

    def forget_empty(self) -> None:
        """Forget publications whose rows have all gone."""
        self._all = [link for link in self.all() if link.rows]
        self._at, self._of, self._indexed = {}, {}, 0

    def _index(self) -> None:
        links = self.all()
        if self._indexed > len(links):  # some were taken back
            self._at, self._of, self._indexed = {}, {}, 0
        for link in links[self._indexed :]:
            for one in dict.fromkeys(one for one, _ in link.rows):
                self._note(link, one)
        self._indexed = len(links)

    def _note(self, link: LinkedRows, destination: Destination) -> None:
        at = self._at.setdefault(destination, [])
        if not at or at[-1] is not link:
            at.append(link)
            self._of.setdefault((link.connection, destination), []).append(link)
