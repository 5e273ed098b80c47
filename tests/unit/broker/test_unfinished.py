"""gateway.broker.gateways.unfinished: who is taken over from when a gateway begins, or takes over itself."""

from __future__ import annotations

from broker_harness import Device
from several_brokers import Estate, Node

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
