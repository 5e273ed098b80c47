"""gateway.broker.gateways.from_others: what others have put for a gateway, and for one that is no more."""

from __future__ import annotations

from typing import Any

from broker_harness import Device
from several_brokers import Estate, Node

from gateway.mqtt import packets as p
from gateway.ports.state_queues import FORWARD


def payloads(packets: list[Any]) -> list[bytes]:
    return [packet[4] for packet in packets if packet[0] >> 4 == p.PUBLISH]


def at(node: Node, name: str) -> Device:
    device = node.bench.device(5, name)
    device.connect(clean=False)
    return device


def test_qos_0_comes_at_most_once_also_when_the_successor_is_killed() -> None:
    estate = Estate()
    first, second, third = estate.start(), estate.start(), estate.start()
    hears, sender = at(first, "hears"), at(third, "says")
    estate.settle(0.5)
    hears.subscribe("news", 1)
    estate.settle(0.5)
    estate.kill(first)
    for number in range(20):
        sender.publish("news", b"%d" % number)
    while third.commit():
        third.turn()
    assert len(estate.rows[FORWARD]) == 20
    hears = at(second, "hears")
    estate.condemn(first.instance, second)
    before: list[Any] = []
    for _ in range(300):  # it ends in the middle: as soon as something has come, or when all has been read
        any(node.commit() or node.hear() or node.answer() for node in (second, third))
        for node in (second, third):
            node.turn()
            node.bench.clock.advance(0.001)
        before += hears.take()
        if payloads(before):
            break
    estate.kill(second)
    hears = at(third, "hears")
    estate.condemn(second.instance, third)
    estate.settle()
    got = payloads(before) + payloads(hears.take())
    assert len(got) == len(set(got)), "some of it twice"
