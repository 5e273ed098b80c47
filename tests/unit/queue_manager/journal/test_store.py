"""The store through its three steps: what is committed is there, in order, after a restart too."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.errors import StoreCorrupt, StoreError, StoreInUse, StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store, StoreOptions, encode
from gateway.queue_manager.journal.diagnosis import Verdict, check
from gateway.queue_manager.journal.ring import KEPT_LISTINGS
from gateway.queue_manager.journal.segment import listing_room
from gateway.queue_manager.store.unit import Backout, LaneMoves, LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364 + b"R" * 40
NOW = 1_700_000_000.25
SMALL = StoreOptions(segment_bytes=256 * 1024, spare_segments=1, background=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def opened(path: Path, options: StoreOptions = SMALL) -> Store:
    return Store.open(path, clock=lambda: NOW, options=options)


def commit(store: Store, unit: StoreUnit) -> Prepared:
    prepared = store.prepare(unit, NOW)
    store.write(prepared)
    store.apply(prepared)
    return prepared


def put(store: Store, *bodies: bytes, queue: str = "Q", **more: object) -> list[int]:
    puts = LanePuts(queue, heads=[HEAD] * len(bodies), bodies=list(bodies), **more)  # type: ignore[arg-type]
    commit(store, StoreUnit(puts=[puts]))
    return list(puts.tokens)


def bodies(store: Store, queue: str = "Q", key: bytes = b"", **more: object) -> list[bytes]:
    return [message.body for message in store.fetch(queue, key, limit=1000, **more)]  # type: ignore[arg-type]


def crash(store: Store) -> None:
    """Let go of the files as a killed process does."""
    store.ring.close()
    assert store._lock is not None
    store._lock.release()


@pytest.mark.parametrize("end", [Store.close, crash])
def test_messages_are_back_after_a_restart(path: Path, end: object) -> None:
    store = opened(path)
    put(store, b"one", b"two")
    put(store, b"three")
    end(store)  # type: ignore[operator]
    store = opened(path)
    messages = store.fetch("Q", limit=10)
    assert [message.body for message in messages] == [b"one", b"two", b"three"]
    assert {message.head for message in messages} == {HEAD}
    assert {message.put_time for message in messages} == {int(NOW * 1e6)}
    assert store.depth("Q") == 3
    store.close()


def test_priorities_come_first(path: Path) -> None:
    store = opened(path)
    put(store, b"low", priority=0)
    put(store, b"high", b"high2", priority=9)
    put(store, b"low2", priority=0)
    put(store, b"middle", priority=4)
    expected = [b"high", b"high2", b"middle", b"low", b"low2"]
    assert bodies(store) == expected
    store.close()
    store = opened(path)
    assert bodies(store) == expected
    messages = store.fetch("Q", limit=10)
    assert [m.token for m in messages] == sorted(m.token for m in messages)
    for at, message in enumerate(messages):
        assert bodies(store, after=message.token) == expected[at + 1 :]
    store.close()


def test_takes_in_any_order_survive(path: Path) -> None:
    store = opened(path)
    tokens = put(store, *[b"%d" % i for i in range(10)])
    for batch in (tokens[3:5], tokens[:1], [tokens[9], tokens[1]]):
        assert commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=batch)])).missing == []
    left = [b"2", b"5", b"6", b"7", b"8"]
    assert bodies(store) == left
    assert commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=tokens[:3])])).missing == tokens[:2]
    crash(store)
    store = opened(path)
    assert bodies(store) == left[1:]
    store.close()


def test_what_leaves_is_not_handed_out_while_its_frame_is_written(path: Path) -> None:
    store = opened(path)
    tokens = put(store, b"a", b"b")
    first = store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens[:1])]), NOW)
    assert bodies(store) == [b"b"]
    second = store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]), NOW)
    assert second.missing == tokens[:1]
    for prepared in (first, second):
        store.write(prepared)
    for prepared in (first, second):
        store.apply(prepared)
    assert store.depth("Q") == 0
    store.close()


@pytest.mark.parametrize("end", [Store.close, crash])
def test_a_frame_that_is_written_at_once_may_be_given_up(path: Path, end: object) -> None:
    store = opened(path)
    tokens = put(store, b"a", b"b", b"c") + put(store, b"d", persistent=False)
    store.lock("Q", b"", tokens[:1])
    taken = StoreUnit(
        takes=[LaneTakes("Q", tokens=tokens[:2])], moves=[LaneMoves("Q", b"", tokens[2:], "R")], state={b"k": b"v"}
    )
    store.abort(store.prepare(taken, NOW, at_once=True))
    assert bodies(store) == [b"b", b"c", b"d"]
    assert (bodies(store, locked=True), store.state()) == ([b"a", b"b", b"c", b"d"], {})
    prepared = store.prepare(taken, NOW, at_once=True)
    store.write(prepared)
    store.apply(prepared)
    assert (bodies(store, locked=True), bodies(store, "R"), store.state()) == ([], [b"c", b"d"], {b"k": b"v"})
    end(store)  # type: ignore[operator]
    store = opened(path)
    assert (bodies(store), bodies(store, "R"), store.state()) == ([], [b"c"], {b"k": b"v"})
    store.close()


def test_a_frame_that_is_too_long_is_refused_and_defines_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    put(store, b"a")
    with monkeypatch.context() as patched:
        patched.setattr(encode, "MAX_FRAME", 4096)
        with pytest.raises(StoreError, match="at most 4096 bytes, this one has"):
            put(store, b"b" * 4096, queue="R")
    put(store, b"c", queue="S")
    put(store, b"d", queue="R")
    crash(store)
    store = opened(path)
    assert [bodies(store, queue) for queue in "QRS"] == [[b"a"], [b"d"], [b"c"]]
    store.close()


def test_locked_messages_are_skipped_until_unlocked(path: Path) -> None:
    store = opened(path)
    tokens = put(store, b"a", b"b", b"c")
    store.lock("Q", b"", tokens[:2])
    assert bodies(store) == [b"c"]
    assert [m.body for m in store.fetch("Q", limit=9, locked=True)] == [b"a", b"b", b"c"]
    store.unlock("Q", b"", tokens[:1])
    assert bodies(store) == [b"a", b"c"]
    store.close()


def test_moved_messages_are_the_last_of_their_new_lane(path: Path) -> None:
    store = opened(path)
    tokens = put(store, b"s1", b"s2", b"s3", queue="STAGE")
    put(store, b"first")
    move = LaneMoves("STAGE", b"", tokens[:2], "Q")
    commit(store, StoreUnit(moves=[move]))
    put(store, b"last")
    assert bodies(store) == [b"first", b"s1", b"s2", b"last"]
    assert [store.read("Q", b"", token).body for token in move.new_tokens] == [b"s1", b"s2"]  # type: ignore[union-attr]
    rewritten = LaneMoves("STAGE", b"", tokens[2:], "Q", to_priority=5, heads=[b"N" * 364])
    commit(store, StoreUnit(moves=[rewritten]))
    crash(store)
    store = opened(path)
    assert bodies(store) == [b"s3", b"first", b"s1", b"s2", b"last"]
    assert store.fetch("Q")[0].head == b"N" * 364
    assert store.depth("STAGE") == 0
    store.close()


def test_sub_queues_state_and_backout_counts_come_back(path: Path) -> None:
    store = opened(path)
    shared = b"one body for many"
    heads = [HEAD]
    puts = [LanePuts("S", key=b"client-%d" % i, heads=heads, bodies=[shared]) for i in range(50)]
    commit(store, StoreUnit(puts=puts, state={b"cursor": b"17", b"gone": b"x"}))
    token = puts[7].tokens[0]
    commit(store, StoreUnit(backouts=[Backout("S", b"client-7", token, 3)], state={b"gone": None}))
    commit(store, StoreUnit(takes=[LaneTakes("S", b"client-9", puts[9].tokens)]))
    crash(store)
    store = opened(path)
    assert store.index.queues["S"].depth == 49
    assert sorted(store.index.queues["S"].lanes) == sorted(b"client-%d" % i for i in range(50) if i != 9)
    assert store.fetch("S", b"client-7")[0].backout == 3
    assert store.fetch("S", b"client-8")[0].body == shared
    assert store.state() == {b"cursor": b"17"}
    store.close()


def test_non_persistent_messages_keep_their_place_and_do_not_survive(path: Path) -> None:
    store = opened(path)
    put(store, b"p1")
    put(store, b"v1", persistent=False)
    put(store, b"p2")
    unit = StoreUnit(puts=[LanePuts("Q", persistent=False, heads=[HEAD], bodies=[b"v2"])])
    assert store.prepare(unit, NOW).position is None
    assert bodies(store) == [b"p1", b"v1", b"p2"]
    store.close()
    store = opened(path)
    assert bodies(store) == [b"p1", b"p2"]
    store.close()


def test_a_second_owner_is_refused_by_name(path: Path) -> None:
    store = opened(path)
    with pytest.raises(StoreInUse, match=r"process \d+ has this store open"):
        opened(path)
    store.close()
    opened(path).close()


def test_a_second_owner_is_refused_though_the_lock_file_was_taken_for_a_leftover(path: Path) -> None:
    store = opened(path)
    (path / "lock").unlink()
    with pytest.raises(StoreInUse, match="another process has this store open"):
        opened(path)
    store.close()
    opened(path).close()


def test_optional_columns_replace_ids_and_times(path: Path) -> None:
    store = opened(path)
    columns = LanePuts(
        "Q",
        heads=[HEAD] * 2,
        bodies=[b"a", b"b"],
        msg_ids=[b"I" * 24, bytes(24)],
        correl_ids=[b"C" * 24, b"D" * 24],
        expiries=[0, 99],
        put_times=[5, 0],
    )
    commit(store, StoreUnit(puts=[columns, LanePuts("OTHER", heads=[HEAD], bodies=[b"c"])]))
    for _ in range(2):
        one, two = store.fetch("Q", limit=2)
        assert (one.head[48:96], one.expiry, one.put_time) == (b"I" * 24 + b"C" * 24, 0, 5)
        assert (two.head[48:96], two.expiry, two.put_time) == (HEAD[48:72] + b"D" * 24, 99, int(NOW * 1e6))
        assert store.fetch("OTHER")[0].head == HEAD
        store.close()
        store = opened(path)
    store.close()


def test_segments_roll_and_a_large_message_gets_its_own(path: Path) -> None:
    store = opened(path)
    large = bytes(range(256)) * 4096
    put(store, b"before")
    put(store, large)
    for i in range(40):
        put(store, b"%d" % i * 3000)
    assert len(store.ring.used) > 2
    crash(store)
    store = opened(path)
    found = bodies(store)
    assert found[:2] == [b"before", large]
    assert found[2:] == [b"%d" % i * 3000 for i in range(40)]
    assert store.oldest("Q") == int(NOW * 1e6)
    store.close()


def test_free_segments_are_used_again(path: Path) -> None:
    store = opened(path)
    for i in range(400):
        tokens = put(store, b"%d" % i * 3000)
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]))
    assert store.ring.total_bytes <= 6 * SMALL.segment_bytes
    assert store.depth("Q") == 0
    crash(store)
    store = opened(path)
    assert store.depth("Q") == 0
    assert put(store, b"new")[0] > tokens[0]
    store.close()


def test_frames_are_written_in_the_order_they_were_prepared_in(path: Path) -> None:
    store = opened(path)
    units = [StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[body])]) for body in (b"a", b"b")]
    first, second = [store.prepare(unit, NOW) for unit in units]
    with pytest.raises(StoreError, match="write that first"):
        store.write(second)
    store.write(first)
    store.write(second)
    with pytest.raises(StoreError, match="not the next to apply"):
        store.apply(second)
    store.apply(first)
    store.apply(second)
    assert bodies(store) == [b"a", b"b"]
    crash(store)
    store = opened(path)
    assert bodies(store) == [b"a", b"b"]
    store.close()


@pytest.mark.parametrize("end", [Store.close, crash])
def test_a_frame_given_up_before_its_write_leaves_no_gap(path: Path, end: object) -> None:
    store = opened(path)
    put(store, b"a")
    units = [StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[body])]) for body in (b"given up", b"b")]
    first, second = [store.prepare(unit, NOW) for unit in units]
    store.abort(first)
    with pytest.raises(StoreUnavailable, match="prepare this unit of work again"):
        store.write(second)
    store.abort(second)
    put(store, b"c")
    end(store)  # type: ignore[operator]
    store = opened(path)
    assert bodies(store) == [b"a", b"c"]
    store.prepare(units[0], NOW)
    end(store)  # type: ignore[operator]
    store = opened(path)
    assert bodies(store) == [b"a", b"c"]
    store.close()


def test_a_store_of_other_segment_sizes_is_taken_over(path: Path) -> None:
    store = opened(path)
    for i in range(100):
        put(store, b"%d" % i * 3000)
    store.close()
    store = opened(path, StoreOptions(segment_bytes=512 * 1024, spare_segments=1, background=False))
    for i in range(100, 300):
        put(store, b"%d" % i * 3000)
    assert bodies(store) == [b"%d" % i * 3000 for i in range(300)]
    tokens = [message.token for message in store.fetch("Q", limit=1000)]
    commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]))
    for i in range(200):
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=put(store, b"%d" % i * 3000))]))
    assert {segment.size for segment in store.ring.used.values()} == {512 * 1024}
    assert sum(file.stat().st_size for file in path.glob("*.segment")) <= 6 * 512 * 1024
    store.close()


def test_what_the_format_cannot_say_is_refused(path: Path) -> None:
    store = opened(path)
    bad = [
        LanePuts("Q", heads=[HEAD], bodies=[]),
        LanePuts("Q" * 256, heads=[HEAD], bodies=[b""]),
        LanePuts("Q", b"k" * 65536, heads=[HEAD], bodies=[b""]),
        LanePuts("Q", priority=10, heads=[HEAD], bodies=[b""]),
        LanePuts("Q", heads=[HEAD] * (1 << 20), bodies=[b""] * (1 << 20)),
    ]
    units = [StoreUnit(puts=[each]) for each in bad]
    units.append(StoreUnit(state={b"k" * 65536: b""}))
    tokens = put(store, b"a")
    units.append(StoreUnit(moves=[LaneMoves("Q", b"", tokens, "Q" * 256)]))
    for unit in units:
        with pytest.raises(StoreError):
            store.prepare(unit, NOW)
    put(store, b"b")
    assert bodies(store) == [b"a", b"b"]
    crash(store)
    store = opened(path)
    assert bodies(store) == [b"a", b"b"]
    store.close()


def test_a_message_of_100_megabytes(path: Path) -> None:
    store = opened(path, StoreOptions(direct=False, background=False, spare_segments=1))
    large = bytes(1024) * 1024 * 100
    tokens = put(store, large, b"small")
    assert bodies(store)[0] == large
    crash(store)
    store = opened(path, StoreOptions(direct=False, background=False, spare_segments=1))
    assert [len(body) for body in bodies(store)] == [len(large), 5]
    commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]))
    put(store, b"next")
    assert bodies(store) == [b"next"]
    store.close()


def test_no_more_segments_than_a_header_lists(path: Path) -> None:
    options = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, background=False)
    store = opened(path, options)
    tokens: list[int] = []
    while len(store.ring.used) < listing_room(64 * 1024) - KEPT_LISTINGS:
        tokens += put(store, b"x" * 50_000)
    with pytest.raises(StoreUnavailable, match="larger segments"):
        put(store, b"x" * 50_000)
    assert len(store.ring.used) > 100
    take = store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens[10:])]), NOW)
    store.write(take)
    store.apply(take)
    put(store, b"there is room again")
    crash(store)
    store = opened(path, options)
    assert store.depth("Q") == 11
    store.close()


def test_what_is_the_gateways_own_leaves_takes_room_in_the_list_of_a_header(path: Path) -> None:
    """Otherwise nothing could be taken any more, which is what makes room."""
    options = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, background=False)
    store = opened(path, options)
    tokens: list[int] = []
    with suppress(StoreUnavailable):
        while True:
            tokens += put(store, b"x" * 50_000)
    for size in (50_000, 2_000):
        with suppress(StoreUnavailable):
            while True:
                commit(store, StoreUnit([LanePuts("OWN", heads=[HEAD], bodies=[b"x" * size])], own=True))
    own = store.depth("OWN")
    assert own
    while tokens:
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[tokens.pop()])]))
        while store.wants_maintenance and (step := store.maintain(NOW)) is not None:
            store.write(step)
            store.apply(step)
    put(store, b"there is room again")
    crash(store)
    store = opened(path, options)
    assert (store.depth("Q"), store.depth("OWN")) == (1, own)
    store.close()


@pytest.mark.parametrize("size", [4096, 65537, 4 << 30])
def test_segment_sizes_that_cannot_be(path: Path, size: int) -> None:
    with pytest.raises(StoreError, match="choose a multiple"):
        opened(path, StoreOptions(segment_bytes=size))
    opened(path).close()


def test_a_segment_that_a_reader_has_locked_is_not_used_again(path: Path) -> None:
    store = opened(path)
    put(store, b"read by another process")
    current = store.ring.current
    assert current is not None
    with current.path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        before = reader.read()
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[m.token for m in store.fetch("Q", limit=9)])]))
        for i in range(600):
            commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=put(store, b"%d" % i * 2000))]))
        assert store.ring.next_serial > 8
        reader.seek(0)
        assert reader.read(current.begin + 4096) == before[: current.begin + 4096]
        fcntl.flock(reader, fcntl.LOCK_UN)
    for i in range(600):
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=put(store, b"%d" % i * 2000))]))
    assert store.ring.total_bytes <= 5 * SMALL.segment_bytes
    put(store, b"a" * 100)
    for segment in store.ring.used.values():
        with segment.path.open("rb") as reader:
            fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
    store.close()


def test_many_small_groups_of_one_lane_become_one_run(path: Path) -> None:
    store = opened(path)
    unit = StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"%d" % i]) for i in range(50)])
    prepared = commit(store, unit)
    assert prepared.changes is not None
    assert prepared.changes.groups == [(("Q", b"", 9), 50)]
    lane = store.index.find(("Q", b"", 9))
    assert lane is not None
    assert len(lane.runs) == 3
    tokens = [puts.tokens[0] for puts in unit.puts]
    assert [message.token for message in store.fetch("Q", limit=99)] == tokens
    prepared = commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[token]) for token in tokens[:30]]))
    assert prepared.changes is not None
    assert len(prepared.changes.takes) == 1
    assert bodies(store) == [b"%d" % i for i in range(30, 50)]
    store.close()


def test_where_a_store_ends_that_was_not_closed_is_known(path: Path) -> None:
    store = opened(path)
    put(store, b"one")
    put(store, b"two" * 4000)
    store.close()
    store = opened(path)
    assert (store.ending, store.left_out) == ("", False), "it was closed"
    assert store.ring.current is not None
    put(store, b"three" * 4000)
    (segment,) = [each for each in store.ring.used.values() if each is store.ring.current]
    begin, end = store._durable_ends[segment.slot][0], segment.path
    put(store, b"four" * 4000)
    crash(store)
    store = opened(path)
    assert "the last frame is" in store.ending
    assert not store.left_out
    crash(store)
    with end.open("r+b") as file:  # the last frame was not written to its end
        file.seek(begin + 8192)
        file.write(bytes(4096))
    store = opened(path)
    assert store.left_out
    assert f"at byte {begin} of {end} is not whole: its 16" in store.ending
    assert bodies(store) == [b"one", b"two" * 4000, b"three" * 4000]
    store.close()


def test_a_journal_whose_files_were_emptied_is_no_first_start(path: Path) -> None:
    store = opened(path)
    put(store, b"kept")
    store.close()
    segments = sorted(path.glob("*.segment"))
    for segment in segments:
        segment.write_bytes(b"")
    with pytest.raises(StoreCorrupt, match=f"{segments[0]}.*to begin with nothing"):
        opened(path)
    assert [segment.stat().st_size for segment in sorted(path.glob("*.segment"))] == [0] * len(segments)


def test_a_youngest_segment_that_was_emptied_is_no_shorter_journal(path: Path) -> None:
    store = opened(path)
    put(store, b"kept")
    first = store.ring.current
    store.ring.open_next()
    put(store, b"lost")
    youngest = store.ring.current
    assert youngest is not first
    assert youngest is not None
    store.close()
    os.truncate(youngest.path, 0)
    with pytest.raises(StoreCorrupt, match=f"{youngest.path}.*to begin with what the others hold"):
        opened(path)
    (problem, verdict) = check(path)
    assert str(youngest.path) in str(problem)
    assert isinstance(verdict, Verdict)
    assert verdict.problems == 1
    youngest.path.unlink()
    store = opened(path)
    assert [message.body for message in store.fetch("Q")] == [b"kept"]
    store.close()


def test_a_first_start_that_was_killed_while_it_made_a_segment(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "00000001.segment.making").write_bytes(b"")
    (path / "00000002.segment.making").write_bytes(bytes(4096))
    store = opened(path)
    put(store, b"one")
    store.close()
    assert list(path.glob("*.making")) == []
