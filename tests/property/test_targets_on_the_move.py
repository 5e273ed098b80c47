"""Several gateways that put to a target: one ends in the middle of it, or only stands still, and another takes its
sessions over. What devices were told is on the target, at QoS 2 once.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from broker_harness import Queues
from several_brokers import Node
from test_sessions_on_the_move import Publisher, Subscriber, World

from gateway.broker.targets import Targets, marker_key_of
from gateway.ports.batch import Done, Failure, Outcome, Stored, Unit
from gateway.ports.state_queues import MARKERS

MAPPING = """
version: 1
to_mq:
  - {name: there, topic: "there/#", queue: THERE, queue_manager: QM2, headers: []}
"""
DISCONNECTS = MAPPING.replace(
    "headers: []", "headers: [], on_failure: {retry: {times: 1, from: 100ms}, then: disconnect}"
)
Rows = dict[str, dict[int, tuple[int, bytes, bytes, bytes]]]


class Far:
    """A target as one gateway has it. A unit of a gateway that has ended may still be committed until it is fenced
    off."""

    name = "QM2"

    def __init__(self, world: TargetWorld, instance: str) -> None:
        self.world, self.instance = world, instance
        self.queues = Queues()
        self.queues.automatic = False
        self.queues.rows, self.queues._tokens = world.rows, world.tokens
        self.queues.refusing = world.refusing
        self.away = ""
        self._ready: Callable[[list[Stored]], None] = lambda _markers: None
        self._running: tuple[Unit, Done] | None = None
        self._ended: set[str] = set()

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        self._ready = call

    def fence_off(self, gateways: Iterable[str]) -> None:
        self._ended.update(gateways)
        if not self.away:
            self.away = "gone"

    def submit(self, unit: Unit, done: Done, settled: Done) -> None:
        assert not self.away
        assert self._running is None
        self._running = (unit, done)

        def finished(unit: Unit, outcome: Outcome) -> None:
            running, self._running = self._running, None
            if running is not None:
                running[1](unit, outcome)
            else:
                settled(unit, outcome)
                self.away = "gone"

        self.queues.submit(unit, finished)

    def give_up(self) -> None:
        if self._running is not None:
            (unit, done), self._running, self.away = self._running, None, "silent"
            done(unit, Outcome([Failure(-1, 2009, "silent", away=True)]))

    def look(self) -> None:
        """It is connected, and takes messages again."""
        if self.away != "gone":
            return
        for gateway in self._ended:
            self.world.fars[gateway].queues.waiting.clear()
        self._ended.clear()
        self.away = ""
        self._ready(self.queues.fetch(MARKERS, marker_key_of("BENCH"), 500))


class ToTarget(Publisher):
    topic = "there/a"


class TargetWorld(World):
    mapping = MAPPING

    def __init__(self, seed: int, **more: float) -> None:
        self.rows: Rows = {}
        self.tokens = itertools.count(1)
        self.refusing: dict[str, int] = {}
        self.fars: dict[str, Far] = {}
        super().__init__(seed, **WEIGHTS | more)
        self.publishers = [ToTarget(self.estate, f"puts-{number}") for number in range(3)]
        self.clients = [*self.publishers]
        for one in self.clients:
            one.connect(self.any_node(), drop=True)
        self.quiet()

    def start(self) -> None:
        node = self.estate.start(mapping=self.mapping)
        far = self.fars[node.instance] = Far(self, node.instance)
        Targets(node.bench.engine.context, [far])
        far.away = "gone"
        far.look()

    def quiet(self) -> None:
        for _ in range(20):
            for node in self.nodes:
                self.far_look(node)
                while self.far(node).queues.commit():
                    pass
            for one in self.clients:
                if one.away:
                    one.connect(self.any_node(), drop=True)
                one.read()
            self.condemn()
            self.estate.settle(0.3)

    def far(self, node: Node) -> Far:
        return self.fars[node.instance]

    def far_commit(self, node: Node) -> None:
        self.far(node).queues.commit()

    def far_land(self, node: Node) -> None:
        self.far(node).queues.land()

    def far_give_up(self, node: Node) -> None:
        self.far(node).give_up()

    def far_look(self, node: Node) -> None:
        self.far(node).look()

    def late(self, _node: Node) -> None:
        """What a gateway that has ended had begun is committed after all."""
        far = self.dice.choice([*self.fars.values()])
        if far.instance not in self.estate.nodes:
            far.queues.land()
            far.queues.waiting.clear()
            far.queues.landed.clear()

    def check(self) -> None:
        for _ in range(6):
            self.quiet()
        assert not any(one.sent for one in self.publishers)
        found = Counter(row[3] for row in self.rows.get("THERE", {}).values())
        wanted = [body for one in self.publishers for body in one.done]
        assert [body for body in wanted if not found[body]] == []
        assert [body for body, count in found.items() if count > 1 and b":2:" in body] == []


class RefusingWorld(TargetWorld):
    """The target refuses now and then, which ends the connections of those who publish; somebody subscribes as well."""

    mapping = DISCONNECTS

    def __init__(self, seed: int) -> None:
        super().__init__(seed, refuse=4, kill=0.3)
        self.reader = Subscriber(self.estate, "reads", "there/#")
        self.clients.append(self.reader)
        self.quiet()

    def refuse(self, _node: Node) -> None:
        if self.refusing:
            self.refusing.clear()
        else:
            self.refusing["THERE"] = 2053

    def check(self) -> None:
        self.refusing.clear()
        super().check()
        assert [body for body, count in self.reader.found.items() if count > 1 and b":2:" in body] == []
        wanted = [body for one in self.publishers for body in one.done]
        assert [body for body in wanted if not self.reader.found[body]] == []


WEIGHTS = {
    "far_commit": 20, "far_land": 5, "far_give_up": 1, "far_look": 10, "late": 10, "kill": 0.5, "condemn": 4,
    "look_ahead": 0, "publish": 40,
}  # fmt: skip
LONG = bool(os.environ.get("MQGATE_LONG"))


@pytest.mark.parametrize("seed", range(200) if LONG else [14, 19, 38, 121, 124])
def test_qos_2_is_there_once_whoever_ends_and_whoever_takes_over(seed: int) -> None:
    world = TargetWorld(seed)
    for _ in range(1500):
        world.step()
    world.check()


@pytest.mark.parametrize("seed", range(200) if LONG else [0, 5])
def test_a_refusal_that_disconnects_doubles_no_qos_2_message_wherever_its_session_goes(seed: int) -> None:
    world = RefusingWorld(seed)
    for _ in range(1500):
        world.step()
    world.check()
