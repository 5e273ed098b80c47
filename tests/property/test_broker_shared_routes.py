"""Routes put together from what a topic and a client say, against routes worked out whole."""

from __future__ import annotations

import pytest
from broker_harness import Harness
from hypothesis import example, given, settings
from hypothesis import strategies as st
from long_form import examples

from gateway.broker.publish import shared_routes
from gateway.broker.publish.fast import compiled
from gateway.config.security import AclEntry
from gateway.mqtt import packets as p
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.state_queues import OUT
from gateway.routing.acl import Acl, Subject
from gateway.session.connection import CLOSED, Publisher
from gateway.session.record import decode_publication

MAPPING = """
version: 1
to_mq:
  - {name: chosen, topic: 'w/{x}', queue: Q, when: {client: "c1*"}}
  - {name: user, topic: 'u/{x}', queue: Q, when: {user: "al*"}}
  - {name: listener, topic: 'l/{x}', queue: Q, when: {listener: "bench"}}
  - {name: plain, topic: 'p/{x}/{y}', queue: 'Q.{x}', properties: {x: '{x}', y: '{y}', at: '{listener}'}, headers: [mcd, mqps, mqtt]}
  - {name: names, topic: 'n/{x}', queue: Q, properties: {who: '{client}'}}
  - {name: for-client, topic: 'q/{x}', queue: 'Q.{client}'}
  - {name: user-of-topic, topic: 'd/{x}', queue: Q, descriptor: {user: '{x}-{client}'}}
  - {name: user-of-client, topic: 'e/{x}', queue: Q, descriptor: {user: '{user_or_client}x'}}
  - {name: bare, topic: 'b/{x}', queue: Q, headers: []}
  - {name: optional, topic: 'o/{x}', queue: Q, headers: [mcd], properties: {at: '{listener}'}}
  - {name: text, topic: 't/{x}', queue: Q, payload: {format: string}}
  - {name: one, topic: 'c/{x}', queue: Q, continue: true}
  - {name: other, topic: 'c/{x}', queue: R}
  - {name: rest, topic: 'r/{x*}', mq_topic: 'devices/{x}'}
  - {name: careful, topic: 'v/{x}', queue: Q, too_long: reject}
  - {name: same, topic: 'p/{x}', queue: 'Q', on_failure: {then: drop}}
"""  # noqa: E501
CLIENTS = st.sampled_from(["c1", "c2", "c<3>", "c'4", "x" * 30])
USERS = st.sampled_from([None, None, "alice", "bob & co"])
TOPICS = st.sampled_from(
    [f"{level}/{name}" for level in "wulpnqdebotcrv" for name in ("a", "b&c")]
    + ["p/a/b", "p/bad name/b", "p/a/<", "$SYS/x", "$own/x", "none/at/all", "+", ""]
)
PUBLISHERS = st.builds(Publisher, st.sampled_from(["bench", "other"]), CLIENTS, USERS, st.just(4))
ASKED = st.tuples(st.just("route"), PUBLISHERS, TOPICS.map(str.encode), st.sampled_from([0, 2, 2, 2, 4, 4, 3, 1]))
STEPS = st.lists(
    st.one_of(
        ASKED, ASKED, ASKED, ASKED,
        st.tuples(
            st.sampled_from(["subscribe", "no local", "unsubscribe"]), st.sampled_from(["p/#", "e/+", "#"]),
            st.sampled_from([0, 1]),
        ),
        st.tuples(st.just("subscribe"), st.sampled_from(["$share/g/p/#", "$share/g/#"]), st.sampled_from([0, 1])),
        st.tuples(st.sampled_from(["end", "take over"]), st.none(), st.sampled_from([0, 1])),
        st.just(("touch",)),
    ),
    max_size=30,
)  # fmt: skip


BARE = [("c1", b"b/a"), ("c2", b"b/b"), ("c2", b"b/a")]
"""The last of these finds a shared route of messages without headers."""
JOINS = (shared_routes.join, shared_routes.join_in_python)
"""The compiled one, where there is one, and its twin."""


def slots(route):
    """Everything that a route has."""
    return {name: getattr(route, name) for kind in type(route).__mro__ for name in getattr(kind, "__slots__", ())}


def said(route):
    plan = route.plan
    return (
        route.topic, route.wire_topic, route.first, route.error, route.error_text, route.policies, route.address,
        route.rows, route.head,
        [route.tails.get(number, route.tails[number]) for number in (0, 1, 65535)] if route.head else (),
        route.receivers,
        [(one.name, list(one.members())) for one in route.shared], route.most,
        route.rule, route.fast_path, route.version == route.changes[0],
        route.interested, plan and [(one.rule.name, one.head, one.queue, one.simple) for one in plan.prepared],
    )  # fmt: skip


@settings(max_examples=examples(200))
@given(STEPS)
@example([("route", Publisher("bench", name, None, 4), topic, 2) for name, topic in BARE])
def test_a_route_is_the_same_however_it_is_made(steps):
    bench = Harness(MAPPING)
    router, names = bench.engine.router, ("c1", "s")
    listeners = [bench.device(5, name).connect() for name in names]
    for step in steps:
        if step[0] == "route":
            whole = said(router._whole_route(*step[1:], may_be_wide=False))
            routes, allowed = router.shared_routes, router.access.may_publish
            made, in_python = [join(routes, *step[1:], {}, allowed) for join in JOINS]
            assert (made is None) == (in_python is None)
            if made is not None:
                assert slots(made) == slots(in_python)
                assert said(made) == said(in_python) == whole
            assert said(router.route(*step[1:])) == whole
        elif step[0] in {"subscribe", "no local"}:
            listeners[step[2]].subscribe(step[1], 0, no_local=step[0] == "no local")
        elif step[0] == "unsubscribe":
            listeners[step[2]].unsubscribe(step[1])
        elif step[0] in {"end", "take over"}:
            if step[0] == "end":
                listeners[step[2]].disconnect()
            listeners[step[2]] = bench.device(5, names[step[2]]).connect(clean=step[0] == "end")
        else:
            router.touch()


def test_the_third_client_of_a_topic_is_led_by_the_shared_route(monkeypatch):
    bench = Harness(MAPPING)
    router = bench.engine.router
    devices = [bench.device(4, f"third-{number}").connect() for number in range(4)]  # no other test's: rules are shared
    for device in devices[:3]:
        device.publish("p/x/1", b"x", 1, 1)
        device.publish("p/x/2", b"x", 1, 2)
    monkeypatch.setattr(router, "_whole_route", None)
    devices[2].publish("p/x/2", b"x", 1, 3)
    with pytest.raises(AssertionError, match="not callable"):  # it has not been met by this rule: its part is not known
        devices[3].publish("p/x/1", b"x", 1, 4)
    assert len(devices[2].take()) == 4


@pytest.mark.parametrize("qos", [1, 2])
def test_a_topic_that_has_a_subscriber_is_shared_too(qos, monkeypatch):
    """What is stored for the subscriber names who has published."""
    bench = Harness(MAPPING)
    durable = bench.device(5, "d").connect(clean=False)
    durable.subscribe("p/#", 2)
    devices = [bench.device(4, f"c{number}").connect() for number in range(4)]
    for number, device in enumerate(devices):
        if number == 3:
            device.publish("p/x/2", b"x", qos, 1)  # a client's part is known
            device.ack(p.PUBREL, 1)
            monkeypatch.setattr(bench.engine.router, "_whole_route", None)
        device.publish("p/x/1", b"%d" % number, qos, 2)
        device.ack(p.PUBREL, 2)
    stored = [decode_publication(row[2][MQMD_LENGTH:] + row[3])[0] for row in bench.queues.rows[OUT].values()]
    names = {one.payload: one.client_id for one in stored if one.topic == b"p/x/1"}
    assert names == {b"%d" % number: f"c{number}" for number in range(4)}


def shared_by_two():
    """The shared routes of a router that two clients have taught, and the publisher of one of them."""
    bench = Harness(MAPPING)
    devices = [bench.device(4, f"c{number}").connect() for number in range(2)]
    for device in devices:
        device.publish("p/x/1", b"x", 1, 1)
    router = bench.engine.router
    return router.shared_routes, devices[0].connection.publisher


def new_to_a_topic(number):
    """So many devices that have published; the first of them to one topic more."""
    bench = Harness(MAPPING)
    devices = [bench.device(5, f"c{each}").connect() for each in range(number)]
    for device in devices:
        device.publish("p/x/1", b"x", 1, 1)
    devices[0].publish("p/x/2", b"x", 1, 1)
    return bench, devices


@pytest.mark.parametrize("join", JOINS)
def test_who_may_not_publish_there_gets_no_shared_route(join):
    routes, publisher = shared_by_two()
    asked = []

    def answer(*who):
        asked.append(who)
        return len(asked) > 1

    assert join(routes, publisher, b"p/x/1", 2, {}, answer) is None
    assert join(routes, publisher, b"p/x/1", 2, {}, answer).publisher is publisher
    assert asked == [(publisher.listener, publisher.client_id, publisher.user, "p/x/1")] * 2


@pytest.mark.parametrize("join", JOINS)
def test_the_access_list_is_asked_where_nothing_is_known_alone(join):
    routes, publisher = shared_by_two()
    known = {"p/x/1": True}
    assert join(routes, publisher, b"p/x/1", 2, known, None).publisher is publisher
    assert join(routes, publisher, b"p/x/1", 2, True, None).publisher is publisher
    assert join(routes, publisher, b"p/x/1", 2, {"p/x/1": False}, None) is None
    assert join(routes, publisher, b"p/x/1", 2, {"p/x/2": True}, lambda *_: False) is None


@pytest.mark.skipif(not compiled(), reason="not compiled here")
def test_the_compiled_lane_asks_nobody_for_the_route_of_a_topic_that_others_have(monkeypatch):
    bench, devices = new_to_a_topic(4)
    monkeypatch.setattr(bench.engine.fast_lane, "route", None)
    for device in devices[1:]:
        device.publish("p/x/2", b"x", 1, 2)
        assert len(device.take()) == 3
        assert list(device.connection.caches[2]) == [b"p/x/1", b"p/x/2"]
    assert len(bench.queues.rows["Q.X"]) == 8


@pytest.mark.skipif(not compiled(), reason="not compiled here")
def test_a_defect_of_the_access_list_is_met_by_who_is_asked_for_a_route(monkeypatch):
    bench, devices = new_to_a_topic(3)
    devices[1].connection.decisions, bench.defects = {}, []
    monkeypatch.setattr(bench.engine.router.access, "may_publish", lambda *_: 1 // 0)
    devices[1].publish("p/x/2", b"x", 1, 2)
    devices[2].publish("p/x/2", b"x", 1, 2)
    assert len(devices[2].take()) == 3
    assert devices[1].connection.state == CLOSED
    assert [one.whom for one in bench.defects] == ["c1"]


@pytest.mark.parametrize("join", JOINS)
def test_a_client_whose_part_is_not_known_gets_no_shared_route(join):
    routes, publisher = shared_by_two()
    assert join(routes, publisher._replace(client_id="new"), b"p/x/1", 2, {}, lambda *_: True) is None
    assert join(routes, publisher, b"p/x/2", 2, {}, lambda *_: True) is None
    assert join(routes, publisher, b"p/x/1", 3, {}, lambda *_: True) is None
    assert join(routes, publisher._replace(user="alice"), b"p/x/1", 2, {}, lambda *_: True) is None


@pytest.mark.parametrize("join", JOINS)
def test_a_defect_of_the_access_list_is_told(join):
    routes, publisher = shared_by_two()
    with pytest.raises(ZeroDivisionError):
        join(routes, publisher, b"p/x/1", 2, {}, lambda *_: 1 // 0)


@pytest.mark.skipif(JOINS[0] is JOINS[1], reason="not compiled here")
def test_what_is_no_shared_route_is_refused_by_the_compiled_join():
    routes, publisher = shared_by_two()
    ((key, shared),) = [one for one in routes.items() if one[0][0] == b"p/x/1"]
    client = next(iter(shared.clients.values()))
    name = publisher.client_id, ""
    wrong = [
        (1, 2, 3), shared[:2], shared._replace(pattern=None), shared._replace(clients=[]), shared._replace(front="x"),
        shared._replace(clients={name: ()}), shared._replace(clients={name: client._replace(before=None)}),
        shared._replace(clients={name: client._replace(length=None)}),
    ]  # fmt: skip
    for one in wrong:
        with pytest.raises(TypeError):
            shared_routes.join({key: one}, publisher, b"p/x/1", 2, {}, lambda *_: True)
    for arguments in [(), (routes, (), b"", 2, {}, None), ([], publisher, b"", 2, {}, None)]:
        with pytest.raises(TypeError):
            shared_routes.join(*arguments)


def test_topics_without_end_fill_no_memory(monkeypatch):
    monkeypatch.setattr(shared_routes, "MAX_SHARED_ROUTES", 20)
    bench = Harness(MAPPING)
    devices = [bench.device(4, f"c{number}").connect() for number in range(3)]
    for number in range(50):
        for device in devices:
            device.publish(f"p/x/{number}", b"x", 1, 1)
            device.publish(f"p/x/{number}{'y' * 300}", b"x", 1, 1)
    kept = bench.engine.router._shared_routes._routes
    assert 0 < len(kept) <= 20
    assert all(len(topic) < 300 for topic, *_ in kept)


def test_a_message_with_properties_follows_the_shared_route_too():
    bench = Harness(MAPPING)
    for number in range(4):
        device = bench.device(5, f"c{number}").connect()
        for topic in ("p/x/0", "p/x/1"):
            device.publish(topic, b"x", 1, 1, properties=b"\x26\x00\x01a\x00\x01b" if number == 3 else b"")
            assert device.take()[-1][0] >> 4 == p.PUBACK
    messages = [row[3] for row in bench.queues.rows["Q.X"].values()]
    assert [b"<a>b</a>" in message for message in messages] == [False] * 6 + [True] * 2


ENTRIES = st.lists(
    st.builds(
        AclEntry,
        user=st.sampled_from([None, "alice", "a*"]),
        client=st.sampled_from([None, "c1", "c*"]),
        allow=st.lists(st.sampled_from(["a/#", "b/+", "{client}/#"]), max_size=2),
        deny=st.lists(st.sampled_from(["a/b", "{user}/x"]), max_size=1),
    ),
    max_size=3,
)


@settings(max_examples=examples(150))
@given(
    ENTRIES,
    st.lists(
        st.tuples(CLIENTS, USERS, st.sampled_from(["a/b", "a/c", "b/x", "c1/x", "alice/x", "z"])), max_size=20
    ),
)  # fmt: skip
def test_rights_in_common_are_those_of_each(entries, asked):
    acl = Acl(entries)
    for client, user, topic in asked:
        own = Acl(entries).of(Subject(client, user or "", "l"))
        decisions = acl.decisions("l", client, user)
        assert isinstance(decisions, dict)
        assert decisions.get(topic) in {None, own.publish(topic)}
        assert acl.may_publish("l", client, user, topic) == own.publish(topic)
        assert decisions[topic] == own.publish(topic)
        assert acl.may_receive("l", client, user, topic) == own.deliver(topic)
