"""gateway.broker.bounds: what queue managers commit together is no more than one unit of work may hold, and nothing of
it is lost, doubled or overtaken by that."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import BoundedQueues, Device, Harness
from hypothesis import given
from hypothesis import strategies as st
from refused_queues import FULL, MAPPING, PUBACK, PUBCOMP, PUBREC, PUBREL, bodies

from gateway.broker.bounds import _cuts
from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p

MOST = BoundedQueues.most_rows


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING.replace("THEN", "hold"), BoundedQueues())


def commit_all(bench: Harness) -> None:
    while bench.queues.commit():
        pass


def largest(bench: Harness) -> int:
    assert isinstance(bench.queues, BoundedQueues)
    return max(bench.queues.units)


def acks(device: Device) -> list[tuple[int, int]]:
    return [(packet[0] >> 4, packet[1]) for packet in device.take() if packet[0] >> 4 in {PUBACK, PUBREC, PUBCOMP}]


def publications(topic: bytes, count: int, qos: int) -> bytes:
    return b"".join(writer.encode_publish(4, topic, b"%d" % one, qos, packet_id=one) for one in range(1, count + 1))


def numbers(count: int) -> list[bytes]:
    return [b"%d" % one for one in range(1, count + 1)]


@pytest.mark.parametrize("commits", [True, False])
def test_what_one_client_sends_at_once_is_committed_by_and_by(bench: Harness, commits: bool) -> None:
    device = bench.device(4, "d").connect()
    bench.queues.automatic = commits
    device.send(publications(b"first", 500, 1))
    commit_all(bench)
    assert bodies(bench, "FIRST.Q") == numbers(500)
    assert acks(device) == [(PUBACK, one) for one in range(1, 501)]
    assert largest(bench) <= MOST


def test_what_is_no_whole_packet_yet_is_cut_nowhere(bench: Harness) -> None:
    device = bench.device(4, "d").connect()
    data = publications(b"first", 300, 1)
    for begin in range(0, len(data), 1001):
        device.send(data[begin : begin + 1001])
    assert bodies(bench, "FIRST.Q") == numbers(300)
    assert acks(device) == [(PUBACK, one) for one in range(1, 301)]
    assert largest(bench) <= MOST


def test_qos_2_is_staged_and_released_by_and_by() -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"), BoundedQueues(), max_inflight=400)
    device = bench.device(4, "d").connect()
    device.send(publications(b"first", 300, 2))
    device.send(writer.encode_acks(PUBREL, list(range(1, 301))))
    assert bodies(bench, "FIRST.Q") == numbers(300)
    assert acks(device) == [(kind, one) for kind in (PUBREC, PUBCOMP) for one in range(1, 301)]
    assert largest(bench) <= MOST


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("payload", ["alike", "topics"])
def test_copies_for_sessions_are_committed_by_and_by(bench: Harness, qos: int, payload: str) -> None:
    for number in range(7):
        away = bench.device(4, f"away-{number}").connect(clean=False)
        away.subscribe("news/#", 2)
        away.drop()
    device = bench.device(4, "d").connect()
    topics = [b"news/a"] if payload == "alike" else [b"news/a", b"news/b", b"news/c"]
    data = b"".join(
        writer.encode_publish(4, topics[one % len(topics)], b"%d" % one, qos, packet_id=one) for one in range(1, 61)
    )
    device.send(data)
    if qos == 2:
        device.send(writer.encode_acks(PUBREL, list(range(1, 61))))
    for number in range(7):
        back = bench.device(4, f"away-{number}").connect(clean=False)
        assert [one[4] for one in back.take() if one[0] >> 4 == p.PUBLISH] == numbers(60)
    assert largest(bench) <= MOST


def test_acknowledgements_of_many_are_committed_by_and_by(bench: Harness) -> None:
    away = bench.device(4, "away").connect(clean=False)
    away.subscribe("news/#", 1)
    bench.device(4, "d").connect().send(publications(b"news/a", 90, 1))
    got = [one for one in away.take() if one[0] >> 4 == p.PUBLISH]
    assert len(got) == 90
    away.send(writer.encode_acks(PUBACK, [one[2] for one in got]))
    assert bench.queues.depth("MQGATE.OUT") == 0
    assert largest(bench) <= MOST


def test_what_many_clients_send_in_one_round(bench: Harness) -> None:
    """Connections, subscriptions and wills, whose packets are not ordinary."""
    bench.queues.automatic = False
    devices = [bench.device(4, f"d{number}") for number in range(100)]
    connect = [client.encode_connect(client.connect(4, one.client_id, clean_start=False)) for one in devices]
    subscribe = client.encode_subscribe(4, p.Subscribe(1, [p.Subscription("news", 1)]))
    bench.engine.received_each([(one.connection, data) for one, data in zip(devices, connect, strict=True)])
    bench.engine.flush()
    for _ in range(200):
        bench.queues.commit()
        bench.clock.advance(0.01)
    assert all([packet[0] >> 4 for packet in one.take()] == [p.CONNACK] for one in devices)
    bench.engine.received_each([(one.connection, subscribe) for one in devices])
    bench.engine.flush()
    for _ in range(200):
        bench.queues.commit()
        bench.clock.advance(0.01)
    assert all([packet[0] >> 4 for packet in one.take()] == [p.SUBACK] for one in devices)
    assert largest(bench) <= MOST


def test_what_waited_for_a_queue_is_put_by_and_by(bench: Harness) -> None:
    devices = [bench.device(4, f"d{number}").connect() for number in range(4)]
    for one in devices:
        one.take()
    bench.queues.refusing["FIRST.Q"] = FULL
    for one in devices:
        one.send(publications(b"first", 50, 1))
        one.send(publications(b"both/a", 50, 1))
    assert bench.engine.parking.rows > 4 * MOST
    bench.queues.refusing.clear()
    bench.advance(20)
    assert bench.engine.parking.rows == 0
    for one in devices:
        assert acks(one) == 2 * [(PUBACK, number) for number in range(1, 51)]
    assert len(bodies(bench, "SECOND.Q")) == 200
    assert largest(bench) <= MOST


def test_a_slice_of_a_wide_publication_is_no_larger(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", 10)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 1000)
    for number in range(130):
        away = bench.device(4, f"away-{number}").connect(clean=False)
        away.subscribe("news", 1)
        away.drop()
    device = bench.device(4, "d").connect()
    device.take()
    device.publish("news", b"x", 1, 1)
    bench.advance(5)
    assert acks(device) == [(PUBACK, 1)]
    assert bench.queues.depth("MQGATE.OUT") == 130
    assert largest(bench) <= MOST


def test_a_queue_manager_without_a_bound_gets_everything_at_once() -> None:
    bench = Harness(MAPPING.replace("THEN", "hold"))
    device = bench.device(4, "d").connect()
    before = bench.queues.commits
    device.send(publications(b"first", 500, 1))
    assert bench.queues.commits == before + 1


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 5), st.binary(max_size=3))
def test_packets_are_cut_between_two(payloads: list[bytes], most: int, rest: bytes) -> None:
    packets = [writer.encode_publish(4, b"t", one, 1, packet_id=1) for one in payloads]
    data = b"x" + b"".join(packets) + rest[:1]
    pieces = [data[begin:end] for begin, end in _cuts(data, 1, most)]
    assert b"".join(pieces) == data[1:]
    whole: list[Any] = [b"".join(packets[at : at + most]) for at in range(0, len(packets), most)]
    assert pieces[: len(whole) - 1] == whole[:-1]
