"""Units above MAXUMSGS: every message once, in order, puts before takes, no part above the limit."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.ibm.unit_of_work import rows_of
from gateway.backends.ibm.unit_parts import DividedUnit, largest, parts_of
from gateway.ports.batch import Done, Failure, Moves, Outcome, Puts, Replace, Takes, Unit
from gateway.ports.state_queues import GATEWAYS, OUT, RETAINED, SESSIONS


def _unit(puts: list[int], moves: list[int], takes: list[int], replaces: int) -> Unit:
    return Unit(
        [
            Puts(f"Q{run}", heads=[b"h%d" % row for row in range(count)], bodies=[b"%d" % row for row in range(count)])
            for run, count in enumerate(puts)
        ],
        [Takes("T", b"%d" % run, list(range(count))) for run, count in enumerate(takes)],
        [
            Moves("S", b"%d" % run, list(range(count)), "D", heads=[b"n%d" % row for row in range(count)])
            for run, count in enumerate(moves)
        ],
        [Replace("R", b"%d" % run, None) for run in range(replaces)],
    )


counts = st.lists(st.integers(1, 30), max_size=4)


@given(counts, counts, counts, st.integers(0, 5), st.integers(2, 25))
def test_parts_hold_everything_once_in_order(
    puts: list[int], moves: list[int], takes: list[int], replaces: int, limit: int
) -> None:
    unit = _unit(puts, moves, takes, replaces)
    parts = parts_of(unit, limit)
    assert all(rows_of(part) <= limit for part, _ in parts)
    rows = [
        (place, row)
        for part, places in parts
        for place, run in zip(places, part.puts, strict=True)
        for row in zip(run.heads, run.bodies, strict=True)
    ]
    assert rows == [
        (place, row) for place, run in enumerate(unit.puts) for row in zip(run.heads, run.bodies, strict=True)
    ]
    moved = [
        (one.key, *pair)
        for part, _ in parts
        for one in part.moves
        for pair in zip(one.tokens, one.heads or (), strict=True)
    ]
    assert moved == [(one.key, *pair) for one in unit.moves for pair in zip(one.tokens, one.heads or (), strict=True)]
    taken = [(one.key, token) for part, _ in parts for one in part.takes for token in one.tokens]
    assert taken == [(one.key, token) for one in unit.takes for token in one.tokens]
    assert [one for part, _ in parts for one in part.replaces] == unit.replaces
    kinds = [
        kind
        for part, _ in parts
        for kind, has in (("put", part.puts), ("move", part.moves), ("take", part.takes), ("replace", part.replaces))
        if has
    ]
    order = [kind for kind, _ in groupby(kinds)]
    assert order == [kind for kind in ("put", "move", "take", "replace") if kind in order]


def _given(sessions: int, others: int) -> Unit:
    """Sessions that are given to another gateway, which is told, beside what is put to a queue."""
    told = Puts(GATEWAYS, key=b"other", heads=[b"yours"] * sessions, bodies=[b""] * sessions)
    more = Puts("Q", heads=[b"h"] * others, bodies=[b""] * others)
    records = [Replace(SESSIONS, b"%d" % number, b"") for number in range(sessions)]
    return Unit([told, more], [Takes("T", b"", list(range(others)))], [], records)


def test_another_gateway_is_told_of_sessions_in_the_part_that_gives_them() -> None:
    parts = parts_of(_given(sessions=5, others=40), 20)
    assert all(rows_of(part) <= 20 for part, _ in parts)
    ((part, places),) = [one for one in parts if any(run.queue == GATEWAYS for run in one[0].puts)]
    assert (len(part.replaces), places[-1]) == (5, 0)
    assert (part, places) == parts[-1], "what is said refers to what has been put and taken before"


def test_what_is_retained_does_not_come_between_a_session_and_who_is_told_of_it() -> None:
    """However much is retained in the same unit."""
    unit = _given(sessions=3, others=4)
    unit.replaces[1:1] = [Replace(RETAINED, b"%d" % number, b"") for number in range(50)]
    parts = parts_of(unit, 20)
    assert all(rows_of(part) <= 20 for part, _ in parts)
    assert sum(len(part.replaces) for part, _ in parts) == 53
    part, places = parts[-1]
    assert 0 in places
    assert [one.queue for one in part.replaces][-3:] == 3 * [SESSIONS]


def test_another_gateway_is_told_before_records_that_are_more_than_one_part() -> None:
    """If nothing follows, the record still names the gateway from which somebody takes over."""
    parts = [part for part, _ in parts_of(_given(sessions=30, others=4), 20)]
    assert all(rows_of(part) <= 20 for part in parts)
    last_told = max(at for at, part in enumerate(parts) if any(run.queue == GATEWAYS for run in part.puts))
    assert last_told <= min(at for at, part in enumerate(parts) if part.replaces)
    assert sum(len(run.heads) for part in parts for run in part.puts if run.queue == GATEWAYS) == 30


def test_what_may_be_refused_comes_first() -> None:
    """A full queue refuses the first part, before anything is committed that would be there twice."""
    copies = Puts(OUT, key=b"subscriber", heads=[b"h"] * 30, bodies=[b""] * 30)
    full = Puts("FULL", heads=[b"h"] * 3, bodies=[b""] * 3)
    (first, places), *_ = parts_of(Unit([copies, full]), 20)
    assert (first.puts[0].queue, places[0]) == ("FULL", 1)
    assert len(first.puts[0].heads) == 3


class _Backend:
    """Answers a unit when told to."""

    def __init__(self) -> None:
        self.begun: list[tuple[Unit, Done]] = []

    def submit(self, unit: Unit, done: Done) -> None:
        self.begun.append((unit, done))

    def answer(self, *failures: Failure) -> None:
        unit, done = self.begun[-1]
        for puts in unit.puts:
            puts.tokens = list(puts.bodies)
        done(unit, Outcome(list(failures)))


def test_parts_go_one_after_the_other_and_tokens_come_together() -> None:
    unit, told, backend = _unit([5, 3], [], [4], 0), [], _Backend()
    DividedUnit(unit, lambda _unit, outcome: told.append(outcome), 4, backend.submit).begin()
    for _ in range(2):
        assert not told
        backend.answer()
    backend.answer()
    assert [outcome.failures for outcome in told] == [[]]
    assert [list(puts.tokens) for puts in unit.puts] == [[b"0", b"1", b"2", b"3", b"4"], [b"0", b"1", b"2"]]


def test_nothing_is_begun_behind_a_refused_part() -> None:
    unit, told, backend = _unit([2, 5], [], [4], 0), [], _Backend()
    DividedUnit(unit, lambda _unit, outcome: told.append(outcome), 4, backend.submit).begin()
    backend.answer()
    count = len(backend.begun)
    backend.answer(Failure(0, 2053, "full"))
    assert len(backend.begun) == count
    assert told[0].failures == [Failure(1, 2053, "full")]  # the place in the unit, not in the part


def test_the_limit_stays_well_below_maxumsgs() -> None:
    assert [largest(maximum) for maximum in (1, 100, 10_000, 999_999_999)] == [2, 50, 5000, 5000]
