"""What becomes of a publication for a session that has no room, and what its publisher hears."""

from __future__ import annotations

import dataclasses

import pytest
from broker_harness import Device, Harness

from gateway.broker.limits import Skipped
from gateway.mqtt import packets as p

QUOTA = 0x97
REASON_STRING = 0x1F
RULE = "version: 1\nto_mq:\n  - {name: all, topic: a, queue: Q}\n"


def absent(bench: Harness, name: str = "absent", filter_: str = "a") -> Device:
    """A client with a subscription and a session that outlives it, away."""
    device = bench.device(5, name).connect(clean=False)
    device.subscribe(filter_, 1)
    device.drop()
    return device


def waiting_for(bench: Harness, name: str = "absent") -> int:
    return bench.engine.sessions.get(name).stored


def answers(device: Device) -> list[int]:
    """Reasons of the acknowledgements."""
    return [packet[2] for packet in device.take() if packet[0] >> 4 in {p.PUBACK, p.PUBREC, p.PUBCOMP}]


def texts(device: Device) -> list[bytes]:
    return [packet[3] for packet in device.take() if packet[0] >> 4 in {p.PUBACK, p.PUBREC, p.PUBCOMP}]


def filled(mapping: str = "version: 1\n", version: int = 5, **limits: object) -> tuple[Harness, Device]:
    """A bench where one message more is one too many, and who sends it."""
    bench = Harness(mapping, max_queued=2, **limits)
    absent(bench)
    sender = bench.device(version, "sender").connect()
    for number in (1, 2):
        sender.publish("a", b"x", 1, number)
    sender.take()
    assert waiting_for(bench) == 2
    return bench, sender


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_else_wants_it(qos):
    bench, sender = filled()
    sender.publish("a", b"x", qos, 3)
    assert answers(sender) == [QUOTA]
    assert bench.engine.counters.messages_dropped["_none", "session_full"] == 1
    assert not bench.engine.sessions.get("sender").inbound
    sender.publish("a", b"x", 0)
    assert not sender.wire.closed


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [1, 2])
def test_3_x_has_no_word_for_it(version, qos):
    """So nobody but an operator can be told that the session goes without."""
    bench, sender = filled(version=version)
    absent(bench, "shared", "$share/g/a")
    for number in (3, 4):
        sender.publish("a", b"x", 1, number)
    sender.take()
    sender.publish("a", b"x", qos, 5)
    assert [packet[1] for packet in sender.take()] == [5]
    assert waiting_for(bench) == waiting_for(bench, "shared") == 2
    assert bench.engine.context.stored.skipped == Skipped(4, "shared", bench.clock.now())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("connect", "wanted"), [({}, True), ({0x17: 0}, False), ({0x27: 100}, False)])
def test_the_text_is_for_those_who_want_it_mqtt_3_4_2_2(qos, connect, wanted):
    """Neither too large [MQTT-3.4.2-2] [MQTT-3.5.2-2] nor for a client that wants none [MQTT-3.1.2-29]."""
    bench, _ = filled()
    device = bench.device(5, "device").connect(properties=connect)
    device.take()
    device.publish("a", b"x", qos, 3)
    (text,) = texts(device)
    assert (b"full" in text) == wanted
    assert text or not wanted


@pytest.mark.parametrize(("connect", "wanted"), [({}, True), ({0x17: 0}, False), ({0x27: 100}, False)])
def test_and_in_pubcomp_mqtt_3_7_2_2(connect, wanted):
    """There was room at PUBREC, and is none for this one when it is released [MQTT-3.7.2-2]."""
    bench = Harness(max_queued=2)
    absent(bench)
    bench.device(5, "other").connect().subscribe("a", 1)
    device = bench.device(5, "device").connect(properties=connect)
    device.publish("a", b"x", 2, 1)
    for number in (2, 3):
        device.publish("a", b"x", 1, number)
    device.take()
    device.ack(p.PUBREL, 1)
    ((first, _, reason, text),) = device.take()
    assert (first >> 4, reason, b"full" in text) == (p.PUBCOMP, 0, wanted)


@pytest.mark.parametrize("qos", [1, 2])
def test_the_others_get_it_and_the_publisher_hears_of_the_one(qos):
    bench, sender = filled()
    other = bench.device(5, "other").connect()
    other.subscribe("a", 1)
    other.take()
    sender.publish("a", b"x", qos, 3)
    if qos == 2:
        assert answers(sender) == [0]
        sender.ack(p.PUBREL, 3)
    (answer,) = sender.take()
    assert answer[2] == 0
    assert b"1 of its subscribers" in answer[3]
    assert [packet[0] >> 4 for packet in other.take()] == [p.PUBLISH]


def test_only_copies_that_found_room_count_as_sent():
    bench, sender = filled()
    counters = bench.engine.counters
    assert counters.mqtt_publish_sent["_none", 1] == 2
    other = bench.device(5, "other").connect()
    other.subscribe("a", 1)
    sender.publish("a", b"x", 1, 3)
    assert counters.mqtt_publish_sent["_none", 1] == 3
    assert counters.messages_dropped["_none", "session_full"] == 1


def test_what_is_skipped_is_remembered_with_who_missed_it_last():
    bench, sender = filled()
    stored = bench.engine.context.stored
    sender.publish("a", b"x", 1, 9)
    assert stored.skipped is None, "it was refused"
    bench.device(5, "other").connect().subscribe("a", 0)
    for number in (3, 4):
        sender.publish("a", b"x", 1, number)
        bench.advance(1)
    assert stored.skipped == Skipped(2, "absent", bench.clock.now() - 1)


def test_a_queue_has_it_and_so_has_the_retained_store():
    bench, sender = filled(RULE)
    sender.publish("a", b"x", 1, 3)
    assert answers(sender) == [0]
    assert len(bench.queues.rows["Q"]) == 3
    bench, sender = filled()
    sender.publish("a", b"x", 1, 3, retain=True)
    assert answers(sender) == [0]


@pytest.mark.parametrize("version", [4, 5])
def test_the_dead_letter_queue_has_it(version):
    """A publication that no rule takes and that is dead-lettered has found a place."""
    bench, sender = filled("version: 1\nunmatched: dead_letter\n", version)
    sender.publish("a", b"x", 1, 3)
    assert sender.take()[0][2] == 0
    assert len(bench.queues.rows["DEAD.Q"]) == 3


def test_bytes_too():
    bench = Harness(max_queued_bytes=10)
    absent(bench)
    sender = bench.device(5, "sender").connect()
    sender.take()
    sender.publish("a", b"eleven byte", 1, 1)
    sender.publish("a", b"ten bytes.", 1, 2)
    assert answers(sender) == [QUOTA, 0]


# -- refuse --


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_refused_for_everybody(qos, retain):
    bench, sender = filled(RULE, refuse_when_full=True)
    other = bench.device(5, "other").connect()
    other.subscribe("a", 1)
    other.take()
    sender.publish("a", b"x", qos, 3, retain=retain)
    assert answers(sender) == [QUOTA]
    assert len(bench.queues.rows["Q"]) == 2
    assert other.take() == []
    assert not bench.engine.retained.count
    counters = bench.engine.counters
    assert counters.messages_dropped["all", "session_full"] == 1
    assert counters.mqtt_publish_received["all", qos] == (3 if qos == 1 else 1), "received is put + dropped"


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("qos", [1, 2])
def test_withheld_from_those_who_know_no_reason(version, qos):
    bench, sender = filled(version=version, refuse_when_full=True)
    sender.publish("a", b"x", qos, 3)
    assert sender.take() == []
    assert not sender.wire.closed
    back = bench.device(5, "absent").connect(clean=False)
    for number in [packet[2] for packet in back.take() if packet[0] >> 4 == p.PUBLISH]:
        back.ack(p.PUBACK, number)
    sender.publish("a", b"x", qos, 3, dup=True)
    assert [packet[0] >> 4 for packet in sender.take()] == [p.PUBACK if qos == 1 else p.PUBREC]


def test_what_had_its_pubrec_is_stored_all_the_same():
    bench = Harness(max_queued=2, refuse_when_full=True)
    absent(bench)
    sender = bench.device(5, "sender").connect()
    sender.publish("a", b"promised", 2, 1)
    sender.publish("a", b"x", 1, 2)
    sender.publish("a", b"x", 1, 3)
    sender.publish("a", b"x", 1, 4)
    assert answers(sender) == [0, 0, 0, QUOTA]
    bench.kill()
    again = bench.device(5, "sender").connect()
    assert again.take()
    assert waiting_for(bench) == 2


def test_released_after_others_filled_the_queue():
    bench = Harness(max_queued=2, refuse_when_full=True)
    absent(bench)
    sender = bench.device(5, "sender").connect(clean=False)
    sender.publish("a", b"promised", 2, 1)
    for number in (2, 3):
        sender.publish("a", b"x", 1, number)
    sender.take()
    sender.ack(p.PUBREL, 1)
    assert answers(sender) == [0]
    assert waiting_for(bench) == 3
    bench.kill()
    assert waiting_for(bench) == 3


def test_a_listener_of_its_own():
    """Whose queue is full decides, not who publishes."""
    bench, sender = filled()
    bench.engine.limits.listeners = {"bench": dataclasses.replace(bench.engine.limits, refuse_when_full=True)}
    bench.device(5, "other").connect().subscribe("a", 1)
    sender.publish("a", b"x", 1, 3)
    assert answers(sender) == [QUOTA]
    bench.engine.sessions.get("absent").listener = "elsewhere"
    sender.publish("a", b"x", 1, 4)
    assert answers(sender) == [0]


def test_wills_have_nobody_to_be_told():
    bench, sender = filled(refuse_when_full=True)
    sender.disconnect()
    ends = bench.device(5, "ends").connect(will=p.Will("a", b"gone", 1, retain=False))
    ends.drop()
    assert waiting_for(bench) == 2
    assert bench.engine.counters.messages_dropped["_none", "session_full"] == 1


# -- shared subscriptions --


@pytest.mark.parametrize("refuse", [False, True])
def test_a_shared_subscription_is_full_when_all_members_are(refuse):
    bench = Harness(max_queued=2, refuse_when_full=refuse)
    for name in ("one", "two"):
        absent(bench, name, "$share/g/a")
    sender = bench.device(5, "sender").connect()
    sender.take()
    for number in range(1, 6):
        sender.publish("a", b"x", 1, number)
    assert answers(sender) == [0, 0, 0, 0, QUOTA]
    assert waiting_for(bench, "one") == waiting_for(bench, "two") == 2


def test_the_member_with_room_gets_it():
    bench = Harness(max_queued=2)
    for name in ("one", "two"):
        absent(bench, name, "$share/g/a")
    absent(bench, "more", "only/one")
    bench.engine.context.stored.added(bench.engine.sessions.get("one"), 0, 2)
    sender = bench.device(5, "sender").connect()
    sender.take()
    for number in (1, 2):
        sender.publish("a", b"x", 1, number)
    assert answers(sender) == [0, 0]
    assert waiting_for(bench, "two") == 2


# -- who is told --


def test_the_operator_hears_of_it_once():
    bench, sender = filled()
    said = []
    bench.engine.context.stored.on_full = lambda session: said.append(session.client_id)
    for number in range(3, 6):
        sender.publish("a", b"x", 1, number)
    bench.advance(3)
    sender.publish("a", b"x", 1, 6)
    assert said == ["absent"]
    back = bench.device(5, "absent").connect(clean=False)
    for packet in back.take():
        if packet[0] >> 4 == p.PUBLISH:
            back.ack(p.PUBACK, packet[2])
    back.drop()
    bench.advance(2)
    for number in range(7, 10):
        sender.publish("a", b"x", 1, number)
    assert said == ["absent", "absent"]
