"""gateway.broker.dead_letters: where dead letters go, and what they keep of their messages."""

from __future__ import annotations

import pytest
from broker_harness import Harness
from refused_queues import balance, giving_up

from gateway.bridge import deadletter
from gateway.broker.batch import Batch, Destination
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy

_PRIORITY = {"priority": 7}
_RULES = [
    {"name": "refused", "topic": "a/#", "queue": "Q", "descriptor": _PRIORITY},
    {"name": "unbuilt", "topic": "b/#", "queue": "Q", "payload": {"format": "json"}, "descriptor": _PRIORITY},
    {"name": "default", "topic": "c/#", "queue": "Q", "descriptor": {"priority": "queue_default"}},
    {"name": "lowest", "topic": "d/#", "queue": "Q"},
]  # fmt: skip


@pytest.fixture
def bench() -> Harness:
    return giving_up(_RULES)


def letters(bench: Harness) -> list[tuple[int, mqmd.Mqmd, bytes]]:
    """Priority that each was put with, descriptor and data of its message."""
    rows = bench.queues.rows["DEAD.Q"].values()
    return [(priority, mqmd.unpack(md), deadletter.strip(md, data)[2]) for priority, _, md, data in rows]


@pytest.mark.parametrize(("topic", "priority"), [("a", 7), ("b", 7), ("c", -1), ("d", 0)])
def test_a_dead_letter_has_the_priority_of_its_message(bench: Harness, topic: str, priority: int) -> None:
    bench.device(5, "d").connect().publish(f"{topic}/1", b"payload", 1, 1)
    bench.advance(1)
    [(put_with, md, data)] = letters(bench)
    assert (put_with, md.priority, data[-7:]) == (priority, priority, b"payload")


def test_dead_letters_of_several_priorities_answer_the_publishers_of_all(bench: Harness) -> None:
    device = bench.device(5, "d").connect()
    for number, topic in enumerate(("a/1", "d/1", "c/1", "a/2"), 1):
        device.publish(topic, str(number).encode(), 1, number)
    bench.advance(1)
    assert sorted(priority for priority, _, _ in letters(bench)) == [-1, 0, 7, 7]
    assert sorted(packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBACK) == [1, 2, 3, 4]


def test_the_queue_manager_is_asked_once_for_all_that_one_queue_refuses(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks under its lock, or over the network; and the thread that commits needs the same lock."""
    asked: list[str] = []
    max_length = bench.queues.max_length
    monkeypatch.setattr(bench.queues, "max_length", lambda queue: asked.append(queue) or max_length(queue))
    device = bench.device(5, "d").connect()
    frames = (writer.encode_publish(5, b"d/%d" % number, b"x", 1, packet_id=number) for number in range(1, 51))
    device.send(b"".join(frames))
    bench.advance(1)
    assert len(letters(bench)) == 50
    assert asked.count("DEAD.Q") == 1


def test_what_messages_of_one_queue_have_in_common_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits while ten thousand are dead-lettered. Where they go is found once, and a frame holds once what
    the same objects say."""
    bench = giving_up(_RULES)
    asked: list[Address] = []
    destination = Batch.destination

    def ask(batch: Batch, address: Address, policy: Policy) -> Destination:
        asked.append(address)
        return destination(batch, address, policy)

    device = bench.device(5, "d").connect()
    frames = (writer.encode_publish(5, b"d/1", b"%d" % number, 1, packet_id=number) for number in range(1, 201))
    monkeypatch.setattr(Batch, "destination", ask)
    device.send(b"".join(frames))
    rows = bench.queues.rows["DEAD.Q"].values()
    assert [data[-1:] for _, _, _, data in rows] == [b"%d" % (number % 10) for number in range(1, 201)]
    assert sum(address.queue == "DEAD.Q" for address in asked) == 1


def test_a_report_that_goes_to_the_dead_letter_queue_is_no_dead_letter() -> None:
    descriptor = {"reply_to": {"queue": "DEAD.Q"}, "report": ["exception"]}
    bench = giving_up([{"name": "asking", "topic": "a/#", "queue": "Q", "descriptor": descriptor}])
    frames = (writer.encode_publish(5, b"a/1", b"payload", 1, packet_id=number) for number in (1, 2))
    bench.device(5, "d").connect().send(b"".join(frames))
    assert len(bench.queues.rows["DEAD.Q"]) == 4
    assert bench.engine.counters.dlq_messages["asking", "put_inhibited"] == 2
    balance(bench)
