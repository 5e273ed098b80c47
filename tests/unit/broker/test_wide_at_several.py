"""A publication that is copied in slices, while sessions go from gateway to gateway."""

from __future__ import annotations

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mqtt import packets as p


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", -1)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 1)


class Readers:
    """Two brokers, and sessions that stay."""

    def __init__(self) -> None:
        self.estate = Estate()
        self.first, self.second = self.estate.start(), self.estate.start()
        self.devices: dict[str, Device] = {}
        self.told: dict[str, list[bytes]] = {}

    def comes(self, name: str, node: Node, filter_: str = "") -> Device:
        """It connects, and perhaps subscribes."""
        device = self.devices[name] = node.bench.device(5, name).connect(clean=False)
        if filter_:
            self.estate.settle(0.2)
            device.subscribe(filter_, 1)
            self.estate.settle(0.2)
        return device

    def moves(self, name: str, node: Node) -> None:
        """Its session goes there, while nothing else goes on."""
        self.comes(name, node)
        for _ in range(10):
            for one in (self.first, self.second):
                while any([one.commit(), one.hear(), one.answer()]):
                    pass

    def slices(self, count: int) -> None:
        """Of what is published at the first."""
        for _ in range(count):
            self.first.bench.clock.advance(0.0)
            self.first.commit()

    def payloads(self) -> dict[str, list[bytes]]:
        """What each has been told in the end; it acknowledges."""
        self.estate.settle()
        return {
            name: [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
            for name, device in self.devices.items()
        }


@pytest.fixture
def readers() -> Readers:
    return Readers()


def publisher(readers: Readers, name: str = "tells") -> Device:
    device = readers.first.bench.device(5, name).connect()
    readers.estate.settle(0.2)
    device.take()
    return device


def is_acknowledged(device: Device) -> bool:
    return any(packet[0] >> 4 == p.PUBACK for packet in device.take())


@pytest.mark.parametrize("slices", range(6))
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("publishers", [1, 2])
def test_who_leaves_in_between_has_it_once(readers: Readers, slices: int, count: int, publishers: int) -> None:
    """Its gateway had put it for the others before: the next one takes for granted that it has its copy."""
    names = ["a", "b", "c"]
    for name in names:
        readers.comes(name, readers.first, "news/#")
    readers.comes("there", readers.second, "news/#")
    tellers = [publisher(readers, f"tells-{number}") for number in range(publishers)]
    for whose, teller in enumerate(tellers):
        for number in range(count):
            teller.publish("news/x", b"%d.%d" % (whose, number), 1, 1 + number)
    readers.slices(slices)
    if slices:
        assert not any(map(is_acknowledged, tellers)) or slices > len(names)
    readers.moves("c", readers.second)
    wanted = [[b"%d.%d" % (whose, number) for number in range(count)] for whose in range(publishers)]
    for payloads in readers.payloads().values():
        assert [[one for one in payloads if one[0] == theirs[0][0]] for theirs in wanted] == wanted
        assert len(payloads) == count * publishers


@pytest.mark.parametrize("slices", range(5))
@pytest.mark.parametrize("filter_", ["news/#", "$share/some/news/#"])
@pytest.mark.parametrize("count", [1, 3])
def test_who_leaves_before_it_is_found_out_who_gets_it_takes_it_along(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, slices: int, filter_: str, count: int
) -> None:
    """The machine is slow: a slice is one step."""
    monkeypatch.setattr(wide, "SLICE_SECONDS", -1.0)
    readers.comes("a", readers.first, "news/#")
    readers.comes("leaves", readers.first, filter_)
    readers.comes("there", readers.second, "news/#")
    teller = publisher(readers)
    for number in range(count):
        teller.publish("news/x", b"%d" % number, 1, 1 + number)
    readers.slices(slices)
    readers.moves("leaves", readers.second)
    wanted = [b"%d" % number for number in range(count)]
    assert readers.payloads() == {"a": wanted, "leaves": wanted, "there": wanted}


@pytest.mark.parametrize("slices", range(4))
def test_the_last_member_of_a_shared_subscription_takes_it_along(readers: Readers, slices: int) -> None:
    readers.comes("a", readers.first, "news/#")
    readers.comes("shares", readers.first, "$share/some/news/#")
    teller = publisher(readers)
    teller.publish("news/x", b"1", 1, 1)
    readers.slices(slices)
    readers.moves("shares", readers.second)
    assert readers.payloads() == {"a": [b"1"], "shares": [b"1"]}


@pytest.mark.parametrize("slices", range(4))
def test_who_comes_in_between_has_it_once(readers: Readers, slices: int) -> None:
    """Its former gateway was put it."""
    for name in ("a", "b"):
        readers.comes(name, readers.first, "news/#")
    readers.comes("c", readers.second, "news/#")
    teller = publisher(readers)
    teller.publish("news/x", b"1", 1, 1)
    readers.slices(slices)
    readers.moves("c", readers.first)
    assert readers.payloads() == {name: [b"1"] for name in "abc"}


def test_what_has_waited_for_another_one_is_put_for_those_who_want_it_by_then(readers: Readers) -> None:
    """The session has moved on twice since it was taken in, and all know."""
    third = readers.estate.start()
    readers.comes("a", readers.first, "news/#")
    readers.comes("c", readers.second, "news/#")
    one, other = publisher(readers), readers.first.bench.device(5, "tells-too").connect()
    readers.estate.settle(0.2)
    readers.first.bench.clock.run()
    one.publish("news/x", b"1", 1, 1)
    other.publish("news/x", b"2", 1, 1)
    readers.comes("c", third)
    later, readers.first.bench.clock.advance = readers.first.bench.clock.advance, lambda _seconds: None  # type: ignore[method-assign]
    readers.estate.settle()
    readers.first.bench.clock.advance = later  # type: ignore[method-assign]
    assert readers.payloads() == {"a": [b"1", b"2"], "c": [b"1", b"2"]}
