"""gateway.broker.sessions.subscriptions: retained messages that a session has still to get go along with it."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device, Harness
from calls import calls
from several_brokers import Estate

from gateway.mqtt import client
from gateway.mqtt import packets as p
from gateway.mqtt.packets import Subscribe, Subscription, Unsubscribe
from gateway.ports.state_queues import SESSIONS
from gateway.session.record import decode_json

COUNT = 2500


def topics_of(estate: Estate, device: Device, most: int) -> list[bytes]:
    """Of what comes while each publication is acknowledged at once, until nothing does; about so many."""
    topics: list[bytes] = []
    silent = 0
    while silent < 10 and len(topics) < most:
        estate.settle(0.1)
        found = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        topics += [packet[1] for packet in found]
        for packet in found:
            device.ack(p.PUBACK, packet[2])
        silent = 0 if found else silent + 1
    return topics


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_left_of_retained_messages_comes_at_another_gateway(*, killed: bool) -> None:
    """Whether the session moves there or is taken over; later again, all has come."""
    estate = Estate()
    first, second = estate.start(), estate.start()
    sender = first.bench.device(5, "sender").connect()
    estate.settle(0.3)
    for number in range(COUNT):
        sender.publish(f"kept/{number}", b"x", 1, number + 1, retain=True)
    estate.settle()
    device = first.bench.device(5, "d").connect(clean=False)
    estate.settle(0.3)
    device.subscribe("kept/#", 1)
    topics = topics_of(estate, device, 500)
    assert len(topics) < COUNT
    if killed:
        estate.kill(first)
        estate.condemn(first.instance, second)
        estate.changed()
        estate.settle()
    device = second.bench.device(5, "d").connect(clean=False)
    topics += topics_of(estate, device, 500)
    assert len({*topics}) < COUNT
    topics += topics_of(estate, device, 4 * COUNT)
    estate.settle()
    assert {*topics} == {b"kept/%d" % number for number in range(COUNT)}
    assert ["retained" in decode_json(row[3]) for row in estate.rows[SESSIONS].values()] == [False]


def test_what_a_new_subscription_brings_comes_to_the_connection_that_has_the_session_then() -> None:
    """Before they are sent, this gateway makes sure that it knows what others have retained."""
    estate = Estate()
    first, _ = estate.start(), estate.start()
    kept_by(first.bench, "kept/1")
    older = first.bench.device(5, "d").connect(clean=False)
    estate.settle(0.3)
    older.subscribe("kept/+", 1)
    newer = first.bench.device(5, "d").connect(clean=False)
    estate.settle(0.3)
    assert not [packet for packet in older.take() if packet[0] >> 4 == p.PUBLISH]
    assert [packet[1] for packet in newer.take() if packet[0] >> 4 == p.PUBLISH] == [b"kept/1"]
    assert ["retained" in decode_json(row[3]) for row in estate.rows[SESSIONS].values()] == [False]


def test_what_a_new_subscription_brings_comes_at_the_gateway_that_has_the_session_then() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    kept_by(first.bench, "kept/1")
    estate.settle(0.3)
    older = first.bench.device(5, "d").connect(clean=False)
    estate.settle(0.3)
    older.subscribe("kept/+", 1)
    newer = second.bench.device(5, "d").connect(clean=False)
    estate.settle(1.0)
    told = [packet[1] for device in (older, newer) for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    assert set(told) == {b"kept/1"}
    assert not first.bench.engine.subscribe._left
    assert ["retained" in decode_json(row[3]) for row in estate.rows[SESSIONS].values()] == [False]


def kept_by(bench: Harness, *topics: str, qos: int = 1) -> None:
    sender = bench.device(5, "sender").connect()
    for number, topic in enumerate(topics, 1):
        sender.publish(topic, topic.encode(), qos, number if qos else 0, retain=True)


def names(bench: Harness) -> list[list[str]]:
    """The retained messages to come, by the records of sessions."""
    rows = bench.queues.rows[SESSIONS].values()
    return [decode_json(row[3])["retained"] for row in rows if "retained" in decode_json(row[3])]


@pytest.mark.parametrize("version", [4, 5])
def test_what_a_kill_behind_suback_leaves_comes_later_mqtt5_3_8_4_4(version: int) -> None:
    """The commit that SUBACK waits for says that they are to come; the one with them says so no more."""
    bench = Harness()
    kept_by(bench, "kept/1", "kept/2")
    device = bench.device(version, "d").connect(clean=False)
    bench.queues.automatic = False
    device.subscribe("kept/#", 1)
    bench.queues.land()
    assert names(bench) == [["kept/#"]]
    bench.kill()
    bench.queues.automatic = True
    device = bench.device(version, "d").connect(clean=False)
    bench.advance(0.5)
    assert {packet[1] for packet in device.take() if packet[0] >> 4 == p.PUBLISH} == {b"kept/1", b"kept/2"}
    assert not names(bench)
    bench.kill()
    device = bench.device(version, "d").connect(clean=False)
    bench.advance(0.5)
    assert sum(packet[0] >> 4 == p.PUBLISH for packet in device.take()) == 2, "as they are not acknowledged"


@pytest.mark.parametrize(
    ("kept", "wanted", "qos", "options"),
    [
        ("kept/0", "other/+", 1, {}),
        ("kept/1", "kept/1", 0, {}),
        ("kept/1", "kept/1", 1, {"retain_handling": 2}),
        ("kept/1", "$share/g/kept/1", 1, {}),
        ("kept/1", "kept/#", 1, {"again": True}),
    ],
)
def test_what_brings_nothing_that_must_arrive_costs_no_record(
    kept: str, wanted: str, qos: int, options: dict[str, Any]
) -> None:
    bench = Harness()
    kept_by(bench, kept)
    again = options.pop("again", False)
    device = bench.device(5, "d").connect(clean=False)
    if again:  # whoever has subscribed for the second time does so whenever it connects
        device.subscribe(wanted, qos, **options)
    bench.queues.automatic = False
    device.subscribe(wanted, qos, **options)
    bench.queues.land()
    assert not names(bench)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert not names(bench)


def test_a_filter_that_ends_before_what_it_brings_is_sent_brings_nothing_mqtt_3_10_4_2() -> None:
    bench = Harness()
    kept_by(bench, "kept/1")
    device = bench.device(5, "d").connect(clean=False)
    device.take()
    bench.queues.automatic = False
    wanted, unwanted = (Subscribe(1, [Subscription("kept/#", 1, retain_handling=each)]) for each in (0, 2))
    ended = client.encode_unsubscribe(5, Unsubscribe(2, ["kept/#"]))
    device.send(client.encode_subscribe(5, wanted) + ended + client.encode_subscribe(5, unwanted))
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert [packet[0] >> 4 for packet in device.take()] == [p.SUBACK, p.UNSUBACK, p.SUBACK]
    assert not names(bench)


@pytest.mark.parametrize("same", [False, True])
def test_many_subscribes_at_a_time_cost_as_much_each_as_few(*, same: bool) -> None:
    """What one of them may bring was looked for among that of all others, in one turn: 16,000 took 8 s."""

    def cost(count: int) -> int:
        bench = Harness(max_subscriptions=count)
        device = bench.device(5, "d").connect(clean=False)
        filters = ["a" if same else f"a{number}" for number in range(count)]
        bench.queues.automatic = False
        wanted = [Subscribe(number, [Subscription(filter_, 1)]) for number, filter_ in enumerate(filters, 1)]
        device.send(b"".join(client.encode_subscribe(5, one) for one in wanted))
        ended = [Unsubscribe(number, [filter_]) for number, filter_ in enumerate(filters, 1)]

        def work() -> None:
            device.send(b"".join(client.encode_unsubscribe(5, one) for one in ended))
            while bench.queues.commit():
                pass

        spent = calls(work)
        assert bench.engine.context.sessions.get("d").outflow.promised is None
        return spent

    assert cost(800) < 5 * cost(200)
