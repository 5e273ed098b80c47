"""Trigger messages: when there is one, what it says, where it goes."""

from __future__ import annotations

import pytest
from embedded_rig import MqiRig, md

from gateway.errors import StoreUnavailable
from gateway.mq import layout
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.objects.catalogue import Definition

OBJECTS = """
DEFINE PROCESS(ORDERS) APPLICID('/opt/orders') APPLTYPE(UNIX) ENVRDATA('env') USERDATA('user')
DEFINE QLOCAL(IQ) DEFPRTY(4) DEFPSIST(YES)
DEFINE QLOCAL(APP) TRIGGER TRIGTYPE(FIRST) PROCESS(ORDERS) INITQ(IQ) TRIGDATA('data')
"""
INPUT, BROWSE, OUTPUT = 2, 8, 16


@pytest.fixture(params=["journal", "memory"])
def rig(request, tmp_path):
    rig = MqiRig(tmp_path / "store" if request.param == "journal" else None, OBJECTS)
    yield rig
    rig.queue_manager.close()


def named(data):
    return data[8:56].rstrip(b" \0").decode()


def test_the_first_message_triggers_once_while_nobody_takes_it(rig):
    monitor = rig.open("IQ", INPUT)
    for text in (b"1", b"2", b"3"):
        rig.put("APP", text)
    got = rig.get(monitor)
    assert got.md[32:40] == b"MQTRIG  "
    assert (got.md[40:44], got.md[44:48]) == ((4).to_bytes(4, "little"), (1).to_bytes(4, "little"))
    assert int.from_bytes(got.md[272:276], "little") == 7  # MQAT_QMGR
    assert got.data == layout.pack("MQTM", {
        "QName": "APP", "ProcessName": "ORDERS", "TriggerData": "data", "ApplType": 6, "ApplId": "/opt/orders",
        "EnvData": "env", "UserData": "user",
    })  # fmt: skip
    assert len(got.data) == 684
    assert rig.drain(monitor) == []


def test_a_monitor_gets_the_data_in_its_character_set(rig):
    """The descriptor says which character set the data is in; it said 0, the queue manager's, which may be another."""
    rig.mqsc("ALTER QMGR CCSID(819)\nALTER QLOCAL(APP) TRIGDATA('Größe')\nALTER PROCESS(ORDERS) USERDATA('ü')")
    monitor = rig.open("IQ", INPUT)
    rig.put("APP", b"1")
    got = rig.get(monitor, 4 | 0x4000, md(ccsid=819))
    assert got.reason == 0
    assert (got.data[104:168].rstrip(), got.data[556:].rstrip()) == ("Größe".encode("latin-1"), "ü".encode("latin-1"))


def test_a_program_that_is_there_needs_no_trigger_until_it_goes(rig):
    monitor = rig.open("IQ", INPUT)
    program = rig.open("APP", INPUT)
    rig.put("APP", b"1")
    assert rig.drain(monitor) == []
    rig.get(program)
    rig.put("APP", b"2")
    rig.connection.close(program)
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]
    browser = rig.open("APP", BROWSE)
    rig.connection.close(browser)  # who only looks takes nothing
    assert [named(one) for one in rig.drain(monitor)] == []


def test_every_message_triggers(rig):
    rig.mqsc("ALTER QLOCAL(APP) TRIGTYPE(EVERY)")
    monitor, program = rig.open("IQ", INPUT), rig.open("APP", INPUT)
    for _ in range(3):
        rig.put("APP", b"x", options=2)
    assert rig.drain(monitor) == []
    rig.connection.commit()
    assert len(rig.drain(monitor)) == 3
    rig.connection.close(program)


@pytest.mark.parametrize("kind", ["EVERY", "FIRST", "DEPTH"])
def test_trigger_messages_that_the_disk_has_no_room_for_are_put_when_there_is_some(rig, kind):
    rig.mqsc(f"ALTER QLOCAL(APP) TRIGTYPE({kind})")
    monitor, write = rig.open("IQ", INPUT), rig.queue_manager.core.store.write

    def full(frame):
        if any(puts.queue == "IQ" for puts in getattr(frame, "unit", frame).puts):
            raise StoreUnavailable("the disk is full")
        write(frame)

    rig.queue_manager.core.store.write = full
    for _ in range(2):
        rig.put("APP", b"x")
        rig.scheduler.advance(5)
    assert rig.drain(monitor) == []
    rig.queue_manager.core.store.write = write
    rig.scheduler.advance(5)
    assert len(rig.drain(monitor)) == (2 if kind == "EVERY" else 1)
    rig.scheduler.advance(5)
    assert rig.drain(monitor) == []


def test_a_depth_triggers_and_switches_triggering_off(rig):
    rig.mqsc("ALTER QLOCAL(APP) TRIGTYPE(DEPTH) TRIGDPTH(3) TRIGMPRI(5)")
    monitor = rig.open("IQ", INPUT)
    for priority in (9, 1, 5, 4):
        rig.put("APP", b"x", descriptor=md(priority=priority))
    assert rig.drain(monitor) == []
    rig.put("APP", b"x", descriptor=md(priority=6))
    assert len(rig.drain(monitor)) == 1
    assert "NOTRIGGER" in "".join(rig.mqsc("DISPLAY QLOCAL(APP) TRIGGER"))
    rig.put("APP", b"x", descriptor=md(priority=6))
    assert rig.drain(monitor) == []
    rig.mqsc("ALTER QLOCAL(APP) TRIGGER")
    assert len(rig.drain(monitor)) == 1


def test_priorities_below_the_threshold_do_not_count(rig):
    rig.mqsc("ALTER QLOCAL(APP) TRIGMPRI(5)")
    monitor = rig.open("IQ", INPUT)
    rig.put("APP", b"low", descriptor=md(priority=4))
    assert rig.drain(monitor) == []
    rig.put("APP", b"high", descriptor=md(priority=5))
    assert len(rig.drain(monitor)) == 1
    rig.mqsc("DEFINE QLOCAL(FIFO) LIKE(APP) MSGDLVSQ(FIFO)")
    rig.put("FIFO", b"low", descriptor=md(priority=4))
    assert rig.drain(monitor) == []


def test_a_monitor_that_comes_later_is_told_of_what_waits(rig):
    rig.put("APP", b"1")
    monitor = rig.open("IQ", INPUT)
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]


def test_the_interval_triggers_again(rig):
    rig.mqsc("ALTER QMGR TRIGINT(5000)")
    monitor = rig.open("IQ", INPUT)
    for seconds, expected in ((0, 1), (1, 0), (5, 1), (4, 0)):
        rig.scheduler.advance(seconds)
        rig.put("APP", b"x")
        assert len(rig.drain(monitor)) == expected


@pytest.mark.parametrize("change", [
    "ALTER QLOCAL(APP) GET(DISABLED)", "ALTER QLOCAL(APP) NOTRIGGER", "ALTER QLOCAL(APP) TRIGTYPE(NONE)",
    "ALTER QLOCAL(APP) PROCESS('')", "ALTER QLOCAL(APP) PROCESS(MISSING)", "ALTER QLOCAL(APP) INITQ(MISSING)",
    "ALTER QLOCAL(IQ) PUT(DISABLED)", "ALTER QLOCAL(IQ) GET(DISABLED)",
])  # fmt: skip
def test_what_keeps_a_trigger_from_being_and_what_brings_it_about(rig, change):
    monitor = rig.open("IQ", INPUT)
    rig.mqsc(change)
    rig.put("APP", b"1")
    rig.mqsc("ALTER QLOCAL(IQ) PUT(ENABLED) GET(ENABLED)")
    assert rig.drain(monitor) == []
    rig.mqsc("ALTER QLOCAL(APP) GET(ENABLED) TRIGGER TRIGTYPE(FIRST) PROCESS(ORDERS) INITQ(IQ)")
    assert len(rig.drain(monitor)) == 1


def test_a_process_that_is_defined_later(rig):
    rig.mqsc("DELETE PROCESS(ORDERS)")
    monitor = rig.open("IQ", INPUT)
    rig.put("APP", b"1")
    assert rig.drain(monitor) == []
    rig.mqsc("DEFINE PROCESS(ORDERS) APPLICID(x)")
    assert len(rig.drain(monitor)) == 1


def test_a_transmission_queue_needs_no_process(rig):
    rig.mqsc("DEFINE QLOCAL(XQ) USAGE(XMITQ) TRIGGER TRIGTYPE(FIRST) INITQ(IQ) TRIGDATA(TO.QM2)")
    monitor = rig.open("IQ", INPUT)
    rig.put("XQ", b"1")
    (content,) = rig.drain(monitor)
    assert (named(content), content[56:104].strip(b" \0"), content[104:168].rstrip()) == ("XQ", b"", b"TO.QM2")


def test_a_full_initiation_queue_sends_it_to_the_dead_letter_queue(rig):
    rig.mqsc("ALTER QLOCAL(IQ) MAXDEPTH(1)")
    monitor = rig.open("IQ", INPUT)
    rig.put("IQ", b"in the way")
    rig.put("APP", b"1")
    (letter,) = rig.drain(rig.open("SYSTEM.DEAD.LETTER.QUEUE", INPUT))
    assert int.from_bytes(letter[8:12], "little") == 2053
    assert letter[12:60].rstrip() == b"IQ"
    assert named(letter[172:]) == "APP"
    assert rig.drain(monitor) == [b"in the way"]


def test_the_batch_port_triggers_too(rig):
    monitor = rig.open("IQ", INPUT)
    done = []
    unit = Unit(puts=[Puts("APP", heads=[md()] * 3, bodies=[b"1", b"2", b"3"])])
    rig.queue_manager.submit(unit, lambda _unit, outcome: done.append(outcome))
    rig.scheduler.run_until(lambda: bool(done))
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]


def test_an_initiation_queue_that_triggers_itself_does_not_go_round(rig):
    rig.mqsc("ALTER QLOCAL(IQ) TRIGGER TRIGTYPE(EVERY) PROCESS(ORDERS) INITQ(IQ)")
    monitor = rig.open("IQ", INPUT)
    rig.put("APP", b"1")
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]


def test_a_restart_tells_the_monitor_again(rig):
    monitor = rig.open("IQ", INPUT)
    rig.put("APP", b"1", descriptor=md(persistence=1))
    assert len(rig.drain(monitor)) == 1
    rig.restart()
    assert len(rig.drain(rig.open("IQ", INPUT))) == 1


def test_a_monitor_that_goes_while_another_stays_brings_no_trigger_about(rig):
    monitor, other = rig.open("IQ", INPUT), rig.open("IQ", INPUT)
    rig.put("APP", b"1")
    assert len(rig.drain(monitor)) == 1
    rig.connection.close(other)
    assert rig.drain(monitor) == []


def test_a_rule_that_lets_go_of_a_queue_counts_as_a_program_that_closes_it(rig):
    monitor = rig.open("IQ", INPUT)
    rig.queue_manager.consume("APP", lambda: None)
    rig.put("APP", b"1")
    assert rig.drain(monitor) == []
    rig.queue_manager.stop_consuming("APP")
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]


def test_a_rule_that_takes_from_an_initiation_queue_is_told_of_what_waits(rig):
    rig.put("APP", b"1")
    rig.queue_manager.consume("IQ", lambda: None)
    assert rig.depth("IQ") == 1
    rig.queue_manager.stop_consuming("IQ")
    rig.mqsc("ALTER QLOCAL(APP) TRIGDATA('again')")
    assert rig.depth("IQ") == 1


def test_what_arrives_while_a_trigger_message_is_stored_triggers_too(rig):
    """On a slow disk a frame is being written when the trigger message is put, which waits for it."""
    rig.mqsc("DEFINE QLOCAL(OTHER) TRIGGER TRIGTYPE(EVERY) PROCESS(ORDERS) INITQ(IQ)")
    monitor, done = rig.open("IQ", INPUT), []
    committer = rig.queue_manager.core.committer
    committer.seconds, committer._trial_in = 1.0, 1000  # a slow disk: frames are written on a thread
    for queue in ("APP", "OTHER"):
        unit = Unit(puts=[Puts(queue, heads=[md()], bodies=[b"1"])])
        rig.queue_manager.submit(unit, lambda _unit, outcome: done.append(outcome))
    rig.scheduler.run_until(lambda: len(done) == 2)
    assert [named(one) for one in rig.drain(monitor)] == ["APP", "OTHER"]


def test_what_a_trigger_event_needs_is_looked_for_at_the_queues_that_name_it(rig, monkeypatch):
    """There may be ten thousand, each with a process and an initiation queue of its own."""
    several = range(30)
    rig.mqsc("".join(f"DEFINE QLOCAL(Q{n}) TRIGGER PROCESS(P{n}) INITQ(I{n})\nDEFINE QLOCAL(I{n})\n" for n in several))
    rig.put("Q7", b"1")
    read, whole = [], Definition.text

    def counted(definition, keyword):
        read.append(definition.name)
        return whole(definition, keyword)

    monkeypatch.setattr(Definition, "text", counted)
    rig.mqsc("DEFINE PROCESS(P7) APPLICID(x)")
    monitor = rig.open("I7", INPUT)
    assert {f"Q{n}" for n in several} & set(read) == {"Q7"}
    assert [named(one) for one in rig.drain(monitor)] == ["Q7"]


def test_a_queue_that_names_others_from_now_on_is_triggered_through_these(rig):
    rig.mqsc("DEFINE QLOCAL(IQ2)\nALTER QLOCAL(APP) INITQ(IQ2) PROCESS(LATER)")
    rig.put("APP", b"1")
    former, monitor = rig.open("IQ", INPUT), rig.open("IQ2", INPUT)
    rig.mqsc("ALTER PROCESS(ORDERS) USERDATA('other')")
    assert (rig.drain(former), rig.drain(monitor)) == ([], [])
    rig.mqsc("DEFINE PROCESS(LATER) APPLICID(x)")
    assert [named(one) for one in rig.drain(monitor)] == ["APP"]
    assert rig.drain(former) == []
