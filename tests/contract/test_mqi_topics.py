"""The contract of the MQI port: publish and subscribe."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.errors import StoreUnavailable
from gateway.mq import constants as mq
from gateway.ports.mqi import GetOptions, ObjectDescriptor, Property, PutOptions, SubscriptionDescriptor
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.objects.topics import compile_topic

CREATE, RESUME, ALTER, DURABLE, MANAGED, NEW_ONLY, ON_REQUEST = 2, 4, 1, 8, 32, 0x1000, 0x800
RETAIN = 0x200000


def publish(mqi, topic, data, options=4, descriptor=None, **others):
    handle = mqi.connection.open(ObjectDescriptor(object_type=8, object_string=topic), 16).handle
    result = mqi.connection.put(handle, descriptor or md(), PutOptions(options, **others), data)
    mqi.connection.close(handle)
    return result


def subscribe(mqi, topic, options=CREATE | MANAGED, queue=0, **others):
    descriptor = SubscriptionDescriptor(options, object_string=topic, **others)
    return mqi.connection.subscribe(descriptor, queue), descriptor


def test_a_managed_subscription_gets_copies(mqi):
    made, descriptor = subscribe(mqi, "a/+/c", user_data="mine")
    sent = publish(mqi, "a/b/c", b"1", descriptor=md(format=b"MQSTR", priority=4))
    publish(mqi, "a/b", b"2")
    got = mqi.connection.get(made.queue_handle, md(), GetOptions(4, handle_given=True), 100)
    copy = Descriptor(got.md)
    assert (got.data, copy.format, copy.correl_id, copy.priority) == (b"1", b"MQSTR   ", descriptor.correl_id, 4)
    assert copy.msg_id != Descriptor(sent.md).msg_id
    assert {one.name: one.value for one in got.properties} == {"mqps.Top": "a/b/c", "mqps.Sud": "mine"}
    with refused(2033):
        mqi.get(made.queue_handle)
    mqi.connection.close(made.subscription_handle)
    assert publish(mqi, "a/b/c", b"3", 4 | 0x80000).reason == 2550


def test_subscribers_get_the_properties_that_may_be_published(mqi):
    made, _ = subscribe(mqi, "a")
    copies = {"all": mq.MQCOPY_ALL, "default": mq.MQCOPY_DEFAULT, "reply": mq.MQCOPY_REPLY, "none": mq.MQCOPY_NONE}
    given = [Property(name, name, 1024, 1, 0, copied) for name, copied in copies.items()]
    publish(mqi, "a", b" copy=", properties=given)
    got = mqi.connection.get(made.queue_handle, md(), GetOptions(4, handle_given=True), 100)
    assert ({one.name for one in got.properties}, got.data) == ({"all", "default", "mqps.Top"}, b" copy=")


def test_a_publication_goes_to_the_highest_level_that_it_may_reach(mqi):
    """MQPMO.PubLevel and SubLevel: an intercepting subscription gets it first, and publishes it to those below."""
    last, usual, again, first = (subscribe(mqi, "plant/#", level=level)[0].queue_handle for level in (0, 1, 1, 5))
    for level in (9, 5, 4, 1, 0):
        publish(mqi, "plant/line", b"%d" % level, publication_level=level)
    assert [mqi.drain(queue) for queue in (first, usual, again, last)] == [
        [b"9", b"5"], [b"4", b"1"], [b"4", b"1"], [b"0"]
    ]  # fmt: skip
    for level in (-1, 10):
        with refused(2173):
            publish(mqi, "plant/line", b"", publication_level=level)
    subscribe(mqi, "other", level=3, selection="a = 1")
    asked, _ = subscribe(mqi, "other")
    publish(mqi, "other", b"nobody above wants it")
    assert mqi.drain(asked.queue_handle) == [b"nobody above wants it"]


def test_levels_of_retained_publications(mqi):
    """They are kept as published at level 1, and a subscription above is not one on request."""
    publish(mqi, "plant/line", b"kept", 4 | RETAIN)
    assert mqi.drain(subscribe(mqi, "plant/#", level=1)[0].queue_handle) == [b"kept"]
    assert mqi.drain(subscribe(mqi, "plant/#", level=2)[0].queue_handle) == []
    with refused(2046):
        subscribe(mqi, "plant/#", CREATE | MANAGED | ON_REQUEST, level=2)


def test_durable_subscriptions_outlive_handle_and_restart(mqi):
    made, _ = subscribe(mqi, "news", CREATE | MANAGED | DURABLE, name="S1")
    with refused(2432):
        subscribe(mqi, "news", CREATE | MANAGED | DURABLE, name="S1")
    with refused(2429):
        subscribe(mqi, "news", RESUME | MANAGED | DURABLE, name="S1")
    mqi.connection.close(made.queue_handle)
    mqi.connection.close(made.subscription_handle)
    publish(mqi, "news", b"kept", descriptor=md(persistence=1))
    mqi.restart()
    publish(mqi, "news", b"more", descriptor=md(persistence=1))
    made, descriptor = subscribe(mqi, "", RESUME, name="S1")
    assert (descriptor.resolved_string, descriptor.options & 40) == ("news", DURABLE | MANAGED)
    assert mqi.drain(made.queue_handle) == [b"kept", b"more"]
    mqi.connection.close(made.subscription_handle, 8)
    mqi.connection.close(made.queue_handle)
    with refused(2428):
        subscribe(mqi, "", RESUME | MANAGED | DURABLE, name="S1")
    with refused(2440):
        subscribe(mqi, "news", CREATE | MANAGED | DURABLE)


def test_subscription_to_a_queue_of_ones_own(mqi):
    queue = mqi.open("A")
    subscribe(mqi, "t", CREATE | 0x400000, queue, correl_id=b"mine".ljust(24, b"."))
    publish(mqi, "t", b"1", 2)
    with refused(2033):
        mqi.get(queue)
    mqi.connection.commit()
    got = mqi.get(queue)
    assert (got.data, got.md[72:76]) == (b"1", b"mine")
    with refused(2019):
        subscribe(mqi, "t", CREATE)


def test_retained_publications(mqi):
    publish(mqi, "r/1", b"old", 4 | RETAIN, md(persistence=1))
    publish(mqi, "r/1", b"new", 4 | RETAIN, md(persistence=1))
    publish(mqi, "r/2", b"two", 4 | RETAIN, md(persistence=1))
    mqi.restart()
    made, _ = subscribe(mqi, "r/#")
    assert mqi.drain(made.queue_handle) == [b"new", b"two"]
    only_new, _ = subscribe(mqi, "r/#", CREATE | MANAGED | NEW_ONLY)
    assert mqi.drain(only_new.queue_handle) == []
    asked, _ = subscribe(mqi, "r/1", CREATE | MANAGED | ON_REQUEST)
    publish(mqi, "r/1", b"newer", 4 | RETAIN)
    assert mqi.drain(asked.queue_handle) == []
    assert mqi.connection.subscription_request(asked.subscription_handle) == 1
    assert mqi.drain(asked.queue_handle) == [b"newer"]
    none, _ = subscribe(mqi, "q", CREATE | MANAGED | ON_REQUEST)
    with refused(2437):
        mqi.connection.subscription_request(none.subscription_handle)


def test_subscriptions_expire(mqi):
    made, _ = subscribe(mqi, "e", CREATE | MANAGED | DURABLE, name="SHORT", expiry=50)
    publish(mqi, "e", b"1")
    mqi.scheduler.advance(6)
    assert publish(mqi, "e", b"2", 4 | 0x80000).reason == 2550
    assert mqi.drain(made.queue_handle) == [b"1"]
    mqi.scheduler.advance(31)
    with refused(2428):
        subscribe(mqi, "e", RESUME, name="SHORT")


def test_publications_to_temporary_queues_are_not_persistent(mqi):
    made, _ = subscribe(mqi, "p")
    publish(mqi, "p", b"1", descriptor=md(persistence=1))
    assert Descriptor(mqi.get(made.queue_handle).md).persistence == 0


def test_selectors_and_topic_objects(mqi):
    mqi.mqsc("DEFINE TOPIC(PLANT) TOPICSTR('plant') DEFPRTY(6)\nDEFINE QALIAS(TO.TOPIC) TARGTYPE(TOPIC) TARGET(PLANT)")
    made, _ = subscribe(mqi, "plant/#", selection="Root.MQMD.Format = 'MQSTR'")
    handle = mqi.connection.open(ObjectDescriptor("PLANT", object_type=8, object_string="line/1"), 16).handle
    mqi.put(handle, b"chosen", descriptor=md(format=b"MQSTR"))
    mqi.put(handle, b"left", descriptor=md(format=b"OTHER"))
    mqi.put("TO.TOPIC", b"alias", descriptor=md(format=b"MQSTR"))
    got = mqi.get(made.queue_handle)
    assert (got.data, Descriptor(got.md).priority) == (b"chosen", 6)
    assert mqi.drain(made.queue_handle) == [b"alias"]
    mqi.mqsc("ALTER TOPIC(PLANT) PUB(DISABLED)")
    with refused(2051):
        mqi.put(handle, b"no")
    mqi.mqsc("ALTER TOPIC(PLANT) SUB(DISABLED)")
    with refused(2503):
        subscribe(mqi, "plant/x")


def test_subscriptions_defined_by_mqsc(mqi):
    mqi.mqsc("DEFINE SUB(ADMIN.SUB) TOPICSTR('x/y') DEST(A)")
    publish(mqi, "x/y", b"1")
    assert mqi.drain(mqi.open("A")) == [b"1"]
    mqi.mqsc("DELETE SUB(ADMIN.SUB)")
    assert publish(mqi, "x/y", b"2", 4 | 0x80000).reason == 2550


def test_what_a_subscription_adds_to_its_publications(mqi):
    mqi.mqsc("DEFINE SUB(PLAIN) TOPICSTR('a') DEST(A) PSPROP(NONE) USERDATA('u') PUBACCT('0AFF') PUBAPPID('billing')")
    mqi.mqsc("DEFINE SUB(USUAL) TOPICSTR('a') DEST(B) USERDATA('u')")
    publish(mqi, "a", b"1")
    plain, usual = (
        mqi.connection.get(mqi.open(queue), md(), GetOptions(4, handle_given=True), 100) for queue in ("A", "B")
    )
    assert [{one.name for one in got.properties} for got in (plain, usual)] == [set(), {"mqps.Top", "mqps.Sud"}]
    assert Descriptor(plain.md).accounting_token == b"\x0a\xff".ljust(32, b"\0")
    assert Descriptor(plain.md).application_identity == b"billing".ljust(32)
    assert Descriptor(usual.md).application_identity == b" " * 32


def test_a_subscription_by_a_topic_object_is_to_the_objects_topic(mqi):
    mqi.mqsc("DEFINE TOPIC(PLANT) TOPICSTR('x')\nDEFINE SUB(BY.OBJECT) TOPICOBJ(PLANT) TOPICSTR('y') DEST(A)")
    publish(mqi, "x/y", b"1")
    handle = mqi.open("A")
    options = RESUME | DURABLE
    descriptor = SubscriptionDescriptor(options, object_string="x/y", name="BY.OBJECT")
    made = mqi.connection.subscribe(descriptor, handle)
    assert descriptor.resolved_string == "x/y"
    mqi.connection.close(made.subscription_handle)
    with refused(2510):
        mqi.connection.subscribe(SubscriptionDescriptor(options, object_string="x/z", name="BY.OBJECT"), handle)
    assert "TOPICSTR(x/y)" in "\n".join(mqi.mqsc("DISPLAY SBSTATUS(BY.OBJECT)"))
    assert mqi.drain(handle) == [b"1"]


def test_a_full_subscriber_goes_to_the_dead_letter_queue(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MAXDEPTH(1)\nDEFINE SUB(S) TOPICSTR('t') DEST(A)")
    publish(mqi, "t", b"1")
    publish(mqi, "t", b"2")
    assert mqi.depth("SYSTEM.DEAD.LETTER.QUEUE") == 1
    mqi.mqsc("ALTER TOPIC(SYSTEM.BASE.TOPIC) USEDLQ(NO)")
    publish(mqi, "t", b"3", descriptor=md(persistence=0))
    with refused(2502):
        publish(mqi, "t", b"4", descriptor=md(persistence=1))


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/+/c", "a//c", True),
        ("#/c", "c", True),
        ("#/c", "a/b/c", True),
        ("#/c", "bc", False),
        ("a/#/c", "a/c", True),
        ("a/#/c", "a/b/b/c", True),
        ("+", "a/b", False),
        ("a.c/+", "abc/d", False),
    ],
)
def test_topic_wildcards(pattern, topic, expected):
    compiled = compile_topic(pattern, 2)
    assert compiled is not None
    assert (compiled.match(topic) is not None) is expected


def test_character_wildcards():
    compiled = compile_topic("a*b?", 1)
    assert compiled is not None
    assert compiled.match("a/x/bc")
    assert not compiled.match("ab")
    assert compile_topic("a/+", 1) is None


def test_an_altered_subscription_has_the_queue_that_is_given(mqi):
    first, second = mqi.open("A"), mqi.open("B")
    made, _ = subscribe(mqi, "a/b", CREATE | DURABLE, first, name="mine")
    mqi.connection.close(made.subscription_handle)
    made, _ = subscribe(mqi, "a/b", ALTER | DURABLE, second, name="mine")
    publish(mqi, "a/b", b"one")
    assert (mqi.drain(first), mqi.drain(second)) == ([], [b"one"])
    mqi.connection.close(made.subscription_handle)
    subscribe(mqi, "a/b", ALTER | DURABLE, 0, name="mine")
    publish(mqi, "a/b", b"two")
    assert (mqi.drain(first), mqi.drain(second)) == ([], [b"two"])


def test_grouped_subscriptions_of_one_queue_get_one_copy(mqi):
    """MQSO_GROUP_SUB: with the same destination, CorrelId and SubLevel."""
    queue, grouped, same = mqi.open("A"), 16, 0x400000
    for topic, correl_id in (("a/b", b"x" * 24), ("a/+", b"x" * 24), ("a/#", b"y" * 24)):
        subscribe(mqi, topic, CREATE | DURABLE | grouped | same, queue, name=topic, correl_id=correl_id)
    subscribe(mqi, "#", CREATE | same, queue, correl_id=b"x" * 24)
    publish(mqi, "a/b", b"one")
    found = [Descriptor(mqi.get(queue).md).correl_id[:1] for _ in range(mqi.depth("A"))]
    assert sorted(found) == [b"x", b"x", b"y"]
    mqi.restart()
    publish(mqi, "a/c", b"two")
    assert mqi.depth("A") == 2


@pytest.mark.parametrize("saved", [0, 1])
def test_a_durable_managed_subscription_that_cannot_be_saved_leaves_nothing(mqi, saved):
    """`saved`: how many commits find room on the disk."""
    core = mqi.queue_manager.core
    before, write, room = set(core.queues), core.store.write, [saved]

    def full(frame):
        state = getattr(frame, "unit", frame).state
        if any(value is not None for value in state.values()):
            if not room[0]:
                raise StoreUnavailable("the disk is full")
            room[0] -= 1
        write(frame)

    core.store.write = full
    with refused(2192):
        subscribe(mqi, "a/b", CREATE | MANAGED | DURABLE, name="lasting")
    core.store.write = write
    assert set(core.queues) == before
    assert not mqi.connection.state.handles
    made, _ = subscribe(mqi, "a/b", CREATE | MANAGED | DURABLE, name="lasting")
    publish(mqi, "a/b", b"1")
    assert mqi.get(made.queue_handle).data == b"1"
    mqi.connection.close(made.queue_handle)
    mqi.connection.close(made.subscription_handle, 8)
    assert set(core.queues) == before


GROUPED, IDENTITY, SET_CORREL_ID = 0x10, 0x40, 0x400000


@pytest.mark.parametrize(
    "options",
    [
        CREATE | MANAGED | GROUPED | SET_CORREL_ID,
        CREATE | GROUPED,
        CREATE | MANAGED | NEW_ONLY | ON_REQUEST,
        RESUME | MANAGED | NEW_ONLY,
        ALTER | MANAGED | NEW_ONLY,
    ],
)
def test_options_of_mqsub_that_exclude_each_other(mqi, options):
    with refused(2046):
        subscribe(mqi, "a/b", options, mqi.open("A"), name="S", correl_id=b"x" * 24)


@pytest.mark.parametrize("options", [1, 2])
def test_a_subscription_is_no_dynamic_queue(mqi, options):
    made, _ = subscribe(mqi, "a/b")
    with refused(2045):
        mqi.connection.close(made.subscription_handle, options)


def test_a_request_for_publications_with_unknown_options(mqi):
    made, _ = subscribe(mqi, "a/b")
    publish(mqi, "a/b", b"1", 4 | 0x200000)
    with refused(2046):
        mqi.connection.subscription_request(made.subscription_handle, 1, 1)
    assert mqi.connection.subscription_request(made.subscription_handle, 1, 0x2000) == 1


@pytest.mark.parametrize(("asked", "expected"), [(-3, 8), (-1, 6), (2, 2)])
def test_the_priority_of_publications_is_theirs_the_queues_or_the_subscriptions(mqi, asked, expected):
    mqi.mqsc("ALTER QLOCAL(A) DEFPRTY(6)")
    queue = mqi.open("A")
    subscribe(mqi, "a/b", CREATE, queue, publication_priority=asked)
    publish(mqi, "a/b", b"", descriptor=md(priority=8))
    assert Descriptor(mqi.get(queue).md).priority == expected


@pytest.mark.parametrize(("options", "expected"), [(0, b""), (IDENTITY, b"billing")])
def test_identity_is_of_the_subscription_if_it_says_so(mqi, options, expected):
    made, _ = subscribe(mqi, "a/b", CREATE | MANAGED | options, application_identity="billing")
    publish(mqi, "a/b", b"")
    assert Descriptor(mqi.get(made.queue_handle).md).application_identity == expected.ljust(32)


@pytest.mark.parametrize(
    ("topic", "options", "expected"),
    [
        ("#", 0, [b"/a", b"/a/bc"]),
        ("a/#", 0, [b"/a", b"/a/bc"]),
        ("a/+", 0, [b"/a/bc"]),
        ("+/b/#", 0, []),
        ("a/b/#", 0, [b"/a/b", b"/a/b/c"]),
        ("a/b/+", 0, [b"/a/b/c"]),
        ("a/b", 0, [b"/a/b"]),
        ("a*", 0x100000, [b"/a", b"/a/bc"]),
        ("a/b/*", 0x100000, [b"/a/b/c"]),
    ],
)
def test_a_topic_object_blocks_wildcards_of_subscriptions_above_it(mqi, topic, options, expected):
    mqi.mqsc("DEFINE TOPIC(B) TOPICSTR('a/b') WILDCARD(BLOCK)")
    queue = mqi.open("A")
    for published in ("a", "a/b", "a/b/c", "a/bc"):
        publish(mqi, published, b"/" + published.encode(), 4 | RETAIN)
    subscribe(mqi, topic, CREATE | options, queue)
    assert mqi.drain(queue) == expected, "retained"
    for published in ("a", "a/b", "a/b/c", "a/bc"):
        publish(mqi, published, b"/" + published.encode())
    assert mqi.drain(queue) == expected


def test_what_becomes_of_a_topic_object_changes_no_subscription_that_is_there(mqi):
    """WILDCARD counts when a subscription is defined; so it does for those of stores that knew nothing of it."""
    block, late = "DEFINE TOPIC(B) TOPICSTR('a/b') WILDCARD(BLOCK)", "DEFINE SUB(LATE) TOPICSTR('a/#') DEST(B)"
    subscribe(mqi, "a/#", CREATE | DURABLE, mqi.open("A"), name="MADE")
    mqi.mqsc("DEFINE SUB(DEFINED) TOPICSTR('a/#') DEST(A)\n" + block + "\n" + late)
    subscribe(mqi, "a/#", CREATE | DURABLE, mqi.open("B"), name="LATER")
    mqi.mqsc("ALTER SUB(DEFINED) USERDATA(x)\nDEFINE SUB(DEFINED) TOPICSTR('a/#') DEST(A) REPLACE\nDELETE TOPIC(B)")
    mqi.mqsc(block.replace("a/b", "a/c"))
    for restarted in (False, True):
        for topic in ("a/b", "a/c"):
            publish(mqi, topic, topic.encode(), descriptor=md(persistence=1))
        got = [mqi.drain(mqi.open(queue)) for queue in "AB"]
        assert got == [[b"a/b"] * 2 + [b"a/c"] * 2, [b"a/c"] * 2], restarted
        mqi.restart()


@pytest.mark.parametrize(
    ("options", "others", "reason"),
    [
        (0, {}, 2509),
        (DURABLE, {"level": 2}, 2512),
        (DURABLE, {"selection": "n = 2"}, 2524),
        (DURABLE | GROUPED | SET_CORREL_ID, {"correl_id": b"x" * 24}, 2515),
    ],
)
def test_what_of_a_subscription_cannot_be_altered(mqi, options, others, reason):
    queue = mqi.open("A")
    made, _ = subscribe(mqi, "a/b", CREATE | DURABLE, queue, name="S", selection="n = 1", user_data="before")
    mqi.connection.close(made.subscription_handle)
    with refused(reason):
        subscribe(mqi, "a/b", ALTER | options, queue, name="S", user_data="after", **others)
    made, found = subscribe(mqi, "a/b", RESUME, queue, name="S")
    assert (found.user_data, found.selection, found.level) == ("before", "n = 1", 1)
    mqi.connection.close(made.subscription_handle)
    _, found = subscribe(mqi, "a/b", ALTER | DURABLE, queue, name="S", user_data="after", selection="n = 1")
    assert found.user_data == "after"


def test_the_group_of_a_subscription_cannot_be_altered(mqi):
    queue = mqi.open("A")
    grouped = DURABLE | GROUPED | SET_CORREL_ID
    made, _ = subscribe(mqi, "a/b", CREATE | grouped, queue, name="S", correl_id=b"x" * 24)
    mqi.connection.close(made.subscription_handle)
    with refused(2515):
        subscribe(mqi, "a/b", ALTER | grouped, queue, name="S", correl_id=b"y" * 24)
    with refused(2515):
        subscribe(mqi, "a/b", ALTER | DURABLE, queue, name="S")
    made, _ = subscribe(mqi, "a/b", ALTER | grouped, queue, name="S", correl_id=b"x" * 24)
    mqi.connection.close(made.subscription_handle)


def test_what_a_grouped_subscription_is_resumed_with_alters_it(mqi):
    """MQSUB usage notes: the descriptor that MQSO_RESUME has filled in is one for MQSO_ALTER."""
    queue = mqi.open("A")
    grouped = DURABLE | GROUPED | SET_CORREL_ID
    made, _ = subscribe(mqi, "a/b", CREATE | grouped, queue, name="S", correl_id=b"x" * 24)
    mqi.connection.close(made.subscription_handle)
    made, found = subscribe(mqi, "a/b", RESUME, queue, name="S")
    mqi.connection.close(made.subscription_handle)
    found.options |= ALTER
    found.user_data = "after"
    mqi.connection.subscribe(found, queue)


@pytest.mark.parametrize("how", [RESUME, ALTER, CREATE | RESUME, RESUME | MANAGED])
def test_a_subscription_of_an_administrator_is_taken_up_with_its_queue(mqi, how):
    mqi.mqsc("DEFINE SUB(S) TOPICSTR('a/b') DEST(A)")
    publish(mqi, "a/b", b"1")
    made, _ = subscribe(mqi, "a/b", how | DURABLE, name="S")
    assert mqi.get(made.queue_handle).data == b"1"
    assert mqi.connection.state.handles[made.queue_handle].options == 1 | 8


def test_the_queue_of_a_subscription_that_cannot_be_opened_is_an_invalid_destination(mqi):
    mqi.mqsc("DEFINE SUB(S) TOPICSTR('a/b') DEST(GONE)")
    before = dict(mqi.connection.state.handles)
    with refused(2522):
        subscribe(mqi, "a/b", RESUME | DURABLE, name="S")
    other = mqi.queue_manager.connect(application="other", user="ana")
    other.open(ObjectDescriptor("A"), 4)
    mqi.mqsc("ALTER SUB(S) DEST(A)")
    with refused(2522):
        subscribe(mqi, "a/b", ALTER | DURABLE, name="S", user_data="after")
    assert mqi.connection.state.handles == before
    _, found = subscribe(mqi, "a/b", RESUME | DURABLE, mqi.open("A", 8), name="S")
    assert found.user_data == ""


def test_a_subscription_is_taken_up_with_a_handle_of_its_queue_only(mqi):
    made, _ = subscribe(mqi, "a/b", CREATE | DURABLE, mqi.open("A"), name="S")
    mqi.connection.close(made.subscription_handle)
    with refused(2019):
        subscribe(mqi, "a/b", RESUME | DURABLE, mqi.open("B"), name="S")
    again, queue = mqi.open("A"), mqi.open("A")
    assert subscribe(mqi, "a/b", RESUME | DURABLE, again, name="S")[0].queue_handle == again
    publish(mqi, "a/b", b"1")
    assert mqi.get(queue).data == b"1"


def test_a_destination_stays_managed_or_not(mqi):
    made, _ = subscribe(mqi, "a/b", CREATE | DURABLE, mqi.open("A"), name="S")
    mqi.connection.close(made.subscription_handle)
    with refused(2533):
        subscribe(mqi, "a/b", ALTER | DURABLE | MANAGED, name="S")


@pytest.mark.parametrize("options", [1, 2])
def test_a_managed_queue_is_deleted_with_its_subscription_only(mqi, options):
    made, _ = subscribe(mqi, "a/b", CREATE | DURABLE | MANAGED, name="S")
    with refused(2045):
        mqi.connection.close(made.queue_handle, options)
    publish(mqi, "a/b", b"1")
    assert mqi.get(made.queue_handle).data == b"1"


@pytest.mark.parametrize("destination", ["A", "ALIAS"])
@pytest.mark.parametrize("opened", ["A", "ALIAS"])
def test_a_queue_is_the_same_by_each_of_its_names(mqi, destination, opened):
    mqi.mqsc(f"DEFINE QALIAS(ALIAS) TARGET(A)\nDEFINE SUB(S) TOPICSTR('a/b') DEST({destination})")
    queue = mqi.open(opened)
    assert subscribe(mqi, "a/b", RESUME | DURABLE, queue, name="S")[0].queue_handle == queue
