"""A journal that is put back gives no number again that a message had which came after the backup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import struct_time

import pytest

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.commit_mark import drop_mark, set_mark
from gateway.queue_manager.journal.layout import BLOCK, header_area
from gateway.queue_manager.journal.segment import segment_path
from gateway.queue_manager.journal.snapshot import restore, take
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

HEAD = b"M" * 364
NOW = 1_700_000_000.25
SMALL = StoreOptions(segment_bytes=256 * 1024, spare_segments=1, background=False)


def opened(path: Path, now: float = NOW) -> Store:
    return Store.open(path, clock=lambda: now, options=SMALL)


def put(store: Store, *bodies: bytes, now: float = NOW) -> list[int]:
    """The tokens of the messages, which are their numbers but for the priority, and so their MsgIds."""
    puts = LanePuts("Q", heads=[HEAD] * len(bodies), bodies=list(bodies))
    prepared = store.prepare(StoreUnit(puts=[puts]), now)
    store.write(prepared)
    store.apply(prepared)
    return list(puts.tokens)


def bodies(store: Store) -> list[bytes]:
    return [message.body for message in store.fetch("Q", limit=1000)]


def of_one_that_was_closed(store: Store, target: Path) -> None:
    store.close()
    take(store.path, target)


def of_one_that_works(store: Store, target: Path) -> None:
    take(store.path, target)
    store.close()


def of_one_that_was_closed_at_the_end_of_a_segment(store: Store, target: Path) -> None:
    while store.ring.room:
        put(store, b"", now=NOW)
    of_one_that_was_closed(store, target)


@pytest.mark.parametrize(
    "take_backup", [of_one_that_was_closed, of_one_that_works, of_one_that_was_closed_at_the_end_of_a_segment]
)
def test_numbers_go_on_beyond_those_of_messages_after_the_backup(
    tmp_path: Path, take_backup: Callable[[Store, Path], None]
) -> None:
    path, backup = tmp_path / "data", tmp_path / "backup"
    store = opened(path)
    before = put(store, b"before")
    take_backup(store, backup)
    store = opened(path)
    lost = put(store, *[b"lost"] * 10)
    store.close()
    given = {*before, *lost}
    for later in (3600.0, 7200.0):  # it is put back twice, from the same backup
        restore(backup, path, replace=True)
        store = opened(path, NOW + later)
        assert bodies(store)[:1] == [b"before"]
        new = put(store, *[b"new"] * 10, now=NOW + later)
        assert min(new) > max(given)
        given |= {*new}
        store.close()
        store = opened(path, NOW + later)
        assert bodies(store)[-10:] == [b"new"] * 10
        assert put(store, b"next", now=NOW + later) == [max(new) + 1]
        store.close()


def test_two_backups_at_once_into_one_directory(tmp_path: Path) -> None:
    path, backup = tmp_path / "data", tmp_path / "backup"
    store = opened(path)
    put(store, b"one")
    refused: list[str] = []

    def meanwhile(_done: int, _total: int) -> None:
        with pytest.raises(StoreUnavailable, match="another backup is being written there") as error:
            take(path, backup)
        refused.append(str(error.value))

    take(path, backup, meanwhile)
    assert len(refused) == 1
    store.close()
    restore(backup, tmp_path / "restored")
    assert [found.name for found in tmp_path.glob("*.partial")] == []


def test_what_is_moved_aside_in_one_second_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, backup = tmp_path / "data", tmp_path / "backup"
    store = opened(path)
    put(store, b"of the backup")
    of_one_that_was_closed(store, backup)
    monkeypatch.setattr("time.gmtime", lambda: struct_time((2026, 1, 1, 0, 0, 0, 3, 1, 0)))
    moved: list[Path | None] = []
    for body in (b"first", b"second", b"third"):
        store = opened(path)
        put(store, body)
        store.close()
        moved.append(restore(backup, path, replace=True))
    assert len({*moved}) == 3
    for body, aside in zip((b"first", b"second", b"third"), moved, strict=True):
        assert aside is not None
        kept = opened(aside)
        assert body in bodies(kept)
        kept.close()


def a_frame_in_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(2 * header_area(path.stat().st_size) + BLOCK + 100)
        file.write(b"damaged!")


def both_copies_of_its_header(path: Path) -> None:
    with path.open("r+b") as file:
        for copy in (0, header_area(path.stat().st_size)):
            file.seek(copy + 16)
            file.write(b"damaged!")


def its_length(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (a_frame_in_the_middle, "frame 2 is not whole but frame 3 after it is"),
        (both_copies_of_its_header, "header of .* are damaged"),
        (its_length, "cut off"),
    ],
)
def test_a_journal_with_a_damaged_youngest_segment_makes_no_backup(
    tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    """What is behind the damage would be missing, and nobody would be told."""
    store = opened(tmp_path / "data")
    for number in range(4):
        put(store, b"%d" % number)
    assert store.ring.current is not None
    youngest = store.ring.current.slot
    store.close()
    damage(segment_path(tmp_path / "data", youngest))
    with pytest.raises(StoreCorrupt, match=told):
        take(tmp_path / "data", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_frame_that_is_whole_and_not_committed_is_in_no_backup(tmp_path: Path) -> None:
    """It may yet fail: what it has then was told to be refused, and comes again."""
    store = opened(tmp_path / "data")
    put(store, b"committed")
    drop_mark(store._mark)
    store._mark = set_mark(store.path, 2)  # as while the write of the second is under way
    prepared = store.prepare(StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"under way"])]), NOW)
    mark, store._mark = store._mark, -1
    store.write(prepared)
    assert take(store.path, tmp_path / "first").sequence == 1
    drop_mark(mark)
    assert take(store.path, tmp_path / "second").sequence == 2, "nobody says that it is not"
    store.apply(prepared)
    store._lock.mark = -1
    store.close()
    restore(tmp_path / "first", tmp_path / "back")
    back = opened(tmp_path / "back")
    assert bodies(back) == [b"committed"]
    back.close()
