"""gateway.queue_manager.journal.commit_mark: which frames readers may take."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest
from open_files import open_files

from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.commit_mark import MARK_NAME, committed, drop_mark, is_removed, set_mark
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

OPTIONS = StoreOptions(segment_bytes=256 * 1024)


def put(store: Store) -> None:
    prepared = store.prepare(StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[b"x"])]), 1.0)
    store.write(prepared)
    store.apply(prepared)


def test_it_is_told_while_it_is_held(tmp_path: Path) -> None:
    assert committed(tmp_path) is None
    tmp_path.mkdir()
    assert committed(tmp_path) is None
    held = set_mark(tmp_path, 7)
    assert committed(tmp_path) == 6
    assert (tmp_path / MARK_NAME).stat().st_size == 0
    drop_mark(held)
    assert committed(tmp_path) is None


def test_a_store_moves_it_with_each_frame(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
        found.append(committed(tmp_path))
        put(store)
        found.append(committed(tmp_path))
        refused = store.prepare(StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[b"y"])]), 1.0)
        store.abort(refused)
        found.append(committed(tmp_path))
        put(store)  # the number of the frame that was given up is not given again
        found.append(committed(tmp_path))
        store.close()
        assert committed(tmp_path) is None
    assert found == [0, 1, 1, 3, 4, 5, 5, 7]


def test_where_it_cannot_be_held_the_store_goes_on(tmp_path: Path) -> None:
    """A reader takes all that is whole, as with an earlier release."""
    tmp_path.mkdir()
    (tmp_path / MARK_NAME).mkdir()
    store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
    put(store)
    assert committed(tmp_path) is None
    assert store.depth("A") == 1
    store.close()
    drop_mark(-1)


def test_asking_neither_keeps_an_owner_out_nor_lets_go_of_its_lock(tmp_path: Path) -> None:
    tmp_path.mkdir()
    held = set_mark(tmp_path, 1)
    assert set_mark(tmp_path, 1) == -1
    before = open_files(tmp_path)
    for _ in range(3):
        assert committed(tmp_path) == 0
    assert open_files(tmp_path) == before
    drop_mark(held)
    again = set_mark(tmp_path, 9)
    assert committed(tmp_path) == 8
    drop_mark(again)


def test_one_of_which_nothing_can_be_asked_any_more_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS a file that another machine removes is stale for who has it open."""
    tmp_path.mkdir()
    held = set_mark(tmp_path, 1)
    assert not is_removed(held)
    stale = OSError(errno.ESTALE, "Stale file handle")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", mock.Mock(side_effect=stale))
        assert is_removed(held)
        assert not is_removed(-1)
    drop_mark(held)


def test_one_that_was_removed_is_made_again(tmp_path: Path) -> None:
    options = StoreOptions(segment_bytes=256 * 1024, spare_segments=1, background=False)
    store = Store.open(tmp_path, clock=lambda: 1.0, options=options)
    put(store)
    (tmp_path / MARK_NAME).unlink()
    assert committed(tmp_path) is None
    before = open_files(tmp_path)
    under_way = store.prepare(StoreUnit(puts=[LanePuts("A", heads=[b"h" * 364], bodies=[b"y"])]), 1.0)
    store.look_after_files()
    assert committed(tmp_path) is None, "its writer may just be moving it"
    store.write(under_way)
    store.apply(under_way)
    store.look_after_files()
    assert committed(tmp_path) == 2
    put(store)
    assert committed(tmp_path) == 3
    assert open_files(tmp_path) == before
    store.close()
    assert committed(tmp_path) is None
