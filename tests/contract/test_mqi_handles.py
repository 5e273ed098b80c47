"""The contract of the MQI port: a call that is refused leaves nothing open and nothing made."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.ports.mqi import ObjectDescriptor, PutOptions, SubscriptionDescriptor

CREATE, RESUME, DURABLE, MANAGED = 2, 4, 8, 32
SHARED, EXCLUSIVE, OUTPUT = 2, 4, 16
MODEL = "SYSTEM.DEFAULT.MODEL.QUEUE"


def names(mqi):
    """Every queue and subscription."""
    return sorted(one.name for one in mqi.queue_manager.core.catalogue.matching(("QLOCAL", "SUB")))


def fill(mqi, *, free=0):
    """Open objects until MAXHANDS(3) leaves so many."""
    mqi.mqsc("ALTER QMGR MAXHANDS(3)")
    return [mqi.open("B") for _ in range(3 - free)]


def test_a_queue_that_finds_no_handle_is_not_open(mqi):
    handles = fill(mqi)
    for _ in range(2):
        with refused(2017):
            mqi.open("A", SHARED | OUTPUT)
    mqi.connection.close(handles.pop())
    mqi.open("A", EXCLUSIVE)
    mqi.connection.disconnect()
    mqi.mqsc("DELETE QLOCAL(A)")


def test_no_dynamic_queue_without_a_handle(mqi):
    fill(mqi)
    before = names(mqi)
    with refused(2017):
        mqi.connection.open(ObjectDescriptor(MODEL, dynamic_name="REPLY.*"), SHARED)
    assert names(mqi) == before


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("durable", [0, DURABLE])
def test_no_subscription_without_handles_for_it_and_its_queue(mqi, free, durable):
    handles = fill(mqi, free=free)
    before = names(mqi)
    wanted = SubscriptionDescriptor(CREATE | MANAGED | durable, object_string="a/b", name="mine")
    with refused(2017):
        mqi.connection.subscribe(wanted)
    assert names(mqi) == before
    mqi.connection.close(handles[0])
    if not free:
        mqi.connection.close(handles[1])
    mqi.connection.subscribe(SubscriptionDescriptor(CREATE | MANAGED | durable, object_string="a/b", name="mine"))


def test_a_subscription_that_is_not_resumed_stays_free(mqi):
    wanted = SubscriptionDescriptor(CREATE | MANAGED | DURABLE, object_string="a/b", name="mine")
    made = mqi.connection.subscribe(wanted)
    mqi.connection.close(made.subscription_handle)
    mqi.connection.close(made.queue_handle)
    handles = fill(mqi, free=1)
    with refused(2017):
        mqi.connection.subscribe(SubscriptionDescriptor(RESUME, name="mine"))
    mqi.connection.close(handles[0])
    again = mqi.connection.subscribe(SubscriptionDescriptor(RESUME, name="mine"))
    mqi.connection.close(again.subscription_handle, 8)
    mqi.connection.close(again.queue_handle)
    assert "mine" not in names(mqi)
    assert not [one for one in names(mqi) if one.startswith("SYSTEM.MANAGED.")]


def test_a_selector_that_is_refused_leaves_the_queue_closed(mqi):
    before = names(mqi)
    for name in ("A", MODEL):
        wanted = ObjectDescriptor(name, dynamic_name="REPLY.*", selection="colour = = 'red'")
        with refused(2459):
            mqi.connection.open(wanted, SHARED)
    assert names(mqi) == before
    mqi.open("A", EXCLUSIVE)


@pytest.mark.parametrize("durable", [0, DURABLE])
@pytest.mark.parametrize("managed", [0, MANAGED])
def test_no_subscription_where_what_is_retained_cannot_be_sent(mqi, durable, managed):
    topic = mqi.connection.open(ObjectDescriptor(object_type=8, object_string="a/b"), OUTPUT).handle
    mqi.connection.put(topic, md(), PutOptions(4 | 0x200000), b"too long")
    mqi.mqsc("ALTER QLOCAL(A) MAXMSGL(4)\nALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) PUT(DISABLED)")
    mqi.mqsc(
        "ALTER QMODEL(SYSTEM.DURABLE.MODEL.QUEUE) MAXMSGL(4)\nALTER QMODEL(SYSTEM.NDURABLE.MODEL.QUEUE) MAXMSGL(4)"
    )
    own = 0 if managed else mqi.open("A", OUTPUT)
    before = names(mqi)
    for _ in range(2):
        wanted = SubscriptionDescriptor(CREATE | managed | durable, object_string="a/b", name="mine")
        with refused(2030):
            mqi.connection.subscribe(wanted, own)
        assert names(mqi) == before
