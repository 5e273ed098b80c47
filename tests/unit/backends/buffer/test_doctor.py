"""`mqgate doctor` on a buffer: free space, what waits, who has it open."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffer_rig import puts, settle
from schedulers import ManualScheduler

from gateway.backends.buffer.spool import Spool
from gateway.cli import doctor
from gateway.ports.batch import Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions

SMALL = StoreOptions("BUFFER", segment_bytes=4 << 20, spare_segments=1)


def test_a_new_buffer_needs_room_only(tmp_path: Path) -> None:
    found = doctor._buffer(tmp_path / "buffer", 1 << 20)
    assert (found.what, found.state) == ("buffer", "ok")
    assert "new" in found.text
    assert not (tmp_path / "buffer").exists()


def test_what_waits_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    scheduler = ManualScheduler()
    store = EmbeddedQueueManager.open(tmp_path / "buffer", "BUFFER", scheduler, store_options=SMALL)
    spool = Spool(store)
    records = spool.records_of(Unit([puts("APP.Q", b"1")]), ["rule"], 1.0)
    store.submit(Unit([spool.puts_of(records)]), lambda _unit, _outcome: None)
    settle(store, scheduler)
    assert "in use" in doctor._buffer(tmp_path / "buffer", 1 << 20).text
    store.close()
    for _ in range(2):
        found = doctor._buffer(tmp_path / "buffer", 1 << 20)
        assert found.state == "ok"
        assert "1 unit of work waits" in found.text


def test_a_disk_without_room_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1000}))
    assert doctor._buffer(tmp_path / "buffer", 1 << 30).state == "wrong"
