"""Limits of all together, of topics' length; and a device that is full does not hold up the others for ever."""

from __future__ import annotations

import dataclasses

import pytest
from broker_harness import Harness
from several_brokers import Estate

from gateway.broker.deliver.consumers import PATIENCE
from gateway.broker.deliver.handover import BATCH
from gateway.broker.gateways.census import INTERVAL
from gateway.mq import mqmd

MAPPING = """
version: 1
to_mqtt:
  - {name: commands, queue: COMMANDS, topic: "cmd", qos: 1}
"""


def codes(device) -> list[int]:
    return device.take()[-1][1].reasons


def waits_for(bench: Harness) -> tuple[int, int]:
    """Messages and bytes, added up session by session."""
    sessions = list(bench.engine.sessions)
    return sum(one.stored for one in sessions), sum(one.stored_bytes for one in sessions)


def kept(bench: Harness) -> tuple[int, int]:
    waiting = bench.engine.context.stored
    return waiting.messages, waiting.bytes


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x97)])
def test_subscriptions_of_all_sessions(version, refused):
    bench = Harness(max_total_subscriptions=3)
    one, two = bench.device(version, "one").connect(), bench.device(version, "two").connect()
    for name in ("a", "b"):
        one.subscribe(name, 1)
        assert codes(one) == [1]
    two.subscribe("a", 1)
    assert codes(two) == [1]
    two.subscribe("b", 1)
    assert codes(two) == [refused]
    two.subscribe("a", 0)
    assert codes(two) == [0], "what is there may be renewed"
    one.unsubscribe("b")
    two.subscribe("b", 1)
    assert codes(two) == [1]
    one.disconnect()
    assert len(bench.engine.router.subscriptions) == 2


@pytest.mark.parametrize("limits", [{"max_total_queued": 4}, {"max_total_queued_bytes": 40}])
def test_what_waits_for_all_sessions(limits):
    bench = Harness(**limits)
    for name in ("one", "two"):
        away = bench.device(5, name).connect(clean=False)
        away.subscribe(name, 1)
        away.drop()
    sender = bench.device(5, "sender").connect()
    for number in range(3):
        sender.publish("one", b"0123456789", 1, number + 1)
        sender.publish("two", b"0123456789", 1, number + 100)
    assert kept(bench) == waits_for(bench) == (4, 40)
    assert bench.engine.counters.messages_dropped["_none", "session_full"] == 2
    bench.kill()
    assert kept(bench) == waits_for(bench) == (4, 40), "counted again at start"
    back = bench.device(5, "one").connect(clean=False)
    for packet in back.take():
        if packet[0] >> 4 == 3:
            back.ack(4, packet[2])
    assert kept(bench) == waits_for(bench) == (2, 20)
    bench.device(5, "two").connect()
    assert kept(bench) == (0, 0), "a clean start forgets what waited"


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x8F)])
def test_the_length_of_topics(version, refused):
    bench = Harness(max_topic_length=10)
    device = bench.device(version, "d").connect()
    device.subscribe("a" * 10, 1)
    assert codes(device) == [1]
    device.subscribe("ä" * 6, 1)
    assert codes(device) == [refused], "bytes, not letters"
    device.publish("a" * 11, b"x", 1, 1)
    assert device.wire.closed


def test_payload_and_user_properties_of_a_listener():
    bench = Harness()
    bench.engine.limits.listeners = {
        "bench": dataclasses.replace(bench.engine.limits, max_payload=5, max_user_properties=1)
    }
    device = bench.device(5, "d").connect()
    device.take()
    device.publish("a", b"123456", 1, 1)
    assert device.take()[0][2] == 0x97
    device.publish("a", b"1", 1, 2, properties=b"\x26\x00\x01k\x00\x01v" * 2)
    assert device.wire.closed


def commands(count: int) -> list[tuple[bytes, bytes]]:
    return [(mqmd.build(persistence=1), b"%d" % number) for number in range(count)]


def test_a_device_that_acknowledges_nothing_does_not_hold_up_the_others_for_ever():
    bench = Harness(MAPPING, max_queued=BATCH + 50, max_inflight=10)
    stuck = bench.device(5, "stuck").connect(clean=False)
    stuck.subscribe("cmd", 1)
    bench.queues.arrive("COMMANDS", *commands(BATCH))
    bench.advance(1)
    other = bench.device(5, "other").connect()
    other.subscribe("cmd", 1)
    other.take()
    bench.queues.arrive("COMMANDS", *commands(5))
    bench.advance(PATIENCE / 2)
    assert not [packet for packet in other.take() if packet[0] >> 4 == 3], (
        "the queue is its place as long as it may move"
    )
    bench.advance(PATIENCE + 3)
    assert len([packet for packet in other.take() if packet[0] >> 4 == 3]) == 5


@pytest.mark.parametrize(("version", "refused"), [(3, 3), (4, 3), (5, 0x97)])
def test_sessions_of_all_clients(version, refused):
    """Requirement 20: whoever has a session comes back, whoever has none finds no room until another one ends."""
    bench = Harness(max_sessions=2)
    away = bench.device(5, "away").connect(clean=False)
    away.disconnect()
    here = bench.device(version, "here").connect()
    assert here.take()[0][1].reason == 0
    late = bench.device(version, "late").connect()
    assert late.take()[0][1].reason == refused
    assert late.wire.closed
    assert bench.device(5, "away").connect(clean=False).take()[0][1].session_present
    again = bench.device(version, "here").connect()
    assert again.take()[0][1].reason == 0, "a take-over needs no more room"
    again.disconnect()
    assert bench.device(version, "late").connect().take()[0][1].reason == 0
    assert len(list(bench.engine.sessions)) == 2


def test_sessions_of_all_gateways():
    """Whoever has a session comes back, at whichever gateway; whoever has none is one more for all of them."""
    estate = Estate()
    first, second = estate.start(max_sessions=2), estate.start(max_sessions=2)

    def connect(node, name):
        device = node.bench.device(5, name)
        device.connect(clean=False)
        estate.settle(0.3)
        return device.take()[0][1]

    assert [connect(first, "a").reason, connect(second, "b").reason] == [0, 0]
    for node in (first, second):
        node.bench.advance(INTERVAL + 1)
    estate.settle(0.2)
    assert [connect(node, "c").reason for node in (first, second)] == [0x97, 0x97]
    back = connect(second, "a")
    assert (back.reason, back.session_present) == (0, True)
