"""Several gateways retain and clear on the same topics at once, with everything between them in any order: in the end
all know the same, and it is what lies on the queue, once for each topic.
"""

from __future__ import annotations

import os
import random

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.mqtt import packets as p
from gateway.ports.state_queues import RETAINED
from gateway.session.record import decode_publication

LONG = bool(os.environ.get("MQGATE_LONG"))
WEIGHTS = {"publish": 20, "begin": 10, "commit": 10, "hear": 20, "look": 10, "answer": 10, "turn": 10, "wait": 3}
TOPICS = ("kept/a", "kept/b")


class World:
    """Some gateways with a publisher each, and dice."""

    def __init__(self, seed: int, gateways: int, *, cleared: float) -> None:
        self.dice = random.Random(seed)
        self.cleared = cleared
        self.estate = Estate()
        self.nodes = [self.estate.start() for _ in range(gateways)]
        self.publishers: dict[str, Device] = {}
        for number, node in enumerate(self.nodes):
            device = self.publishers[node.instance] = node.bench.device(5, f"tells-{number}")
            device.connect()
            self.estate.settle(1.0)
        self.number = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            (kind,) = self.dice.choices([*WEIGHTS], [*WEIGHTS.values()])
            node = self.dice.choice(self.nodes)
            getattr(self, kind, lambda node, kind=kind: getattr(node.queues, kind)())(node)

    def publish(self, node: Node) -> None:
        self.number += 1
        body = b"" if self.dice.random() < self.cleared else b"%d" % self.number
        self.publishers[node.instance].publish(self.dice.choice(TOPICS), body, retain=True)

    def hear(self, node: Node) -> None:
        node.hear()

    def turn(self, node: Node) -> None:
        node.turn()

    def wait(self, node: Node) -> None:
        node.bench.advance(0.05)

    def agree(self) -> None:
        self.estate.settle()
        bodies = [row[3] for row in self.estate.rows[RETAINED].values()]
        lying = [(one.topic, one.payload) for one in (decode_publication(body)[0] for body in bodies)]
        for node in self.nodes:
            known = [(one.topic, one.payload) for one in node.bench.engine.retained if one.topic.startswith(b"kept/")]
            assert sorted(known) == sorted(lying)


@pytest.mark.parametrize("gateways", [2, 3])
@pytest.mark.parametrize("seed", range(300) if LONG else range(12))
def test_all_agree_in_the_end(seed: int, gateways: int) -> None:
    world = World(seed, gateways, cleared=0.15 * (seed % 3))
    world.play(400)
    world.agree()


def test_more_records_of_a_topic_than_are_read_at_once() -> None:
    """Each of seven gateways puts one before it sees those of the others."""
    world = World(0, 7, cleared=0)
    for node in world.nodes:
        world.publishers[node.instance].publish("kept/a", node.instance.encode(), retain=True)
        node.queues.begin()
    for step in (Node.commit, Node.hear, Node.answer):
        for node in world.nodes:
            while step(node):
                pass
    world.agree()


def test_a_commit_that_returns_while_its_topic_is_read() -> None:
    world = World(0, 2, cleared=0)
    first, second = world.nodes
    world.publishers[second.instance].publish("kept/a", b"of the second", retain=True)
    second.commit()
    world.publishers[first.instance].publish("kept/a", b"of the first", retain=True)  # is on its way to the queue
    while first.hear():
        pass
    assert first.queues.look()  # sees that of the second
    while first.commit():
        pass
    world.agree()


def test_a_topic_that_is_being_retained_keeps_no_subscription_waiting() -> None:
    """What is known of it is newer than what the subscription has asked for. Were it waited for, a topic on which
    several retain all the time would keep subscriptions waiting for ever."""
    world = World(0, 2, cleared=0)
    first, second = world.nodes
    world.publishers[first.instance].publish("kept/b", b"for long", retain=True)
    device = second.bench.device(5, "hears")
    device.connect()
    world.estate.settle(1.0)
    device.subscribe("kept/#", 0)  # the first gateway knows the filter from now on
    world.estate.settle(1.0)
    world.publishers[first.instance].publish("kept/a", b"of the first", retain=True)
    first.commit()
    device.subscribe("kept/#", 0)
    second.commit()
    device.take()
    world.publishers[second.instance].publish("kept/a", b"of the second", retain=True)  # is on its way to the queue
    while second.hear():
        pass
    second.answer()
    second.turn()
    found = {bytes(packet[1]): bytes(packet[4]) for packet in device.take() if packet[0] >> 4 == p.PUBLISH}
    assert found == {b"kept/a": b"of the second", b"kept/b": b"for long"}
    world.agree()


def test_what_is_not_known_here_yet_is_cleared_all_the_same() -> None:
    """Its publisher has been told that it is retained; whoever clears it then, anywhere, is right."""
    world = World(0, 2, cleared=0)
    first, second = world.nodes
    world.publishers[first.instance].publish("kept/a", b"of the first", retain=True)
    first.commit()
    world.publishers[second.instance].publish("kept/a", b"", retain=True)  # it has not heard of it
    second.commit()
    world.agree()
    assert not world.estate.rows[RETAINED]
