"""The contract of the MQI port: marks of browsed messages, and those who wait for messages without one."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.ports.mqi import GetOptions

SHARED, BROWSE, CO_OP = 2, 8, 0x20000
WAIT, SYNCPOINT, NO_SYNCPOINT, BROWSE_FIRST, UNDER_CURSOR = 1, 2, 4, 16, 0x100
MARK_HANDLE, MARK_CO_OP, UNMARKED = 0x100000, 0x200000, 0x1000000
MATCH_CORREL_ID, KEY = 2, b"c" * 24
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


def test_marks_run_out_one_after_the_other(mqi):
    first, second = (mqi.open("A", SHARED | BROWSE | CO_OP) for _ in range(2))
    for number in range(3):
        mqi.put("A", b"%d" % number)
        mqi.get(first, TOGETHER)
        mqi.scheduler.advance(1)
    for number in range(3):
        answers = []
        mqi.connection.wait(second, md(), GetOptions(TOGETHER | WAIT), 100, None, answers.append)
        assert not answers
        mqi.scheduler.advance(2.1 if not number else 1)
        assert [one.data for one in answers] == [b"%d" % number]


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


@pytest.mark.parametrize("marks", [MARK_HANDLE, MARK_CO_OP])
@pytest.mark.parametrize("by", [SYNCPOINT, SYNCPOINT | UNDER_CURSOR])
def test_a_message_that_was_got_and_backed_out_is_unmarked(mqi, marks, by):
    """A program that hands browsed messages on to others sees again what one of them could not work on."""
    handle, others = mqi.open("A", SHARED | BROWSE | CO_OP), mqi.open("A", SHARED | BROWSE | CO_OP)
    mqi.put("A", b"one")
    browse = BROWSE_FIRST | UNMARKED | marks
    assert mqi.get(handle, browse).data == b"one"
    mqi.get(others, BROWSE_FIRST)
    mqi.get(others, by)
    with refused(2033):
        mqi.get(handle, browse)
    answers = []
    mqi.connection.wait(handle, md(), GetOptions(browse | WAIT), 100, None, answers.append)
    mqi.connection.back()
    assert [one.data for one in answers] == [b"one"]


def test_a_browse_reads_nothing_that_is_marked_or_got(mqi, monkeypatch):
    """A gateway browses from the first message each time, while hundreds in front are marked or in units of work."""
    for number in range(30):
        mqi.put("A", b"%d" % number, descriptor=md(correl_id=KEY))
    browsing, getting = mqi.open("A", SHARED | BROWSE | CO_OP), mqi.open("A", SHARED)
    for _ in range(20):
        mqi.get(browsing, TOGETHER, match=MATCH_CORREL_ID, descriptor=md(correl_id=KEY))
    for _ in range(10):
        mqi.get(getting, SYNCPOINT, match=MATCH_CORREL_ID, descriptor=md(correl_id=KEY))
    store, read = mqi.queue_manager.core.store, []
    find = store.find

    def noted(*asked):
        for message in find(*asked):
            read.append(message.token)
            yield message

    monkeypatch.setattr(store, "find", noted)
    assert mqi.get(browsing, TOGETHER, match=MATCH_CORREL_ID, descriptor=md(correl_id=KEY)).data == b"20"
    assert len(read) == 1


def test_marks_of_a_handle_end_with_it_and_with_their_messages(mqi):
    handle, other = (mqi.open("A", SHARED | BROWSE) for _ in range(2))
    for each in range(20):
        mqi.put("A", b"%d" % each)
        mqi.get(handle, BROWSE_FIRST | UNMARKED | MARK_HANDLE)
        mqi.get(other, BROWSE_FIRST | UNMARKED | MARK_HANDLE)
        if each:
            mqi.get(handle, NO_SYNCPOINT | UNDER_CURSOR)
    marks = mqi.queue_manager.core.queues["A"].handle_marks
    assert [len(marked_by) for marked_by in marks.values()] == [2]
    mqi.connection.close(other)
    with refused(2033):
        mqi.get(handle, BROWSE_FIRST | UNMARKED | MARK_HANDLE)
    assert [len(marked_by) for marked_by in marks.values()] == [1]
    mqi.connection.close(handle)
    assert not marks


def test_a_get_that_waits_is_told_that_its_alias_is_inhibited(mqi):
    mqi.mqsc("DEFINE QALIAS(OTHER) TARGET(A)")
    answers = []
    mqi.connection.wait(mqi.open("OTHER", SHARED), md(), GetOptions(WAIT), 100, None, answers.append)
    mqi.mqsc("ALTER QALIAS(OTHER) GET(DISABLED)")
    assert [one.reason for one in answers] == [2016]
