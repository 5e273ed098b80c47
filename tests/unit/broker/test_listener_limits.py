"""Limits that a listener has of its own hold for its clients, and for nobody else."""

from __future__ import annotations

import dataclasses

import pytest
from broker_harness import Harness

from gateway.mqtt import packets as p
from gateway.mqtt import writer

VERSIONS = [3, 4, 5]
QUEUED = "version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n"


def bench_with(mapping: str = "version: 1\n", **own) -> Harness:
    """A bench whose clients come through a listener with limits of its own."""
    bench = Harness(mapping)
    bench.engine.limits.listeners = {"bench": dataclasses.replace(bench.engine.limits, **own)}
    return bench


def codes(device) -> list[int]:
    return device.take()[-1][1].reasons


@pytest.mark.parametrize(("version", "code"), [(3, 1), (4, 1), (5, 0x84)])
def test_versions(version, code):
    bench = bench_with(versions=frozenset({3, 4, 5} - {version}))
    device = bench.device(version, "d").connect()
    assert device.take()[0][1].reason == code
    assert device.wire.closed


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x97)])
def test_subscriptions_are_counted_when_refused(version, refused):
    bench = bench_with(max_subscriptions=2)
    device = bench.device(version, "d").connect()
    for name in ("a", "b", "c", "a"):
        device.subscribe(name, 1)
    assert [packet[1].reasons for packet in device.take()[1:]] == [[1], [1], [refused], [1]]
    assert bench.engine.counters.mqtt_subscriptions_refused["bench", "quota"] == 1


@pytest.mark.parametrize(("version", "refused"), [(4, 0x80), (5, 0x8F)])
def test_topic_levels(version, refused):
    bench = bench_with(max_topic_levels=3)
    device = bench.device(version, "d").connect()
    device.subscribe("a/b/c", 1)
    assert codes(device) == [1]
    device.subscribe("a/b/c/d", 1)
    assert codes(device) == [refused]
    assert bench.engine.counters.mqtt_subscriptions_refused["bench", "topic_filter"] == 1
    device.publish("a/b/c/d", b"x", 1, 1)
    assert device.wire.closed


def test_the_window_both_ways():
    bench = bench_with(max_inflight=2, receive_maximum=2)
    device = bench.device(5, "d").connect()
    assert device.take()[0][1].properties[0x21] == 2
    device.subscribe("a", 1)
    device.take()
    sender = bench.device(4, "s").connect()
    for number in range(1, 6):
        sender.publish("a", b"x", 1, number)
    assert len(device.take()) == 2
    for number in range(1, 4):
        device.publish("b", b"x", 2, number)
    refused = device.take()[-1][1]
    assert refused.reason == 0x93
    assert "(2): wait for PUBCOMP, or raise mqtt.max_inflight" in str(refused)


def overrun(device, count, payload=b"x"):
    """All of it is sent before anything is answered, as libraries do with what they have kept."""
    packets = [writer.encode_publish(5, b"q/1", payload, 2, packet_id=number) for number in range(1, count + 1)]
    device.send(b"".join(packets))
    return device.take()


@pytest.mark.parametrize("client_id", ["d", ""], ids=["its own identifier", "one that is assigned"])
@pytest.mark.parametrize("mapping", ["version: 1\n", QUEUED], ids=["nobody", "a queue"])
def test_a_client_that_sends_all_it_has_kept_is_through_with_it_when_it_comes_back(mapping, client_id):
    """paho-mqtt for Python does so whatever is announced, and with a session that ends with the connection it was
    refused with the same for ever."""
    bench = bench_with(mapping, max_inflight=4, receive_maximum=4)
    device = bench.device(5, client_id).connect()
    assert device.take()[0][1].properties[0x21] == 4
    assert overrun(device, 500)[-1][1].reason == 0x93
    device = bench.device(5, client_id).connect()
    assert device.take()[0][1].properties[0x21] == 65_535
    assert [answer[0] >> 4 for answer in overrun(device, 500)] == [p.PUBREC] * 500
    device.send(writer.encode_acks(p.PUBREL, range(1, 501)))
    assert [answer[0] >> 4 for answer in device.take()] == [p.PUBCOMP] * 500
    other = bench.device(5, "other").connect()
    assert other.take()[0][1].properties[0x21] == 4


def test_a_client_that_was_refused_and_has_left_in_order_since_is_announced_what_others_are():
    """The interoperability suite of Eclipse Paho overruns what is announced to it each time that it runs."""
    bench = bench_with(max_inflight=4, receive_maximum=4)
    overrun(bench.device(5, "d").connect(), 5)
    device = bench.device(5, "d").connect()
    device.drop()
    device = bench.device(5, "d").connect()
    assert device.take()[0][1].properties[0x21] == 65_535
    device.disconnect()
    device = bench.device(5, "d").connect()
    assert device.take()[0][1].properties[0x21] == 4
    assert overrun(device, 5)[-1][1].reason == 0x93


@pytest.mark.parametrize("mapping", ["version: 1\n", QUEUED], ids=["nobody", "a queue"])
def test_a_client_that_was_refused_for_receive_maximum_has_no_more_memory_than_a_session(mapping):
    bench = bench_with(mapping, max_inflight=4, receive_maximum=4, max_queued_bytes=100_000)
    overrun(bench.device(5, "d").connect(), 5)
    device = bench.device(5, "d").connect()
    answers = overrun(device, 1000, bytes(1000))
    assert answers[-1][1].reason == 0x93
    assert "were not released" in str(answers[-1][1])


@pytest.mark.parametrize("at_once", [False, True], ids=["packet by packet", "one write"])
@pytest.mark.parametrize("mapping", ["version: 1\n", QUEUED], ids=["nobody", "a queue"])
@pytest.mark.parametrize("sixteen", [True, False], ids=["one too many", "as many as may be"])
def test_what_is_released_behind_it_makes_no_room_for_a_publication_mqtt_3_3_4_7(at_once, mapping, sixteen):
    bench = bench_with(mapping, max_inflight=20, receive_maximum=20)
    device = bench.device(5, "d").connect()
    for number in range(1, 6):
        device.publish("q/1", b"x", 2, number)
    device.take()
    last = 22 if sixteen else 21
    packets = [writer.encode_publish(5, b"q/1", b"x", 2, packet_id=number) for number in range(6, last)]
    packets += [writer.encode_acks(p.PUBREL, [number]) for number in range(1, 6)]
    for data in [b"".join(packets)] if at_once else packets:
        device.send(data)
    answers = device.take()
    assert device.wire.closed is sixteen
    if sixteen:
        assert answers[-1][1].reason == 0x93
    else:
        assert sum(answer[0] >> 4 == p.PUBCOMP for answer in answers) == 5


@pytest.mark.parametrize("at_once", [False, True], ids=["packet by packet", "one write"])
@pytest.mark.parametrize("mapping", ["version: 1\n", QUEUED], ids=["nobody", "a queue"])
def test_publications_of_qos_1_are_not_counted_mqtt_3_3_4_7(at_once, mapping):
    """A client that sends all it has kept as soon as it is connected, as paho-mqtt for Python does, came back with the
    same for ever, and had it put each time."""
    bench = bench_with(mapping, max_inflight=4, receive_maximum=4)
    device = bench.device(5, "d").connect()
    for number in range(1, 5):
        device.publish("q/1", b"x", 2, number)
    device.take()
    packets = [writer.encode_publish(5, b"q/1", b"x", 1, packet_id=number) for number in range(5, 2005)]
    packets.append(writer.encode_acks(p.PUBREL, [1]))
    for data in [b"".join(packets)] if at_once else packets:
        device.send(data)
    answers = [answer[0] >> 4 for answer in device.take()]
    assert (answers.count(p.PUBACK), answers.count(p.PUBCOMP)) == (2000, 1)
    assert not device.wire.closed


@pytest.mark.parametrize("at_once", [False, True], ids=["packet by packet", "one write"])
@pytest.mark.parametrize("mapping", ["version: 1\n", QUEUED], ids=["nobody", "a queue"])
@pytest.mark.parametrize("run", [1, 9], ids=["records", "runs"])
def test_what_is_released_counts_until_pubcomp_is_sent_mqtt_4_9(at_once, mapping, run):
    bench = bench_with(mapping, max_inflight=run, receive_maximum=run)
    device = bench.device(5, "d").connect()
    ids = range(1, run + 1)

    def publications(first):
        return b"".join(writer.encode_publish(5, b"q/1", b"x", 2, packet_id=first + one) for one in ids)

    device.send(publications(0))
    releases = writer.encode_acks(p.PUBREL, ids)
    device.send(releases)
    assert [packet[0] >> 4 for packet in device.take()].count(p.PUBCOMP) == run
    device.send(publications(100))  # the PUBCOMPs were sent: there is room again
    device.take()
    assert not device.wire.closed
    one_more = writer.encode_publish(5, b"q/1", b"x", 2, packet_id=99)
    releases = writer.encode_acks(p.PUBREL, [100 + one for one in ids])
    if at_once:
        device.send(releases + one_more)
    else:
        connection = device.connection
        bench.engine.received_each([(connection, releases)])
        bench.engine.received_each([(connection, one_more)])
        bench.engine.flush()
    assert device.wire.closed
    assert device.take()[-1][1].reason == 0x93


@pytest.mark.parametrize("limit", [{"max_queued": 3}, {"max_queued_bytes": 30}])
def test_what_is_stored_for_a_session_that_is_away(limit):
    bench = bench_with(**limit)
    device = bench.device(4, "d").connect(clean=False)
    device.subscribe("a", 1)
    device.disconnect()
    sender = bench.device(4, "s").connect()
    for number in range(1, 6):
        sender.publish("a", b"ten bytes.", 1, number)
    again = bench.device(4, "d").connect(clean=False)
    assert sum(packet[0] >> 4 == 3 for packet in again.take()) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_the_packet_size(version):
    bench = bench_with(max_packet=200)
    device = bench.device(version, "d").connect()
    device.publish("a", b"x" * 150, 1, 1)
    assert not device.wire.closed
    device.publish("a", b"x" * 200, 1, 2)
    assert device.wire.closed


def test_other_listeners_keep_the_common_ones():
    bench = bench_with(max_subscriptions=1)
    bench.engine.limits.listeners = {"other": bench.engine.limits.listeners["bench"]}
    device = bench.device(4, "d").connect()
    for name in ("a", "b"):
        device.subscribe(name, 1)
    assert [packet[1].reasons for packet in device.take()[1:]] == [[1], [1]]


@pytest.mark.parametrize("version", VERSIONS)
def test_long_filters_take_no_more_than_256_characters_for_each_subscription(version):
    bench = bench_with(max_subscriptions=10)
    device = bench.device(version, "d").connect()
    for number in range(4):
        device.subscribe(f"{number}" + "x" * 999, 1)
    granted, refused = {3: (1, 1), 4: (1, 0x80), 5: (1, 0x97)}[version]
    assert [packet[1].reasons[0] for packet in device.take()[1:]] == [granted, granted, refused, refused]
    assert len(bench.engine.router.subscriptions) == 2
    device.subscribe("short", 1)
    assert codes(device) == [1]


@pytest.mark.parametrize("version", [3, 4])
def test_qos_2_that_is_never_released_takes_a_bounded_amount(version):
    bench = bench_with(max_queued_bytes=1000, max_inflight=10, receive_maximum=10)
    device = bench.device(version, "d").connect(clean=False)
    for number in range(1, 201):
        device.publish("a", b"x" * 100, 2, number)
    assert device.wire.closed
    held = bench.engine.sessions.get("d").inbound
    assert 10 < len(held) < 20
    again = bench.device(version, "d").connect(clean=False)
    for number in sorted(held):
        again.ack(6, number)
    assert not again.wire.closed
    assert bench.engine.sessions.get("d").inbound == {}


@pytest.mark.parametrize("version", [3, 4])
def test_many_small_ones_are_nobodys_business(version):
    bench = bench_with(max_inflight=10, receive_maximum=10)
    device = bench.device(version, "d").connect()
    for number in range(1, 2001):
        device.publish("a", b"x", 2, number)
    assert not device.wire.closed


@pytest.mark.parametrize(("version", "code"), [(3, 3), (4, 3), (5, 0x97)])
def test_sessions(version, code):
    """Requirement 20, for one listener: who is away holds a place, who has one comes back, a clean start frees it."""
    bench = bench_with(max_listener_sessions=2)
    bench.device(version, "away").connect(clean=False).disconnect()
    here = bench.device(version, "here").connect()
    assert here.take()[0][1].reason == 0
    late = bench.device(version, "late").connect()
    assert late.take()[0][1].reason == code
    assert late.wire.closed
    counts = bench.engine.counters.mqtt_connects
    assert sum(n for (name, _, result), n in counts.items() if (name, result) == ("bench", "too_many")) == 1
    bench.kill()
    bench.engine.limits.listeners = {"bench": dataclasses.replace(bench.engine.limits, max_listener_sessions=2)}
    assert bench.engine.sessions.by_listener["bench"] == 1, "counted again at start"
    assert bench.device(version, "away").connect(clean=False).take()[0][1].reason == 0
    again = bench.device(version, "away").connect()
    assert again.take()[0][1].reason == 0, "a take-over needs no more room"
    again.disconnect()
    assert bench.engine.sessions.by_listener["bench"] == 0
    assert all(bench.device(version, name).connect().take()[0][1].reason == 0 for name in ("late", "later"))


def test_a_client_that_comes_from_another_listener_is_one_more():
    bench = bench_with(max_listener_sessions=1)
    elsewhere = bench.device(5, "moves")
    elsewhere.wire.listener = "other"
    elsewhere.connect(clean=False).disconnect()
    first = bench.device(5, "first").connect(clean=False)
    moves = bench.device(5, "moves").connect(clean=False)
    assert moves.take()[0][1].reason == 0x97
    first.drop()
    bench.device(5, "first").connect().disconnect()
    back = bench.device(5, "moves").connect(clean=False).take()[0][1]
    assert (back.reason, back.session_present) == (0, True)
    assert dict(bench.engine.sessions.by_listener) == {"": 0, "other": 0, "bench": 1}
