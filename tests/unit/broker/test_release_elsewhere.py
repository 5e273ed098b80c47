"""What a release at QoS 2 owes other gateways comes there once, whatever meets a defect or refuses."""

from __future__ import annotations

from functools import partial

import pytest
from broker_harness import Device, Harness
from refused_queues import FULL, bodies
from several_brokers import Estate, Node

from gateway.mqtt import packets as p
from gateway.ports.state_queues import SET_ASIDE, STAGED

MAPPING = "to_mq: [{name: all, topic: 'news/#', queue: Q}]\n"


class Scene:
    """A reader at one gateway, a sender at another one, where nothing can be put for others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.estate = Estate()
        self.estate.harness = partial(Harness, f"version: 1\n{MAPPING}")
        self.first, self.second = self.estate.start(), self.estate.start()
        self.first.bench.defects = []
        self.monkeypatch = monkeypatch
        self.reader = self.comes("reader", self.second)
        self.reader.subscribe("news/#", 1)
        self.sender = self.comes("sender", self.first)
        self.sender.publish("news/x", b"0", 1, 1)
        self.estate.settle()
        assert self.told() == [b"0"]

    def comes(self, name: str, node: Node) -> Device:
        device: Device = node.bench.device(5, name).connect(clean=False)
        self.estate.settle(0.2)
        device.take()
        return device

    def told(self) -> list[bytes]:
        self.estate.settle()
        return [packet[4] for packet in self.reader.take() if packet[0] >> 4 == p.PUBLISH]

    def release(self, *ids: int) -> None:
        for packet_id in ids:
            self.sender.publish("news/x", b"%d" % packet_id, 2, packet_id)
        self.estate.settle(0.2)
        self.sender.take()
        fan_out = self.first.bench.engine.fan_out
        with self.monkeypatch.context() as broken:
            for name in ("forward", "forward_all"):
                broken.setattr(fan_out, name, lambda *_: 1 / 0)
            self.sender.send(b"".join(b"\x62\x02" + packet_id.to_bytes(2) for packet_id in ids))
        self.estate.settle()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_it_is_set_aside(scene: Scene) -> None:
    scene.release(7, 8)
    assert scene.sender.wire.closed
    assert scene.first.queues.depth(SET_ASIDE) == 3  # and the connection's, once
    assert scene.first.queues.depth(STAGED) == 0
    assert bodies(scene.first.bench, "Q") == [b"0", b"7", b"8"]
    assert scene.told() == []


def test_its_release_is_undone_where_the_queue_for_that_refuses(scene: Scene) -> None:
    scene.first.queues.refusing[SET_ASIDE] = FULL
    scene.release(7, 8)
    assert scene.sender.wire.closed
    assert bodies(scene.first.bench, "Q") == [b"0"]
    assert scene.first.queues.depth(STAGED) == 2
    scene.sender = scene.comes("sender", scene.first)
    for packet_id in (7, 8):
        scene.sender.ack(p.PUBREL, packet_id)
    assert scene.told() == [b"7", b"8"]
    assert [packet[0] >> 4 for packet in scene.sender.take()] == [p.PUBCOMP] * 2
    assert bodies(scene.first.bench, "Q") == [b"0", b"7", b"8"]
    assert scene.first.queues.depth(STAGED) == 0
