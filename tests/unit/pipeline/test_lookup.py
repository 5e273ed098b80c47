"""A follower beside the store's owner: the same messages, wherever they are put, taken, moved or carried on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest
from device_fleet import SMALL, Fleet, commit, put, write_journal
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import StoreCorrupt, StoreInUse, StoreUnavailable
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.lookup import Follower, Lookup, MessageRun, matching
from gateway.pipeline.journal.owner import StoreJournal, opened
from gateway.pipeline.journal.pieces import shares
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.queue_manager.journal import Prepared
from gateway.queue_manager.journal.commit_mark import MARK_NAME
from gateway.queue_manager.journal.layout import FRAME_MAGIC
from gateway.queue_manager.journal.segment import NAMES
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, StoreUnit


def numbers(lookup: Lookup, queues: str = "*", low: int = 0, high: int | None = None) -> list[int]:
    return [number for run in lookup.runs(queues, low, high) for number in range(run.first, run.first + run.rows)]


def write_without_end(store: Store, body: bytes) -> Prepared:
    """All of a frame is in its file, but the call that writes it has not returned."""
    prepared = store.prepare(StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[body])]), 1.0)
    assert prepared.position is not None
    assert prepared.frame is not None
    if prepared.position.opening is not None:
        return prepared  # its segment is not known yet
    with prepared.position.segment.path.open("r+b") as file:
        file.seek(prepared.position.offset)
        file.write(prepared.frame)
    return prepared


def test_it_sees_what_the_owner_sees(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower, fleet = Follower(tmp_path), Fleet(devices=5)
    follower.poll()
    first = put(store, "A", *fleet.batch(10))
    put(store, "B", *fleet.batch(5), priority=7)
    commit(store, StoreUnit(takes=[LaneTakes("A", b"", first[2:5])]))
    commit(store, StoreUnit(moves=[LaneMoves("A", b"", first[7:9], "B")]))
    follower.poll()
    for queues in ("A", "B", "A,B", "*"):
        assert numbers(follower, queues) == numbers(Lookup(store.index), queues)
    assert follower.queues("*") == ["A", "B"]
    assert [run.priority for run in follower.runs("B", 0)] == [7, 0]
    store.close()
    again = Follower(tmp_path)
    again.poll()
    assert numbers(again) == numbers(follower)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("ptmf"), st.integers(1, 40)), min_size=1, max_size=30), st.integers(0, 5))
def test_any_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], every: int) -> None:
    path = tmp_path_factory.mktemp("store")
    store = Store.open(path, clock=time.time, options=SMALL)
    follower, tokens = Follower(path), list[int]()
    for at, (step, count) in enumerate(steps):
        if step == "p":
            tokens += put(store, "A", [b"h" * 364] * count, [b"b"] * count)
        elif step == "t":
            commit(store, StoreUnit(takes=[LaneTakes("A", b"", tokens[:count])]))
            tokens = tokens[count:]
        elif step == "f":
            failing = write_without_end(store, b"refused")
            follower.poll()
            assert numbers(follower) == numbers(Lookup(store.index))
            store.abort(failing)
        else:
            commit(store, StoreUnit(moves=[LaneMoves("A", b"", tokens[-count:], "B")]))
            tokens = tokens[:-count]
        if every and at % every == 0:
            follower.poll()
    follower.poll()
    assert numbers(follower) == numbers(Lookup(store.index))
    store.close()


def test_segments_that_are_used_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower = Follower(tmp_path)
    for round_ in range(40):
        tokens = put(store, "A", [b"h" * 364] * 10, [bytes(100_000)] * 10)
        commit(store, StoreUnit(takes=[LaneTakes("A", b"", tokens[:-1] if round_ % 7 else tokens)]))
        if round_ % 5 == 0:
            follower.poll()
    follower.poll()
    assert numbers(follower) == numbers(Lookup(store.index))
    store.close()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(NAMES)}


def test_a_file_that_is_made_anew_under_the_name_of_one_that_was_removed(tmp_path: Path) -> None:
    """A follower that still had the old one open passed over all messages of the new one."""
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    journal, follower = StoreJournal(store), Follower(tmp_path)
    big = [b"h" * 364] * 10, [bytes(SMALL.segment_bytes // 20)] * 10
    tokens = [token for _ in range(24) for token in put(store, "A", *big)]
    follower.poll()
    before = names_in(tmp_path)
    commit(store, StoreUnit(takes=[LaneTakes("A", b"", tokens)]))
    while journal.maintain():
        pass
    removed, made_anew = before - names_in(tmp_path), set[str]()
    assert removed
    for _ in range(240):  # how many segments are spare at a moment depends on the thread that fills them with zeros
        put(store, "A", *big)
        follower.poll()
        assert numbers(follower) == numbers(Lookup(store.index))
        made_anew = removed & names_in(tmp_path)
        if made_anew:
            break
    for _ in range(6):
        put(store, "A", *big)
        follower.poll()
        assert numbers(follower) == numbers(Lookup(store.index))
    assert made_anew
    store.close()


def test_a_file_that_is_removed_while_it_is_looked_at(tmp_path: Path) -> None:
    """It is free, or else missed by those that list it: a job ended there, as for messages that are lost."""
    write_journal(tmp_path, 10)
    spare, ended = tmp_path / "00000999.segment", threading.Event()

    def comes_and_goes() -> None:
        while not ended.is_set():
            spare.with_suffix(".new").write_bytes(bytes(1 << 14))
            spare.with_suffix(".new").rename(spare)
            spare.unlink()

    other = threading.Thread(target=comes_and_goes)
    other.start()
    try:
        follower = Follower(tmp_path)
        for _ in range(2000):
            follower.poll()
    finally:
        ended.set()
        other.join()
    assert len(numbers(follower)) == 10
    assert not [line for line in Path("/proc/self/maps").read_text().splitlines() if str(spare) in line][1:]


def test_a_segment_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    for _ in range(8):
        put(store, "A", [b"h" * 364] * 10, [bytes(SMALL.segment_bytes // 20)] * 10)
    first = min(store.ring.used.values(), key=attrgetter("serial"))
    hidden = first.path.rename(tmp_path / "hidden")
    follower = Follower(tmp_path)
    with pytest.raises(QueueUnreachable, match="segments that the youngest one lists are missing"):
        follower.poll()
    hidden.rename(first.path)
    follower.poll()
    assert numbers(follower) == numbers(Lookup(store.index))
    store.close()


def test_a_damaged_frame_hides_nothing_behind_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    for body in (b"1", b"2", b"3"):
        put(store, "A", [b"h" * 364], [body * 100])
    damaged = store.ring.current
    assert damaged is not None
    store.ring.open_next()
    put(store, "A", [b"h" * 364], [b"4"])
    at = damaged.path.read_bytes().index(b"2" * 100)
    with damaged.path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    with pytest.raises(StoreCorrupt, match=f"{damaged.path}: damaged at byte {at // 4096 * 4096}"):
        Follower(tmp_path).poll()
    store.close()


def test_a_frame_whose_write_failed_when_all_was_done_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages were refused, and come again: they were there twice until the segment was used again."""
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower = Follower(tmp_path)
    put(store, "A", [b"h" * 364], [b"1"])
    follower.poll()

    def failing(call: Callable[..., int]) -> Callable[..., int]:
        def fails(*about: object) -> int:
            call(*about)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return fails

    with monkeypatch.context() as failures:
        for name in ("pwrite", "pwritev"):
            failures.setattr(os, name, failing(getattr(os, name)))
        refused = store.prepare(StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[b"refused"])]), 1.0)
        with pytest.raises(StoreUnavailable):
            store.write(refused)
        store.abort(refused)
    follower.poll()
    put(store, "A", [b"h" * 364], [b"2"])
    follower.poll()
    assert numbers(follower) == numbers(Lookup(store.index))
    store.close()


def test_a_frame_counts_when_its_write_has_returned(tmp_path: Path) -> None:
    """It may not be on the disk yet: who lands it would have what a power cut takes back."""
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower = Follower(tmp_path)
    put(store, "A", [b"h" * 364], [b"1"])
    prepared = write_without_end(store, b"2")
    for one in (follower, Follower(tmp_path)):
        one.poll()
        assert numbers(one) == numbers(Lookup(store.index))
    store.write(prepared)
    follower.poll()
    assert len(numbers(follower)) == 2
    store.apply(prepared)
    store.close()


def test_a_frame_that_fails_when_all_of_it_is_written_is_never_seen(tmp_path: Path) -> None:
    """Its messages are refused and come again: they landed twice."""
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower = Follower(tmp_path)
    put(store, "A", [b"h" * 364], [b"1"])
    store.abort(write_without_end(store, b"refused"))
    follower.poll()
    before = numbers(follower)
    put(store, "A", [b"h" * 364], [b"2"])
    assert numbers(follower) == before == numbers(Lookup(store.index))[:1]
    follower.poll()
    assert numbers(follower) == numbers(Lookup(store.index))
    store.close()


OWNER = """
import sys, time
from test_lookup import SMALL, Path, Store, put, write_without_end

store = Store.open(Path(sys.argv[1]), clock=time.time, options=SMALL)
put(store, "A", [b"h" * 364], [b"1"])
write_without_end(store, b"2")
print("writing", flush=True)
time.sleep(60)
"""


def test_what_an_owner_was_writing_counts_when_it_is_killed(tmp_path: Path) -> None:
    """As the next start will have it, of which the reader sees nothing but what came since."""
    follower = Follower(tmp_path)
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    environ = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"writing\n"
        for number in (signal.SIGSTOP, signal.SIGCONT):
            owner.send_signal(number)
            follower.poll()
            assert len(numbers(follower)) == 1
        owner.kill()
    follower.poll()
    assert len(numbers(follower)) == 2
    with opened(tmp_path) as again:
        assert numbers(follower) == numbers(again.lookup)
        commit(again.journal.store, StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[b"3"])]))  # type: ignore[attr-defined]
        follower.poll()
        assert numbers(follower) == numbers(again.lookup)


def test_a_long_damaged_frame_of_the_segment_that_is_written_is_not_its_end_either(tmp_path: Path) -> None:
    """What is behind it was noticed when the segment was full, hours later perhaps."""
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    for body in (b"1" * 100, b"2" * (3 << 20), b"3" * 100):
        put(store, "A", [b"h" * 364], [body])
    written = store.ring.current
    assert written is not None
    at = written.path.read_bytes().index(b"2" * 100) + 4096
    with written.path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        Follower(tmp_path).poll()
    store.close()


@pytest.mark.parametrize("what", [b"2" * 100, FRAME_MAGIC])
def test_a_damaged_frame_of_the_segment_that_is_written_is_not_its_end(tmp_path: Path, what: bytes) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    follower = Follower(tmp_path)
    put(store, "A", [b"h" * 364], [b"1" * 100])
    begin = store.ring.current.end if store.ring.current is not None else 0
    put(store, "A", [b"h" * 364], [b"2" * 100])
    follower.poll()
    written = store.ring.current
    assert written is not None
    at = written.path.read_bytes().index(what, begin)
    again = Follower(tmp_path)
    with written.path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    again.poll()  # nothing is behind it: a frame that a power failure has cut off looks like this
    put(store, "A", [b"h" * 364], [b"3" * 100])
    follower.poll()
    assert len(numbers(follower)) == 3
    for one in (again, Follower(tmp_path)):
        with pytest.raises(StoreCorrupt, match=f"{written.path}: damaged at byte {begin}"):
            one.poll()
    store.close()


def test_a_batch_has_at_most_so_many_messages_and_bytes(tmp_path: Path) -> None:
    write_journal(tmp_path, 1000, frame=50)
    access = JournalAccess(tmp_path)
    end = access.extent("TELEMETRY.*", 0, 120)
    assert end.messages == 120
    assert access.count("TELEMETRY.*", 0, end.next) == 120
    assert access.extent("TELEMETRY.*", end.next, 5000).messages == 880
    few = access.extent("TELEMETRY.*", 0, 1000, 20_000)
    assert 50 <= few.messages < 200
    assert access.extent("NONE", 0, 10).messages == 0


def test_the_first_message_since_a_time(tmp_path: Path) -> None:
    now = [1000.0]
    store = Store.open(tmp_path, clock=lambda: now[0], options=SMALL)
    fleet = Fleet(devices=5)
    for second in range(20):
        now[0] = 1000.0 + second
        heads, bodies = fleet.batch(10)
        prepared = store.prepare(StoreUnit(puts=[LanePuts("A", heads=heads, bodies=bodies)]), now[0])
        store.write(prepared)
        store.apply(prepared)
    store.close()
    access = JournalAccess(tmp_path)
    access.follower.poll()
    runs = numbers(access.follower)
    assert access.number_at("A", 0) == runs[0]
    assert access.number_at("A", 1_007_000_000) == runs[70]
    assert access.number_at("A", 1_007_000_001) == runs[80]
    assert access.number_at("A", 2_000_000_000) > runs[-1]


def test_shares_are_equal_and_whole() -> None:
    runs = [MessageRun("A", 0, 10, 7, 100), MessageRun("A", 0, 30, 5, 200)]
    parts = list(shares(runs, 4))
    assert [[(run.first, run.rows, run.place) for run in part] for part in parts] == [
        [(10, 4, 100)], [(14, 3, 104), (30, 1, 200)], [(31, 4, 201)],
    ]  # fmt: skip


def test_names_and_patterns() -> None:
    assert matching("A.*, B", ["A.X", "B", "B.Y", "a.x"]) == ["A.X", "B"]


def test_leases_and_purges_in_a_stopped_store(tmp_path: Path) -> None:
    write_journal(tmp_path, 100, frame=10)
    access = JournalAccess(tmp_path)
    lease = access.acquire(ConsumerGroup("g", "TELEMETRY.*", consume=True, delay=0.0), "here:0", 60.0)
    end = access.extent("TELEMETRY.*", 0, 40)
    access.acknowledge("g", lease.epoch, end.next, 60.0, last=True)
    with opened(tmp_path, lambda: time.time() + 1) as owner:
        owner.purge()
        assert owner.lookup.count("TELEMETRY.*", 0) == 60
        with pytest.raises(StoreInUse), opened(tmp_path):
            pass
        with pytest.raises(QueueUnreachable, match="a gateway is running"):
            access.release("g", lease.epoch)
    access.release("g", lease.epoch)
    assert numbers_after(access) == 60


def numbers_after(access: JournalAccess) -> int:
    return access.extent("TELEMETRY.*", 0, None).messages


def test_a_mark_that_cannot_be_read(tmp_path: Path) -> None:
    """What has failed is not told from what counts: nothing is read."""
    write_journal(tmp_path, 1)
    (tmp_path / MARK_NAME).unlink()
    (tmp_path / MARK_NAME).symlink_to(MARK_NAME)
    with pytest.raises(QueueUnreachable, match=os.strerror(errno.ELOOP)):
        Follower(tmp_path).poll()


def test_not_a_data_folder(tmp_path: Path) -> None:
    with pytest.raises(QueueUnreachable, match="give the data folder"):
        Follower(tmp_path / "absent").poll()
