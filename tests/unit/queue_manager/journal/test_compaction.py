"""Survivors are carried forward: a few messages that nobody takes do not hold the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.unit import Backout, LaneMoves, LaneName, LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
SEGMENT = 256 * 1024
OPTIONS = StoreOptions(segment_bytes=SEGMENT, spare_segments=3, direct=False, background=False, cache_bytes=100_000)


def opened(path: Path) -> Store:
    return Store.open(path, clock=lambda: 5.0, options=OPTIONS)


def finish(store: Store, prepared: Prepared) -> None:
    store.write(prepared)
    store.apply(prepared)


def commit(store: Store, unit: StoreUnit) -> None:
    finish(store, store.prepare(unit, 5.0))
    step = store.maintain(5.0)
    if step is not None:
        finish(store, step)


def crash(store: Store) -> None:
    store.ring.close()
    assert store._lock is not None
    store._lock.release()


def live_bytes(store: Store) -> int:
    return sum(extent.live_bytes for extent in store.index.space.by_slot.values())


def test_one_message_in_a_thousand_that_is_never_taken_does_not_hold_the_disk(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept: list[bytes] = []
    worst = 0
    for round_ in range(600):
        bodies = [b"%d-%d" % (round_, i) * 8 for i in range(100)]
        puts = LanePuts("Q", heads=[HEAD] * 100, bodies=bodies)
        commit(store, StoreUnit(puts=[puts]))
        leaving = list(puts.tokens)
        if round_ % 10 == 0:
            kept.append(bodies[50])
            del leaving[50]
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=leaving)]))
        worst = max(worst, store.ring.total_bytes - 2 * live_bytes(store))
    assert worst <= 6 * SEGMENT
    assert [m.body for m in store.fetch("Q", limit=1000)] == kept
    crash(store)
    store = opened(tmp_path)
    assert [m.body for m in store.fetch("Q", limit=1000)] == kept
    store.close()


def test_frames_of_single_messages_are_merged(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for i in range(400):
        commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"%d" % i])]))
    while store.wants_maintenance:
        step = store.maintain(5.0)
        if step is not None:
            finish(store, step)
    assert store.ring.total_bytes <= 7 * SEGMENT  # 400 blocks of 4 KiB would be more than 6, and the reserve
    expected = [b"%d" % i for i in range(400)]
    assert [m.body for m in store.fetch("Q", limit=1000)] == expected
    crash(store)
    store = opened(tmp_path)
    assert [m.body for m in store.fetch("Q", limit=1000)] == expected
    store.close()


def test_moved_messages_counts_ids_and_state_are_carried(tmp_path: Path) -> None:
    store = opened(tmp_path)
    staged = LanePuts(
        "STAGE", heads=[HEAD] * 3, bodies=[b"a", b"b", b"c"], correl_ids=[b"c" * 24] * 3, expiries=[7, 8, 9]
    )
    commit(store, StoreUnit(puts=[staged], state={b"object": b"QLOCAL"}))
    move = LaneMoves("STAGE", b"", list(staged.tokens)[:2], "Q", b"key")
    commit(store, StoreUnit(moves=[move]))
    commit(store, StoreUnit(backouts=[Backout("Q", b"key", move.new_tokens[1], 4)]))
    for i in range(300):
        puts = LanePuts("BUSY", heads=[HEAD], bodies=[b"%d" % i * 2000])
        commit(store, StoreUnit(puts=[puts]))
        if i % 40:  # survivors everywhere: one segment that is nearly empty is left as it is
            commit(store, StoreUnit(takes=[LaneTakes("BUSY", tokens=puts.tokens)]))
    assert min(segment.serial for segment in store.ring.used.values()) > 1
    for _ in range(2):
        one, two = store.fetch("Q", b"key", limit=5)
        assert [one.token, two.token] == list(move.new_tokens)
        assert (one.body, one.backout, one.expiry, one.head[72:96], one.put_time) == (b"a", 0, 7, b"c" * 24, 5_000_000)
        assert (two.body, two.backout, two.expiry) == (b"b", 4, 8)
        assert store.fetch("STAGE")[0].body == b"c"
        assert store.state() == {b"object": b"QLOCAL"}
        crash(store)
        store = opened(tmp_path)
    store.close()


def test_any_pattern_of_takes_stays_within_the_bound_and_loses_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    dice = random.Random(7)
    there: dict[int, bytes] = {}
    for round_ in range(500):
        puts = LanePuts("Q", priority=round_ % 3, heads=[HEAD] * 40, bodies=[dice.randbytes(100) for _ in range(40)])
        commit(store, StoreUnit(puts=[puts]))
        there.update(zip(puts.tokens, puts.bodies, strict=True))
        leaving = dice.sample(sorted(there), min(len(there), dice.choice([10, 40, 70])))
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=leaving)]))
        for token in leaving:
            del there[token]
    assert store.ring.total_bytes <= 2 * live_bytes(store) + 6 * SEGMENT
    crash(store)
    store = opened(tmp_path)
    assert {m.token: m.body for m in store.fetch("Q", limit=100_000)} == there
    store.close()


@pytest.mark.parametrize(("written", "frames"), [(4096, 6), (100_000, 30)])
def test_a_step_reads_as_much_as_is_written_beside_it(tmp_path: Path, written: int, frames: int) -> None:
    """A commit that waits behind the step does not wait longer than it takes itself."""
    store = opened(tmp_path)
    for i in range(400):
        finish(store, store.prepare(StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"%d" % i])]), 5.0))
    walk = store._next_walk()
    assert walk is not None
    before, steps = walk._offset, 0
    while not walk.done:
        walk.step(store._next_number, written)
        steps += 1
        assert walk._offset - before <= frames * 4096
        before = walk._offset
    assert steps >= (SEGMENT // 4096 - 10) // frames
    store.close()


@pytest.mark.parametrize("lives", [True, False])
def test_a_frame_of_thousands_of_lanes_is_carried_in_steps_of_hundreds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """As ten thousand sessions leave it behind that have come, or were sent something, in the same moment."""
    store, lanes = opened(tmp_path), 5000
    groups = [(("Q", b"key %d" % at, 9), 1) for at in range(lanes)]
    bodies = [b"%d" % at for at in range(lanes)]
    puts = LanePuts("", heads=[HEAD] * lanes, bodies=bodies, groups=groups)
    finish(store, store.prepare(StoreUnit(puts=[puts]), 5.0))
    numbers = {key: [message.token for message in store.fetch("Q", key)] for (_, key, _), _ in groups}
    for at in range(2000):  # in the same segment, and gone
        one = LanePuts("R", heads=[HEAD], bodies=[b"%d" % at * 20])
        finish(store, store.prepare(StoreUnit(puts=[one]), 5.0))
        finish(store, store.prepare(StoreUnit(takes=[LaneTakes("R", tokens=one.tokens)]), 5.0))
    left = {key for at, key in enumerate(numbers) if lives or not at % 50}
    takes = [LaneTakes("Q", key, found) for key, found in numbers.items() if key not in left]
    if takes:
        finish(store, store.prepare(StoreUnit(takes=takes), 5.0))
    asked = 0
    find = store.index.find

    def counted(name: LaneName) -> Lane | None:
        nonlocal asked
        asked += 1
        return find(name)

    monkeypatch.setattr(store.index, "find", counted)
    store._walk = store._next_walk()
    assert store._walk is not None
    while store._walk is not None:
        asked = 0
        step = store.maintain(5.0)
        assert asked < 3000
        if step is not None:
            assert step.changes is not None
            assert len(step.changes.groups) < 500
            finish(store, step)
    crash(store)
    store = opened(tmp_path)
    found = {key: [message.body for message in store.fetch("Q", key)] for key in left}
    assert found == {key: [bodies[at]] for at, key in enumerate(numbers) if key in left}
    store.close()
