"""gateway.broker.sessions.connack: a CONNECT whose unit of work does not come back is refused in the end and has
changed nothing, whenever that unit is committed after all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Device, FarQueues, Harness

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.ports.access import Verdict
from gateway.session.record import decode_json, key_of

REFUSED = {3: 3, 4: 3, 5: 0x88}
TOO_LONG = 11
"""Seconds: more than `connect_timeout`."""
RULES = "version: 1\nto_mq:\n  - {name: up, topic: 'up/#', queue: Q}\n"
WILL = p.Will("gone", b"dev", 1, False)
DELAYED = p.Will("gone", b"dev", 1, False, raw_properties=b"\x18\x00\x00\x00\x1e", properties={0x18: 30})


@pytest.fixture
def bench() -> Harness:
    return Harness(RULES)


def silent(bench: Harness, *, already: bool = True) -> Harness:
    """The queue manager says nothing from now on; `already`: there is something that it has not answered."""
    busy = bench.device(4, "busy").connect() if already else None
    bench.queues.automatic = False
    if busy is not None:
        busy.publish("up/0", b"", 1, 1)
    return bench


def answers(bench: Harness) -> None:
    """The queue manager is back."""
    bench.queues.automatic = True
    while bench.queues.commit() or (isinstance(bench.queues, FarQueues) and bench.queues.answer()):
        pass


def connack(device: Device) -> Any:
    ((first, found),) = device.take()
    assert first >> 4 == p.CONNACK
    return found


def records(bench: Harness) -> list[Any]:
    return [decode_json(row[3]) for row in bench.queues.rows.get("MQGATE.SESSIONS", {}).values()]


def away(bench: Harness, version: int = 5, **options: Any) -> Device:
    """A device with a session in which two messages lie."""
    device = bench.device(version, "dev").connect(clean=False, **options)
    device.subscribe("news", 1)
    device.drop()
    sender = bench.device(4, "pub").connect()
    for number in (1, 2):
        sender.publish("news", b"%d" % number, 1, number)
    return sender


def listener(bench: Harness) -> Device:
    device = bench.device(4, "listener").connect()
    device.subscribe("gone", 1)
    device.take()
    return device


def refused(bench: Harness, device: Device, reason: int) -> None:
    """In the end; then the queue manager is back."""
    bench.advance(TOO_LONG)
    assert connack(device).reason == reason
    answers(bench)


def payloads(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def counted(bench: Harness) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, _, result), number in bench.engine.counters.mqtt_connects.items():
        found[result] = found.get(result, 0) + number
    return found


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_nobody_waits_for_ever(bench: Harness, version: int, clean: bool) -> None:
    silent(bench)
    device = bench.device(version, "dev").connect(clean=clean, keep_alive=0)
    bench.advance(9)
    assert device.take() == []
    bench.advance(2)
    assert connack(device).reason == REFUSED[version]
    assert device.wire.closed
    answers(bench)
    assert device.take() == []
    assert records(bench) == []
    assert bench.engine.sessions.get("dev") is None
    again = bench.device(version, "dev").connect(clean=clean)
    found = connack(again)
    assert (found.reason, found.session_present) == (0, False)
    assert counted(bench) == {"unavailable": 1, "accepted": 2}  # one of "busy"


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("already", [True, False])
def test_every_attempt_leaves_nothing_behind(bench: Harness, already: bool, patient: bool) -> None:
    silent(bench, already=already)
    for _ in range(5):
        device = bench.device(5, "dev").connect(clean=False)
        if patient:
            bench.advance(TOO_LONG)
            assert connack(device).reason == 0x88
        else:
            device.drop()
    assert not bench.engine.context.batch.replies
    assert not bench.engine.context.batch.after
    answers(bench)
    if patient:
        assert records(bench) == []
        assert bench.engine.sessions.get("dev") is None
    assert not connack(bench.device(5, "dev").connect(clean=False)).session_present


def test_a_short_connect_timeout_is_not_meant_for_commits() -> None:
    bench = silent(Harness(RULES, connect_timeout=1.0))
    device = bench.device(4, "dev").connect()
    bench.advance(4)
    assert not device.wire.closed
    answers(bench)
    assert connack(device).reason == 0


def test_its_keep_alive_begins_with_connack(bench: Harness) -> None:
    silent(bench)
    device = bench.device(4, "dev").connect(keep_alive=2)
    bench.advance(8)
    assert not device.wire.closed
    answers(bench)
    bench.advance(2)
    assert not device.wire.closed
    bench.advance(2)
    assert device.wire.closed


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("clock", ["before", "after"])
def test_a_session_is_what_it_was(bench: Harness, stays: bool, clock: str) -> None:
    """Whether the refused CONNECT wants to keep it or not, and whether its unit is committed before or after that."""
    sender = away(bench)
    (before,) = records(bench)
    silent(bench, already=False)
    connect = client.connect(5, "dev", clean_start=False)
    connect.properties.update({0x11: 60} if stays else {})
    device = bench.device(5, "dev")
    device.send(client.encode_connect(connect))
    sender.publish("news", b"3", 1, 3)  # for a session that a client has, perhaps
    if clock == "before":
        bench.queues.land()
    refused(bench, device, 0x88)
    (after,) = records(bench)
    assert {**after, "since": 0, "sent": 0} == {**before, "since": 0, "sent": 0}
    bench.kill()
    again = bench.device(5, "dev").connect(clean=False)
    first, *rest = again.take()
    assert first[1].session_present
    assert [packet[4] for packet in rest] == [b"1", b"2", b"3"]


def test_a_clean_start_that_is_refused_has_ended_what_was_before(bench: Harness) -> None:
    """As its client wished; whether that is done when it comes again nobody can tell."""
    away(bench)
    silent(bench)
    device = bench.device(5, "dev").connect(clean=True)
    refused(bench, device, 0x88)
    assert records(bench) == []
    assert bench.queues.depth("MQGATE.OUT") == 0
    assert not connack(bench.device(5, "dev").connect(clean=False)).session_present


def test_a_refused_connect_publishes_no_will(bench: Harness) -> None:
    hears = listener(bench)
    silent(bench)
    device = bench.device(4, "dev").connect(clean=False, will=WILL)
    refused(bench, device, 3)
    bench.advance(2)
    assert payloads(hears) == []
    assert bench.queues.depth("MQGATE.WILLS") == 0


def test_the_will_that_waited_before_it_still_does(bench: Harness) -> None:
    hears = listener(bench)
    bench.device(5, "dev").connect(clean=False, will=DELAYED).drop()
    silent(bench)
    device = bench.device(5, "dev").connect(clean=False)
    refused(bench, device, 0x88)
    assert payloads(hears) == []
    bench.advance(31)
    assert payloads(hears) == [b"dev"]


def test_who_has_not_waited_is_not_told(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came behind CONNECT may be committed: a refusal would say that it was not looked at [MQTT5-3.1.4-6]."""
    silent(bench)
    connect = client.encode_connect(client.connect(4, "", clean_start=True))
    together, later, looked_up = (bench.device(4, name) for name in ("together", "later", "looked up"))
    together.send(connect + writer.encode_publish(4, b"up/1", b"1", 1, packet_id=1))
    later.connect()
    bench.clock.advance(1)
    later.publish("up/1", b"2", 1, 1)
    asked: list[Callable[[Verdict], None]] = []
    monkeypatch.setattr(bench.engine.context.access, "authenticate", lambda _connect, _link, done: asked.append(done))
    looked_up.send(connect + writer.encode_publish(4, b"up/1", b"3", 1, packet_id=1))
    asked[0](Verdict(0))
    bench.advance(TOO_LONG)
    for device in (together, later, looked_up):
        assert device.wire.closed
        assert device.take() == []
    answers(bench)
    assert bench.queues.depth("Q") == 4


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_that_nobody_has_heard_of_is_not_present(bench: Harness, version: int) -> None:
    """A client of 5.0 that is told of one it does not know has to close."""
    silent(bench)
    for end in (Device.drop, lambda _device: None):
        device = bench.device(version, "dev").connect(clean=False)
        device.subscribe("news", 1)
        end(device)
    again = bench.device(version, "dev").connect(clean=False)
    assert device.wire.closed
    answers(bench)
    assert not connack(again).session_present
    assert [record["subscriptions"] for record in records(bench)] == [[]]


def test_a_client_that_says_goodbye_before_connack_has_its_session(bench: Harness) -> None:
    silent(bench)
    device = bench.device(4, "dev").connect(clean=False)
    device.subscribe("news", 1)
    device.disconnect()
    answers(bench)
    assert [packet[0] >> 4 for packet in device.take()] == [p.CONNACK, p.SUBACK]
    assert connack(bench.device(4, "dev").connect(clean=False)).session_present


def test_two_attempts_at_once_leave_the_session_as_it_was(bench: Harness) -> None:
    """The older one is taken over while neither has been answered."""
    away(bench)
    (before,) = records(bench)
    silent(bench)
    hasty = client.connect(5, "dev", clean_start=False)
    hasty.properties[0x11] = 60
    first, second = bench.device(5, "dev"), bench.device(5, "dev")
    for device in (first, second):
        device.send(client.encode_connect(hasty))
    bench.advance(TOO_LONG)
    assert first.take() == []
    assert connack(second).reason == 0x88
    answers(bench)
    (after,) = records(bench)
    assert (after["expiry"], after["subscriptions"]) == (before["expiry"], before["subscriptions"])
    assert bench.queues.depth("MQGATE.OUT") == 2


def test_what_is_far_away_for_a_session_that_nobody_has_heard_of_goes_too() -> None:
    bench = Harness(RULES, FarQueues())
    sender = bench.device(4, "pub").connect()
    silent(bench)
    device = bench.device(5, "dev").connect(clean=False)
    device.subscribe("news", 1)
    sender.publish("news", b"1", 1, 1)
    device.drop()
    assert bench.queues.commit()
    assert bench.queues.commit()
    assert bench.queues.depth("MQGATE.OUT", key_of("dev")) == 1
    again = bench.device(5, "dev").connect(clean=False)
    answers(bench)
    assert not connack(again).session_present
    assert bench.queues.depth("MQGATE.OUT", key_of("dev")) == 0


def test_a_session_that_was_read_from_afar() -> None:
    bench = Harness(RULES, FarQueues())
    silent(bench)
    device = bench.device(5, "dev").connect(clean=False)
    bench.advance(TOO_LONG)
    assert connack(device).reason == 0x88
    again = bench.device(5, "dev").connect(clean=False)  # waits until that has ended
    answers(bench)
    assert not connack(again).session_present
    assert bench.queues.depth("MQGATE.SESSIONS", key_of("dev")) == 1


def test_connack_does_not_wait_for_a_queue_that_is_full(bench: Harness) -> None:
    """Only what has been published does; what it is told later comes in order."""
    bench.queues.refusing["Q"] = 2053
    device = bench.device(4, "dev")
    connect = client.encode_connect(client.connect(4, "dev", clean_start=False))
    device.send(connect + writer.encode_publish(4, b"up/1", b"1", 1, packet_id=1) + b"\xc0\x00")
    assert next(packet[0] >> 4 for packet in device.take()) == p.CONNACK
    assert len(bench.engine.parking.waiting) == 1
    bench.queues.refusing.clear()
    bench.advance(5)
    assert p.PUBACK in [packet[0] >> 4 for packet in device.take()]
    assert bench.queues.depth("Q") == 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_qos_0_keeps_its_order_while_connack_waits_mqtt5_4_6_0_5(version: int) -> None:
    """What is published then goes with CONNACK, and does not wait for the commit behind it as its publisher does."""
    bench = Harness("version: 1\nto_mq:\n  - {name: up, topic: '#', queue: Q}\n")
    device = bench.device(version, "dev").connect(clean=False)
    device.subscribe("news", 0)
    device.drop()
    sender = bench.device(4, "pub").connect()
    bench.queues.automatic = False
    device = bench.device(version, "dev")
    device.connect(clean=False)
    for number in range(4):
        sender.publish("news", b"%d" % number)
        if number == 1:
            assert not device.take()
            assert bench.queues.commit()
    found = device.take()
    kinds = [packet[0] >> 4 for packet in found]
    assert kinds == [p.CONNACK, *[p.PUBLISH] * 4]
    assert [packet[4] for packet in found[1:]] == [b"0", b"1", b"2", b"3"]
    answers(bench)
    assert not device.take()


def test_what_goes_with_a_connack_that_waits_is_bounded() -> None:
    """QoS 0 alone grows there: what has no room is dropped and counted, of one client and of all together."""
    most = 16_000
    bench = Harness(RULES, max_outgoing_bytes=2 * most, max_buffered_bytes=12 * most)
    names = [f"dev{number}" for number in range(5)]
    for name in names:
        bench.device(5, name).connect(clean=False, properties={0x22: 5}).subscribe("news", 0)
    sender = bench.device(4, "pub").connect()
    bench.queues.automatic = False
    waiting = [bench.device(5, name).connect(clean=False, properties={0x22: 5}) for name in names]
    for number in range(40):
        sender.publish("news", b"%1000d" % number)
    context = bench.engine.context
    kept = [device.connection.behind_bytes for device in waiting]
    assert max(kept) <= most + 1200
    assert context.behind_connacks == sum(kept) <= 3 * most + 1200
    dropped = bench.engine.counters.messages_dropped["_none", "qos0_overload"]
    assert dropped == 5 * 40 - sum(len(device.connection.behind_connack) for device in waiting)
    waiting[0].drop()
    assert context.behind_connacks == sum(kept[1:]), "who has gone keeps nothing"
    waiting[1].disconnect()
    answers(bench)
    assert context.behind_connacks == 0
    for device in waiting[1:]:
        first, *rest = device.take()
        assert first[0] >> 4 == p.CONNACK
        assert [int(packet[4]) for packet in rest] == list(range(len(rest))), "the first of them, in order"
    sender.publish("news", b"again")
    assert [packet[4] for packet in waiting[2].take()] == [b"again"]


def test_one_message_of_any_size_goes_with_a_connack_that_waits() -> None:
    bench = Harness(max_outgoing_bytes=10_000)
    bench.device(4, "dev").connect(clean=False).subscribe("news", 0)
    sender = bench.device(4, "pub").connect()
    bench.queues.automatic = False
    device = bench.device(4, "dev").connect(clean=False)
    sender.publish("news", bytes(100), 0)
    sender.publish("news", bytes(50_000), 0)
    sender.publish("news", bytes(100), 0)
    bench.engine.tick()
    answers(bench)
    connack, *rest = device.take()
    assert connack[0] >> 4 == p.CONNACK
    assert [len(packet[4]) for packet in rest] == [100, 50_000], "what comes behind it is dropped"


WRONG = {"type 0": (b"\0\0", 0x81), "a second CONNECT": (b"", 0x82), "QoS 2": (b"\x34\x06\0\1w\0\1\0", 0x9B)}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("version", [4, 5])
def test_who_breaks_the_protocol_behind_connect_is_told_both_in_order(version: int, what: str) -> None:
    """CONNACK and the answers to what was right come first, although they wait for a commit [MQTT-3.2.0-1]."""
    bench = Harness(max_qos=1)
    hears, told = listener(bench), list[tuple[str, str]]()
    bench.engine.context.on_connected = lambda one: told.append(("connected", one.session.client_id))
    bench.engine.context.on_end = lambda _one, why: told.append(("ended", why))
    bench.queues.automatic = False
    device = bench.device(version, "dev")
    wrong, reason = WRONG[what]
    connect = client.encode_connect(client.connect(version, "dev", clean_start=False, will=WILL))
    more = writer.encode_publish(version, b"up/1", b"1", 1, packet_id=1)
    device.send(connect + more)
    device.publish("up/1", b"2", 1, 2)
    device.send(b"\xc0\x00" + (wrong or connect) + b"\xc0\x00")
    assert (device.take(), device.wire.closed, told) == ([], False, [])
    while bench.queues.commit():
        pass
    found = device.take()
    kinds = [p.CONNACK, p.PUBACK, p.PUBACK, p.PINGRESP] + [p.DISCONNECT] * (version == 5)
    assert [one[0] >> 4 for one in found] == kinds
    assert version == 4 or found[-1][1].reason == reason
    assert device.wire.closed
    assert told == [("connected", "dev"), ("ended", "protocol_error")]
    assert payloads(hears)[-1] == b"dev", "its will"


def test_nobody_waits_for_a_queue_manager_that_is_away_to_be_told_that_he_broke_the_protocol(bench: Harness) -> None:
    bench.queues.automatic = False
    bench.engine.context.held_since = 1.0
    device = bench.device(5, "dev")
    device.send(client.encode_connect(client.connect(5, "dev")) + b"\0\0")
    assert (device.take(), device.wire.closed) == ([], True)
