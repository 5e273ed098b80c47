"""Somebody removes, replaces or cuts off files of the journal while it is open: it is said, nothing is acknowledged
into them, and what can be made again is made again, so that the next start finds everything.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as replaced
from pathlib import Path

import pytest
from gateways import RunningGateway
from journal_calls import commit, listed
from patient_device import Device

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Store, StoreOptions, missing_files
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

OPTIONS = StoreOptions(segment_bytes=128 * 1024, spare_segments=2, background=False, cache_bytes=0)
MAPPING = 'version: 1\nto_mq:\n  - {name: all, topic: "q/#", queue: Q, headers: []}\n'
SETTINGS = "queue_manager: {embedded: {objects: objects.mqsc}}\nmappings: [map.yaml]\n"


def put(store: Store, body: bytes) -> None:
    unit = StoreUnit(puts=[LanePuts("Q", heads=[b"M" * 364], bodies=[body])])
    commit(store, store.prepare(unit, 1.0))


def opened(path: Path) -> Store:
    return Store.open(path, clock=lambda: 1.0, options=OPTIONS)


def filled(path: Path) -> Store:
    """A store that has several segments in use."""
    store = opened(path)
    for number in range(40):
        put(store, b"%d" % number + b"x" * 8000)
    assert len(store.ring.used) > 2
    return store


def why(store: Store) -> str:
    full = store.storage_full
    assert full is None or full.files_missing
    return full.why if full is not None else ""


def goes_on(store: Store, folder: Path, messages: int) -> None:
    """The files are whole: one more is written, and the next start finds all of them."""
    assert why(store) == ""
    put(store, b"last")
    store.close()
    again = opened(folder)
    assert len(listed(again)) == messages
    again.close()


def test_removed_files_are_made_again_before_anything_is_written_to_them(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for segment in store.ring.used.values():
        segment.path.unlink()
    store.look_after_files()
    assert "was removed by somebody else" in why(store)
    with pytest.raises(StoreUnavailable, match="removed by somebody else"):
        put(store, b"not acknowledged")
    while store.look_after_files():
        pass
    goes_on(store, tmp_path, 41)


def test_a_look_copies_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are served in between: a segment is 64 MiB, which may take a disk a quarter of a second."""
    monkeypatch.setattr(missing_files, "COPIED_AT_ONCE", 4096)
    monkeypatch.setattr(missing_files, "SECONDS_AT_ONCE", 0.0)
    store = filled(tmp_path)
    removed = list(store.ring.used.values())
    for segment in removed:
        segment.path.unlink()
    store.look_after_files()
    looks = 1
    while store.look_after_files():
        looks += 1
        assert "was removed by somebody else" in why(store)
    assert looks == sum(segment.size for segment in removed) / 4096 + 1
    assert not list(tmp_path.glob("*.making"))
    goes_on(store, tmp_path, 41)


@pytest.mark.parametrize("opens", [False, True])
def test_a_frame_in_a_file_that_was_removed_is_not_acknowledged(tmp_path: Path, *, opens: bool) -> None:
    """Between the removal and the next look the process may be killed. Nor is one that opens a new file, whose header
    would list what is not there."""
    store = filled(tmp_path)
    if not opens:
        put(store, b"is in a new file")
    assert store.ring.current is not None
    assert (store.ring.room == 0) is opens
    store.ring.current.path.unlink()
    with pytest.raises(StoreUnavailable, match="is not there any more"):
        put(store, b"not acknowledged")
    with pytest.raises(StoreUnavailable, match="removed by somebody else"):
        put(store, b"nor in another file, before the first is there again")
    while store.look_after_files():
        pass
    goes_on(store, tmp_path, 41 if opens else 42)


def test_what_was_removed_is_made_again_before_the_store_is_closed(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for segment in store.ring.used.values():
        segment.path.unlink()
    store.close()
    again = opened(tmp_path)
    assert len(listed(again)) == 40
    assert again.ending == ""
    again.close()


def test_a_store_that_fails_is_whole_when_it_is_closed(tmp_path: Path) -> None:
    store = filled(tmp_path)
    put(store, b"is in a new file")
    assert store.ring.current is not None
    store.ring.current.path.unlink()
    with pytest.raises(StoreUnavailable):
        put(store, b"not acknowledged")
    store.close()
    again = opened(tmp_path)
    assert len(listed(again)) == 41
    again.close()


def cut_off(path: Path) -> None:
    os.truncate(path, 8192)


@pytest.mark.parametrize("direct", [False, True])
def test_a_frame_in_a_file_that_was_cut_off_is_not_acknowledged(tmp_path: Path, *, direct: bool) -> None:
    """The frame makes the file longer again, with a hole where its header was: the next start would refuse it."""
    store = Store.open(tmp_path, clock=lambda: 1.0, options=replaced(OPTIONS, direct=direct))
    put(store, b"before")
    assert store.ring.current is not None
    os.truncate(store.ring.current.path, 0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="was cut off by somebody else"):
            put(store, b"not acknowledged")
    assert "was cut off" in why(store)
    store.close()


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"other")
    other.rename(path)


@pytest.mark.parametrize(("harm", "said"), [(cut_off, "cut off"), (replace, "replaced")])
def test_what_cannot_be_made_again_is_said_and_nothing_more_is_taken(
    tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    store = filled(tmp_path)
    harm(next(iter(store.ring.used.values())).path)
    for _ in range(3):
        store.look_after_files()
        assert said in why(store)
        with pytest.raises(StoreUnavailable, match=said):
            put(store, b"not acknowledged")
    store.close()


def test_a_directory_that_was_moved_away_is_missed_until_it_is_back(tmp_path: Path) -> None:
    place = tmp_path / "data"
    store = filled(place)
    place.rename(tmp_path / "away")
    store.look_after_files()
    store.look_after_files()
    assert "cannot be made again: No such file or directory" in why(store)
    (tmp_path / "away").rename(place)
    store.look_after_files()
    assert why(store) == ""
    put(store, b"last")
    store.close()


def test_nothing_is_made_again_in_a_directory_that_is_not_the_locked_one(tmp_path: Path) -> None:
    place = tmp_path / "data"
    store = filled(place)
    shutil.rmtree(place)
    other = filled(place)  # of another gateway, which has the new directory
    for _ in range(3):
        store.look_after_files()
        assert why(store) == "the directory was replaced by somebody else"
    count = len(listed(other))
    other.close()
    store.close()
    again = opened(place)
    assert len(listed(again)) == count
    again.close()


def test_prepared_segments_whose_files_are_removed_are_not_used(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for segment in [*store.ring._spares, *store.ring._reserve]:
        segment.path.unlink()
    store.look_after_files()
    for number in range(40):
        put(store, b"%d" % number + b"x" * 8000)
    assert all(segment.path.exists() for segment in store.ring.used.values())
    store.close()
    again = opened(tmp_path)
    assert len(listed(again)) == 80
    again.close()


@contextmanager
def whose_journal_is_removed(folder: Path) -> Iterator[tuple[RunningGateway, Device]]:
    """A gateway with a message, without the files that it is in, and a device that is connected to it."""
    (folder / "map.yaml").write_text(MAPPING)
    (folder / "objects.mqsc").write_text("DEFINE QLOCAL(Q) REPLACE\n")
    with RunningGateway(folder, settings=SETTINGS) as gateway:
        device = Device("127.0.0.1", gateway.port, "d")
        device.connect()
        device.publish("q/a", b"before", qos=1)
        for path in (folder / "data").glob("*.segment"):
            path.unlink()
        yield gateway, device


def test_a_gateway_whose_journal_is_removed_loses_nothing(tmp_path: Path) -> None:
    with whose_journal_is_removed(tmp_path) as (gateway, device):
        until = time.monotonic() + 60
        while '"disk_room"' not in gateway.log and time.monotonic() < until:
            device.publish("q/a", b"meanwhile", qos=2)
        assert "docs/runbooks/lost-segment.md" in gateway.log
        device.publish("q/a", b"after", qos=1)
        held = sorted(gateway.bodies("Q"))
        gateway.kill()
        gateway.start()
        assert sorted(gateway.bodies("Q")) == held
        assert {"before", "after"} <= set(held)


def test_what_is_acknowledged_after_the_removal_is_there_although_the_gateway_is_killed(tmp_path: Path) -> None:
    with whose_journal_is_removed(tmp_path) as (gateway, device):
        device.publish("q/a", b"after", qos=1)
        gateway.kill()
        gateway.start()
        assert {"before", "after"} <= set(gateway.bodies("Q"))
