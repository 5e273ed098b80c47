"""gateway.broker.deliver.promise: what very many get, each once, goes on where it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from broker_harness import Device
from slow_harness import Slow

from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt.packets import Will
from gateway.ports.state_queues import FAN_OUT, OUT, SET_ASIDE, WILLS
from gateway.session.record import decode_publication

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: 'news/#', queue: Q}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: news/out, qos: 2}
"""
MANY = 40


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", 10)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 7)


@pytest.fixture
def bench() -> Slow:
    return Slow(MAPPING)


def subscribed(bench: Slow, qos: int = 2, *, clean: bool = True, filter_: str = "news/#") -> list[Device]:
    """Clients with a session each; those with durable ones are away."""
    found = []
    for one in range(MANY):
        device = bench.device(5, f"reader-{one}").connect(clean=clean)
        device.subscribe(filter_, qos)
        device.take()
        if not clean:
            device.drop()
        found.append(device)
    return found


def told(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def answers(device: Device, kind: int) -> list[int]:
    return [packet[1] for packet in device.take() if packet[0] >> 4 == kind]


def until_over(bench: Slow, turns: int = 1000) -> None:
    while turns and bench.later():
        turns -= 1


def stored(bench: Slow) -> dict[bytes, list[bytes]]:
    """What waits for each session, in order."""
    found: dict[bytes, list[bytes]] = {}
    for _, (_, key, _, data) in sorted(bench.queues.rows.get(OUT, {}).items()):
        found.setdefault(key, []).append(decode_publication(data)[0].payload)
    return found


def nothing_is_left(bench: Slow) -> bool:
    return not bench.queues.rows.get(FAN_OUT)


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_2_reaches_everybody_in_order_while_others_go_on(bench: Slow, granted: int) -> None:
    readers = subscribed(bench, granted)
    sender, other = bench.device(5, "sender").connect(), bench.device(5, "other").connect()
    bench.engine.context.until = bench.engine.context.until_strangers = float("inf")
    for number in (1, 2):
        sender.publish("news/a", b"%d" % number, 2, number)
    for number in (1, 2):
        sender.ack(p.PUBREL, number)
    sender.take()
    other.take()
    met = False
    for _ in range(3):
        assert bench.later()
        other.publish("else/where", b"x", 1, 9)
        met = met or answers(other, p.PUBACK) == [9]
    until_over(bench)
    assert met, "others wait"
    assert [told(one) for one in readers] == [[b"1", b"2"]] * MANY
    assert [row[3][-1:] for row in bench.queues.rows["Q"].values()] == [b"1", b"2"]
    assert nothing_is_left(bench)
    assert not bench.engine.put_off._waiting


def publish(bench: Slow, kind: str) -> None:
    if kind == "queue":
        bench.queues.arrive("OUT.Q", (mqmd.build(), b"1"))
        bench.advance(0.25)
        return
    sender = bench.device(5, "sender")
    sender.connect(will=Will("news/a", b"1", 1, retain=False) if kind == "will" else None)
    if kind == "will":
        sender.drop()
        return
    sender.publish("news/a", b"1", 2, 1)
    sender.ack(p.PUBREL, 1)


@pytest.mark.parametrize("kind", ["qos 2", "will", "queue"])
def test_after_a_kill_it_goes_on_where_it_was(bench: Slow, kind: str) -> None:
    places, whole = set[int](), False
    for turns in range(60):
        bench = Slow(MAPPING)
        subscribed(bench, clean=False)
        publish(bench, kind)
        assert not bench.queues.rows.get(WILLS)
        assert not bench.queues.rows.get("OUT.Q")
        until_over(bench, turns)
        places.add(len(stored(bench)))
        whole = nothing_is_left(bench)
        bench.kill()
        until_over(bench)
        assert list(stored(bench).values()) == [[b"1"]] * MANY
        assert nothing_is_left(bench)
        if whole:
            break
    assert whole
    assert len(places) > 4, "it was not killed in between"


def test_the_next_message_of_a_queue_comes_behind_it(bench: Slow) -> None:
    readers = subscribed(bench)
    for number in range(1, 4):
        bench.queues.arrive("OUT.Q", (mqmd.build(), b"%d" % number))
        bench.advance(0.25)
    for _ in range(200):
        bench.advance(0.25)
        if not bench.later() and not bench.queues.rows.get("OUT.Q"):
            break
    assert [told(one) for one in readers] == [[b"1", b"2", b"3"]] * MANY


def test_a_shared_subscription_gets_one_and_overlapping_ones_are_merged(bench: Slow) -> None:
    readers = subscribed(bench, 1)
    for one in readers:
        one.subscribe("news/+", 2)
        one.subscribe("$share/g/news/a", 2)
        one.take()
    publish(bench, "qos 2")
    until_over(bench)
    assert sorted(len(told(one)) for one in readers) == [1] * (MANY - 1) + [2], "each once, and one of the group"


def test_a_copy_that_meets_a_defect_is_set_aside_alone(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribed(bench, clean=False)
    online = bench.device(5, "online").connect()
    online.subscribe("news/#", 0)
    online.take()
    bench.defects = []
    copy = bench.engine.fan_out.copy

    def failing(receiver: Any, *rest: Any) -> bool:
        if receiver.session.client_id == "reader-20":
            raise ZeroDivisionError
        return copy(receiver, *rest)

    monkeypatch.setattr(bench.engine.fan_out, "copy", failing)
    publish(bench, "qos 2")
    until_over(bench)
    assert Counter(map(len, stored(bench).values())) == {1: MANY - 1}
    assert told(online) == [b"1"], "once, though a slice was done again"
    assert [(met.what, met.whom) for met in bench.defects] == [("stored", "reader-20")]
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert nothing_is_left(bench)


def test_what_meets_a_defect_before_any_copy_is_set_aside_whole(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribed(bench, clean=False)
    bench.defects = []

    def failing(_key: bytes) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(wide, "place_of_session", failing)
    publish(bench, "qos 2")
    until_over(bench)
    assert [met.what for met in bench.defects] == ["publication"]
    assert len(bench.queues.rows[SET_ASIDE]) == 1
    assert not stored(bench)
    assert nothing_is_left(bench)
    monkeypatch.undo()
    other = bench.device(5, "other").connect()
    other.publish("narrow", b"", 1, 1)
    until_over(bench)
    assert answers(other, p.PUBACK) == [1]


def test_there_is_an_end_to_what_waits(bench: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "MOST_WAITING", 2)
    readers = subscribed(bench)
    senders = [bench.device(5, f"sender-{one}").connect() for one in range(4)]
    for one in senders:
        one.take()
        one.publish("news/a", b"1", 1, 1)
    refused = [packet[2] for one in senders for packet in one.take() if packet[0] >> 4 == p.PUBACK]
    assert refused == [0x97, 0x97]
    until_over(bench)
    assert [len(told(one)) for one in readers] == [2] * MANY
