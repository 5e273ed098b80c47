"""Expired messages are told once, locked ones later, wherever they were put, moved or recovered from."""

from __future__ import annotations

from pathlib import Path

from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.store.unit import LaneMoves, LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=256 * 1024, direct=False, background=False)
SECOND = 1_000_000


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, 1.0)
    store.write(prepared)
    store.apply(prepared)


def test_due_messages_are_told(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
    puts = LanePuts("Q", b"key", 4, heads=[HEAD] * 4, bodies=[b"a", b"b", b"c", b"d"])
    puts.expiries = [5 * SECOND, 5 * SECOND, 0, 9 * SECOND]
    staged = LanePuts("S", heads=[HEAD], bodies=[b"s"], expiries=[6 * SECOND])
    loose = LanePuts("Q", persistent=False, heads=[HEAD], bodies=[b"v"], expiries=[6 * SECOND])
    commit(store, StoreUnit(puts=[puts, staged, loose]))
    move = LaneMoves("S", b"", staged.tokens, "T")
    commit(store, StoreUnit(moves=[move]))
    store.lock(puts.tokens[1:2])
    assert store.expired(4.9) == []
    assert store.expired(5.0) == [("Q", b"key", puts.tokens[0])]
    assert store.expired(5.5) == []
    store.unlock("Q", b"key", puts.tokens[1:2])
    assert sorted(store.expired(7.0)) == sorted(
        [
            ("Q", b"key", puts.tokens[1]),
            ("T", b"", move.new_tokens[0]),
            ("Q", b"", loose.tokens[0]),
        ]
    )
    commit(store, StoreUnit(takes=[LaneTakes("Q", b"key", puts.tokens[:2])]))
    store.close()
    store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
    assert store.expired(10.0) == [("Q", b"key", puts.tokens[3])]
    assert store.depth("Q", b"key") == 2
    store.close()
