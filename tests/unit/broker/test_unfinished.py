"""gateway.broker.gateways.unfinished: who is taken over from when a gateway begins, or takes over itself."""

from __future__ import annotations

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.sessions import left_over
from gateway.mqtt import packets as p
from gateway.ports.state_queues import FORWARD


def at(estate: Estate, node: Node, name: str) -> Device:
    device = node.bench.device(5, name)
    device.connect(clean=False)
    estate.settle(0.5)
    device.take()
    return device


def test_nothing_is_put_for_a_gateway_that_is_no_more_for_longer_than_its_sessions_are_read() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    at(estate, first, "hears").subscribe("news", 1)
    estate.settle(0.5)
    estate.kill(first)
    estate.condemn(first.instance, second)
    third = estate.start(settle=False)
    estate.settle()
    assert list(third.bench.engine.router.elsewhere.match("news").direct) == [second.instance]
    assert list(third.bench.engine.router.elsewhere.match("other").direct) == []
    assert not estate.rows.get(FORWARD)


def step(estate: Estate) -> None:
    """What there is to do, but one read of each."""
    for node in list(estate.nodes.values()):
        while node.commit() or node.hear():
            node.turn()
        node.answer()
        node.turn()
        node.bench.clock.advance(0.001)


def bodies(device: Device) -> list[bytes]:
    return [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]


def test_what_is_put_for_sessions_that_a_second_gateway_had_begun_to_read_reaches_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway ends, and its successor while it reads the sessions. One that has begun since publishes a will for the
    sessions of both, which a third one reads."""
    monkeypatch.setattr(left_over, "PAGE", 1)
    estate = Estate()
    first, second, third, fourth = (estate.start() for _ in range(4))
    names = [f"hears-{number}" for number in range(3)]
    for name in names:
        at(estate, first, name).subscribe("news", 2)
        estate.settle(0.5)
    fourth.bench.device(5, "dies").connect(clean=False, will=p.Will("news", b"x", 2, retain=False))
    estate.settle(0.5)
    estate.kill(first)
    estate.condemn(first.instance, second)
    while second.bench.engine.context.counters.mqtt_sessions_taken_over < 2:
        step(estate)
    estate.kill(second)
    estate.condemn(second.instance, third)
    estate.kill(fourth)
    estate.start(settle=False, successor=True)
    estate.settle()
    devices = [third.bench.device(5, name) for name in names]
    for device in devices:
        device.connect(clean=False)
    estate.settle()
    assert [bodies(device) for device in devices] == [[b"x"]] * 3
