"""Units of work as bytes: every unit comes back, also in parts, and what is not a record is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.buffer.record import Record, cut, decode, encode, front_of, messages_of, parts_of, rows_of
from gateway.errors import StoreCorrupt
from gateway.ports.batch import Puts, Replace, Takes, Unit

NAMES = st.text(max_size=12)
HEADS = st.sampled_from([b"a" * 364, b"b" * 364 + b"prefix", b"c" * 364])
TOKENS = st.one_of(st.integers(0, 2**64 - 1), st.binary(min_size=24, max_size=24))


@st.composite
def runs(draw: st.DrawFn) -> Puts:
    rows = draw(st.lists(st.tuples(HEADS, st.binary(max_size=40)), max_size=12))
    puts = Puts(draw(NAMES), draw(NAMES), draw(st.binary(max_size=24)), draw(st.integers(-1, 9)), draw(st.booleans()))
    puts.heads, puts.bodies = [head for head, _ in rows], [body for _, body in rows]
    return puts


@st.composite
def units(draw: st.DrawFn) -> Unit:
    takes = st.builds(Takes, NAMES, st.binary(max_size=24), st.lists(TOKENS, max_size=5))
    replaces = st.builds(Replace, NAMES, st.binary(max_size=24), st.none() | st.binary(max_size=30))
    return Unit(
        draw(st.lists(runs(), max_size=4)), draw(st.lists(takes, max_size=3)), [], draw(st.lists(replaces, max_size=3))
    )


@given(units(), st.integers(0, 2**63), st.floats(0, 2e9))
def test_a_record_comes_back(unit: Unit, number: int, at: float) -> None:
    record = Record(number, at, unit, [f"rule {index}" for index in range(len(unit.puts))])
    data = encode(record)
    assert decode(data) == record
    assert front_of(data) == (number, at, messages_of(unit))


@given(units(), st.data())
def test_a_record_that_is_cut_or_longer_is_refused(unit: Unit, data: st.DataObject) -> None:
    whole = encode(Record(1, 2.0, unit, [""] * len(unit.puts)))
    short = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for wrong in (short, whole + b"\0", b"MQGX" + whole[4:]):
        with pytest.raises(StoreCorrupt):
            decode(wrong)


@given(units(), st.integers(1, 5), st.integers(1, 100))
def test_parts_are_the_whole_in_order(unit: Unit, most: int, size: int) -> None:
    rules = [f"rule {index}" for index in range(len(unit.puts))]
    parts = list(parts_of(unit, rules, most, size))

    def rows(of: list[tuple[Unit, list[str]]]) -> list[tuple[object, ...]]:
        return [
            (puts.queue, puts.key, rule, head, body)
            for each, names in of
            for puts, rule in zip(each.puts, names, strict=True)
            for head, body in zip(puts.heads, puts.bodies, strict=True)
        ]

    assert rows(parts) == rows([(unit, rules)])
    assert [take for part, _ in parts for take in part.takes] == unit.takes
    for part, _ in parts:
        assert messages_of(part) <= most
        longest = sum(len(body) for puts in part.puts for body in puts.bodies)
        assert messages_of(part) == 1 or longest <= size


@given(units())
def test_a_cut_loses_nothing_and_knows_the_places(unit: Unit) -> None:
    parts = cut(unit, lambda queue: len(queue) % 2 == 0)
    assert rows_of(parts.own) + rows_of(parts.remote) == rows_of(unit)
    for part, places in ((parts.own, parts.own_puts), (parts.remote, parts.remote_puts)):
        assert all(unit.puts[place] is puts for place, puts in zip(places, part.puts, strict=True))
    assert parts.own.replaces == unit.replaces
