"""Devices that go from gateway to gateway while gateways end, with everything between them in any order: what was
acknowledged arrives at every subscriber, at QoS 2 once. So does what a rule addresses to one of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import packets as p

MAPPING = """
version: 1
to_mqtt:
  - {name: direct, queue: COMMANDS, topic: cmd, client: "{usr.device}", qos: 2}
"""


def command(device: str, body: bytes) -> tuple[bytes, bytes]:
    """Descriptor and data of a message for one device."""
    header = rfh2.build(
        [folder("usr", [("device", device)])], encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   "
    )
    return mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  "), header + body


class Client:
    """Stays in its session, through whichever gateway."""

    def __init__(self, estate: Estate, name: str) -> None:
        self.estate, self.name = estate, name
        self.node: Node | None = None
        self.device: Device | None = None
        self.online = False

    def connect(self, node: Node, *, drop: bool) -> None:
        if drop:
            self.leave()
        self.node, self.online = node, False
        self.device = node.bench.device(5, self.name)
        self.device.connect(clean=False)

    def leave(self) -> None:
        if self.device is not None and self.node is not None and not self.node.dead:
            self.device.drop()
        self.device, self.online = None, False

    @property
    def away(self) -> bool:
        return self.device is None or self.node is None or self.node.dead or self.device.wire.closed

    def read(self) -> None:
        """Take what has come and answer it."""
        if self.device is None:
            return
        for packet in self.device.take():
            if packet[0] >> 4 == p.CONNACK:
                self.online = packet[1].reason == 0
                if self.online:
                    self.begin()
            else:
                self.take(packet)

    def begin(self) -> None:
        pass

    def take(self, packet: tuple) -> None:
        raise NotImplementedError

    def ack(self, kind: int, packet_id: int) -> None:
        if self.node is not None and not self.node.dead and self.device is not None:
            self.device.ack(kind, packet_id)


class Subscriber(Client):
    def __init__(self, estate: Estate, name: str, filter_: str = "news/#") -> None:
        super().__init__(estate, name)
        self.filter = filter_
        self.found: Counter[bytes] = Counter()
        self.open: set[int] = set()
        self.known = False

    def begin(self) -> None:
        if not self.known:
            self.device.subscribe(self.filter, 2)

    def take(self, packet: tuple) -> None:
        kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
        if kind == p.SUBACK:
            self.known = True
        elif kind == p.PUBREL:
            self.open.discard(packet[1])
            self.ack(p.PUBCOMP, packet[1])
        elif kind == p.PUBLISH and qos == 1:
            self.found[bytes(packet[4])] += 1
            self.ack(p.PUBACK, packet[2])
        elif kind == p.PUBLISH:
            if packet[2] not in self.open:
                self.open.add(packet[2])
                self.found[bytes(packet[4])] += 1
            self.ack(p.PUBREC, packet[2])


class Mortal(Client):
    """Each of its connections leaves a will; none is closed in order."""

    def __init__(self, estate: Estate, name: str) -> None:
        super().__init__(estate, name)
        self.left: list[bytes] = []
        """The wills of connections that were let in."""
        self.number = 0

    def connect(self, node: Node, *, drop: bool) -> None:
        if drop:
            self.leave()
        self.node, self.online, self.number = node, False, self.number + 1
        self.device = node.bench.device(5, self.name)
        self.device.connect(clean=False, will=self.deposited())

    def deposited(self) -> p.Will:
        return p.Will("news/wills", self.will, 2, retain=False)

    @property
    def will(self) -> bytes:
        return b"%s:2:%d" % (self.name.encode(), self.number)

    def begin(self) -> None:
        self.left.append(self.will)

    def take(self, packet: tuple) -> None:
        pass


class Publisher(Client):
    topic = "news/a"

    def __init__(self, estate: Estate, name: str) -> None:
        super().__init__(estate, name)
        self.done: list[bytes] = []
        self.released = self.sent = False

    def body(self) -> bytes:
        return b"%s:%d:%d" % (self.name.encode(), self.qos, len(self.done))

    @property
    def qos(self) -> int:
        return 1 + len(self.done) % 2

    @property
    def packet_id(self) -> int:
        return 1 + len(self.done) % 1000

    def begin(self) -> None:
        if self.released:
            self.ack(p.PUBREL, self.packet_id)
        elif self.sent:
            self.publish()

    def publish(self) -> None:
        if self.online and not self.away:
            self.device.publish(self.topic, self.body(), self.qos, self.packet_id, dup=self.sent)
            self.sent = True

    def take(self, packet: tuple) -> None:
        kind = packet[0] >> 4
        if kind == p.PUBREC and packet[1] == self.packet_id:
            assert packet[2] < 0x80
            self.released = True
            self.ack(p.PUBREL, self.packet_id)
        elif kind in {p.PUBACK, p.PUBCOMP} and packet[1] == self.packet_id:
            assert kind == p.PUBCOMP or packet[2] < 0x80
            self.done.append(self.body())
            self.sent = self.released = False


class World:
    """Three gateways, three publishers, three subscribers, and dice."""

    mortal = Mortal

    def __init__(self, seed: int, *, members: int = 0, mortals: int = 0, **more: float) -> None:
        """Besides: `members` of a shared subscription, and `mortals` with wills."""
        self.dice = random.Random(seed)
        self.weights = WEIGHTS | more
        self.estate = self.make_estate()
        for _ in range(3):
            self.start()
        self.commands: list[tuple[str, bytes]] = []
        self.subscribers = [Subscriber(self.estate, f"hears-{number}") for number in range(3)]
        self.publishers = [Publisher(self.estate, f"tells-{number}") for number in range(3)]
        self.members = [Subscriber(self.estate, f"shares-{n}", "$share/some/news/#") for n in range(members)]
        self.mortals = [self.mortal(self.estate, f"dies-{number}") for number in range(mortals)]
        self.clients: list[Client] = [*self.subscribers, *self.publishers, *self.members, *self.mortals]
        for one in self.clients:
            one.connect(self.any_node(), drop=True)
            self.quiet()

    def make_estate(self) -> Estate:
        return Estate()

    def start(self) -> None:
        """One more gateway."""
        self.estate.start(mapping=MAPPING)

    @property
    def nodes(self) -> list[Node]:
        return list(self.estate.nodes.values())

    def any_node(self) -> Node:
        return self.dice.choice(self.nodes)

    def quiet(self) -> None:
        """All are connected, and nothing is under way."""
        for _ in range(60):
            for one in self.clients:
                if one.away:
                    one.connect(self.any_node(), drop=True)
                one.read()
            self.condemn()
            self.estate.look_again()
            self.estate.settle(0.3)

    def step(self) -> None:
        """Something happens."""
        (kind,) = self.dice.choices([*self.weights], [*self.weights.values()])
        getattr(self, kind)(self.any_node())
        if len(self.nodes) < 3 and not self.estate.dead and self.dice.random() < 0.02:
            self.start()
        for one in self.clients:
            if one.away and self.dice.random() < 0.1:
                one.connect(self.any_node(), drop=True)

    def commit(self, node: Node) -> None:
        node.commit()

    def hear(self, node: Node) -> None:
        node.hear()

    def answer(self, node: Node) -> None:
        node.answer()

    def look_ahead(self, node: Node) -> None:
        node.look_ahead(self.dice.choice([1, 3, 1000]))

    def turn(self, node: Node) -> None:
        node.turn()

    def wait(self, node: Node) -> None:
        node.bench.advance(self.dice.choice([0.25, 0.25, 0.5]))

    def wait_long(self, node: Node) -> None:
        node.bench.advance(12.0)

    def lose_marks(self, node: Node) -> None:
        node.queues.lose_marks()

    def read(self, _node: Node) -> None:
        self.dice.choice(self.clients).read()

    def publish(self, _node: Node) -> None:
        one = self.dice.choice(self.publishers)
        if not one.sent:
            one.publish()

    def address(self, _node: Node) -> None:
        one, body = self.dice.choice(self.subscribers), b"cmd:2:%d" % len(self.commands)
        self.commands.append((one.name, body))
        self.estate.arrive("COMMANDS", *command(one.name, body))

    def move(self, node: Node) -> None:
        self.dice.choice(self.clients).connect(node, drop=self.dice.random() < 0.7)

    def kill(self, node: Node) -> None:
        if len(self.nodes) > 2 and not self.estate.dead:
            self.estate.kill(node, landed=self.dice.random() < 0.5)
            if self.dice.random() < 0.5:
                self.condemn()

    def condemn(self, _node: Node | None = None) -> None:
        for dead in list(self.estate.dead):
            self.estate.condemn(dead, self.any_node())

    def check(self) -> None:
        """Nothing that was acknowledged is missing, and of QoS 2 nothing came twice."""
        for one in self.mortals:
            one.leave()
        for _ in range(4):
            self.quiet()
        assert not any(one.sent for one in self.publishers)
        wanted = [body for one in self.publishers for body in one.done]
        wanted += [body for one in self.mortals for body in one.left if body != one.will]
        nothing: dict[str, list[bytes]] = {one.name: [] for one in self.subscribers}
        assert {one.name: [body for body in wanted if not one.found[body]] for one in self.subscribers} == nothing
        addressed = [(one.name, body) for one in self.subscribers for body in one.found if body.startswith(b"cmd:")]
        assert sorted(addressed) == sorted(self.commands)
        assert not self.estate.rows.get("DEAD.Q")
        shared = sum((one.found for one in self.members), Counter[bytes]())
        if self.members:
            assert [body for body in wanted if not shared[body]] == []
            assert [body for body, number in shared.items() if number > 1 and b":2:" in body] == []
        twice = {one.name: [b for b, n in one.found.items() if n > 1 and b":2:" in b] for one in self.subscribers}
        assert twice == nothing


class HarderWorld(World):
    """Gateways end before others are taken over from, and while they take over; one that begins may be successor."""

    def kill(self, node: Node) -> None:
        if len(self.nodes) > 1:
            self.estate.kill(node, landed=self.dice.random() < 0.5)
            if self.dice.random() < 0.5:
                self.condemn()

    def condemn(self, node: Node | None = None) -> None:
        for dead in list(self.estate.dead):
            if node is None or self.dice.random() < 0.5:
                self.estate.condemn(dead, self.any_node())

    def step(self) -> None:
        super().step()
        if len(self.nodes) < 3 and self.dice.random() < 0.02:
            self.estate.start(successor=True, mapping=MAPPING)
        if len(self.nodes) < 3 and all(self.estate.dead.values()) and self.dice.random() < 0.1:  # else it would wait
            self.estate.start(settle=False, mapping=MAPPING)


class AllEndWorld(World):
    """All gateways end at once, as a machine does, and others begin one after the other."""

    def kill(self, _node: Node) -> None:
        for node in self.nodes:
            self.estate.kill(node, landed=self.dice.random() < 0.5)
        self.estate.start(successor=True, mapping=MAPPING)
        while len(self.nodes) < 3:
            self.start()

    def condemn(self, _node: Node | None = None) -> None:
        pass


WEIGHTS = {
    "commit": 30, "hear": 30, "answer": 20, "look_ahead": 20, "turn": 40, "wait": 10, "read": 40, "publish": 20,
    "move": 1, "condemn": 2, "kill": 0, "lose_marks": 0, "wait_long": 0,
    "address": 0,
}  # fmt: skip
LONG = bool(os.environ.get("MQGATE_LONG"))


def play(
    seed: int, steps: int, *, kind: type[World] = World, members: int = 0, mortals: int = 0, **more: float
) -> None:
    world = kind(seed, members=members, mortals=mortals, **more)
    for _ in range(steps):
        world.step()
    world.check()


@pytest.mark.parametrize("seed", range(300) if LONG else [5, 11, 40, 58])
def test_sessions_that_move_all_the_time_get_everything_once(seed: int) -> None:
    play(seed, 1500, move=2)


@pytest.mark.parametrize("seed", range(300) if LONG else [5, 28, 58])
def test_what_is_read_late_and_a_second_time_is_handed_over_once(seed: int) -> None:
    play(seed, 1500, lose_marks=2, wait_long=1)


@pytest.mark.parametrize("seed", range(61) if LONG else [0, 17, 34, 42, 43, 48])
def test_what_is_under_way_to_gateways_that_end_arrives_once(seed: int) -> None:
    play(seed, 2000, kill=0.3)


@pytest.mark.parametrize("seed", range(300) if LONG else [0])
def test_what_is_for_one_device_finds_it_wherever_it_is(seed: int) -> None:
    play(seed, 1500, move=2, address=10)


@pytest.mark.parametrize("seed", range(300) if LONG else [11, 78])
def test_what_is_for_one_device_finds_it_also_while_gateways_end(seed: int) -> None:
    play(seed, 1500, kill=0.3, address=10, lose_marks=seed % 2)


@pytest.mark.parametrize("seed", range(300) if LONG else [9])
def test_members_of_a_shared_subscription_that_move_get_each_publication_once(seed: int) -> None:
    play(seed, 1500, members=2, move=2)


@pytest.mark.parametrize("seed", range(300) if LONG else [0, 2])
def test_members_of_a_shared_subscription_get_each_publication_once_while_gateways_end(seed: int) -> None:
    play(seed, 1500, members=2, kill=0.3)


@pytest.mark.parametrize("seed", range(100) if LONG else [2, 9, 14, 1284, 10284, 20140, 60152])
def test_when_several_gateways_end_at_once_all_arrives_and_wills_too(seed: int) -> None:
    play(seed, 1500, kind=HarderWorld, mortals=1 + seed % 2, kill=0.3)


@pytest.mark.parametrize("seed", range(100) if LONG else [6, 9, 28])
def test_when_all_gateways_end_at_once_nothing_is_lost_that_was_on_its_way(seed: int) -> None:
    play(seed, 1500, kind=AllEndWorld, move=3, kill=0.3)


@pytest.mark.parametrize("seed", range(100, 200) if LONG else [136])
def test_nor_with_members_of_a_shared_subscription_and_wills(seed: int) -> None:
    play(seed, 1500, kind=AllEndWorld, members=2, mortals=1, move=3, kill=0.3)
