"""QoS 2 for a queue that refuses and for local subscribers: each has it once, whatever is killed or refused when."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device, Harness
from refused_queues import FULL, MAPPING, PUBACK, PUBCOMP, PUBREC, PUBREL, balance, bodies

from gateway.mqtt import writer


def received(device: Device) -> list[bytes]:
    """Payloads of new publications, each acknowledged; resent ones (DUP) are not new."""
    found = []
    for packet in device.take():
        if packet[0] >> 4 == 3:
            first, _, packet_id, _, payload = packet
            if not first & 8:
                found.append(payload)
            device.ack(PUBACK if first & 6 == 2 else PUBREC, packet_id)
        elif packet[0] >> 4 == PUBREL:
            device.ack(PUBCOMP, packet[1])
    return found


def everything(device: Device) -> list[bytes]:
    found: list[bytes] = []
    while some := received(device):
        found += some
    return found


def scene(then: str, qos: int) -> tuple[Harness, Device, Device]:
    bench = Harness(MAPPING.replace("THEN", then))
    subscriber = bench.device(4, "subscriber").connect(clean=False)
    subscriber.subscribe("#", qos)
    publisher = bench.device(4, "publisher").connect(clean=False)
    subscriber.take(), publisher.take()
    return bench, subscriber, publisher


def publish(device: Device, topic: str, **options: Any) -> None:
    device.publish(topic, b"once", 2, 7, **options)
    device.ack(PUBREL, 7)


@pytest.mark.parametrize("topic", ["first", "both/x"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_kill_while_its_queue_is_waited_for(topic: str, qos: int, retain: bool, again: bool) -> None:
    bench, subscriber, publisher = scene("hold", qos)
    bench.queues.refusing["FIRST.Q"] = FULL
    publish(publisher, topic, retain=retain)
    assert everything(subscriber) == [b"once"]
    assert [packet[0] >> 4 for packet in publisher.take()] == [PUBREC]
    for _ in range(1 + again):
        bench.advance(2)
        bench.kill()
        subscriber = bench.device(4, "subscriber").connect(clean=False)
        publisher = bench.device(4, "publisher").connect(clean=False)
        publisher.ack(PUBREL, 7)
        assert everything(subscriber) == []
        assert PUBCOMP not in {packet[0] >> 4 for packet in publisher.take()}
    bench.queues.refusing.clear()
    bench.advance(20)
    assert [packet[0] >> 4 for packet in publisher.take()] == [PUBCOMP]
    assert bodies(bench, "FIRST.Q") == [b"once"]
    assert everything(subscriber) == []
    assert not bench.queues.rows["MQGATE.STAGED"]
    publisher.ack(PUBREL, 7)
    assert bodies(bench, "FIRST.Q") == [b"once"]
    balance(bench)


def test_a_kill_before_the_copies_are_committed_hands_them_over_afterwards() -> None:
    bench, subscriber, publisher = scene("hold", 2)
    bench.queues.refusing["FIRST.Q"] = FULL
    publisher.publish("first", b"once", 2, 7)
    bench.queues.automatic = False
    publisher.ack(PUBREL, 7)
    assert bench.queues.commit()  # refused: parked, and what is left is submitted
    bench.kill()
    bench.queues.automatic = True
    bench.queues.refusing.clear()
    subscriber = bench.device(4, "subscriber").connect(clean=False)
    publisher = bench.device(4, "publisher").connect(clean=False)
    publisher.ack(PUBREL, 7)
    assert everything(subscriber) == [b"once"]
    assert bodies(bench, "FIRST.Q") == [b"once"]


@pytest.mark.parametrize("then", ["hold", "disconnect"])
def test_several_that_are_released_at_once(then: str) -> None:
    bench, subscriber, publisher = scene(then, 2)
    numbers = (7, 8, 9)
    for number in numbers:
        publisher.publish("first", b"%d" % number, 2, number)
    bench.queues.refusing["FIRST.Q"] = FULL
    publisher.send(b"".join(writer.encode_acks(PUBREL, [number]) for number in numbers))
    assert everything(subscriber) == [b"7", b"8", b"9"]
    bench.advance(2 if then == "hold" else 30)
    if then == "hold":
        bench.kill()
        subscriber = bench.device(4, "subscriber").connect(clean=False)
    bench.queues.refusing.clear()
    publisher = bench.device(4, "publisher").connect(clean=False)
    for number in numbers:
        publisher.ack(PUBREL, number)
    bench.advance(20)
    assert bodies(bench, "FIRST.Q") == [b"7", b"8", b"9"]
    assert everything(subscriber) == []
    assert not bench.queues.rows["MQGATE.STAGED"]
    balance(bench)


@pytest.mark.parametrize("topic", ["first", "both/x"])
@pytest.mark.parametrize("seconds", [0, 30])
def test_a_rule_that_disconnects(topic: str, seconds: int) -> None:
    """At once or after the retries: the publisher releases it anew, and the subscriber has had it."""
    bench, subscriber, publisher = scene("disconnect", 2)
    bench.queues.refusing["FIRST.Q"] = 2085 if not seconds else FULL
    publish(publisher, topic)
    bench.advance(seconds)
    assert publisher.wire.closed
    assert everything(subscriber) == [b"once"]
    bench.queues.refusing.clear()
    publisher = bench.device(4, "publisher").connect(clean=False)
    publisher.ack(PUBREL, 7)
    assert [packet[0] >> 4 for packet in publisher.take()] == [2, PUBCOMP]
    assert bodies(bench, "FIRST.Q") == [b"once"]
    assert everything(subscriber) == []
    assert not bench.queues.rows["MQGATE.STAGED"]


def test_dead_lettered_after_the_retries() -> None:
    bench, subscriber, publisher = scene("dead_letter", 2)
    bench.queues.refusing["FIRST.Q"] = FULL
    publish(publisher, "first")
    bench.advance(30)
    assert (bodies(bench, "DEAD.Q"), everything(subscriber)) == ([b"once"], [b"once"])
    assert not bench.queues.rows["MQGATE.STAGED"]
    balance(bench)


def test_several_line_up() -> None:
    """The next ones come while an attempt is under way, and line up behind the first."""
    bench, subscriber, publisher = scene("hold", 2)
    bench.queues.refusing["FIRST.Q"] = FULL
    for number in range(1, 6):
        publisher.publish("first", b"%d" % number, 2, number)
        publisher.ack(PUBREL, number)
        bench.advance(1)
    wanted = [b"%d" % number for number in range(1, 6)]
    assert everything(subscriber) == wanted
    bench.kill()
    publisher = bench.device(4, "publisher").connect(clean=False)
    subscriber = bench.device(4, "subscriber").connect(clean=False)
    for number in range(1, 6):
        publisher.ack(PUBREL, number)
    bench.queues.refusing.clear()
    bench.advance(10)
    assert bodies(bench, "FIRST.Q") == wanted
    assert everything(subscriber) == []
    assert not bench.queues.rows["MQGATE.STAGED"]
