"""A journal on a disk that is full: it can be emptied whatever the order, one message at a time, with kills in between,
and what was emptied is given back. A disk that is too small is refused before anything is stored on it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import time
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.journal.ring import RESERVE
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit
from tests.support.small_disks import ext4, tmpfs

HEAD = b"M" * 364
MIB = 1 << 20


def opened(path: Path, **options: int) -> Store:
    return Store.open(path, clock=time.time, options=StoreOptions(**options))


def write(store: Store, prepared: Prepared | None) -> None:
    if prepared is None:
        return
    try:
        store.write(prepared)
    except StoreUnavailable:
        store.abort(prepared)  # otherwise what was to leave stays hidden, and is not taken the next time
        raise
    store.apply(prepared)


def maintain(store: Store) -> None:
    write(store, store.maintain(time.time()))


def put(store: Store, *bodies: bytes) -> None:
    unit = StoreUnit(puts=[LanePuts("Q", heads=[HEAD] * len(bodies), bodies=list(bodies))])
    write(store, store.prepare(unit, time.time()))
    maintain(store)


def put_until_refused(store: Store, body: bytes) -> None:
    """A segment that was being made when the disk was full may still take some."""
    while True:
        put(store, body)


def take(store: Store, *tokens: int) -> None:
    """As the queue manager does it: what is refused is tried again when maintenance has made room."""
    for _ in range(200):
        try:
            write(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=tokens)]), time.time()))
        except StoreUnavailable:
            maintain(store)
        else:
            maintain(store)
            return
    raise AssertionError(f"nothing can be taken: {store.storage_full}")


def fill(store: Store, size: int, each: int = 1) -> list[bytes]:
    """Put until the disk is full; what was put."""
    stored: list[bytes] = []
    while True:
        bodies = [(b"%d " % (len(stored) + more)).ljust(size, b"x") for more in range(each)]
        try:
            put(store, *bodies)
        except StoreUnavailable:
            if store.ring.full is not None:
                return stored
            continue
        stored += bodies


def bodies(store: Store) -> list[bytes]:
    found: list[bytes] = []
    after = None
    while page := store.fetch("Q", limit=5000, after=after):
        found += [message.body for message in page]
        after = page[-1].token
    return found


def crash(store: Store) -> None:
    store.ring.close()
    assert store._lock is not None
    store._lock.release()


@pytest.mark.parametrize("order", ["oldest first", "any"])
def test_a_full_disk_is_emptied_one_message_at_a_time(tmp_path: Path, order: str) -> None:
    with tmpfs(tmp_path / "disk", "8m") as disk:
        store = opened(disk / "data")
        assert store.options.segment_bytes == MIB
        stored = fill(store, 500)
        full = store.storage_full
        assert full is not None
        assert full.why == "No space left on device"
        assert bodies(store) == stored
        tokens = [message.token for message in store.fetch("Q", limit=10_000)]
        if order == "any":
            random.Random(7).shuffle(tokens)
        for at, token in enumerate(tokens):
            take(store, token)
            if at % 500 == 250:  # each start after a kill begins a segment
                crash(store)
                store = opened(disk / "data")
                assert store.depth("Q") == len(tokens) - at - 1
        assert store.depth("Q") == 0
        until = time.monotonic() + 60
        while store.storage_full is not None and time.monotonic() < until:
            maintain(store)
            time.sleep(0.05)
        put(store, *[b"again" * 100] * 1000)
        assert store.depth("Q") == 1000
        crash(store)
        store = opened(disk / "data")
        assert store.depth("Q") == 1000
        store.close()


def test_what_was_emptied_at_once_is_given_back_at_once(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "40m") as disk:
        store = opened(disk / "data")
        assert len(fill(store, 1000, 100)) > 20_000
        while store.depth("Q"):
            take(store, *[message.token for message in store.fetch("Q", limit=1000)])
        until = time.monotonic() + 60
        while store.ring.total_bytes > 11 * MIB and time.monotonic() < until:
            maintain(store)
        free = os.statvfs(disk)
        assert free.f_bavail * free.f_frsize > 28 * MIB
        assert store.storage_full is None
        store.close()


def test_messages_leave_the_reserve_alone_from_the_start(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "20m") as disk:
        store = opened(disk / "data")
        assert len(store.ring._reserve) == RESERVE
        fill(store, 1000)
        assert len(store.ring._reserve) >= RESERVE - 1  # a kill may begin a segment
        with pytest.raises(StoreUnavailable, match=f"^{disk}/data: No space left on device: .*free disk space or take"):
            put_until_refused(store, b"more")
        own = StoreUnit(puts=[LanePuts("MQGATE.SESSIONS", heads=[HEAD], bodies=[b"record"])], own=True)
        write(store, store.prepare(own, time.time()))
        assert store.depth("MQGATE.SESSIONS") == 1
        store.close()


def test_a_disk_that_is_too_small_is_refused_with_the_sum(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "4m") as disk:
        sentence = r"too small: 4.0 MiB are free, and a journal needs 6 MiB: 6 segments of 1 MiB .*: make room$"
        with pytest.raises(StoreUnavailable, match=sentence):
            opened(disk / "data")
        with pytest.raises(StoreUnavailable, match=r"48 MiB: 6 segments of 8 MiB .*smaller `segment_bytes`$"):
            opened(disk / "data", segment_bytes=8 * MIB)
        with pytest.raises(StoreUnavailable, match=r"`max_bytes` leaves 2 MiB"):
            opened(disk / "data", max_bytes=2 * MIB)
        store = opened(disk / "data", segment_bytes=MIB // 2)
        put(store, b"x")
        store.close()


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as other, contextlib.suppress(OSError):
        while True:
            other.write(bytes(4096))


def test_a_journal_is_opened_on_a_disk_that_others_have_filled(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "10m") as disk:
        store = opened(disk / "data")
        put(store, b"a", b"b")
        crash(store)
        fill_up(disk / "other")
        store = opened(disk / "data")
        assert bodies(store) == [b"a", b"b"]
        take(store, store.fetch("Q", limit=1)[0].token)
        crash(store)
        store = opened(disk / "data")
        assert bodies(store) == [b"b"]
        (disk / "other").unlink()
        until = time.monotonic() + 60
        while store.storage_full is not None and time.monotonic() < until:
            time.sleep(0.05)
        put(store, b"c")
        assert bodies(store) == [b"b", b"c"]
        store.close()


def test_a_quota_is_as_good_as_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system says that it has room; only allocating finds the quota, as statvfs does not tell of it."""
    allocate, quota = os.posix_fallocate, 10 * MIB
    path = tmp_path / "data"

    def allocate_within(descriptor: int, offset: int, size: int) -> None:
        used = sum(file.stat().st_size for file in path.glob("*.segment"))
        if used + size > quota:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        allocate(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", allocate_within)
    store = opened(path, segment_bytes=MIB)
    stored = fill(store, 1000)
    full = store.storage_full
    assert full is not None
    assert full.why == "Disk quota exceeded"
    assert bodies(store) == stored
    for message in store.fetch("Q", limit=10_000):
        take(store, message.token)
    until = time.monotonic() + 60
    while store.storage_full is not None and time.monotonic() < until:
        maintain(store)
        time.sleep(0.05)
    put(store, b"again")
    assert bodies(store) == [b"again"]
    store.close()


def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    with ext4(tmp_path / "disk", "32m") as disk:
        store = opened(disk.place / "data")
        put(store, b"a")
        disk.become_read_only()
        why = "(Read-only file system|Input/output error)"  # the latter for a write that was under way just then
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=f"^{disk.place}/data: {why}: "):
                put(store, b"b")
        full = store.storage_full
        assert full is not None
        assert re.fullmatch(why, full.why)
        assert bodies(store) == [b"a"]
        crash(store)
