"""Publications of the plain lane as rows: with properties by forms, and by plans of their own where forms cannot."""

from __future__ import annotations

import json

import pytest
from broker_harness import Harness

from gateway.bridge import inbound
from gateway.bridge.message import read_message
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import PUBREL
from gateway.rules.feedback import Feedback

RULES = {
    "v": {"topic": "v/+", "queue": "Q", "properties": {"v": "{json.v}", "at": "{received_at}", "k": "{property.k}"}},
    "typed": {"topic": "typed/#", "queue": "Q", "properties": {"n": "{property.n:int}"}},
    "needed": {"topic": "needed/#", "queue": "Q", "properties": {"n": "number {property.n}"}},
    "only": {"topic": "only/#", "queue": "Q", "when": {"properties": {"kind": "a*"}}, "continue": True},
    "alone": {"topic": "alone/#", "queue": "Q", "when": {"properties": {"kind": "a*"}}},
    "rest": {"topic": "only/#", "queue": "R"},
    "alarm": {"topic": "alarm/#", "queue": "Q", "when": {"json": {"alarm": True}}, "descriptor": {"priority": 5}},
    "dear": {"topic": "alarm/#", "queue": "R", "when": {"json": {"v": 1}}, "properties": {"v": "{json.v}"}},
    "twice": {"topic": "twice/#", "queue": "Q", "continue": True},
    "second": {"topic": "twice/#", "queue": "R", "payload": {"format": "json"}},
}


@pytest.fixture
def bench():
    return Harness(json.dumps({"to_mq": [{"name": name, **rule} for name, rule in RULES.items()]}))


def messages(bench, queue="Q"):
    return [read_message(stored.md, stored.data) for _, stored in bench.queues.load(queue)]


def publish(bench, topic, payload=b"{}", pairs=(), **others):
    given = {getattr(prop, name.upper()): value for name, value in others.items()}
    block = prop.encode({prop.USER_PROPERTY: list(pairs), **given})
    bench.device(5, "d").connect().publish(topic, payload, 1, 1, properties=block)


@pytest.mark.parametrize("others", [{}, {"content_type": "text/plain", "payload_format_indicator": 1}])
def test_user_properties_need_no_plan_for_each_block(bench, others, monkeypatch):
    made, plan = [], inbound.plan
    monkeypatch.setattr(inbound, "plan", lambda *given: made.append(given) or plan(*given))
    for number in range(5):
        pairs = [("n", str(number)), ("m", "<&>")]
        publish(bench, "v/1", b'{"v": 1.5}', pairs, message_expiry_interval=60 + number, **others)
    found = messages(bench)
    assert len(made) == 5 * (1 + bool(others))  # of each connection: its route, and that with the other properties
    assert [one.property("usr", "n") for one in found] == ["0", "1", "2", "3", "4"]
    assert {one.property("usr", "v") for one in found} == {1.5}
    assert {one.property("mqtt", "contentType") for one in found} == {others.get("content_type")}
    assert [int.from_bytes(one.md[16:20], "little") for one in found] == [600, 610, 620, 630, 640]


def test_names_that_repeat_keep_their_order_and_need_no_plan_for_each_block(bench, monkeypatch):
    made, plan = [], inbound.plan
    monkeypatch.setattr(inbound, "plan", lambda *given: made.append(given) or plan(*given))
    for value in "123":
        publish(bench, "v/1", b"{}", [("a", value), ("v", "mine"), ("a", "2")])
    for found, value in zip(messages(bench), "123", strict=True):
        assert found.property("mqtt", "userProperties") == "a,v_xR2_,a_xR2_"
        assert dict(found.pairs("usr")) | {"at": ""} == {"a": value, "v_xR2_": "mine", "a_xR2_": "2", "at": ""}
    assert len(made) == 3  # the route of each connection


@pytest.mark.parametrize(
    ("topic", "pairs", "why"),
    [
        ("typed/1", [("n", "x"), ("o", "y")], Feedback.VALUE_NOT_VALID),
        ("needed/1", [("o", "y")], Feedback.VALUE_MISSING),
    ],
)
def test_a_dead_letter_has_the_user_properties_too(bench, topic, pairs, why):
    publish(bench, topic, b"body", pairs)
    [found] = messages(bench, "DEAD.Q")
    assert found.headers[0].number("Reason") == why
    assert list(found.pairs("usr")) == pairs
    publish(bench, topic, b"body", [("n", "7")])
    assert len(messages(bench)) == 1


def test_conditions_on_user_properties_are_asked_of_each_publication(bench):
    publish(bench, "only/1", b"1", [("kind", "abc")])
    publish(bench, "only/1", b"2", [("kind", "b")])
    assert [one.body.raw for one in messages(bench)] == [b"1"]
    assert [one.body.raw for one in messages(bench, "R")] == [b"1", b"2"]


def test_a_rule_that_applies_with_properties_only_is_found(bench):
    publish(bench, "alone/1", b"0")
    publish(bench, "alone/1", b"1", [("kind", "abc")])
    assert [one.body.raw for one in messages(bench)] == [b"1"]


def test_the_first_rule_that_applies_takes_a_publication_and_others_are_counted(bench, monkeypatch):
    monkeypatch.setattr(bench.engine.queue_rows, "put", None)  # the fast lane takes all of them
    device = bench.device(4, "d").connect()
    payloads = [b'{"alarm": true}', b'{"v": 1}', b'{"alarm": true, "v": 1}', b"{}", b"no json"]
    for number, payload in enumerate(payloads, start=1):
        device.publish("alarm/1", payload, 1, number)
    assert [packet[1] for packet in device.take() if packet[0] == 0x40] == [1, 2, 3, 4, 5]
    assert [one.body.raw for one in messages(bench)] == [payloads[0], payloads[2]]
    assert [one.property("usr", "v") for one in messages(bench, "R")] == [1]
    assert bench.engine.counters.messages_unrouted == 2


def test_of_several_destinations_one_may_refuse(bench):
    publish(bench, "twice/1", b"no json", [("a", "1")])
    publish(bench, "twice/1", b"[]", [("a", "2")])
    assert [one.property("usr", "a") for one in messages(bench)] == ["1", "2"]
    assert [one.property("usr", "a") for one in messages(bench, "R")] == ["2"]
    assert [one.property("usr", "a") for one in messages(bench, "DEAD.Q")] == ["1"]


NAMED = {
    "to_mq": [
        {"name": "json", "topic": "plant/{site}/line/#", "queue": "EVENTS.{site:upper}", "payload": {"format": "json"}},
        {"name": "two", "topic": "two/{site}/{device}", "queue": "D.{site:upper}.{device}", "queue_manager": "QM2"},
        {"name": "field", "topic": "field/{site}", "queue": "F.{site}.{json.kind}"},
        {"name": "mq topic", "topic": "t/{site}", "mq_topic": "plant/{site}/x", "payload": {"format": "json"}},
    ]
}


@pytest.mark.parametrize(
    ("topic", "queue", "manager", "why"),
    [
        ("plant/lima/line/4", "EVENTS.LIMA", "", Feedback.SCHEMA),
        ("two/lima/device-7", "D.LIMA.{device}", "QM2", Feedback.NAME_NOT_VALID),
        ("two/li-ma/7", "D.{site:upper}.7", "QM2", Feedback.NAME_NOT_VALID),
        ("field/lima", "F.LIMA.{json.kind}", "", Feedback.VALUE_MISSING),
        ("t/lima", "plant/lima/x", "", Feedback.SCHEMA),
    ],
)
def test_the_dead_letter_of_what_was_refused_names_the_queue_as_far_as_it_is_known(topic, queue, manager, why):
    bench = Harness(json.dumps(NAMED))
    publish(bench, topic, b"not json")
    [found] = messages(bench, "DEAD.Q")
    header = found.headers[0]
    assert header.number("Reason") == why
    assert header.text("DestQName").rstrip() == queue
    assert header.text("DestQMgrName").rstrip() == (manager or bench.queues.name)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("then", ["dead_letter", "hold", "disconnect", "drop"])
def test_what_cannot_follow_its_rule_is_dead_lettered_unless_the_rule_drops_it(then, qos):
    """Sent again it would be the same; an acknowledgement without a dead letter is a loss that nobody asked for."""
    rule = {"name": "r", "topic": "t/+", "queue": "Q", "payload": {"format": "json"}, "on_failure": {"then": then}}
    bench = Harness(json.dumps({"to_mq": [rule]}))
    device = bench.device(5, "d").connect()
    device.publish("t/1", b"not json", qos, 1)
    if qos == 2:
        device.ack(PUBREL, 1)
    assert not device.wire.closed
    assert len(messages(bench, "DEAD.Q")) == (then != "drop")
