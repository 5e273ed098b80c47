"""Clearing a queue: in steps, of what is there when it begins, in memory that does not grow with the queue."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from embedded_rig import MqiRig, md

from gateway.mq import constants as mq
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.inspection import Inspection
from gateway.queue_manager.objects import clearing


def filled(inspection: Inspection, count: int, *, priority: int = 0) -> None:
    """Put many small messages in one unit of work."""
    unit = Unit(puts=[Puts("A", priority=priority, heads=[md(priority=priority)] * count, bodies=[b"x"] * count)])
    assert inspection.commit(unit).failures == []


@pytest.mark.parametrize("journal", [True, False])
def test_what_comes_while_a_queue_is_cleared_stays(
    journal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clearing, "CLEARED_AT_ONCE", 3)
    rig = MqiRig(tmp_path if journal else None, "DEFINE QLOCAL(A)")
    inspection = Inspection(rig.queue_manager)
    for priority in (9, 4, 0):
        filled(inspection, 4, priority=priority)
    rig.get(rig.open("A"), options=mq.MQGMO_SYNCPOINT)  # the first of them is somebody's
    removed = 0
    for some in inspection.clear("A"):
        removed += some
        for priority in (9, 4, 0):
            filled(inspection, 2, priority=priority)
        assert removed <= 11, "it follows what comes"
    assert removed == 11
    assert rig.depth("A") % 6 == 1
    rig.connection.disconnect()
    rig.queue_manager.close()


@pytest.mark.parametrize("by_command", [True, False])
def test_a_long_queue_is_cleared_in_little_memory(
    by_command: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mqgate queue clear` and CLEAR QLOCAL of 16 million messages took more than the 1 GiB that the chart gives."""
    monkeypatch.setattr(clearing, "CLEARED_AT_ONCE", 1000)
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(A) MAXDEPTH(999999999)")
    inspection = Inspection(rig.queue_manager)
    for _ in range(12):
        filled(inspection, 5000)
    tracemalloc.start()
    try:
        if by_command:
            assert rig.queue_manager.mqsc("CLEAR QLOCAL(A)").ok
        else:
            assert sum(inspection.clear("A")) == 60_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rig.depth("A") == 0
    assert peak < 700_000, "an integer for each message"
    rig.queue_manager.close()
