"""Disks that are full, read-only or failing: nothing refused appears later, nothing acknowledged is lost, and it goes
on by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from journal_calls import commit, listed

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.journal.ring import Ring
from gateway.queue_manager.journal.zeroing_pace import Pace
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=128 * 1024, spare_segments=2, direct=False, background=False, cache_bytes=0)


def opened(path: Path, options: StoreOptions = OPTIONS) -> Store:
    return Store.open(path, clock=lambda: 1.0, options=options)


def unit_of(*bodies: bytes) -> StoreUnit:
    return StoreUnit(puts=[LanePuts("Q", heads=[HEAD] * len(bodies), bodies=list(bodies))])


def put(store: Store, *bodies: bytes) -> Prepared:
    return store.prepare(unit_of(*bodies), 1.0)


def crash(store: Store) -> None:
    store.ring.close()
    assert store._lock is not None
    store._lock.release()


class FailingOnce:
    """A system call that fails once; `done` says whether the bytes reached the disk all the same."""

    def __init__(self, call: Callable[..., Any], code: int, *, done: bool) -> None:
        self.call, self.code, self.done, self.armed = call, code, done, True

    def __call__(self, *arguments: Any) -> Any:
        if self.armed:
            self.armed = False
            if self.done:
                self.call(*arguments)
            raise OSError(self.code, os.strerror(self.code))
        return self.call(*arguments)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_write_leaves_nothing_behind_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, done: bool
) -> None:
    store = opened(tmp_path)
    first = put(store, b"a", b"b", b"c")
    commit(store, first)
    tokens = first.unit.puts[0].tokens
    store.lock("Q", b"", tokens[1:2])
    take = store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens[:2])]), 1.0)
    behind = put(store, b"behind")
    monkeypatch.setattr(os, "pwritev", FailingOnce(os.pwritev, code, done=done))
    with pytest.raises(StoreUnavailable, match=os.strerror(code)):
        commit(store, take)
    with pytest.raises(StoreUnavailable, match="prepare this unit of work again"):
        commit(store, behind)
    assert listed(store) == [b"a", b"c"], "what was to leave is back, what was locked is still locked"
    assert store.wants_maintenance
    step = store.maintain(1.0)
    assert step is not None
    commit(store, step)
    commit(store, put(store, b"d"))
    crash(store)
    store = opened(tmp_path)
    assert listed(store) == [b"a", b"b", b"c", b"d"]
    store.close()


def test_a_failed_sync_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "RWF_DSYNC")

    syncs: list[int] = []

    def failing(descriptor: int) -> None:
        syncs.append(descriptor)
        if len(syncs) == 5:
            raise OSError(errno.EIO, "sync")

    monkeypatch.setattr(os, "pwritev", refused)
    monkeypatch.setattr(os, "fdatasync", failing)
    store = opened(tmp_path)
    commit(store, put(store, b"a"))
    for body in (b"b", b"c", b"d"):
        prepared = put(store, body)
        before = len(syncs)
        try:
            commit(store, prepared)
        except StoreUnavailable:
            assert len(syncs) == before + 1
            break
    else:
        pytest.fail("no sync failed")
    expected = [*listed(store), b"e"]
    commit(store, put(store, b"e"))
    crash(store)
    store = opened(tmp_path)
    assert listed(store) == expected
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB of its own, where the machine lets us have one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs: run as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(store: Store, stored: list[bytes]) -> None:
    for i in range(1000):
        body = b"%d" % i * 2000
        commit(store, put(store, body))
        stored.append(body)


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_refuses_puts_and_lets_messages_be_taken(small_disk: Path, background: bool) -> None:
    options = StoreOptions(segment_bytes=128 * 1024, spare_segments=2, background=background, cache_bytes=0)
    fill_and_empty(small_disk, options)


@pytest.mark.parametrize("background", [False, True])
def test_a_limit_is_as_good_as_a_full_disk(tmp_path: Path, background: bool) -> None:
    limit = 1 << 20
    options = StoreOptions(
        segment_bytes=128 * 1024, spare_segments=2, background=background, cache_bytes=0, max_bytes=limit
    )
    fill_and_empty(tmp_path, options)
    assert sum(file.stat().st_size for file in (tmp_path / "data").iterdir()) <= limit + 4096


def fill_up(store: Store, stored: list[bytes]) -> None:
    """Until three in turn are refused: what the store's thread is still making or giving back may hold another one."""
    refused = 0
    for _ in range(40):
        body = b"refused" * 5000
        try:
            commit(store, put(store, body))
        except StoreUnavailable:
            refused += 1
            if refused == 3:
                return
        else:
            refused = 0
            stored.append(body)
    pytest.fail("the disk never got full")


def maintain_once(store: Store) -> None:
    """One step, as the queue manager makes behind every commit."""
    with contextlib.suppress(StoreUnavailable):
        step = store.maintain(1.0)
        if step is not None:
            commit(store, step)


def commit_once_there_is_room(store: Store, unit: StoreUnit) -> None:
    """As the queue manager does: a refused unit comes again when maintenance and the store's thread have made room."""
    until = time.monotonic() + 30
    while True:
        try:
            return commit(store, store.prepare(unit, 1.0))
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
        maintain_once(store)
        time.sleep(0.001)


def fill_and_empty(small_disk: Path, options: StoreOptions) -> None:
    store = opened(small_disk / "data", options)
    commit(store, put(store, b"first"))
    stored: list[bytes] = [b"first"]
    with pytest.raises(StoreUnavailable, match=r"No space|until there is room|max_bytes"):
        fill(store, stored)
    assert len(stored) > 40
    fill_up(store, stored)
    assert listed(store) == stored
    crash(store)
    store = opened(small_disk / "data", options)
    assert listed(store) == stored
    while store.depth("Q"):
        tokens = [message.token for message in store.fetch("Q", limit=7)]
        takes = StoreUnit(takes=[LaneTakes("Q", tokens=tokens)])
        commit_once_there_is_room(store, takes)
        maintain_once(store)
    for i in range(60):
        commit_once_there_is_room(store, unit_of(b"again %d" % i))
    crash(store)
    store = opened(small_disk / "data", options)
    assert listed(store) == [b"again %d" % i for i in range(60)]
    store.close()


def test_there_is_a_reserve_however_slowly_segments_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is zeroed unless a frame waits for its segment: load is always faster than preparation."""
    options = StoreOptions(segment_bytes=128 * 1024, spare_segments=2, cache_bytes=0, max_bytes=1 << 20)
    rings: list[Ring] = []

    def somebody_waits() -> bool:
        return any(ring._closing or not all(each.ready.is_set() for each in list(ring.used.values())) for ring in rings)

    def wait(_pace: Pace, _size: int) -> None:
        until = time.monotonic() + 60
        while not somebody_waits() and time.monotonic() < until:
            time.sleep(0.001)

    monkeypatch.setattr(Pace, "wait", wait)
    store = opened(tmp_path / "data", options)
    rings.append(store.ring)
    stored: list[bytes] = []
    with pytest.raises(StoreUnavailable):
        fill(store, stored)
    for _ in range(100):  # the segment in use gets full to its last block
        with contextlib.suppress(StoreUnavailable):
            commit(store, put(store, b"small"))
            stored.append(b"small")
    assert listed(store) == stored
    while store.depth("Q"):
        tokens = [message.token for message in store.fetch("Q", limit=7)]
        commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]), 1.0))
    commit(store, put(store, b"there is room again"))
    assert listed(store) == [b"there is room again"]
    store.close()


def test_room_made_by_others_is_noticed(small_disk: Path) -> None:
    options = StoreOptions(segment_bytes=64 * 1024, spare_segments=2, cache_bytes=0)
    other = small_disk / "other"
    other.write_bytes(bytes(300 * 1024))
    store = opened(small_disk / "data", options)
    with pytest.raises(StoreUnavailable):
        fill(store, [])
    before = store.depth("Q")
    other.unlink()
    deadline = time.monotonic() + 60
    while store.ring.full is not None and time.monotonic() < deadline:
        time.sleep(0.05)  # the ring looks once a second
    commit(store, put(store, b"x" * 20_000))
    assert store.depth("Q") == before + 1
    store.close()


def test_a_read_only_disk_is_refused_in_words(small_disk: Path) -> None:
    store = opened(small_disk / "data")
    commit(store, put(store, b"a"))
    crash(store)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreUnavailable, match="writable"):
        opened(small_disk / "data")
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    store = opened(small_disk / "data")
    assert listed(store) == [b"a"]
    store.close()


def test_a_full_disk_with_survivors_everywhere_frees_itself(small_disk: Path) -> None:
    options = StoreOptions(segment_bytes=64 * 1024, spare_segments=2, background=False, cache_bytes=0)
    store = opened(small_disk / "data", options)
    with pytest.raises(StoreUnavailable):
        fill(store, [])
    messages = store.fetch("Q", limit=100_000)
    kept = [message.body for message in messages[::12]]
    leaving = [message.token for at, message in enumerate(messages) if at % 12]
    for at in range(0, len(leaving), 5):
        commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=leaving[at : at + 5])]), 1.0))
        step = store.maintain(1.0)
        if step is not None:
            commit(store, step)
    for at in range(20):
        commit(store, put(store, b"%d" % at * 2000))
    assert listed(store) == kept + [b"%d" % at * 2000 for at in range(20)]
    crash(store)
    store = opened(small_disk / "data", options)
    assert listed(store) == kept + [b"%d" % at * 2000 for at in range(20)]
    store.close()


def test_damage_found_by_housekeeping_stops_nothing_else(tmp_path: Path) -> None:
    store = opened(tmp_path)
    prepared = put(store, *[b"%d" % at * 300 for at in range(20)])
    commit(store, prepared)
    commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=prepared.unit.puts[0].tokens[1:])]), 1.0))
    current = store.ring.current
    assert current is not None
    data = bytearray(current.path.read_bytes())
    data[current.begin + 700] ^= 1
    current.path.write_bytes(data)
    found: list[str] = []
    for at in range(150):
        churn = put(store, b"%d" % at * 2000)
        commit(store, churn)
        if at % 10:
            commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=churn.unit.puts[0].tokens)]), 1.0))
        try:
            step = store.maintain(1.0)
        except StoreUnavailable as error:
            found.append(str(error))
        else:
            if step is not None:
                commit(store, step)
    assert len(found) == 1
    assert "damaged at byte" in found[0]
    with pytest.raises(StoreCorrupt, match="damaged"):
        listed(store)
    store.close()


class BadBlocks:
    """A disk that does not give some bytes: reads that touch them fail, whatever else they ask for."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = path.stat().st_ino
        self.at = range(0)
        self.reads = 0
        self._pread, self._preadv = os.pread, os.preadv
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def _look(self, descriptor: int, length: int, offset: int) -> None:
        if os.fstat(descriptor).st_ino == self._file and offset < self.at.stop and self.at.start < offset + length:
            self.reads += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        self._look(descriptor, length, offset)
        return self._pread(descriptor, length, offset)

    def preadv(self, descriptor: int, buffers: list[memoryview], offset: int) -> int:
        self._look(descriptor, sum(map(len, buffers)), offset)
        return self._preadv(descriptor, buffers, offset)


def test_what_the_disk_does_not_give_is_damaged_and_what_is_beside_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    for at in range(5):
        commit(store, put(store, b"%d" % at * 6000))
    current = store.ring.current
    assert current is not None
    disk = BadBlocks(current.path, monkeypatch)
    size = (current.end - current.begin) // 5
    disk.at = range(current.begin + 2 * size + 4096, current.begin + 2 * size + 8192)
    for _ in range(3):
        messages, damaged = store.fetch_around_damage("Q", b"", 10)
        assert [one.body[:1] for one in messages] == [b"0", b"1", b"", b"3", b"4"]
        (why,) = damaged.values()
        assert f"damaged at byte {current.begin + 2 * size} (Input/output error)" in why
        read, disk.reads = disk.reads, 0
    assert read < 5, "a failing disk takes its time with each: it is not asked again at once"
    store.close()
