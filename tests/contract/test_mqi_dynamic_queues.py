"""The contract of the MQI port: what others put to a temporary queue goes with it."""

from __future__ import annotations

import pytest
from embedded_rig import md

from gateway.ports.mqi import ObjectDescriptor, PutOptions

INPUT, OUTPUT, SYNCPOINT, NO_SYNCPOINT = 2, 16, 2, 4


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
