"""The contract of the MQI port: what ends by itself, messages in groups, retained publications, subscriptions."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.ports.mqi import ObjectDescriptor, PutOptions, SubscriptionDescriptor
from gateway.queue_manager.descriptor import Descriptor

CREATE, ALTER, DURABLE, MANAGED = 2, 1, 8, 32
RETAIN, NO_SYNCPOINT, ALL_MSGS_AVAILABLE = 0x200000, 4, 0x20000
IN_GROUP, LAST, EXPIRATION = 8, 16, 0x200000


def test_a_message_of_a_group_is_reported_as_expired_once(mqi):
    handle, reports = mqi.open("A"), mqi.open("B")
    for sequence in (1, 2, 3, 4):
        ends = {"expiry": 10, "report": EXPIRATION, "reply_to_q": b"B"} if sequence == 2 else {}
        flags = LAST if sequence == 4 else IN_GROUP
        mqi.put(handle, descriptor=md(version=2, group_id=b"g" * 24, sequence=sequence, flags=flags, **ends))
    mqi.scheduler.advance(5)
    with refused(2033):
        mqi.get(handle, NO_SYNCPOINT | ALL_MSGS_AVAILABLE)
    assert len(mqi.drain(reports)) == 1
    assert mqi.depth("A") == 3


def test_a_message_that_expires_in_a_unit_of_work_is_discarded_after_it_is_backed_out(mqi):
    handle, reports = mqi.open("A"), mqi.open("B")
    mqi.put(handle, b"late", descriptor=md(expiry=10, report=EXPIRATION, reply_to_q=b"B"))
    mqi.get(handle, 2)
    for _ in range(3):
        mqi.scheduler.advance(31)
    mqi.connection.back()
    mqi.scheduler.advance(31)
    mqi.scheduler.advance(31)
    assert mqi.depth("A") == 0
    assert len(mqi.drain(reports)) == 1


def retain(mqi, data, options=NO_SYNCPOINT, **fields):
    handle = mqi.connection.open(ObjectDescriptor(object_type=8, object_string="a/b"), 16).handle
    mqi.connection.put(handle, md(**fields), PutOptions(options | RETAIN), data)
    mqi.connection.close(handle)


def retained(mqi):
    """What a new subscription is sent: its data and Expiry."""
    made = mqi.connection.subscribe(SubscriptionDescriptor(CREATE | MANAGED, object_string="a/+"), 0)
    found = [(one.data, Descriptor(one.md).expiry) for one in _all(mqi, made.queue_handle)]
    mqi.connection.close(made.subscription_handle)
    mqi.connection.close(made.queue_handle)
    return found


def _all(mqi, handle):
    found = []
    while mqi.connection.inquire(handle, [3]).integers[0]:
        found.append(mqi.get(handle, NO_SYNCPOINT | 0x4000000))
    return found


def test_a_retained_publication_ends_with_its_expiry(mqi):
    retain(mqi, b"for ten seconds", expiry=100)
    mqi.scheduler.advance(4)
    assert retained(mqi) == [(b"for ten seconds", 60)]
    mqi.restart()
    assert retained(mqi) == [(b"for ten seconds", 60)]
    mqi.scheduler.advance(6)
    assert retained(mqi) == []


def test_an_expired_retained_publication_is_removed(mqi):
    retain(mqi, b"for ten seconds", expiry=100)
    mqi.scheduler.advance(11)
    mqi.scheduler.advance(30)
    assert mqi.queue_manager.topics.retained == {}
    mqi.restart()
    assert mqi.queue_manager.topics.retained == {}


def test_the_last_of_a_unit_of_work_is_retained_as_long_as_it_says(mqi):
    retain(mqi, b"short", options=2, expiry=100)
    retain(mqi, b"for ever", options=2)
    mqi.connection.commit()
    mqi.scheduler.advance(60)
    assert retained(mqi) == [(b"for ever", -1)]


def test_a_subscription_lives_as_long_as_it_was_last_said(mqi):
    wanted = SubscriptionDescriptor(CREATE | MANAGED | DURABLE, object_string="a/b", name="mine", expiry=100)
    made = mqi.connection.subscribe(wanted)
    mqi.connection.close(made.subscription_handle)
    mqi.scheduler.advance(5)
    longer = SubscriptionDescriptor(ALTER | MANAGED | DURABLE, object_string="a/b", name="mine", expiry=1000)
    mqi.connection.close(mqi.connection.subscribe(longer).subscription_handle)
    mqi.scheduler.advance(31)
    mqi.scheduler.advance(31)
    assert there(mqi, "mine")
    mqi.scheduler.advance(61)
    assert not there(mqi, "mine")


@pytest.mark.parametrize("command", ["DEFINE SUB(S) TOPICSTR('x') DEST(A) EXPIRY(100)", "ALTER SUB(S) EXPIRY(100)"])
def test_a_subscription_of_an_administrator_ends_too(mqi, command):
    if command.startswith("ALTER"):
        mqi.mqsc("DEFINE SUB(S) TOPICSTR('x') DEST(A)")
    mqi.mqsc(command)
    mqi.mqsc("ALTER SUB(S) USERDATA('changed')")
    mqi.scheduler.advance(31)
    assert not there(mqi, "S")


def there(mqi, name):
    return mqi.queue_manager.core.catalogue.get("SUB", name) is not None


def test_a_clock_that_is_set_back_gives_no_message_a_longer_life_than_it_had(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"x", descriptor=md(expiry=600))
    mqi.scheduler.time -= 86_400
    assert Descriptor(mqi.get(handle, 16).md).expiry == 600
    mqi.scheduler.time += 86_400 + 20
    assert Descriptor(mqi.get(handle, 16).md).expiry == 400
