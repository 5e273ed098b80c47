"""Clearing a queue: in steps, only what is there when it begins, in memory that does not grow with the queue."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import StoreUnavailable
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.commands import command_server
from gateway.queue_manager.commands.mqsc_report import MqscReport
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
    """`mqgate queue clear` and CLEAR QLOCAL of 16 million messages took more memory than the 1 GiB that the chart
    gives."""
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


COMMANDS = {
    "CLEAR QLOCAL(A)": (9, [pcf.string(2016, "A")]),
    "DELETE QLOCAL(A) PURGE": (12, [pcf.string(2016, "A"), pcf.integer(1007, 1)]),
}


def begun(rig: MqiRig, command: str, how: str) -> Callable[[], bool]:
    """Begin a command that takes several turns; returns what has to be called for each turn, until it is False."""
    if how == "mqsc":
        report = MqscReport()
        steps = rig.queue_manager.mqsc_steps(command, report)
        return lambda: next(steps, report) is None
    number, parameters = COMMANDS[command] if how == "pcf" else (38, [pcf.integer(1017, 1), pcf.string(3014, command)])
    request = pcf.build(pcf.Message(1, number, parameters))
    rig.put("SYSTEM.ADMIN.COMMAND.QUEUE", request, 4, md(type=1, format=b"MQADMIN", reply_to_q=b"REPLIES"))

    def go_on() -> bool:
        rig.scheduler.advance(command_server.PAUSE_SECONDS)
        return rig.depth("REPLIES") == 0

    return go_on


@pytest.mark.parametrize("how", ["mqsc", "pcf", "escape"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_clear_in_steps(command: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLEAR QLOCAL of 16 million messages was one turn of 5 s, in which nobody was served."""
    monkeypatch.setattr(clearing, "CLEARED_AT_ONCE", 3)
    monkeypatch.setattr(command_server, "TURN_SECONDS", 0)
    rig = MqiRig(None, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(REPLIES)")
    inspection = Inspection(rig.queue_manager)
    filled(inspection, 10)
    go_on = begun(rig, command, how)
    depths = list[int]()
    while go_on():
        if (depth := rig.queue_manager.core.store.depth("A")) == 4:
            with refused(2042):
                rig.open("A")
            assert not rig.queue_manager.mqsc("CLEAR QLOCAL(A)").ok
            filled(inspection, 1)  # a device does not open it
        depths.append(depth)
    assert depths == sorted(depths, reverse=True)
    assert len(set(depths)) >= 3
    if command.startswith("CLEAR"):
        assert rig.depth("A") == 1
        assert rig.drain(rig.open("A")) == [b"x"]
    else:
        with refused(2085):
            rig.open("A")
    rig.queue_manager.close()


def test_a_program_that_comes_to_the_command_queue_meanwhile_is_served_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "CLEARED_AT_ONCE", 3)
    monkeypatch.setattr(command_server, "TURN_SECONDS", 0)
    rig = MqiRig(None, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(REPLIES)")
    filled(Inspection(rig.queue_manager), 10)
    begun(rig, "CLEAR QLOCAL(A)", "pcf")
    begun(rig, "DELETE QLOCAL(A) PURGE", "pcf")
    rig.scheduler.advance(1)
    replies = rig.drain(rig.open("REPLIES"))
    assert [(pcf.parse(one).command, pcf.parse(one).reason) for one in replies] == [(9, 0), (12, 0)]
    rig.queue_manager.close()


def test_a_command_whose_end_the_disk_refuses_is_carried_out_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was back on its queue, and was begun again in the call that had reported this, and so on, until the
    stack was full: that ended the thread which serves programs."""
    monkeypatch.setattr(clearing, "CLEARED_AT_ONCE", 3)
    monkeypatch.setattr(command_server, "TURN_SECONDS", 0)
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(REPLIES)")
    filled(Inspection(rig.queue_manager), 10)
    store, tried = rig.queue_manager.core.store, list[int]()

    def failing(_frame: object) -> None:
        tried.append(1)
        raise StoreUnavailable("the disk fails")

    go_on = begun(rig, "CLEAR QLOCAL(A)", "pcf")
    monkeypatch.setattr(store, "write", failing)
    go_on()
    before = len(tried)
    rig.scheduler.advance(command_server.RETRY_SECONDS - 1)
    assert len(tried) == before < 10
    monkeypatch.undo()
    rig.scheduler.advance(command_server.RETRY_SECONDS)
    assert (rig.depth("A"), rig.depth("SYSTEM.ADMIN.COMMAND.QUEUE")) == (0, 0)
    assert pcf.parse(rig.drain(rig.open("REPLIES"))[-1]).reason == 0
    rig.queue_manager.close()
