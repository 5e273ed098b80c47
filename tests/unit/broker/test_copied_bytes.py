"""gateway.broker.context: one commit makes copies of so many bytes for sessions, whatever their number. What is more is
made in slices, in order, and keeps nobody waiting.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from broker_harness import Device, Queues
from slow_harness import Slow

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Stored, Unit
from gateway.ports.state_queues import OUT

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: "news/#", queue: Q}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: news/out, qos: 1}
  - {name: each, queue: EACH.Q, topic: "news/{usr.to}", qos: 1}
"""
MANY, MOST = 8, 10_000
LONG, SHORT = 3000, 500
"""Bytes of payloads: all copies of one are more than one commit makes; of several."""


class Bench(Slow):
    """Notes how many bytes each unit of work stores for sessions."""

    def start(self) -> None:
        super().start()
        self.engine.context.most_copied = MOST
        self.stored: list[int] = []
        submit = self.engine.context.submit

        def noted(unit: Unit, *rest: Any) -> None:
            self.stored.append(sum(len(body) for puts in unit.puts if puts.queue == OUT for body in puts.bodies))
            submit(unit, *rest)

        self.engine.context.submit = noted

    def finish(self) -> None:
        """Until nothing is planned."""
        self.advance(0.25)
        while self.later():
            self.advance(0.25)


@pytest.fixture
def bench() -> Bench:
    return Bench(MAPPING)


def subscribed(bench: Bench, *, clean: bool = False, qos: int = 2) -> list[Device]:
    readers = [bench.device(5, f"reader-{one}").connect(clean=clean) for one in range(MANY)]
    for reader in readers:
        reader.subscribe("news/#", qos)
        reader.take()
    return readers


def told(device: Device) -> list[bytes]:
    return [packet[4][:3] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def body(number: int, length: int) -> bytes:
    return b"%03d" % number + bytes(length - 3)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_long_publication_is_copied_in_slices_and_what_follows_does_not_overtake_it(
    bench: Bench, qos: int, *, clean: bool
) -> None:
    readers, sender = subscribed(bench, clean=clean), bench.device(5, "sender").connect()
    other = bench.device(5, "other").connect()
    sender.take()
    lengths = [LONG, SHORT, LONG, LONG, 3]
    for number, length in enumerate(lengths):
        sender.publish("news/a", body(number, length), qos, number + 1 if qos else 0)
    if qos == 2:
        bench.finish()
        sender.send(writer.encode_acks(p.PUBREL, range(1, len(lengths) + 1)))
    assert told(readers[0]) == []
    other.publish("else/where", b"x", 1, 9)
    assert [packet[1] for packet in other.take() if packet[0] >> 4 == p.PUBACK] == [9], "others wait"
    bench.finish()
    assert [told(one) for one in readers] == [[b"%03d" % number for number in range(5)]] * MANY
    assert [row[3][-length:][:3] for row, length in zip(bench.queues.rows["Q"].values(), lengths, strict=True)] == [
        b"%03d" % number for number in range(5)
    ]
    assert max(bench.stored) <= MOST + LONG
    answered = [packet[1] for packet in sender.take() if packet[0] >> 4 == (p.PUBCOMP if qos == 2 else p.PUBACK)]
    assert answered == ([*range(1, 6)] if qos else [])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_of_many_publications_the_rest_is_put_off(bench: Bench, qos: int, *, clean: bool) -> None:
    readers, sender = subscribed(bench, clean=clean), bench.device(5, "sender").connect()
    numbers = range(1, 31)
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    if qos == 1:
        sender.send(
            b"".join(writer.encode_publish(5, b"news/a", body(one, SHORT), 1, packet_id=one) for one in numbers)
        )
    else:
        for one in numbers:
            sender.publish("news/a", body(one, SHORT), 2, one)
        bench.finish()
        sender.send(writer.encode_acks(p.PUBREL, numbers))
    assert len(told(readers[0])) < len(numbers), "in one turn"
    bench.engine.context.until = float("inf")
    bench.finish()
    assert max(bench.stored) <= MOST + SHORT * MANY
    ends = [packet[1] for packet in sender.take() if packet[0] >> 4 == (p.PUBACK if qos == 1 else p.PUBCOMP)]
    assert ends == [*numbers]
    assert len(bench.queues.rows["Q"]) == len(numbers)


def test_each_gets_all_that_was_put_off_in_order(bench: Bench) -> None:
    readers, sender = subscribed(bench, qos=0), bench.device(5, "sender").connect()
    ids = count(1)
    for number in range(30):
        sender.publish("news/a", body(number, LONG if number % 3 else SHORT), 1, next(ids))
    bench.finish()
    assert [told(one) for one in readers] == [[b"%03d" % number for number in range(30)]] * MANY


@pytest.mark.parametrize("clean", [False, True])
def test_what_a_queue_brings_is_copied_in_slices_and_in_order(bench: Bench, *, clean: bool) -> None:
    readers = subscribed(bench, clean=clean, qos=1)
    md = mqmd.build(persistence=1)
    lengths = [SHORT, LONG, 3, SHORT, LONG, LONG, *[3] * 5]
    bench.queues.arrive("OUT.Q", *((md, body(number, length)) for number, length in enumerate(lengths)))
    bench.finish()
    assert not bench.queues.rows["OUT.Q"]
    assert [told(one) for one in readers] == [[b"%03d" % number for number in range(len(lengths))]] * MANY
    assert max(bench.stored) <= MOST + LONG * MANY
    assert not bench.consumers.sources["OUT.Q"].in_slices


def test_what_was_taken_back_counts_no_more(bench: Bench) -> None:
    """Nothing would be taken in any more, as nothing is there to be committed."""
    bench.engine.context.batch.copied = MOST
    assert not bench.engine.context.is_full


# -- what comes behind a publication that is copied in slices, and not from a connection that waits for it --


def begun(bench: Bench, device: Device, qos: int, *, retain: bool = False) -> None:
    """A long publication of this device is taken in, at QoS 2 acknowledged too, and some have their copy."""
    device.publish("news/a", body(0, LONG), qos, 1 if qos else 0, retain=retain)
    if qos == 2:
        device.ack(p.PUBREL, 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("clean", [False, True])
def test_a_device_that_comes_back_does_not_overtake_what_it_sent_before(
    bench: Bench, qos: int, turns: int, *, clean: bool
) -> None:
    readers, sender = subscribed(bench, clean=clean), bench.device(5, "sender").connect()
    begun(bench, sender, qos)
    for _ in range(turns):
        bench.later()
    sender.drop()
    again = bench.device(5, "sender").connect()
    again.publish("news/a", body(1, 3), qos, 2 if qos else 0)
    if qos == 2:
        again.ack(p.PUBREL, 2)
    bench.finish()
    assert [told(one) for one in readers] == [[b"000", b"001"]] * MANY
    assert not bench.engine.fan_out.in_slices


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_retained_last_is_what_subscribers_get_last(bench: Bench, qos: int) -> None:
    readers = subscribed(bench)
    sender, other = bench.device(5, "sender").connect(), bench.device(5, "other").connect()
    begun(bench, sender, qos, retain=True)
    other.publish("news/a", body(1, 3), qos, 2 if qos else 0, retain=True)
    if qos == 2:
        other.ack(p.PUBREL, 2)
    bench.finish()
    late = bench.device(5, "late").connect()
    late.subscribe("news/a", 2)
    bench.finish()
    assert told(late) == [b"001"]
    assert [told(one) for one in readers] == [[b"000", b"001"]] * MANY


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_of_a_device_does_not_overtake_what_it_sent(bench: Bench, qos: int) -> None:
    readers = subscribed(bench)
    sender = bench.device(5, "sender").connect(will=p.Will("news/a", b"bye", qos, retain=False))
    begun(bench, sender, qos)
    sender.drop()
    bench.finish()
    assert [told(one) for one in readers] == [[b"000", b"bye"]] * MANY


def test_what_goes_along_is_not_refused_and_so_answered_in_its_turn() -> None:
    """All sessions are full when it is taken in, by what was copied in slices before."""
    bench = Bench(max_queued=1)
    for reader in subscribed(bench):
        reader.drop()
    other, sender = bench.device(5, "other").connect(), bench.device(5, "sender").connect()
    begun(bench, other, 1, retain=True)
    sender.take()
    sender.send(b"".join(writer.encode_publish(5, b"news/a", body(one, LONG), 1, packet_id=one) for one in (1, 2, 3)))
    bench.finish()
    assert [packet[1] for packet in sender.take() if packet[0] >> 4 == p.PUBACK] == [1, 2, 3]


def test_after_a_start_nothing_overtakes_what_is_copied_on(bench: Bench) -> None:
    readers = subscribed(bench)
    bench.queues.arrive("OUT.Q", (mqmd.build(persistence=1), body(0, LONG)))
    bench.advance(0.25)
    bench.kill()
    bench.queues.arrive("OUT.Q", (mqmd.build(persistence=1), body(1, 3)))
    bench.device(5, "sender").connect().publish("news/out", body(2, 3), 1, 1)
    bench.finish()
    readers = [bench.device(5, f"reader-{one}").connect(clean=False) for one in range(MANY)]
    bench.finish()
    heard = [told(one) for one in readers]
    assert {one[0] for one in heard} == {b"000"}
    assert [sorted(one) for one in heard] == [[b"000", b"001", b"002"]] * MANY


# -- messages of one queue --


def message(to: str, number: int, length: int) -> tuple[bytes, bytes]:
    header = rfh2.build([folder("usr", [("to", to)])], encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   ")
    return mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  "), header + body(number, length)


class Claimed(Queues):
    """What is fetched of a queue has to be dealt with."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        return self.fetch(queue, key, limit)


@pytest.mark.parametrize("queues", [Queues, Claimed])
def test_a_message_behind_a_long_one_that_nobody_wants_is_dead_lettered(queues: type[Queues]) -> None:
    bench = Bench(MAPPING, queues())
    for one in range(MANY):
        bench.device(5, f"reader-{one}").connect(clean=False).subscribe("news/a", 1)
    bench.queues.arrive("EACH.Q", message("a", 0, LONG), message("nobody", 1, 3), message("nobody", 2, 3))
    bench.finish()
    assert [stored.data[-3:] for _, stored in bench.queues.load("DEAD.Q")] == [b"001", b"002"]
    assert not bench.queues.rows["EACH.Q"]


def test_messages_of_a_queue_that_one_session_alone_gets_overtake_no_long_one(bench: Bench) -> None:
    for one in range(MANY):
        bench.device(5, f"reader-{one}").connect(clean=False).subscribe("news/a", 1)
    last = bench.device(5, "last").connect()
    last.subscribe("news/#", 1)
    bench.queues.arrive("EACH.Q", message("a", 0, LONG), message("b", 1, 3), message("a", 2, 3))
    bench.finish()
    assert told(last) == [b"000", b"001", b"002"]
