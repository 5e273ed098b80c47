"""gateway.queue_manager.journal.reader: all records of a state queue, as they are read when a gateway starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from embedded_rig import MqiRig

from gateway.ports.batch import Replace, Unit
from gateway.queue_manager.inspection import Inspection

KEYS = [number.to_bytes(24, "big") for number in range(500)]


def replaced(keys: list[bytes], text: bytes) -> Unit:
    return Unit(replaces=[Replace("STATE", key, text + key[-2:]) for key in keys])


def loaded(rig: MqiRig, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[bytes, bytes]], int]:
    """Keys and records in their order, and how often the rows of a frame were asked for."""
    store: Any = rig.queue_manager.core.store
    asked, rows = list[int](), store.reader.rows

    def counted(frame: int) -> Any:
        asked.append(frame)
        return rows(frame)

    monkeypatch.setattr(store.reader, "rows", counted)
    return [(key, message.body) for key, message in store.load("STATE")], len(asked)


def test_records_that_lie_side_by_side_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(STATE)")
    inspection = Inspection(rig.queue_manager)
    for begin in range(0, 500, 100):
        inspection.commit(replaced(KEYS[begin : begin + 100], b"first"))
    found, asked = loaded(rig, monkeypatch)
    assert found == [(key, b"first" + key[-2:]) for key in KEYS]
    assert asked == 5, "once for each frame"
    rig.queue_manager.close()


def test_those_that_others_lie_between_are_what_they_are_under_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(STATE)")
    inspection = Inspection(rig.queue_manager)
    inspection.commit(replaced(KEYS, b"first"))
    anew, gone = KEYS[3:400:7], KEYS[5:450:9]
    inspection.commit(Unit(replaces=[Replace("STATE", key, None) for key in gone if key not in anew]))
    inspection.commit(replaced(anew, b"anew"))
    left = [key for key in KEYS if key not in anew and key not in gone]
    expected = [(key, b"first" + key[-2:]) for key in left] + [(key, b"anew" + key[-2:]) for key in anew]
    assert loaded(rig, monkeypatch)[0] == expected
    rig.restart()
    assert loaded(rig, monkeypatch)[0] == expected
    rig.queue_manager.close()
