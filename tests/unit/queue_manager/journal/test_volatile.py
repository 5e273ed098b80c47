"""Non-persistent messages stay within their memory: the oldest go to a file that is gone with the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=256 * 1024, background=False, cache_bytes=20_000, volatile_bytes=50_000)


def opened(path: Path) -> Store:
    return Store.open(path, clock=lambda: 1.0, options=OPTIONS)


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, 1.0)
    store.write(prepared)
    store.apply(prepared)


def put(store: Store, *bodies: bytes, expiry: int = 0) -> LanePuts:
    puts = LanePuts("Q", persistent=False, heads=[HEAD] * len(bodies), bodies=list(bodies))
    if expiry:
        puts.expiries = [expiry] * len(bodies)
    commit(store, StoreUnit(puts=[puts]))
    return puts


def test_what_is_spilled_is_read_back_in_order(tmp_path: Path) -> None:
    store = opened(tmp_path)
    expected = []
    for i in range(300):
        bodies = [b"%d-%d" % (i, j) * 100 for j in range(3)]
        put(store, *bodies, expiry=1_000_000 * i)
        expected += bodies
    assert store.volatile.size <= OPTIONS.volatile_bytes
    messages = store.fetch("Q", limit=1000)
    assert [message.body for message in messages] == expected
    assert [message.expiry for message in messages[::3]] == [1_000_000 * i for i in range(300)]
    assert {message.head for message in messages} == {HEAD}
    named = [path.name for path in tmp_path.iterdir() if "volatile" in path.name]
    assert named == [], "the file has no name: nothing is left after a kill"
    for at in range(0, 900, 90):
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=[m.token for m in messages[at : at + 90]])]))
    assert store.volatile._spilled == {}
    assert store.volatile.size == 0
    put(store, b"again")
    assert [message.body for message in store.fetch("Q", limit=9)] == [b"again"]
    store.close()


def test_a_disk_without_room_for_them_refuses_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    put(store, b"x" * 40_000)

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        put(store, b"y" * 40_000)
        with pytest.raises(StoreUnavailable, match="non-persistent"):
            put(store, b"z")
        assert [message.body[:1] for message in store.fetch("Q", limit=9)] == [b"x", b"y"]
    put(store, b"z")
    assert [message.body[:1] for message in store.fetch("Q", limit=9)] == [b"x", b"y", b"z"]
    store.close()
