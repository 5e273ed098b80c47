"""A lane against a dictionary of number -> place: appends, takes in any order, moves of places, insertions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.queue_manager.store import lanes
from gateway.queue_manager.store.index import consecutive, first_visible, neighbours, spans, visible
from gateway.queue_manager.store.lanes import Lane, Queue, Released, cut_run
from gateway.queue_manager.store.numbers import Numbers, parted

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "take", "take", "take front", "relocate", "insert"]),
        st.integers(0, 60),
        st.integers(1, 25),
    ),
    max_size=60,
)


class Oracle:
    """What the lane must say."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.released: list[int] = []
        self.next = 100
        self.next_place = 10_000


def released_places(released: Released) -> list[int]:
    return [place + at for place, count in released for at in range(count)]


def check(lane: Lane, oracle: Oracle) -> None:
    found = [(first + at, place + at) for first, count, place in lane.live() for at in range(count)]
    assert found == sorted(oracle.places.items())
    assert lane.depth == lane.queue.depth == len(oracle.places)


@given(ACTIONS, st.integers(1, 40))
@settings(max_examples=300)
def test_a_lane_says_what_a_dictionary_says(actions: list[tuple[str, int, int]], fold_at: int) -> None:
    before, lanes.FOLD_AT = lanes.FOLD_AT, fold_at
    try:
        play(actions)
    finally:
        lanes.FOLD_AT = before


def play(actions: list[tuple[str, int, int]]) -> None:
    lane, oracle = Lane(Queue("Q"), b"", 9), Oracle()
    released: Released = []
    for action, where, count in actions:
        numbers = sorted(oracle.places)
        if action == "append":
            oracle.next += where % 3
            lane.append(oracle.next, count, oracle.next_place)
            for at in range(count):
                oracle.places[oracle.next + at] = oracle.next_place + at
            oracle.next += count
            oracle.next_place += count + where % 2
        elif action == "insert":
            free = [number for number in range(1, 100) if number not in oracle.places]
            lane.insert(free[where % len(free)], 1, oracle.next_place)
            oracle.places[free[where % len(free)]] = oracle.next_place
            oracle.next_place += 1
        elif numbers:
            first = numbers[0] if action == "take front" else numbers[where % len(numbers)] - where % 2
            if action == "relocate":
                for begin, length, _place in list(spans(lane, first, count)):
                    lane.relocate(begin, length, oracle.next_place, released)
                    for at in range(length):
                        oracle.released.append(oracle.places[begin + at])
                        oracle.places[begin + at] = oracle.next_place + at
                    oracle.next_place += length
            else:
                gone = [number for number in range(first, first + count) if number in oracle.places]
                assert lane.take(first, count, released) == len(gone)
                oracle.released += [oracle.places.pop(number) for number in gone]
        check(lane, oracle)
        for number in (where, *list(oracle.places)[:3], oracle.next):
            assert lane.holds(number) is (number in oracle.places)
            assert lane.place(number) == oracle.places.get(number, -1)
            place = lane.place_of_run(number, count)
            if place >= 0:
                assert all(oracle.places[number + at] == place + at for at in range(count))
            else:
                assert lane.removed or list(lane.live(number - 1))[:1] != [(number, count, lane.place(number))]
        after = sorted(number for number in oracle.places if number > where + 90)
        assert [first + at for first, length, _p in lane.live(where + 90) for at in range(length)] == after
        first_run = lane.first()
        assert (first_run[0] if first_run else None) == min(oracle.places, default=None)
    assert sorted(released_places(released)) == sorted(oracle.released)


@given(st.integers(1, 50), st.integers(1, 30), st.sets(st.integers(1, 90)))
def test_cut_run(first: int, count: int, without: set[int]) -> None:
    parts = list(cut_run((first, count, 1000), without))
    assert [begin + at for begin, length, _place in parts for at in range(length)] == [
        number for number in range(first, first + count) if number not in without
    ]
    assert all(place - 1000 == begin - first for begin, _length, place in parts)


@given(st.lists(st.integers(0, 40), max_size=30))
def test_tokens_become_runs(tokens: list[int]) -> None:
    ascending = [first + at for first, count in consecutive(tokens) for at in range(count)]
    assert ascending == sorted(set(tokens))
    in_order = [first + at for first, count in neighbours(tokens) for at in range(count)]
    assert in_order == list(dict.fromkeys(tokens))
    assert list(consecutive(range(3, 9))) == [(3, 6)]


@given(st.sets(st.integers(1, 60)), st.lists(st.sets(st.integers(1, 60)), max_size=5))
def test_what_is_locked_is_skipped_however_locks_change(taken: set[int], locks: list[set[int]]) -> None:
    lane = Lane(Queue("Q"), b"", 0)
    for first in range(1, 61, 6):
        lane.append(first, 6, first)
    for number in taken:
        lane.take(number, 1, [])
    hidden: set[int] = set()
    for wanted in locks:
        freed = hidden - wanted
        hidden = wanted
        lane.skip = min(lane.skip, min(freed, default=lane.skip))  # what Index.show does
        there = [number for number in range(1, 61) if number not in taken and number not in hidden]
        one = first_visible(lane, -1, Numbers(hidden))
        assert one == ((there[0], 1, there[0]) if there else None)
        seen = [first + at for first, count, _place in visible(lane, -1, Numbers(hidden)) for at in range(count)]
        assert seen == there
        after = first_visible(lane, 30, Numbers(hidden))
        assert (after[0] if after else None) == next((number for number in there if number > 30), None)


def test_what_becomes_visible_late_is_before_what_was_seen() -> None:
    lane = Lane(Queue("Q"), b"", 0)
    lane.append(5, 2, 105)
    assert first_visible(lane, -1, Numbers({5})) == (6, 1, 106)
    lane.append(3, 1, 103)
    assert first_visible(lane, -1, Numbers({5})) == (3, 1, 103)
    assert list(visible(lane, -1, Numbers({5}))) == [(3, 1, 103), (6, 1, 106)]


STRETCHES = st.one_of(
    st.builds(lambda first, count: range(first, first + count), st.integers(0, 200), st.integers(0, 60)),
    st.lists(st.integers(0, 260), max_size=40),
)
SEVERAL = st.lists(st.builds(lambda first, count: range(first, first + count), st.integers(0, 200), st.integers(0, 40)))


@given(st.lists(st.tuples(st.booleans(), SEVERAL), max_size=8))
def test_several_runs_of_numbers_at_once(steps: list[tuple[bool, list[range]]]) -> None:
    numbers, model = Numbers(), set[int]()
    for adds, runs in steps:
        (numbers.add if adds else numbers.remove)(*parted((("Q", b"", 9), run.start, len(run)) for run in runs))
        (model.update if adds else model.difference_update)(*runs)
        assert [number for number in range(261) if number in numbers] == sorted(model)


@given(st.lists(st.tuples(st.booleans(), STRETCHES), max_size=12), st.integers(0, 100), st.integers(1, 160))
def test_numbers_are_a_set(steps: list[tuple[bool, range | list[int]]], first: int, count: int) -> None:
    numbers, model = Numbers(), set[int]()
    for adds, stretch in steps:
        if adds:
            numbers.update(stretch)
            model.update(stretch)
        else:
            numbers.difference_update(stretch)
            model.difference_update(stretch)
        assert bool(numbers) == bool(model)
        assert [number for number in range(261) if number in numbers] == sorted(model)
        assert numbers.isdisjoint(stretch) == model.isdisjoint(stretch)
    assert numbers.first_outside(first, count) == next((n for n in range(first, first + count) if n not in model), -1)
    parts = list(numbers.cut((first, count, 1000 + first)))
    left = [begin + at for begin, length, _place in parts for at in range(length)]
    assert left == [number for number in range(first, first + count) if number not in model]
    assert sorted(numbers.among(range(first, first + count))) == sorted(model & set(range(first, first + count)))
    assert all(place == 1000 + begin and length > 0 for begin, length, place in parts)
