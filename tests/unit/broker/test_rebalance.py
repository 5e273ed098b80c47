"""Evening out connections over several brokers: who is handed back, how fast, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.gateways.census import INTERVAL, Gateway
from gateway.broker.gateways.rebalance import plan_for
from gateway.mqtt import packets as p


def gateway(name: str, connections: int | None, *, heard: float | None = 1.0, own: bool = False) -> Gateway:
    figures = {} if connections is None else {"clients/connected": connections}
    return Gateway(name, name, "1", 0.0, heard, figures, own)


@pytest.mark.parametrize(
    ("connections", "keep", "hands_back"),
    [
        ([9, 0, 0], 3, [6, 0, 0]),
        ([8, 1, 1], 4, [4, 0, 0]),
        ([5, 5, 5], 5, [0, 0, 0]),
        ([0, 0], 0, [0, 0]),
        ([7], 7, [0]),
    ],
)
def test_each_gateway_keeps_its_share(connections: list[int], keep: int, hands_back: list[int]) -> None:
    plan = plan_for(gateway(str(at), number) for at, number in enumerate(connections))
    assert plan.keep == keep
    assert [share.hands_back for share in plan.shares] == hands_back


def test_without_figures_of_all_there_is_no_share() -> None:
    plan = plan_for([gateway("a", 9, own=True), gateway("b", 0, heard=None), gateway("c", None)])
    assert plan.unheard == ["b", "c"]


class Fleet:
    """Two brokers, and devices at the first."""

    def __init__(self, **limits: Any) -> None:
        self.estate = Estate()
        self.nodes = [self.estate.start(**limits), self.estate.start(**limits)]
        self.devices: dict[str, Device] = {}

    def connect(self, name: str, node: Node, *, version: int = 5, clean: bool = False) -> Device:
        device = self.devices[name] = node.bench.device(version, name)
        device.connect(clean=clean)
        self.estate.settle(0.2)
        assert device.take()[0][1].reason == 0
        return device

    def ask(self, rate: float, node: int = 0) -> None:
        for one in self.nodes:
            one.bench.advance(INTERVAL + 1)
        self.estate.settle(0.2)
        bench = self.nodes[node].bench
        plan = plan_for(bench.engine.census.gateways(bench.clock.now()))
        assert not plan.unheard
        bench.engine.ownership.rebalance.ask(plan, rate)
        bench.engine.flush()

    def gone(self) -> list[str]:
        return [name for name, device in self.devices.items() if device.wire.closed]


def test_one_that_has_more_than_its_share_hands_back_the_rest_and_says_why() -> None:
    fleet = Fleet()
    for number in range(6):
        fleet.connect(f"c{number}", fleet.nodes[0])
    fleet.ask(1000)
    fleet.estate.settle(0.5)
    assert len(fleet.gone()) == 3
    told = fleet.devices[fleet.gone()[0]].take()[-1]
    assert (told[0] >> 4, told[1].reason) == (p.DISCONNECT, 0x8B)


def test_with_a_server_reference_devices_are_told_where_to_go() -> None:
    fleet = Fleet(server_reference="mqtt.example:1883")
    for number in range(2):
        fleet.connect(f"c{number}", fleet.nodes[0])
    fleet.ask(1000)
    fleet.estate.settle(0.5)
    (gone,) = fleet.gone()
    told = fleet.devices[gone].take()[-1][1]
    assert (told.reason, told.properties[0x1C]) == (0x9C, "mqtt.example:1883")


def test_it_may_be_asked_of_any_of_them() -> None:
    fleet = Fleet()
    for number in range(6):
        fleet.connect(f"c{number}", fleet.nodes[0])
    fleet.ask(1000, node=1)
    fleet.estate.settle(0.5)
    assert len(fleet.gone()) == 3


def test_only_devices_whose_sessions_go_along_are_asked() -> None:
    fleet = Fleet()
    for number in range(6):
        fleet.connect(f"clean{number}", fleet.nodes[0], version=4 + number % 2, clean=True)
    fleet.connect("kept", fleet.nodes[0], version=4)
    assert fleet.nodes[0].bench.engine.ownership.rebalance.movable() == 1
    fleet.ask(1000)
    fleet.estate.settle(0.5)
    assert fleet.gone() == ["kept"]


def test_so_many_in_a_second_until_somebody_stops_it() -> None:
    fleet = Fleet()
    for number in range(20):
        fleet.connect(f"c{number}", fleet.nodes[0])
    fleet.ask(2, node=1)
    before = fleet.nodes[0].bench.clock.monotonic()
    fleet.estate.settle(1.0)
    seconds = fleet.nodes[0].bench.clock.monotonic() - before
    assert 1 <= len(fleet.gone()) <= 2 + 2 * seconds
    fleet.nodes[1].bench.engine.ownership.rebalance.ask_to_stop()
    fleet.nodes[1].bench.engine.flush()
    fleet.estate.settle(0.2)
    gone = fleet.gone()
    fleet.estate.settle(3.0)
    assert fleet.gone() == gone


def test_a_device_that_comes_back_to_the_same_gateway_is_not_asked_again() -> None:
    fleet = Fleet()
    for number in range(6):
        fleet.connect(f"c{number}", fleet.nodes[0])
    told: list[str] = []
    fleet.nodes[0].bench.engine.ownership.rebalance.told = told.append
    fleet.ask(20)
    asked: list[str] = []
    for _ in range(20):
        fleet.estate.settle(0.1)
        for name in fleet.gone():
            asked.append(name)
            fleet.connect(name, fleet.nodes[0])
    assert sorted(asked) == sorted(set(asked))
    assert "connections were handed back" in told[-1]


def test_gateways_that_meet_tell_each_other_at_once_what_they_have() -> None:
    estate = Estate()
    first = estate.start()
    first.bench.advance(2)
    second = estate.start()
    for node in (first, second):
        node.bench.advance(1)
    estate.settle(0.2)
    for node in (first, second):
        assert plan_for(node.bench.engine.census.gateways(node.bench.clock.now())).unheard == []


def test_what_a_device_had_sent_is_read_before_it_is_handed_back() -> None:
    fleet = Fleet()
    for number in range(2):
        fleet.connect(f"c{number}", fleet.nodes[0]).wire.waits = True
    fleet.ask(1000)
    assert fleet.gone() == []
    fleet.estate.settle(0.5)
    assert len(fleet.gone()) == 1, "one that sends on is not waited for"


def test_so_is_what_was_put_off_of_it() -> None:
    fleet = Fleet()
    devices = [fleet.connect(f"c{number}", fleet.nodes[0]) for number in range(2)]
    for one in fleet.nodes:
        one.bench.advance(INTERVAL + 1)
    fleet.estate.settle(0.2)
    engine = fleet.nodes[0].bench.engine
    for device in devices:
        engine.put_off.add_data(device.connection, b"\xe0\x00", slow=True)
    engine.ownership.rebalance.begin(1, 1000)
    fleet.estate.settle(0.5)
    assert [device.connection.close_reason for device in devices] == ["normal"] * 2
