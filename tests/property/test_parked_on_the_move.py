"""Devices with several publications under way go from gateway to gateway, and gateways end, while queues refuse what
rules put there: each publication is on each of its queues, and at each subscriber, at QoS 2 once, and its client is
told so.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from several_brokers import Node
from test_sessions_on_the_move import Client, Mortal, World

from gateway.broker.deliver import wide
from gateway.broker.publish import router
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.ports.state_queues import FORWARD, STAGED

LONG = bool(os.environ.get("MQGATE_LONG"))
FAILURE = "on_failure: {retry: {times: 99, from: 1s, to: 2s}, then: hold}"
MAPPING = f"""
version: 1
to_mq:
  - {{name: first, topic: news/+/a, queue: A, headers: [], {FAILURE}}}
  - {{name: second, topic: news/+/b, queue: B, headers: [], {FAILURE}}}
  - {{name: both, topic: news/+/ab, queue: A, headers: [], continue: true, {FAILURE}}}
  - {{name: both too, topic: news/+/ab, queue: B, headers: [], {FAILURE}}}
"""
KINDS = ["a", "b", "ab", "none"]


class Sent:
    def __init__(self, topic: str, body: bytes, qos: int, *, retain: bool) -> None:
        self.topic, self.body, self.qos, self.retain = topic, body, qos, retain
        self.again = self.received = self.done = False

    def is_for(self, queue: str) -> bool:
        return queue.lower() in self.topic.rpartition("/")[2].replace("none", "")


class Windowed(Client):
    """Has several publications under way, and releases them in any order."""

    def __init__(self, world: ParkedWorld, name: str) -> None:
        super().__init__(world.estate, name)
        self.world = world
        self.every: list[Sent] = []

    @property
    def under_way(self) -> dict[int, Sent]:
        return {number: one for number, one in enumerate(self.every, 1) if not one.done}

    def begin(self) -> None:
        for number, one in self.under_way.items():
            self.say(number, one)

    def say(self, number: int, one: Sent) -> None:
        if not self.online or self.away or self.device is None:
            return
        if one.received:
            self.ack(p.PUBREL, number)
        else:
            self.device.publish(one.topic, one.body, one.qos, number, dup=one.again, retain=one.retain)
            one.again = True

    def publish(self) -> None:
        if self.online and not self.away and len(self.under_way) < 5:
            dice = self.world.dice
            qos, kind = dice.choice([1, 2]), dice.choice(KINDS)
            retain, count = dice.random() < self.world.retained, dice.randint(1, self.world.together)
            for number in range(len(self.every) + 1, len(self.every) + 1 + count):
                body = b"%s:%d:n%0*d" % (self.name.encode(), qos, 4 if count > 1 else 1, number)
                one = Sent(f"news/{self.name}/{kind}", body, qos, retain=retain)
                self.every.append(one)
                self.say(number, one)

    def take(self, packet: tuple[Any, ...]) -> None:
        kind = packet[0] >> 4
        if kind not in {p.PUBACK, p.PUBREC, p.PUBCOMP}:
            return
        one = self.every[packet[1] - 1]
        assert kind == p.PUBCOMP or packet[2] < 0x80
        if kind != p.PUBREC:
            one.done = True
            return
        one.received = True
        if self.world.is_calm or self.world.dice.random() < 0.5:
            self.ack(p.PUBREL, packet[1])
        else:
            self.world.later.append((self, packet[1]))


class Doomed(Mortal):
    """Its wills are for two queues; every second one has a delay, and may not come if its client is back before."""

    def deposited(self) -> p.Will:
        properties = {prop.WILL_DELAY_INTERVAL: self.number % 3} if self.number % 2 else {}
        return p.Will(f"news/{self.name}/ab", self.will, 2, retain=False, properties=properties)

    @property
    def published(self) -> list[bytes]:
        """Those that certainly are."""
        return [body for body in self.left if not int(body.rpartition(b":")[2]) % 2 and body != self.will]


class ParkedWorld(World):
    """With queues, which are the same for all gateways."""

    mortal = Doomed

    def __init__(self, seed: int, *, retained: float = 0.0, together: int = 1, **more: Any) -> None:
        self.refusing: dict[str, int] = {}
        self.later: list[tuple[Windowed, int]] = []
        """What is not released yet."""
        self.retained, self.together, self.is_calm = retained, together, False
        super().__init__(seed, refuse=1, release=10, **more)
        self.windowed = [Windowed(self, f"writes-{number}") for number in range(3)]
        self.clients = [one for one in self.clients if one not in self.publishers] + self.windowed
        self.publishers = []
        for one in self.windowed:
            one.connect(self.any_node(), drop=True)
            self.quiet()

    def start(self) -> None:
        self.estate.start(mapping=MAPPING)

    def step(self) -> None:
        for node in self.nodes:
            node.queues.refusing = self.refusing
        super().step()

    def publish(self, _node: Node) -> None:
        self.dice.choice(self.windowed).publish()

    def refuse(self, _node: Node) -> None:
        """A queue is full, or does not let anybody put; or it is not any more."""
        queue = self.dice.choice("AB")
        if self.refusing.pop(queue, None) is None:
            self.refusing[queue] = self.dice.choice([2053, 2051])

    def release(self, _node: Node) -> None:
        if self.later:
            client, number = self.later.pop(self.dice.randrange(len(self.later)))
            if client.online and not client.away and number in client.under_way:
                client.ack(p.PUBREL, number)

    def check(self) -> None:
        self.is_calm = True
        self.refusing.clear()
        for one in (*self.mortals, *self.windowed):  # these release what they have not yet as they come back
            one.leave()
        self.quiet()
        for _ in range(40):
            for node in self.nodes:
                node.bench.advance(0.5)
            self.quiet()
            if not any(one.under_way for one in self.windowed):
                break
        assert {one.name: [*one.under_way] for one in self.windowed if one.under_way} == {}, "nobody tells them"
        sent = [one for client in self.windowed for one in client.every]
        wills = [body for one in self.mortals for body in one.published]
        everything = [*wills, *(one.body for one in sent)]
        found = {one.name: one.found for one in self.subscribers}
        if self.members:
            found["shared"] = sum((one.found for one in self.members), Counter[bytes]())
        for queue in "AB":
            found[queue] = Counter(row[3] for row in self.estate.rows.get(queue, {}).values())
        for name, bodies in found.items():
            wanted = everything if name not in "AB" else [*wills, *(one.body for one in sent if one.is_for(name))]
            assert [body for body in wanted if not bodies[body]] == [], f"lost for {name}"
            assert [body for body, count in bodies.items() if count > 1 and b":2:" in body] == [], f"twice for {name}"
        assert not any(self.estate.rows.get(queue) for queue in ("DEAD.Q", STAGED, FORWARD))


def play(seed: int, **more: Any) -> None:
    world = ParkedWorld(seed, **more)
    for _ in range(1500):
        world.step()
    world.check()


@pytest.mark.parametrize("seed", range(100) if LONG else [30])
def test_while_sessions_move(seed: int) -> None:
    play(seed, move=2)


@pytest.mark.parametrize("seed", range(100) if LONG else [5])
def test_while_gateways_end(seed: int) -> None:
    play(seed, kill=0.3, mortals=seed % 2)


@pytest.mark.parametrize("seed", range(100) if LONG else [15])
def test_with_members_of_a_shared_subscription_and_what_is_retained(seed: int) -> None:
    play(seed, members=2, move=2, kill=0.2, retained=0.2)


@pytest.mark.parametrize("seed", range(100) if LONG else [10])
def test_with_wills_and_all_at_once(seed: int) -> None:
    play(seed, members=seed % 3, mortals=2, move=3, kill=0.2, retained=0.1)


@pytest.mark.parametrize("seed", range(100) if LONG else [7])
def test_what_is_copied_in_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", -1)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 1 + seed % 3)
    play(seed, members=seed % 3, move=1, kill=0.2 * (seed % 2), retained=0.2)


@pytest.mark.parametrize("seed", range(100) if LONG else [3])
def test_what_is_copied_together_in_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE", -1)
    monkeypatch.setattr(wide, "MOST_AT_ONCE", 1 + seed % 5)
    play(seed, together=4, members=seed % 4, move=2, kill=0.2 * (seed % 2), retained=0.2)
