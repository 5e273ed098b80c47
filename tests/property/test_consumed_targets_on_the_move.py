"""Several gateways that consume one queue of a target: connections to it are lost, gateways end, or hear late of what
has happened, with everything in any order. Every subscriber gets each message once.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from broker_harness import Harness
from consumed_targets import FarIntake, FarQueue, FarTarget
from several_brokers import Estate, Node
from test_sessions_on_the_move import World

from gateway.broker.targets import Targets
from gateway.mq import mqmd
from gateway.ports.state_queues import MARKERS

MAPPING = """
version: 1
to_mqtt:
  - {name: there, queue: THERE, queue_manager: QM2, topic: news/there, qos: 2}
"""
MD = mqmd.build(persistence=1)


class Consumer(Harness):
    """A broker with a target."""

    def __init__(self, queue: FarQueue, most: int, **more: Any) -> None:
        self.far = FarTarget({"THERE": queue}, most=most)
        super().__init__(MAPPING, **more)

    def join(self) -> None:
        Targets(self.engine.context, [self.far])

    @property
    def intake(self) -> FarIntake:
        return self.far.intakes[-1]


class ConsumingWorld(World):
    def __init__(self, seed: int, **more: float) -> None:
        self.queue = FarQueue()
        self.put: list[bytes] = []
        self.orphans: list[FarIntake] = []
        """Connections of gateways that have ended, which the target has not noticed yet."""
        super().__init__(seed, **WEIGHTS | more)

    def make_estate(self) -> Estate:
        estate = Estate()
        estate.harness = lambda **more: Consumer(self.queue, self.dice.choice([1, 3, 200]), **more)
        return estate

    def start(self) -> None:
        self.estate.start()

    @staticmethod
    def intake(node: Node) -> FarIntake:
        assert isinstance(node.bench, Consumer)
        return node.bench.intake

    def quiet(self) -> None:
        for one in self.orphans:
            one.lose()
        self.orphans.clear()
        for _ in range(40):
            for node in self.nodes:
                self.intake(node).run()
            for one in self.clients:
                if one.away:
                    one.connect(self.any_node(), drop=True)
                one.read()
            self.condemn()
            self.estate.settle(0.3)

    def far_step(self, node: Node) -> None:
        self.intake(node).step()

    def far_hear(self, node: Node) -> None:
        self.intake(node).hear()

    def far_lose(self, node: Node) -> None:
        self.intake(node).lose(committed=self.dice.random() < 0.5)

    def far_put(self, _node: Node) -> None:
        body = b"there:2:%d" % len(self.put)
        self.put.append(body)
        self.queue.arrive(MD, body)

    def notice(self, _node: Node) -> None:
        """The target backs out what a gateway had got that has ended."""
        if self.orphans:
            self.orphans.pop(self.dice.randrange(len(self.orphans))).lose()

    def kill(self, node: Node) -> None:
        living = set(self.nodes)
        super().kill(node)
        for dead in living.difference(self.nodes):
            intake = self.intake(dead)
            if self.dice.random() < 0.3 and intake.alive:
                intake.lose(committed=True)
            else:
                self.orphans.append(intake)

    def check(self) -> None:
        super().check()
        assert not self.queue.rows
        assert {one.name: [body for body in self.put if one.found[body] != 1] for one in self.subscribers} == {
            one.name: [] for one in self.subscribers
        }
        assert len(self.estate.rows.get(MARKERS, {})) < 40


WEIGHTS = {
    "far_step": 40, "far_hear": 40, "far_put": 5, "far_lose": 0.5, "notice": 2, "publish": 2, "look_ahead": 20,
}  # fmt: skip
LONG = bool(os.environ.get("MQGATE_LONG"))


def play(seed: int, **more: float) -> None:
    world = ConsumingWorld(seed, **more)
    for _ in range(1500):
        world.step()
    world.check()


@pytest.mark.parametrize("seed", range(300) if LONG else [0, 3, 8])
def test_each_message_of_a_target_comes_once_whatever_is_lost(seed: int) -> None:
    play(seed, far_lose=4)


@pytest.mark.parametrize("seed", range(300) if LONG else [2, 48, 230])
def test_each_message_of_a_target_comes_once_whoever_ends_and_whoever_takes_over(seed: int) -> None:
    play(seed, kill=0.5, condemn=4, far_lose=1)
