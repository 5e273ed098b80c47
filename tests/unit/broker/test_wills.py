"""Wills whose queue refuses: the message waits through kills and is there once; the rest is not repeated."""

from __future__ import annotations

import pytest
from broker_harness import Device, Harness
from refused_queues import FULL, MAPPING, balance, bodies

from gateway.mqtt import packets as p


def will_at(bench: Harness, topic: str, client: str = "d", payload: bytes = b"gone", *, retain: bool = False) -> Device:
    return bench.device(4, client).connect(clean=False, will=p.Will(topic, payload, 1, retain=retain))


def heard(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


@pytest.mark.parametrize("topic", ["first", "both/x"])
@pytest.mark.parametrize("kills", [0, 1, 2])
def test_a_will_whose_queue_is_waited_for_is_there_after_a_kill(topic: str, kills: int) -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"))
    bench.queues.refusing["FIRST.Q"] = FULL
    will_at(bench, topic).drop()
    for _ in range(kills):
        assert bench.queues.rows["MQGATE.WILLS"]
        bench.kill()
    bench.queues.refusing.clear()
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"gone"]
    assert not bench.queues.rows["MQGATE.WILLS"]
    bench.kill()
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"gone"]
    balance(bench)


def test_several_of_one_client_wait_also_where_they_are_of_one_moment() -> None:
    """As devices with one client identifier end each other's connections."""
    bench = Harness(MAPPING.replace("THEN", "hold"))
    bench.queues.refusing["FIRST.Q"] = FULL
    for payload in (b"1", b"2"):
        will_at(bench, "first", payload=payload).drop()
    bench.kill()
    bench.queues.refusing.clear()
    bench.advance(20)
    assert sorted(bodies(bench, "FIRST.Q")) == [b"1", b"2"]
    assert not bench.queues.rows["MQGATE.WILLS"]


def test_subscribers_and_retention_have_it_once() -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"))
    subscriber = bench.device(4, "s").connect(clean=False)
    subscriber.subscribe("first", 0)
    subscriber.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    will_at(bench, "first", retain=True).drop()
    assert heard(subscriber) == [b"gone"]
    subscriber.publish("first", b"", 0, retain=True)  # what was retained is cleared before the kill
    subscriber.take()
    bench.kill()
    subscriber = bench.device(4, "s").connect(clean=False)
    subscriber.subscribe("first", 0)
    assert heard(subscriber) == []
    bench.queues.refusing.clear()
    bench.advance(20)
    assert b"gone" in bodies(bench, "FIRST.Q")
    assert heard(subscriber) == []


def test_the_next_connection_has_a_will_of_its_own_meanwhile() -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"))
    bench.queues.refusing["FIRST.Q"] = FULL
    will_at(bench, "first", payload=b"one").drop()
    will_at(bench, "first", payload=b"two")
    assert len(bench.queues.rows["MQGATE.WILLS"]) == 2
    bench.kill()  # ends the second connection too
    bench.queues.refusing.clear()
    bench.advance(20)
    assert sorted(bodies(bench, "FIRST.Q")) == [b"one", b"two"]
    assert not bench.queues.rows["MQGATE.WILLS"]


def test_a_queue_that_takes_it_again_leaves_the_next_will_alone() -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"))
    bench.queues.refusing["FIRST.Q"] = FULL
    will_at(bench, "first", payload=b"one").drop()
    second = will_at(bench, "first", payload=b"two")
    bench.queues.refusing.clear()
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"one"]
    assert len(bench.queues.rows["MQGATE.WILLS"]) == 1
    second.drop()
    assert bodies(bench, "FIRST.Q") == [b"one", b"two"]
    assert not bench.queues.rows["MQGATE.WILLS"]


def test_a_will_with_half_of_a_surrogate_pair_is_dead_lettered_like_any_that_is_no_json() -> None:
    bench = Harness(
        'version: 1\nto_mq: [{name: r, topic: "e/#", queue: Q1, properties: {text: "{json.text}"},'
        " payload: {format: json}}]\n"
    )
    will_at(bench, "e/1", payload=b'{"text": "\\ud800"}').drop()
    assert len(bodies(bench, "DEAD.Q")) == 1
    assert not bench.queues.rows["MQGATE.WILLS"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False])
def test_a_client_that_is_subscribed_to_its_own_will_is_not_full(clean: bool, qos: int) -> None:
    bench = Harness()
    full: list[str] = []
    bench.engine.context.stored.on_full = lambda session: full.append(session.client_id)
    device = bench.device(4, "d").connect(clean=clean, will=p.Will("gone", b"d", qos, False))
    other = bench.device(4, "other").connect()
    for one in (device, other):
        one.subscribe("gone", 2)
        one.take()
    device.drop()
    assert heard(other) == [b"d"]
    assert not full
    assert not sum(bench.engine.counters.messages_dropped.values())
    again = bench.device(4, "d").connect(clean=False)
    assert heard(again) == ([] if clean or not qos else [b"d"])


def test_the_topic_of_a_will_that_is_refused_is_said() -> None:
    bench = Harness()
    bench.engine.context.access.may_publish = lambda *_: False
    device = bench.device(5, "d").connect(will=p.Will("bridges/b/state", b"0", 1, retain=True))
    assert "this client: bridges/b/state" in str(device.wire.packets)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("topic", ["$SYS/broker/connection/b/state", "$share/g/a"])
def test_a_client_whose_will_nobody_could_publish_comes_in_without_it(topic: str, *, allowed: bool) -> None:
    """As a bridge of mosquitto with its notifications: all it publishes there is denied, and it needs none of it."""
    bench = Harness()
    bench.engine.context.access.may_publish = lambda *_: allowed
    told: list[tuple[str, str]] = []
    bench.engine.context.on_denied = lambda _connection, direction, denied: told.append((direction, denied))
    device = bench.device(4, "d").connect(will=p.Will(topic, b"0", 1, retain=True))
    ((_, connack),) = device.take()
    assert (connack.reason, told) == (0, [("publish", topic)])
    device.drop()
    assert told == [("publish", topic)]
    assert not bench.engine.retained.count
