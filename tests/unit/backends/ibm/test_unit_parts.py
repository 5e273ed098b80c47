"""Units above MAXUMSGS: every message once, in order, puts before takes, no part above the limit."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.ibm.unit_of_work import rows_of
from gateway.backends.ibm.unit_parts import DividedUnit, largest, parts_of
from gateway.ports.batch import Done, Failure, Moves, Outcome, Puts, Replace, Takes, Unit


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
