"""gateway.broker.publish.plain: what is refused is acknowledged as the version allows and goes nowhere."""

from __future__ import annotations

from collections import Counter

import pytest
from broker_harness import Harness

from gateway.mqtt import packets as p

MAPPING = "version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n"


@pytest.mark.parametrize("topic", ["a", "q/1"])
@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_that_is_too_long(version, qos, topic):
    bench = Harness(MAPPING, max_payload=10)
    listener = bench.device(4, "listener").connect()
    listener.subscribe("a", 2)
    listener.take()
    sender = bench.device(version, "sender").connect()
    sender.take()
    sender.publish(topic, b"x" * 11, qos, 1 if qos else 0)
    answers = sender.take()
    if qos:
        ((*answer, block),) = answers  # 0x95 is not a code of these packets: paho for Python breaks off [MQTT-3.4.2-1]
        assert answer == [{1: 0x40, 2: 0x50}[qos], 1, 0x97 if version == 5 else 0]
        assert (b"longer than 10 bytes" in block) is (version == 5)
    if qos == 2:
        sender.ack(p.PUBREL, 1)
        assert [packet[:2] for packet in sender.take()] == [(0x70, 1)]
    assert listener.take() == []
    assert not bench.queues.rows.get("Q")
    sender.publish(topic, b"x" * 10, 1, 2)
    assert len(listener.take()) + len(bench.queues.rows.get("Q", {})) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_text_that_is_none_mqtt_3_3_2_4(qos):
    bench = Harness()
    listener, sender = bench.device(5, "listener").connect(), bench.device(5, "sender").connect()
    listener.subscribe("a", 2)
    listener.take(), sender.take()
    sender.publish("a", b"\xff", qos, 1, properties=b"\x01\x01")
    assert sender.take() == [({1: 0x40, 2: 0x50}[qos], 1, 0x99, b"")]
    assert listener.take() == []
    assert +Counter(bench.engine.counters.messages_dropped) == {("_none", "payload_format"): 1}


@pytest.mark.parametrize("mapping", ["version: 1\n", MAPPING])
def test_a_qos_that_is_not_offered_mqtt_3_2_2_11(mapping):
    bench = Harness(mapping, max_qos=1)
    sender = bench.device(5, "sender").connect()
    sender.take()
    sender.publish("q/1", b"x", 2, 1)
    ((_, end),) = sender.take()
    assert end.reason == 0x9B
    assert sender.wire.closed
    assert not bench.queues.rows.get("MQGATE.STAGED")


@pytest.mark.parametrize(("version", "code"), [(3, None), (4, None), (5, 0x95)])
def test_a_will_that_is_too_long(version, code):
    """The CONNECT is refused: what it asks for could never be done."""
    bench = Harness(max_payload=10)
    device = bench.device(version, "d").connect(will=p.Will("a", b"x" * 11, 1, retain=False))
    assert [packet[1].reason for packet in device.take()] == ([code] if code else [])
    assert device.wire.closed
    assert bench.engine.sessions.get("d") is None
    bench.device(version, "e").connect(will=p.Will("a", b"x" * 10, 1, retain=False))
    assert bench.engine.sessions.get("e").will


@pytest.mark.parametrize(
    ("topic", "alias", "reason"), [("", 1, 0x82), ("", None, 0x82), ("", 11, 0x94), ("q/1", 11, 0x94)]
)
def test_a_publication_needs_a_topic_or_an_alias_that_was_set_mqtt_3_3_2_9(topic, alias, reason):
    bench = Harness(MAPPING, topic_aliases=10)
    sender = bench.device(5, "sender").connect()
    sender.take()
    block = b"" if alias is None else b"\x23" + alias.to_bytes(2, "big")
    sender.publish(topic, b"x", 1, 1, properties=block)
    ((_, end),) = sender.take()
    assert end.reason == reason
