"""gateway.broker.gateways.interests: what one gateway tells the others of its clients' subscriptions."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.batch import Batch
from gateway.mqtt import client
from gateway.mqtt import packets as p
from gateway.ports.state_queues import GATEWAYS

FILTERS = [f"a/{number}" for number in range(900)]


def at(estate: Estate, node: Node, name: str) -> Device:
    device = node.bench.device(5, name).connect()
    estate.settle(0.2)
    device.take()
    return device


def said(estate: Estate, node: Node) -> int:
    """How many messages to others a turn and its commits put."""
    before = len(estate.rows[GATEWAYS])
    node.turn()
    while node.commit():
        pass
    return len(estate.rows[GATEWAYS]) - before


def test_many_filters_are_told_in_few_messages() -> None:
    estate = Estate()
    first, second, third = (estate.start() for _ in range(3))
    device = at(estate, first, "s")
    wanted = [p.Subscription(filter_, 1) for filter_ in FILTERS]
    device.send(client.encode_subscribe(5, p.Subscribe(1, wanted)))
    assert said(estate, first) == 2 * 2, "the filters, and whether they have been heard"
    assert not device.take()
    estate.settle(0.2)
    ((_, suback),) = device.take()
    assert suback.reasons == [1] * len(FILTERS)
    for node in (second, third):
        at(estate, node, f"p{node.instance}").publish(FILTERS[-1], b"x", 1, 1)
        estate.settle(0.2)
    assert [packet[4] for packet in device.take()] == [b"x", b"x"]
    device.send(client.encode_unsubscribe(5, p.Unsubscribe(2, FILTERS)))
    assert said(estate, first) == 2
    estate.settle(0.2)
    assert not len(second.bench.engine.router.elsewhere)


def test_the_subscriptions_of_many_clients_are_one_question() -> None:
    """As where all devices of a gateway come back at once, or one sends many SUBSCRIBEs: each was three messages
    for each other gateway, and was looked at among all that were not answered yet."""
    estate = Estate()
    first, second = estate.start(), estate.start()
    devices = [at(estate, first, f"s{number}") for number in range(5)]
    for device in devices:
        wanted = [p.Subscribe(number, [p.Subscription(f"a/{device.client_id}/{number}", 1)]) for number in range(1, 41)]
        first.bench.engine.received_each(
            [(device.connection, b"".join(client.encode_subscribe(5, one) for one in wanted))]
        )
    first.bench.engine.flush()
    assert said(estate, first) == 2
    assert not any(device.take() for device in devices)
    estate.settle(0.2)
    assert [[packet[1].packet_id for packet in device.take()] for device in devices] == [[*range(1, 41)]] * 5
    at(estate, second, "p").publish("a/s4/40", b"x", 1, 1)
    estate.settle(0.2)
    assert [packet[4] for packet in devices[4].take()] == [b"x"]


def test_a_defect_behind_the_answer_costs_one_subscribe(monkeypatch: pytest.MonkeyPatch) -> None:
    estate = Estate()
    first, _ = estate.start(), estate.start()
    first.bench.defects = []
    one, other = at(estate, first, "one"), at(estate, first, "other")
    reply = Batch.reply

    def broken(batch: Batch, connection: Any, data: bytes) -> None:
        if connection is one.connection:
            raise KeyError("a defect")
        reply(batch, connection, data)

    monkeypatch.setattr(Batch, "reply", broken)
    one.subscribe("a", 1)
    other.subscribe("b", 1)
    estate.settle(0.2)
    assert len(first.bench.defects) == 1
    assert [packet[1].reasons for packet in other.take()] == [[1]]


def test_what_is_wanted_again_at_once_is_not_told() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    device = at(estate, first, "s")
    device.subscribe("a", 1)
    estate.settle(0.2)
    device.take()
    unsubscribed = client.encode_unsubscribe(5, p.Unsubscribe(2, ["a"]))
    device.send(unsubscribed + client.encode_subscribe(5, p.Subscribe(3, [p.Subscription("a", 1)])))
    estate.settle(0.2)
    assert [packet[0] >> 4 for packet in device.take()] == [p.UNSUBACK, p.SUBACK]
    publisher = at(estate, second, "p")
    publisher.publish("a", b"x", 1, 1)
    estate.settle(0.2)
    assert [packet[4] for packet in device.take()] == [b"x"]
