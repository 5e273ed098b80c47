"""Shared subscriptions whose members are at several gateways: those that can take a message now come first, wherever
they are, as at one gateway."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.gateways import from_others, interests
from gateway.broker.gateways.forwarded import Forwarded, groups_of
from gateway.broker.publish.route import Route, Shared
from gateway.mqtt import writer
from gateway.mqtt.packets import PUBREL
from gateway.ports.state_queues import FORWARD
from gateway.routing.filters import Sharers
from gateway.session.publication import Publication

GROUP = "$share/g/a"


class Members:
    """Three brokers."""

    def __init__(self) -> None:
        self.estate = Estate()
        self.nodes = [self.estate.start() for _ in range(3)]
        self.number = 0

    def arrives(
        self, name: str, node: Node, properties: dict[int, Any] | None = None, *, shares: bool = True
    ) -> Device:
        device = node.bench.device(5, name).connect(clean=False, properties=properties)
        self.estate.settle(0.2)
        if shares:
            device.subscribe(GROUP, 2)
        self.estate.settle(0.2)
        device.take()
        return device

    def publishes(self, node: Node, qos: int, count: int) -> list[bytes]:
        """Their payloads; some time later."""
        self.number += 1
        device = node.bench.device(5, f"p{self.number}").connect()
        self.estate.settle(0.2)
        payloads = [b"%d %d" % (self.number, at) for at in range(count)]
        for packet_id, payload in enumerate(payloads, 1):
            device.publish("a", payload, qos, packet_id if qos else 0)
        self.estate.settle(0.5)
        return payloads

    def payloads(self, device: Device) -> list[bytes]:
        return [packet[4] for packet in device.take() if packet[0] >> 4 == 3]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["where nobody is connected", "where one is", "where there is no member"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_member_that_is_away_is_passed_over(at: int, qos: int) -> None:
    members = Members()
    away, here = members.arrives("away", members.nodes[0]), members.arrives("here", members.nodes[1])
    away.disconnect()
    members.estate.settle(0.2)
    sent = members.publishes(members.nodes[at], qos, 6)
    assert sorted(members.payloads(here)) == sent


def test_a_member_that_acknowledges_nothing_does_not_get_what_others_can_take() -> None:
    members = Members()
    stuck = members.arrives("stuck", members.nodes[0], {0x21: 1})
    here = members.arrives("here", members.nodes[1])
    sent = [payload for node in members.nodes for payload in members.publishes(node, 1, 6)]
    assert len(members.payloads(stuck)) == 1
    assert len(members.payloads(here)) >= len(sent) - 2


def test_what_comes_while_all_are_away_is_kept_for_one() -> None:
    members = Members()
    away = [members.arrives(f"away{at}", node) for at, node in enumerate(members.nodes)]
    for device in away:
        device.disconnect()
    members.estate.settle(0.2)
    sent = [payload for node in members.nodes for payload in members.publishes(node, 1, 4)]
    back = [members.arrives(f"away{at}", node, shares=False) for at, node in enumerate(members.nodes)]
    assert not any(device.wire.closed for device in back)
    assert len(members.estate.rows["MQGATE.OUT"]) == len(sent)


def test_what_all_have_too_much_of_stays() -> None:
    members = Members()
    stuck = [members.arrives(f"stuck{at}", node, {0x21: 1}) for at, node in enumerate(members.nodes)]
    sent = [payload for node in members.nodes for payload in members.publishes(node, 1, 6)]
    assert [len(members.payloads(device)) for device in stuck] == [1, 1, 1]
    assert len(members.estate.rows["MQGATE.OUT"]) == len(sent)
    assert not members.estate.rows["MQGATE.FORWARD"]


def test_what_was_passed_on_goes_back_when_the_other_member_leaves_meanwhile() -> None:
    members = Members()
    first, second, third = members.nodes
    away, here = members.arrives("away", first), members.arrives("here", second)
    publisher = members.arrives("publisher", third, shares=False)
    away.disconnect()
    members.estate.settle(0.2)
    for packet_id in range(1, 5):
        publisher.publish("a", b"%d" % packet_id, 1, packet_id)
    while third.commit():
        pass
    while any([first.look_ahead(), first.commit()]):
        first.turn()
    here.unsubscribe(GROUP)
    while second.commit():
        pass
    members.estate.settle(0.5)
    assert len(members.estate.rows["MQGATE.OUT"]) == 4
    assert not members.estate.rows["MQGATE.FORWARD"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_at_another_gateway_are_named_in_short_messages_and_served_in_slices(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose how many there are and how long their names: a message that named all of them was longer than a
    queue takes, and other gateways stood still over it."""
    monkeypatch.setattr(interests, "_PAGE_BYTES", 200)
    monkeypatch.setattr(from_others, "SLICE_SECONDS", -1.0)
    members = Members()
    away, here, other = members.nodes
    member = members.arrives("member", away, shares=False)
    for number in range(30):
        member.subscribe(f"$share/a-group-with-a-long-name-{number}/#", 2)
    member.subscribe("a", 2)
    members.arrives("elsewhere", other)
    members.estate.settle(0.5)
    member.take()
    publisher = here.bench.device(5, "p").connect()
    members.estate.settle(0.2)
    for number in (1, 2):
        publisher.publish("a", b"%d" % number, qos, number if qos else 0)
    if qos == 2:
        members.estate.settle(0.2)
        publisher.send(writer.encode_acks(PUBREL, [1, 2]))
    while here.commit():
        pass
    longest = max(len(row[3]) for row in members.estate.rows[FORWARD].values())
    members.estate.settle(1.0)
    assert longest < 1000
    assert sorted(members.payloads(member)) == [b"1"] * 31 + [b"2"] * 31
    assert not members.estate.rows[FORWARD]


def test_those_that_are_served_are_found_in_time() -> None:
    class Name(str):
        compared = 0
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other) is True

        __hash__ = str.__hash__

    names = [f"$share/{number}/a" for number in range(500)]
    route = Route("a", b"a", 0)
    route.shared = tuple(Shared(Name(name), Sharers(), lambda _session: None) for name in names)
    forwarded = Forwarded(Publication(b"a", b"", 0, retain=False), groups=[*map(Name, names)])
    assert [group.name for group in groups_of(route, forwarded)] == names
    assert Name.compared < 20 * len(names)
