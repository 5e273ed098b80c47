"""State records that are replaced as columns: the compiled functions against the Python that does the same, and a store
whose records are replaced against a table of them.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.ports.batch import Replace
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal import encode as encoding
from gateway.queue_manager.store import index as indexing
from gateway.queue_manager.store import replaced
from gateway.queue_manager.store.lanes import Lane, Queue
from gateway.queue_manager.store.place import NUMBER_MASK, ROW_BITS, VOLATILE
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, Replaced, StoreUnit

COMPILED = replaced.records_of is not replaced.records_of_in_python
FORMS = ["compiled", "python"] if COMPILED else ["python"]
QUEUE, HEAD, RANK = "MQGATE.STATE", b"H" * 364, 9
KEYS = [b"%d" % number for number in range(6)]
SMALL = StoreOptions(segment_bytes=256 * 1024, spare_segments=1, background=False)

compares = pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")


# ---- function for function


@compares
@given(
    st.lists(
        st.builds(Replace, st.sampled_from(["A", "B"]), st.sampled_from(KEYS), st.none() | st.binary(max_size=9)),
        max_size=20,
    )
)
def test_records(replaces: list[Replace]) -> None:
    assert replaced.records_of(replaces) == replaced.records_of_in_python(replaces)


def lane(kind: int, number: int) -> Lane:
    """A lane of a kind: of one message, also after others have gone, of several, of another rank, with one below it, of
    one that is non-persistent, or with none."""
    made = Lane(Queue(QUEUE), b"", 8 if kind == 3 else RANK)
    if kind == 1:
        for before in range(3):
            made.append(number - 3 + before, 1, 7)
            made.shift(number - 3 + before, 1)
    if kind == 6:
        made.append(number, 3, 70)
        made.take(number + 1, 1, [])  # not from the front: it is noted
        made.take(number, 1, [])
        return made
    if kind != 7:
        made.append(number, 2 if kind == 2 else 1, (VOLATILE << ROW_BITS if kind == 5 else 70) + number)
    if kind == 4:
        made.lower = Lane(made.queue, b"", RANK)
    return made


def lanes_of(kinds: list[int]) -> dict[bytes, Lane]:
    return {key: lane(kind, 10 + at) for at, (key, kind) in enumerate(zip(KEYS, kinds, strict=True)) if kind < 8}


def contents(lanes: dict[bytes, Lane]) -> dict[bytes, tuple[int, list[tuple[int, int, int]]]]:
    return {key: (one.depth, list(one.live())) for key, one in lanes.items()}


KINDS = st.lists(st.integers(0, 8), min_size=len(KEYS), max_size=len(KEYS))


@compares
@given(KINDS, st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=9)))
@example([0, 1, 2, 3, 4, 5], dict.fromkeys(KEYS, b"x"))
@example([6, 7, 8, 0, 0, 1], dict.fromkeys(KEYS, b"x"))
def test_what_stands_alone(kinds: list[int], records: replaced.Records) -> None:
    ours: tuple[list[bytes], list[int], list[bytes]] = ([], [], [])
    theirs: tuple[list[bytes], list[int], list[bytes]] = ([], [], [])
    others = replaced.stand_alone(lanes_of(kinds), RANK, records, *ours)
    assert others == replaced.stand_alone_in_python(lanes_of(kinds), RANK, records, *theirs)
    assert ours == theirs


@compares
@given(KINDS, st.permutations(KEYS), st.integers(0, 3))
@example([0, 0, 0, 1, 1, 1], KEYS, 0)
@example([0, 1, 6, 2, 3, 7], KEYS, 3)
def test_places(kinds: list[int], keys: list[bytes], changed: int) -> None:
    numbers = [10 + KEYS.index(key) + (at < changed) for at, key in enumerate(keys)]
    ours, theirs = lanes_of(kinds), lanes_of(kinds)
    found = replaced.put_in_place(ours, RANK, keys, numbers, 100, 900)
    assert found == replaced.put_in_place_in_python(theirs, RANK, keys, numbers, 100, 900)
    assert contents(ours) == contents(theirs)


@compares
@given(st.lists(st.sampled_from(KEYS), unique=True), st.sets(st.sampled_from(KEYS)))
def test_links(keys: list[bytes], known: set[bytes]) -> None:
    lanes = [encoding.LaneNumbers([(QUEUE, key, RANK) for key in known]) for _ in range(2)]
    numbers = [(1 << 60) - 1 - at for at in range(len(keys))]
    found = []
    for one, links in zip(lanes, (replaced.links, replaced.links_in_python), strict=True):
        one.begin()
        found.append(links(QUEUE, RANK, keys, numbers, one.by_key(QUEUE, RANK), one.number))
    ours, theirs = lanes
    assert found[0] == found[1]
    assert (ours.known, ours.fresh) == (theirs.known, theirs.fresh)
    assert ours.by_key(QUEUE, RANK) == theirs.by_key(QUEUE, RANK) == {key: ours.known[QUEUE, key, RANK] for key in keys}
    fresh = {name[1] for name in ours.fresh}
    ours.take_back()
    again = replaced.links(QUEUE, RANK, keys, numbers, ours.by_key(QUEUE, RANK), ours.number)
    assert (again, {name[1] for name in ours.fresh}) == (found[0], fresh), "what is not written is defined again"


@compares
def test_wrong_arguments_are_errors() -> None:
    for call in (
        lambda: replaced.records_of(("A", b"k", b"")),  # type: ignore[arg-type]
        lambda: replaced.records_of([("A", "k", b"")]),  # type: ignore[list-item]
        lambda: replaced.stand_alone({b"k": 7}, RANK, {b"k": b""}, [], [], []),  # type: ignore[dict-item]
        lambda: replaced.stand_alone({}, RANK, [], [], [], []),  # type: ignore[arg-type]
        lambda: replaced.links(QUEUE, RANK, KEYS, [], {}, lambda _name: 1),
        lambda: replaced.put_in_place({}, RANK, KEYS, [], 1, 1),
        lambda: replaced.put_in_place({b"0": 7}, RANK, [b"0"], [1], 1, 1),  # type: ignore[dict-item]
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()


# ---- a store


class Records:
    """A store, and what its records have to be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store.open(path, clock=lambda: 1.0, options=SMALL)
        self.expected: dict[bytes, list[bytes]] = {}
        self.stale: Replaced | None = None
        self.count = 0

    def commit(self, unit: StoreUnit) -> None:
        prepared = self.store.prepare(unit, 1.0)
        self.store.write(prepared)
        self.store.apply(prepared)

    def replace(self, keys: list[bytes]) -> None:
        """As translation.py does it."""
        self.count += 1
        records: replaced.Records = {key: b"%s of %d" % (key, self.count) for key in keys}
        unit = StoreUnit()
        found, others = self.store.replaceable(QUEUE, records, HEAD)
        if found is not None:
            unit.replaced.append(found)
            self.stale = found
        for key in others:
            tokens = self.store.tokens(QUEUE, key)
            if tokens:
                unit.takes.append(LaneTakes(QUEUE, key, tokens))
        groups = [((QUEUE, key, RANK), 1) for key in others]
        if groups:
            rows = LanePuts("", b"", 0, True, [HEAD] * len(groups), list(others.values()), groups=groups)  # type: ignore[arg-type]
            unit.puts.append(rows)
        self.commit(unit)
        for key in keys:
            self.expected[key] = [records[key] or b""]

    def again(self, _keys: list[bytes]) -> None:
        """What was replaced before is replaced once more, as when its frame is tried again after other frames: what
        has gone cannot go, and what comes comes."""
        if self.stale is not None:
            self.commit(StoreUnit(replaced=[self.stale]))
            for key, body in zip(self.stale.keys, self.stale.bodies, strict=True):
                self.expected.setdefault(key, []).append(body)

    def give_up(self, keys: list[bytes]) -> None:
        """A frame that is not written."""
        found, _ = self.store.replaceable(QUEUE, dict.fromkeys(keys, b"never"), HEAD)
        if found is not None:
            self.store.abort(self.store.prepare(StoreUnit(replaced=[found]), 1.0))

    def add(self, keys: list[bytes]) -> None:
        """A second message of a key, from elsewhere."""
        for key in keys[:2]:
            self.commit(StoreUnit(puts=[LanePuts(QUEUE, key, 0, heads=[HEAD], bodies=[b"more"])]))
            self.expected.setdefault(key, []).append(b"more")

    def clear(self, keys: list[bytes]) -> None:
        takes = [LaneTakes(QUEUE, key, tokens) for key in keys if (tokens := self.store.tokens(QUEUE, key))]
        self.commit(StoreUnit(takes=takes))
        for key in keys:
            self.expected.pop(key, None)

    def locked(self, keys: list[bytes]) -> None:
        """While something is locked nothing stands alone."""
        tokens = self.store.tokens(QUEUE, keys[0])
        self.store.lock(QUEUE, keys[0], tokens)
        if tokens:
            assert self.store.replaceable(QUEUE, dict.fromkeys(keys, b""), HEAD)[0] is None
        self.store.unlock(QUEUE, keys[0], tokens)

    def under_way(self, keys: list[bytes]) -> None:
        """Two frames that replace the same, the second prepared before the first is applied."""
        found, _ = self.store.replaceable(QUEUE, dict.fromkeys(keys, b"first"), HEAD)
        if found is None:
            return
        second = Replaced(QUEUE, RANK, HEAD, found.keys, found.numbers, [b"second"] * len(found.keys))
        prepared = [self.store.prepare(StoreUnit(replaced=[one]), 1.0) for one in (found, second)]
        assert [token & NUMBER_MASK for token in prepared[1].missing] == found.numbers
        for one in prepared:
            self.store.write(one)
            self.store.apply(one)
        for key in found.keys:
            self.expected[key] = [b"first", b"second"]

    def restart(self, _keys: list[bytes]) -> None:
        """As after a kill; the index is the one there was, places and all."""
        before = self.seen()
        self.store.ring.close()
        assert self.store._lock is not None
        self.store._lock.release()
        self.store = Store.open(self.path, clock=lambda: 1.0, options=SMALL)
        assert self.seen() == before

    def seen(self) -> object:
        index = self.store.index
        lanes = {one.key: list(one.live()) for one in index.lanes_of(QUEUE) if one.depth}
        extents = [extent for extent in index.space.by_slot.values() if extent.live]  # the others may be gone
        live = {extent.slot: (extent.live, extent.rows, extent.said, extent.numbers) for extent in extents}
        return lanes, index.depth(QUEUE), index.queues[QUEUE].depth if lanes else 0, live

    def check(self) -> None:
        held = {key: [one.body for one in self.store.fetch(QUEUE, key, 9)] for key in KEYS}
        assert {key: bodies for key, bodies in held.items() if bodies} == self.expected
        assert not self.store.index.hidden
        assert self.store.under_way.idle


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [Records.replace, Records.replace, Records.again, Records.give_up, Records.add, Records.clear,
             Records.locked, Records.under_way, Records.restart]
        ),
        st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
    ),
    max_size=12,
)  # fmt: skip
ALL = [(Records.replace, KEYS), (Records.replace, KEYS[::-1]), (Records.restart, KEYS)]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15)
@given(STEPS)
@example([*ALL, (Records.again, KEYS), (Records.restart, KEYS)])
@example([*ALL, (Records.under_way, KEYS), (Records.restart, KEYS)])
@example([*ALL, (Records.give_up, KEYS), (Records.replace, KEYS[2:]), (Records.restart, KEYS)])
@example([*ALL, (Records.add, KEYS), (Records.replace, KEYS), (Records.clear, KEYS[1:4]), (Records.restart, KEYS)])
def test_records_of_a_store(form: str, steps: list[tuple[object, list[bytes]]]) -> None:
    with tempfile.TemporaryDirectory() as path, ExitStack() as patched:
        if form == "python":
            patched.enter_context(patch.object(indexing, "put_in_place", replaced.put_in_place_in_python))
            patched.enter_context(patch.object(indexing, "stand_alone", replaced.stand_alone_in_python))
            patched.enter_context(patch.object(encoding, "links_of_replaced", replaced.links_in_python))
        records = Records(Path(path))
        for call, keys in steps:
            call(records, keys)  # type: ignore[operator]
            records.check()
        records.store.close()
