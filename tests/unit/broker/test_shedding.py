"""QoS 0 where there is no room: bounded, counted, and nobody else is stopped for it."""

from __future__ import annotations

import pytest
from broker_harness import Harness

from gateway.broker.refused import parking
from gateway.mqtt import writer

MAPPING = """
version: 1
to_mq:
  - {name: one, topic: "one", queue: FIRST.Q, on_failure: {retry: {times: 0}, then: hold}}
  - {name: kept, topic: "kept", queue: FIRST.Q, descriptor: {persistence: persistent},
     on_failure: {retry: {times: 0}, then: hold}}
  - {name: both, topic: "both", queue: FIRST.Q, continue: true, on_failure: {retry: {times: 0}, then: hold}}
  - {name: both again, topic: "both", queue: SECOND.Q}
  - {name: dead, topic: "dead", queue: FIRST.Q, on_failure: {retry: {times: 0}, then: dead_letter}}
  - {name: open, topic: "open", queue: OPEN.Q}
"""
INHIBITED = 2051


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(parking, "MAX_UNANSWERED", 10)
    return Harness(MAPPING)


def storm(bench: Harness, topic: str, count: int, version: int = 5) -> None:
    device = bench.device(version, f"storm-{topic}")
    device.connect()
    for number in range(count):
        device.send(writer.encode_publish(version, topic.encode(), b"%d" % number, 0))


def dropped(bench: Harness, rule: str) -> int:
    return bench.engine.counters.messages_dropped[rule, "qos0_overload"]


@pytest.mark.parametrize("topic", ["one", "kept", "dead"])
@pytest.mark.parametrize("version", [4, 5])
def test_so_many_wait_and_no_more(bench: Harness, topic: str, version: int) -> None:
    bench.queues.refusing = {"FIRST.Q": INHIBITED, "DEAD.Q": INHIBITED}
    storm(bench, topic, 25, version)
    assert bench.engine.parking.held()[topic] == bench.engine.parking.rows == 10
    assert dropped(bench, topic) == 15
    bench.queues.refusing = {}
    bench.advance(60)
    assert bench.engine.parking.rows == bench.engine.parking.unanswered == 0
    storm(bench, topic, 3)
    assert dropped(bench, topic) == 15
    assert (
        bench.engine.counters.mqtt_publish_received[topic, 0] + bench.engine.counters.mqtt_publish_received[topic, 1]
        == 25 + 3
    )


def test_a_publication_for_several_queues_goes_whole_or_not(bench: Harness) -> None:
    bench.queues.refusing = {"FIRST.Q": INHIBITED}
    storm(bench, "both", 25)
    assert dropped(bench, "both") == dropped(bench, "both again") == 20
    bench.queues.refusing = {}
    bench.advance(60)
    assert bench.queues.depth("FIRST.Q") == bench.queues.depth("SECOND.Q") == 5


def test_what_is_acknowledged_is_never_given_up(bench: Harness) -> None:
    bench.queues.refusing = {"FIRST.Q": INHIBITED}
    storm(bench, "kept", 25)
    device = bench.device(5, "owed")
    device.connect()
    for number in range(1, 31):
        device.send(writer.encode_publish(5, b"kept", b"owed", 1, packet_id=number))
    assert bench.engine.parking.rows == 40
    bench.queues.refusing = {}
    bench.advance(60)
    assert len([packet for packet in device.take() if packet[0] >> 4 == 4]) == 30
    assert bench.queues.depth("FIRST.Q") == 40


def test_when_nothing_can_be_committed_for_long_reading_goes_on(bench: Harness) -> None:
    device = bench.device(5, "one")
    device.connect()
    told: list[bool] = []
    bench.engine.context.on_pause = told.append
    bench.queues.automatic = False
    device.send(writer.encode_publish(5, b"open", b"owed", 1, packet_id=1))
    for _ in range(21):
        device.send(writer.encode_publish(5, b"one", b"loose", 0) * 1000)
    device.send(writer.encode_publish(5, b"open", b"owed", 1, packet_id=2))
    assert told == [True]
    bench.advance(parking.PATIENCE - 1)
    assert told == [True]
    bench.advance(2)
    assert told == [True, False]
    assert dropped(bench, "one") == 21_000
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert [packet[1] for packet in device.take() if packet[0] >> 4 == 4] == [1, 2]
    assert bench.queues.depth("OPEN.Q") == 2
