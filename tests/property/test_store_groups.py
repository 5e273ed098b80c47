"""The rows of a frame for many lanes: the index against its lanes one by one, and what is compiled against its twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.queue_manager.store import lanes
from gateway.queue_manager.store.index import Index
from gateway.queue_manager.store.lanes import Queue, append_in_python, depths_in_python
from gateway.queue_manager.store.place import ROW_BITS, VOLATILE
from gateway.queue_manager.store.unit import LaneName, TokenRun

NAMES = st.tuples(st.sampled_from(["A", "B", "C"]), st.sampled_from([b"", b"", b"key"]), st.sampled_from([5, 5, 9]))
GROUPS = st.lists(st.tuples(NAMES, st.integers(1, 3)), max_size=8)
FRAMES = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1]), GROUPS, st.integers(0, 8)), max_size=8)
"""Whether the numbers are earlier than others, the groups, and how many messages of each lane are taken afterwards."""
Said = dict[tuple[str, bytes, int], tuple[int, list[int]]]


def said(queues: dict[str, Queue]) -> Said:
    """What is in the lanes."""
    found: Said = {}
    for name, queue in queues.items():
        for key, head in queue.lanes.items():
            lane = head
            while lane is not None:
                found[name, key, lane.rank] = lane.depth, list(lane.runs)
                lane = lane.lower
    return found


def one_by_one(index: Index, groups: list[tuple[LaneName, int]], first: int, place: int) -> None:
    for name, count in groups:
        index.lane(name).append(first, count, place)
        first, place = first + count, place + count


def take(index: Index, count: int, run: tuple[LaneName, int]) -> None:
    """Take from the front of a lane, so that lanes end up empty."""
    lane = index.find(run[0])
    for first, length, _ in list(lane.live())[:1] if lane is not None else ():
        index.take([TokenRun(run[0], first, min(count, length))], None)


@given(FRAMES)
def test_groups_are_put_as_one_by_one(frames: list[tuple[int, list[tuple[LaneName, int]], int]]) -> None:
    index, other, first = Index(), Index(), 1_000
    for number, (early, groups, taken) in enumerate(frames, 1):
        rows, place = sum(count for _, count in groups), (VOLATILE | number) << ROW_BITS
        begin = 1_000 - 100 * number if early else first
        assert index.put(groups, begin, place) == rows
        one_by_one(other, groups, begin, place)
        if rows:
            other._count_rows(VOLATILE | number, rows)
        first += rows
        for run in groups if taken else ():
            take(index, taken, run)
            take(other, taken, run)
        assert said(index.queues) == said(other.queues)
        assert {name: queue.depth for name, queue in index.queues.items()} == {
            name: queue.depth for name, queue in other.queues.items()
        }
        names = ["A", "none", "C", "B", "A"]
        assert index.depths(names) == depths_in_python(index.queues, names) == [index.depth(name) for name in names]


@given(GROUPS, GROUPS, st.integers(0, 8), st.sampled_from([5, 500]))
def test_what_is_appended_and_where_it_ends(
    there: list[tuple[LaneName, int]], groups: list[tuple[LaneName, int]], at: int, first: int
) -> None:
    at = min(at, len(groups))
    indexes = Index(), Index()
    for index in indexes:
        one_by_one(index, there, 100, 7_000)
    compiled, python = [
        call(index.queues, groups, at, first, 9_000)
        for call, index in zip((lanes.append, append_in_python), indexes, strict=True)
    ]
    assert compiled == python
    assert said(indexes[0].queues) == said(indexes[1].queues)


@pytest.mark.skipif(lanes.append is append_in_python, reason="not compiled here")
@pytest.mark.parametrize(
    "call",
    [
        lambda: lanes.append([], [], 0, 1, 1),  # type: ignore[arg-type]
        lambda: lanes.append({}, 5, 0, 1, 1),  # type: ignore[arg-type]
        lambda: lanes.append({}, [], -1, 1, 1),
        lambda: lanes.append({}, [], 0, -1, 1),
        lambda: lanes.append({}, [5], 0, 1, 1),  # type: ignore[list-item]
        lambda: lanes.append({}, [(5, 1)], 0, 1, 1),  # type: ignore[list-item]
        lambda: lanes.append({}, [(("A", b"", 9), -1)], 0, 1, 1),
        lambda: lanes.append({"A": 5}, [(("A", b"", 9), 1)], 0, 1, 1),  # type: ignore[dict-item]
        lambda: lanes.depths({}, ()),  # type: ignore[arg-type]
        lambda: lanes.depths({"A": 5}, ["A"]),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_group_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)):
        call()
