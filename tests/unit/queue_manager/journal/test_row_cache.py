"""Rows of recent frames in memory: all that fit while somebody reads, few while nobody does, and never too many."""

from __future__ import annotations

from pathlib import Path

from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

LIMIT = 200_000
OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False, cache_bytes=LIMIT)


def put(store: Store, count: int) -> None:
    """As many frames, of five messages."""
    for number in range(count):
        unit = StoreUnit(puts=[LanePuts("A", b"", 4, True, [b"M" * 300] * 5, [b"body %d" % number] * 5)])
        prepared = store.prepare(unit, 2.0)
        store.write(prepared)
        store.apply(prepared)


def bodies(count: int) -> list[bytes]:
    return [b"body %d" % number for number in range(count)]


def test_little_is_kept_for_nobody_and_all_that_fits_for_somebody(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=lambda: 2.0, options=OPTIONS)
    cache = store.reader.cache
    put(store, 1)
    frame = cache.size
    most = LIMIT // frame
    put(store, most)
    assert 0 < cache.size <= LIMIT // 16, "nobody has read yet"
    assert [message.body for message in store.fetch("A", limit=10_000)[::5]] == [b"body 0", *bodies(most)], (
        "from the disk"
    )
    put(store, most - 1)
    assert LIMIT - 2 * frame < cache.size <= LIMIT, "until it has been filled again it waits for the next reader"
    put(store, 2)
    before = cache.size
    put(store, 1)
    assert cache.size == before - frame, "a frame more than has come: no pause"
    put(store, 2 * most)
    assert 0 < cache.size <= LIMIT // 16
    assert len(store.fetch("A", limit=10_000)) == 5 * (1 + most + most - 1 + 2 + 1 + 2 * most)
    put(store, most // 2)
    assert cache.size > LIMIT // 2
    store.close()


def test_rows_beyond_the_bound_are_not_kept(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=lambda: 2.0, options=OPTIONS)
    unit = StoreUnit(puts=[LanePuts("A", b"", 4, True, [b"M" * 300], [bytes(LIMIT // 2 * 3)])])
    put(store, 3)
    before = store.reader.cache.size
    prepared = store.prepare(unit, 2.0)
    store.write(prepared)
    store.apply(prepared)
    assert store.reader.cache.size == before
    store.close()
