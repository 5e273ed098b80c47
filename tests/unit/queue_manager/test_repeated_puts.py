"""A put like the last one is put as if it were the first: whatever is put, and whatever changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from embedded_rig import MqiRig, md

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, ObjectDescriptor, Property, PutOptions
from gateway.queue_manager.verbs import mqput

SYNCPOINT, NO_SYNCPOINT, NEW_MSG_ID, NEW_CORREL_ID, QUIESCING, NO_CONTEXT, LOGICAL = (
    2,
    4,
    64,
    128,
    0x2000,
    0x4000,
    0x8000,
)
OBJECTS = """
DEFINE QLOCAL(A) MAXDEPTH(50)
DEFINE QLOCAL(B)
DEFINE QALIAS(ALIAS) TARGET(A)
DEFINE QLOCAL(XQ) USAGE(XMITQ)
DEFINE QREMOTE(REMOTE) RNAME(THERE) RQMNAME(XQ)
DEFINE QREMOTE(ANSWERS) RNAME(ANSWERS.THERE) RQMNAME(XQ)
"""
_RFH2 = b"RFH \2\0\0\0" + (36).to_bytes(4, "little") + bytes(4) + (1208).to_bytes(4, "little") + b"MQSTR   " + bytes(8)
DESCRIPTORS: list[dict[str, Any]] = [
    {}, {"persistence": 1}, {"priority": 7}, {"priority": 12}, {"expiry": 100}, {"type": 1, "reply_to_q": b"B"},
    {"reply_to_q": b"ANSWERS"}, {"msg_id": b"M" * 24, "correl_id": b"C" * 24}, {"report": 0x100, "reply_to_q": b"B"},
    {"flags": 8}, {"flags": 1}, {"format": b"MQHRF2"}, {"type": 3}, {"put_date": b"20200101", "user": b"mallory"},
    {"ccsid": 500, "encoding": 273},
]  # fmt: skip
OPTIONS = [NO_SYNCPOINT, 0, SYNCPOINT, NEW_MSG_ID, NEW_MSG_ID | NEW_CORREL_ID | SYNCPOINT, NO_CONTEXT, 0x10000, LOGICAL,
           NO_SYNCPOINT | QUIESCING, 0x40000000]  # fmt: skip
CHANGES = [
    "ALTER QLOCAL(A) DEFPRTY(5)", "ALTER QLOCAL(A) DEFPSIST(YES)", "ALTER QLOCAL(A) MSGDLVSQ(FIFO)",
    "ALTER QLOCAL(A) PUT(DISABLED)", "ALTER QALIAS(ALIAS) PUT(DISABLED)", "ALTER QLOCAL(A) MAXMSGL(3)",
    "ALTER QLOCAL(A) MAXDEPTH(3)", "ALTER QMGR CCSID(819)", "ALTER QMGR MAXMSGL(32768)",
    "ALTER QALIAS(ALIAS) TARGET(B)", "ALTER QREMOTE(ANSWERS) RNAME(ELSEWHERE)",
    "DELETE QREMOTE(ANSWERS)", "ALTER QMGR MAXUMSGS(2)",
]  # fmt: skip


@pytest.fixture
def rigs() -> Iterator[tuple[MqiRig, MqiRig]]:
    """The same queue manager twice; in the second one each put is the first of its handle."""
    made = MqiRig(None, OBJECTS), MqiRig(None, OBJECTS)
    yield made
    for rig in made:
        rig.queue_manager.close()


def outcome(rig: MqiRig, handle: int, given: bytes, options: PutOptions, data: bytes) -> Any:
    try:
        return rig.connection.put(handle, given, options, data)
    except MQError as error:
        return error.comp_code, error.reason


def drained(rig: MqiRig) -> list[Any]:
    rig.connection.commit()
    rig.mqsc("ALTER QLOCAL(A) GET(ENABLED)")
    found = []
    for name in ("A", "B", "XQ"):
        handle = rig.open(name, 2)
        while True:
            try:
                got = rig.connection.get(handle, md(), GetOptions(NO_SYNCPOINT), 1 << 20)
            except MQError:
                break
            found.append((name, got.md, got.data))
    return found


def same(rigs: tuple[MqiRig, MqiRig], handles: tuple[int, int], *given: Any) -> Any:
    repeating, anew = rigs
    anew.connection.state.handles[handles[1]].repeated = None
    results = [outcome(rig, handle, *given) for rig, handle in zip(rigs, handles, strict=True)]
    assert results[0] == results[1], given
    for rig in (repeating, anew):
        rig.scheduler.advance(0.013)
    return results[0]


@pytest.mark.parametrize("name", ["A", "ALIAS", "REMOTE"])
@pytest.mark.parametrize("options", OPTIONS)
def test_every_descriptor_twice_and_after_every_other(rigs: tuple[MqiRig, MqiRig], name: str, options: int) -> None:
    handles = rigs[0].open(name, 16), rigs[1].open(name, 16)
    for fields in [one for first in DESCRIPTORS for one in (first, first, DESCRIPTORS[0], first)]:
        data = _RFH2 + b"body" if fields.get("format") else b"body"
        same(rigs, handles, md(**fields), PutOptions(options), data)
    assert drained(rigs[0]) == drained(rigs[1])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["A", "ALIAS"])
def test_what_changes_between_two_puts_counts(rigs: tuple[MqiRig, MqiRig], name: str, change: str) -> None:
    handles = rigs[0].open(name, 16), rigs[1].open(name, 16)
    for options in (NO_SYNCPOINT, SYNCPOINT):
        for given in (md(), md(reply_to_q=b"ANSWERS")):
            for _ in range(2):
                same(rigs, handles, given, PutOptions(options), b"body")
    for rig in rigs:
        rig.mqsc(change)
    for given in (md(reply_to_q=b"ANSWERS"), md(reply_to_q=b"ANSWERS"), md()):
        same(rigs, handles, given, PutOptions(SYNCPOINT), b"body")
        same(rigs, handles, given, PutOptions(NO_SYNCPOINT), b"body")
    assert drained(rigs[0]) == drained(rigs[1])


def test_what_else_a_put_may_be_given(rigs: tuple[MqiRig, MqiRig]) -> None:
    handles = rigs[0].open("A", 16), rigs[1].open("A", 16)
    plain = PutOptions(NO_SYNCPOINT)
    assert same(rigs, handles, md(), plain, b"1").reason == 0
    with_property = PutOptions(NO_SYNCPOINT, properties=[Property("colour", "red", 1024)])
    same(rigs, handles, md(), with_property, b"2")
    same(rigs, handles, md(), plain, b"3")
    for number in range(60):  # until the queue is full
        last = same(rigs, handles, md(), plain, b"%d" % number)
    assert last == (2, 2053)
    for rig in rigs:
        rig.queue_manager.core.quiescing = True
    assert same(rigs, handles, md(), PutOptions(NO_SYNCPOINT | QUIESCING), b"4") == (2, 2161)
    for rig in rigs:
        rig.queue_manager.core.quiescing = False
    assert drained(rigs[0]) == drained(rigs[1])


def test_a_deleted_queue_takes_nothing_more(rigs: tuple[MqiRig, MqiRig]) -> None:
    names = []
    for rig in rigs:
        asked = ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="DYNAMIC")
        rig.connection.open(asked, 2 | 16)
        names.append(asked.name)
    assert names == ["DYNAMIC", "DYNAMIC"]
    handles = rigs[0].open("DYNAMIC", 16), rigs[1].open("DYNAMIC", 16)
    for fields in ({}, {}, {"persistence": 1}, {"persistence": 1}, {}):
        same(rigs, handles, md(**fields), PutOptions(NO_SYNCPOINT), b"1")


def test_a_program_that_repeats_itself_has_one_descriptor_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, completed, complete = MqiRig(None, OBJECTS), [], mqput.completed
    monkeypatch.setattr(mqput, "completed", lambda *given: completed.append(given) or complete(*given))  # type: ignore[func-returns-value]
    handle = rig.open("A", 16)
    for number in range(20):
        rig.put(handle, b"%d" % number, NO_SYNCPOINT | NEW_MSG_ID, md(correl_id=b"%024d" % number))
    assert len(completed) == 1
    assert [data for _, _, data in drained(rig)] == [b"%d" % number for number in range(20)]
    rig.queue_manager.close()
