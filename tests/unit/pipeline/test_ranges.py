"""Ranges of message numbers: what has landed, what is missing, names."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.pipeline.land.ranges import Landed, condition, merged, range_id, without
from gateway.pipeline.source.http_access import split_range

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair) + 1)))


def numbers(spans: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in spans for number in range(low, high)}


@given(SPANS)
def test_merged_spans_cover_the_same_numbers_and_are_disjoint(spans: list[tuple[int, int]]) -> None:
    result = merged(spans)
    assert numbers(result) == numbers(spans)
    assert all(one[1] < two[0] for one, two in pairwise(result))


@given(SPANS, st.integers(0, 60), st.integers(1, 30))
def test_missing_is_what_no_landed_span_has(spans: list[tuple[int, int]], low: int, length: int) -> None:
    left = without(low, low + length, merged(spans))
    assert numbers(left) == set(range(low, low + length)) - numbers(spans)


def test_a_repeated_batch_has_nothing_missing_and_an_overlapping_one_only_its_rest() -> None:
    landed = Landed()
    landed.add([("Q", 0, 100)])
    assert landed.missing([("Q", 50, 100)]) == []
    assert landed.missing([("Q", 50, 150)]) == [("Q", 100, 150)]
    assert landed.missing([("R", 50, 60)]) == [("R", 50, 60)]
    assert (landed.next("Q"), landed.next("R")) == (100, 0)


def test_a_name_depends_on_the_range_alone() -> None:
    assert range_id([("Q", 0, 10)]) == range_id([("Q", 0, 10)]) != range_id([("Q", 0, 11)])
    assert len(range_id([])) == 16


@given(st.integers(0, 100), st.integers(0, 1000), st.integers(1, 8))
def test_split_pieces_join_to_the_whole(low: int, rows: int, parts: int) -> None:
    pieces = split_range(low, low + rows, parts)
    assert numbers(pieces) == set(range(low, low + rows))
    assert len(pieces) <= parts


def test_condition_is_sql() -> None:
    assert condition([("Q", 1, 5), ("Q", 9, 10)]) == "(seq >= 1 AND seq < 5) OR (seq >= 9 AND seq < 10)"
    assert condition([]) == "false"
