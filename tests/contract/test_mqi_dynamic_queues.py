"""The contract of the MQI port: when temporary queues go, and what others put to them with them."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.ports.mqi import ObjectDescriptor, PutOptions

INPUT, BROWSE, OUTPUT, INQUIRE, SET = 2, 8, 16, 32, 64
SYNCPOINT, NO_SYNCPOINT = 2, 4


def requester(mqi):
    """Open a temporary queue for replies."""
    wanted = ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="REPLIES")
    return mqi.connection.open(wanted, INPUT | OUTPUT).handle


@pytest.fixture
def server(mqi):
    return mqi.queue_manager.connect(application="server", user="ana")


def test_a_reply_committed_after_its_queue_has_gone_is_nowhere(mqi, server):
    mine = requester(mqi)
    replies = server.open(ObjectDescriptor("REPLIES"), OUTPUT).handle
    others = server.open(ObjectDescriptor("A"), OUTPUT).handle
    server.put(replies, md(), PutOptions(SYNCPOINT), b"late")
    server.put(others, md(), PutOptions(SYNCPOINT), b"kept")
    mqi.connection.close(mine)
    server.commit()
    assert mqi.queue_manager.core.store.depth("REPLIES") == 0
    assert mqi.depth("A") == 1
    assert mqi.drain(requester(mqi)) == []


def test_a_reply_that_is_being_committed_when_its_queue_goes_is_nowhere(mqi, server):
    mine = requester(mqi)
    replies = server.open(ObjectDescriptor("REPLIES"), OUTPUT).handle
    with mqi.queue_manager.gathered():
        server.put(replies, md(), PutOptions(NO_SYNCPOINT), b"late")
        mqi.connection.close(mine)
    assert mqi.queue_manager.core.store.depth("REPLIES") == 0
    assert mqi.drain(requester(mqi)) == []


def test_what_is_put_to_a_queue_that_has_gone_is_not_on_one_made_again_in_the_unit_of_work(mqi, server):
    mine = requester(mqi)
    server.put1(ObjectDescriptor("REPLIES"), md(), PutOptions(SYNCPOINT), b"late")
    mqi.connection.close(mine)
    again = requester(mqi)
    server.put1(ObjectDescriptor("REPLIES"), md(), PutOptions(SYNCPOINT), b"new")
    server.put1(ObjectDescriptor("REPLIES"), md(report=0x100, reply_to_q=b"A"), PutOptions(SYNCPOINT), b"newer")
    server.commit()
    assert mqi.drain(again) == [b"new", b"newer"]
    assert mqi.depth("A") == 1, "the report of arrival"


@pytest.mark.parametrize("options", [INQUIRE, INQUIRE | SET, OUTPUT, OUTPUT | INQUIRE, BROWSE])
def test_a_temporary_queue_goes_with_the_handle_that_made_it_whatever_that_is_for(mqi, options):
    handle = mqi.connection.open(ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="MADE"), options).handle
    if options & INQUIRE:
        assert mqi.connection.inquire(handle, [2016]).characters == [b"MADE".ljust(48)]
    mqi.connection.close(handle)
    assert "MADE" not in mqi.queue_manager.core.queues
    mqi.connection.open(ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="MADE"), options)
    mqi.connection.disconnect()
    assert "MADE" not in mqi.queue_manager.core.queues


@pytest.mark.parametrize("got", [False, True])
def test_nothing_is_kept_of_queues_that_have_gone(mqi, server, got):
    """Programs make one for each request."""
    core = mqi.queue_manager.core
    kept = core.store.index.queues if hasattr(core.store, "index") else core.store._shelves
    wanted = ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="REPLIES.*")
    mine = mqi.connection.open(wanted, INPUT).handle
    server.put1(ObjectDescriptor(wanted.name), md(expiry=100_000), PutOptions(NO_SYNCPOINT), b"reply")
    assert not got or mqi.get(mine).data == b"reply"
    mqi.connection.close(mine)
    assert wanted.name not in kept
    assert not core.expiring


def test_nothing_is_kept_of_a_queue_whose_reply_came_late(mqi, server):
    core = mqi.queue_manager.core
    mine = requester(mqi)
    with mqi.queue_manager.gathered():
        server.put1(ObjectDescriptor("REPLIES"), md(), PutOptions(NO_SYNCPOINT), b"late")
        mqi.connection.close(mine)
    mqi.scheduler.run()
    assert "REPLIES" not in (core.store.index.queues if hasattr(core.store, "index") else core.store._shelves)


@pytest.mark.parametrize("options", [INQUIRE | SET, OUTPUT | INQUIRE | SET])
def test_a_handle_of_a_queue_that_has_gone_is_none_of_one_made_again(mqi, server, options):
    """It deleted the new one, and changed its attributes."""
    mqi.mqsc("DEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    wanted = ObjectDescriptor("M", dynamic_name="MADE")
    mqi.connection.close(mqi.connection.open(wanted, OUTPUT).handle)
    old = mqi.connection.open(ObjectDescriptor("MADE"), options).handle
    server.close(server.open(ObjectDescriptor("MADE"), OUTPUT).handle, 1)
    server.close(server.open(ObjectDescriptor("M", dynamic_name="MADE"), OUTPUT).handle)
    with refused(2052):
        mqi.connection.inquire(old, [2016])
    with refused(2052):
        mqi.connection.set(old, [9], [1], [])
    mqi.connection.close(old, 1)
    assert "MADE" in mqi.queue_manager.core.queues
