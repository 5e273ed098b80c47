"""One client connects at several gateways at the same moment, with everything between them in any order: exactly one of
its connections stays, and each of the others is told or closed. While gateways end and clients leave, never two, nobody
waits for ever, and whoever comes next gets in.
"""

from __future__ import annotations

import os

from broker_harness import Device
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from several_brokers import Estate, Node

from gateway.mqtt import packets as p

LONG = bool(os.environ.get("MQGATE_LONG"))
CONNECTS = ["connect", "connect clean"]
RUNS = ["commit", "commit", "hear", "hear", "turn", "answer"]
Steps = list[tuple[str, int]]


class Rush:
    """Three gateways, and the connections of one client."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.estate = Estate()
        self.nodes = [self.estate.start() for _ in range(3)]
        self.devices: list[tuple[Node, Device]] = []
        self.online: set[Device] = set()
        self.left = False
        """A client has left, or a gateway with the client that was to stay."""

    def play(self, steps: Steps) -> None:
        for kind, at in steps:
            node = self.nodes[at]
            if not node.dead:
                getattr(self, kind.partition(" ")[0])(node, *kind.partition(" ")[2:])

    def connect(self, node: Node, clean: str = "") -> Device:
        device = node.bench.device(self.version, "one")
        self.devices.append((node, device))
        device.connect(clean=bool(clean))
        return device

    def commit(self, node: Node, _: str) -> None:
        node.commit()

    def hear(self, node: Node, _: str) -> None:
        node.hear()

    def answer(self, node: Node, _: str) -> None:
        node.answer()

    def turn(self, node: Node, _: str) -> None:
        node.bench.advance(0.25)

    def leave(self, node: Node, _: str) -> None:
        mine = [device for where, device in self.devices if where is node and not device.wire.closed]
        if mine:
            self.left = True
            mine[-1].drop()

    def kill(self, node: Node, _: str) -> None:
        if not self.estate.dead:
            self.left |= any(where is node for where, _ in self.devices)
            self.estate.kill(node)

    def condemn(self, node: Node, _: str) -> None:
        for dead in list(self.estate.dead):
            self.estate.condemn(dead, node)

    def end(self) -> list[Device]:
        """Everything has been told and time has passed: those that are connected now."""
        for node in self.estate.nodes.values():
            self.condemn(node, "")
        self.estate.settle(4)
        stay = []
        for node, device in self.devices:
            if any(one[0] >> 4 == p.CONNACK and one[1].reason == 0 for one in device.take()):
                self.online.add(device)
            if not node.dead and not device.wire.closed:
                stay.append(device)
        return stay

    def check(self) -> None:
        stay = self.end()
        assert len(stay) == 1 or (self.left and not stay)
        assert self.online.issuperset(stay)  # nobody waits
        newest = self.connect(next(iter(self.estate.nodes.values())))
        assert self.end() == [newest]
        assert newest in self.online


def steps(*kinds: str) -> st.SearchStrategy[Steps]:
    one = st.tuples(st.sampled_from([*CONNECTS, *RUNS, *kinds]), st.integers(0, 2))
    return st.lists(one, max_size=60)


def play(version: int, taken: Steps) -> None:
    rush = Rush(version)
    rush.play(taken)
    if not rush.devices:
        rush.connect(next(iter(rush.estate.nodes.values())))
    rush.check()


FEW = settings(max_examples=1000 if LONG else 60, deadline=None, suppress_health_check=list(HealthCheck))


THREE = [("connect", 0), ("connect", 1), ("connect", 2)]
"""Each waited for another one."""
GIVEN_AWAY = [
    ("connect", 1), ("commit", 1), ("commit", 1), ("hear", 0), ("hear", 2), ("hear", 2), ("connect", 0),
    ("commit", 2), ("commit", 2), ("connect", 2),
]  # fmt: skip
"""The session went from a client that was connected to one that had been refused."""


@FEW
@example(5, THREE)
@example(4, GIVEN_AWAY)
@given(st.sampled_from([4, 5]), steps())
def test_exactly_one_of_connections_at_once_stays(version: int, taken: Steps) -> None:
    play(version, taken)


@FEW
@given(st.sampled_from([4, 5]), steps("leave", "kill", "condemn"))
def test_while_gateways_end_and_clients_leave_there_are_never_two_and_the_next_one_gets_in(
    version: int, taken: Steps
) -> None:
    play(version, taken)
