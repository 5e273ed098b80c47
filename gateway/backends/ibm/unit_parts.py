"""A unit that is larger than a unit of work may be (MAXUMSGS), in parts that are committed one after the other. Pure.

Messages are put before those they came from are taken. So a failure between two parts loses nothing; a message may then
be there twice, and no device has been sent an acknowledgement for it. Queues of applications come first: they may be
full, and refuse the first part before anything is committed.

What other gateways are told comes last and in one part with the records that are replaced: a gateway that is told that
a session is its own looks at the record at once. Where these are more than a part may hold, it is told first, and looks
again until the record follows; if nothing follows, the record still names the gateway from which somebody takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gateway.backends.ibm.connection import messages_of
from gateway.backends.ibm.unit_of_work import rows_of
from gateway.ports.batch import Done, Moves, Outcome, Puts, Takes, Token, Unit
from gateway.ports.state_queues import GATEWAYS, RETAINED

LARGEST = 5000
"""The most messages of one unit of work, even if the queue manager allows more: it keeps locks and log for all of
them."""
_SHARE = 2


def largest(max_uncommitted: int) -> int:
    """Returns how many messages one unit of work may hold: half of MAXUMSGS, which leaves room for the markers and for
    other programs."""
    return max(2, min(LARGEST, max_uncommitted // _SHARE))


def parts_of(unit: Unit, limit: int) -> list[tuple[Unit, list[int]]]:
    """Returns parts of at most `limit` messages each, with the place in `unit.puts` of each of their runs."""
    parts: list[tuple[Unit, list[int]]] = []
    room = 0
    for piece, places in _pieces(unit, limit):
        rows = rows_of(piece)
        if rows > room or not parts:
            parts.append((Unit(), []))
            room = limit
        part, noted = parts[-1]
        part.puts += piece.puts
        part.moves += piece.moves
        part.takes += piece.takes
        part.replaces += piece.replaces
        noted += places
        room -= rows
    return parts


_Piece = tuple[Unit, list[int]]
"""What stays together, and the place in `unit.puts` of each of its runs."""


def _pieces(unit: Unit, limit: int) -> Iterator[_Piece]:
    told = [place for place, puts in enumerate(unit.puts) if puts.queue == GATEWAYS]
    for place, puts in sorted(enumerate(unit.puts), key=_is_state):
        if place not in told:
            yield from _cut_puts(puts, place, limit)
    for moves in unit.moves:
        for some in _cut_moves(moves, max(1, limit // 2)):
            yield Unit(moves=[some]), []
    for takes in unit.takes:
        for tokens in _cut_takes(takes, limit):
            yield Unit(takes=[Takes(takes.queue, takes.key, tokens)]), []
    yield from _given(unit, told, limit)


def _given(unit: Unit, told: list[int], limit: int) -> Iterator[_Piece]:
    """Yields the records that are replaced with what other gateways are told, in the runs at the places `told`."""
    last = Unit([unit.puts[place] for place in told], replaces=unit.replaces)
    if rows_of(last) > limit:  # what is retained goes to nobody: it need not be in one part with what others are told
        for one in unit.replaces:
            if one.queue == RETAINED:
                yield Unit(replaces=[one]), []
        last.replaces = [one for one in unit.replaces if one.queue != RETAINED]
    if rows_of(last) <= limit:
        yield last, told
        return
    for place in told:
        yield from _cut_puts(unit.puts[place], place, limit)
    for one in last.replaces:
        yield Unit(replaces=[one]), []


def _is_state(placed: tuple[int, Puts]) -> bool:
    return bool(placed[1].key)


def _cut_takes(takes: Takes, limit: int) -> Iterator[list[Token]]:
    """Yields some tokens at a time: a message in segments counts as several, and is taken as a whole."""
    some: list[Token] = []
    rows = 0
    for token in takes.tokens:
        weight = messages_of(token)
        if some and rows + weight > limit:
            yield some
            some, rows = [], 0
        some.append(token)
        rows += weight
    if some:
        yield some


def _cut_puts(puts: Puts, place: int, limit: int) -> Iterator[_Piece]:
    if not puts.syncpoint:  # not part of a unit of work, however long
        yield Unit([puts]), [place]
        return
    for start in range(0, len(puts.heads), limit):
        rows = slice(start, start + limit)
        yield Unit([replace(puts, heads=puts.heads[rows], bodies=puts.bodies[rows], tokens=())]), [place]


def _cut_moves(moves: Moves, limit: int) -> Iterator[Moves]:
    for start in range(0, len(moves.tokens), limit):
        rows = slice(start, start + limit)
        heads = moves.heads[rows] if moves.heads is not None else None
        yield replace(moves, tokens=moves.tokens[rows], heads=heads)


class DividedUnit:
    """Submits the parts of one unit, one at a time; it stops after a refused part."""

    def __init__(self, unit: Unit, done: Done, limit: int, submit: Callable[[Unit, Done], None]) -> None:
        self._unit = unit
        self._done = done
        self._submit = submit
        self._parts = parts_of(unit, limit)
        self._tokens: list[list[Token]] = [[] for _ in unit.puts]

    def begin(self) -> None:
        """Submit the next part."""
        self._submit(self._parts[0][0], self._finished)

    def _finished(self, part: Unit, outcome: Outcome) -> None:
        _, places = self._parts.pop(0)
        for place, puts in zip(places, part.puts, strict=True):
            _note_placed(self._unit.puts[place], puts)
        if outcome.failures:
            failures = [one._replace(puts=places[one.puts] if one.puts >= 0 else -1) for one in outcome.failures]
            self._done(self._unit, Outcome(failures))
            return
        for place, puts in zip(places, part.puts, strict=True):
            self._tokens[place] += puts.tokens
        if self._parts:
            self.begin()
            return
        for puts, tokens in zip(self._unit.puts, self._tokens, strict=True):
            puts.tokens = tokens
        self._done(self._unit, Outcome())


def _note_placed(whole: Puts, part: Puts) -> None:
    """Note what became of rows out of syncpoint in the run they were cut from: parts come in order, and none follows
    one that was not put completely."""
    if part.syncpoint:
        return
    whole.too_long = [*whole.too_long, *(whole.placed + row for row in part.too_long)]
    whole.lost_reason = whole.lost_reason or part.lost_reason
    whole.placed, whole.lost = whole.placed + part.placed, whole.lost + part.lost
