"""The contract of the MQI port: marks of browsed messages, and those who wait for messages without one."""

from __future__ import annotations

from embedded_rig import md, refused

from gateway.ports.mqi import GetOptions

SHARED, BROWSE, CO_OP = 2, 8, 0x20000
WAIT, NO_SYNCPOINT, BROWSE_FIRST, UNDER_CURSOR = 1, 4, 16, 0x100
MARK_HANDLE, MARK_CO_OP, UNMARKED = 0x100000, 0x200000, 0x1000000
TOGETHER = BROWSE_FIRST | UNMARKED | MARK_CO_OP


def test_a_browse_that_waits_gets_what_is_unmarked_by_time(mqi):
    first, second = (mqi.open("A", SHARED | BROWSE | CO_OP) for _ in range(2))
    mqi.put("A", b"one")
    mqi.scheduler.advance(1)
    mqi.put("A", b"two")
    for _ in range(2):
        mqi.get(first, TOGETHER)
    answers = []
    mqi.connection.wait(second, md(), GetOptions(TOGETHER | WAIT), 100, None, answers.append)
    mqi.scheduler.advance(4.9)
    assert not answers
    mqi.scheduler.advance(0.2)
    assert [one.data for one in answers] == [b"one"]


def test_marks_end_with_the_last_who_browse_together(mqi):
    mqi.mqsc("ALTER QMGR MARKINT(NOLIMIT)")
    mqi.put("A", b"one")
    first, second = (mqi.open("A", SHARED | BROWSE | CO_OP) for _ in range(2))
    assert mqi.get(first, TOGETHER).data == b"one"
    mqi.connection.close(first)
    with refused(2033):
        mqi.get(second, TOGETHER)
    mqi.connection.close(second)
    assert mqi.get(mqi.open("A", SHARED | BROWSE | CO_OP), TOGETHER).data == b"one"


def test_marks_of_messages_that_have_gone_are_forgotten(mqi):
    handle, others = mqi.open("A", SHARED | BROWSE), mqi.open("A", SHARED)
    for kept in (b"stays", b"is in a unit of work"):
        mqi.put("A", kept, descriptor=md(priority=9))
        mqi.get(handle, BROWSE_FIRST | UNMARKED | MARK_HANDLE)
    mqi.get(others, 2)
    for _ in range(2500):
        mqi.put("A", b"gone")
        mqi.get(handle, BROWSE_FIRST | UNMARKED | MARK_HANDLE)
        mqi.get(handle, NO_SYNCPOINT | UNDER_CURSOR)
    assert len(mqi.connection.state.handles[handle].marks) < 1100
    mqi.connection.back()
    with refused(2033):
        mqi.get(handle, BROWSE_FIRST | UNMARKED | MARK_HANDLE)


def test_a_get_that_waits_is_told_that_its_alias_is_inhibited(mqi):
    mqi.mqsc("DEFINE QALIAS(OTHER) TARGET(A)")
    answers = []
    mqi.connection.wait(mqi.open("OTHER", SHARED), md(), GetOptions(WAIT), 100, None, answers.append)
    mqi.mqsc("ALTER QALIAS(OTHER) GET(DISABLED)")
    assert [one.reason for one in answers] == [2016]
