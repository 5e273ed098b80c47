"""A defect in any public function of `bridge`, `routing`, `rules` or `session`, met while devices publish, subscribe,
vanish and come back, while queues are consumed, timers run and the gateway starts again: the broker lives, the others
are served, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import pytest
from broker_harness import Device, Harness, Queues
from failpoints import Armed, Boom, Point, armed, points
from open_access import OpenAccess

from gateway.broker.deliver.consumers import Consumers
from gateway.broker.engine import Engine
from gateway.broker.limits import Limits
from gateway.broker.publish.router import Router
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.ports.counters import Counters
from gateway.ports.state_queues import SET_ASIDE
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

LONG = bool(os.environ.get("MQGATE_LONG"))
POINTS = points()
SCHEMA = '{"type": "object", "required": ["t"]}'
MAPPING = """version: 1
to_mq:
  - {name: canary, topic: "canary/#", queue: CANARY.Q}
  - {name: plain, topic: "plain/#", queue: PLAIN.Q, continue: true}
  - {name: twice, topic: "plain/twice", queue: TWICE.Q}
  - {name: json, topic: "json/{device}", queue: "JSON.{device}", payload: {format: json, schema: s.json},
     properties: {device: "{device}", t: "{json.t:int}", user: "{user_or_client}"}}
  - {name: chosen, topic: "chosen/#", queue: CHOSEN.Q, when: {json: {t: 1}}}
  - {name: ask, topic: "ask/#", queue: ASK.Q, descriptor: {reply_to: {queue: ANSWERS}}}
  - {name: full, topic: "full/#", queue: FULL.Q, on_failure: {retry: {times: 1, from: 1s, to: 1s}, then: dead_letter}}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: "out/{usr.to}", qos: 1}
  - {name: plain out, queue: PLAIN.OUT.Q, topic: "out/all", qos: 2}
"""


class Bench(Harness):
    """A broker that starts with the failpoint on, where it was on; its rules are read before."""

    def __init__(self, switch: Armed) -> None:
        self.switch = switch
        self.survived: list[bytes] = []
        super().__init__(MAPPING, Queues())

    def start(self) -> None:
        with self.switch.quiet():
            read = parse_mappings([("bench.yaml", self.mapping)], lambda _path: SCHEMA)
            table = compile_mappings(read, "bench-1")
            access = OpenAccess()
            router = Router(table, access, lambda: f"auto-{next(self._names)}", lambda: bytes.fromhex("ab" * 8))
            self.engine = Engine(self.queues, self.clock, Limits(**self.limits), router, access, Counters())
            self.engine.context.dead_letter_queue = "DEAD.Q"
            self.consumers = Consumers(self.engine.context, self.engine.handover)
        self.engine.recover()
        self.consumers.use(table)
        self.engine.flush()


class Story:
    """What happens, with a canary that has to be served after each step."""

    def __init__(self, switch: Armed) -> None:
        self.switch = switch
        self.bench = Bench(switch)
        self.promised: set[bytes] = set()
        """Payloads whose publisher was told that they are safe."""
        self.heard: set[bytes] = set()
        self.number = 0
        self.canary = self.listener = self.victim = self._device(5, "x")
        self._others()

    def _device(self, version: int, client_id: str) -> Device:
        return self.bench.device(version, client_id)

    def _others(self) -> None:
        with self.switch.quiet():
            self.canary = self._device(4, "canary").connect(clean=False)
            self.listener = self._device(5, "listener").connect(clean=False)
            self.listener.subscribe("canary/#", 1)
            self.take(self.listener)
            self.take(self.canary)

    def take(self, device: Device) -> list[Any]:
        """What a device was sent; what has to be acknowledged is."""
        found = device.take()
        for packet in found:
            if packet[0] >> 4 == p.PUBLISH:
                self.heard.add(packet[4])
                qos = packet[0] >> 1 & 3
                if qos:
                    device.ack(p.PUBACK if qos == 1 else p.PUBREC, packet[2])
            elif packet[0] >> 4 == p.PUBREL:
                device.ack(p.PUBCOMP, packet[1])
        return found

    def check_others(self) -> None:
        with self.switch.quiet():
            self.number += 1
            payload = b"canary %d" % self.number
            self.canary.publish("canary/x", payload, 1, 1 + self.number % 60_000)
            assert [packet[0] >> 4 for packet in self.take(self.canary)] == [p.PUBACK], "the canary is not served"
            heard = self.take(self.listener)
            assert any(one[0] >> 4 == p.PUBLISH and one[4] == payload for one in heard), "the listener is not served"
            self.promised.add(payload)

    def step(self, act: Any, *args: Any, **options: Any) -> None:
        """One thing the victim does, or that happens, with the failpoint on; then the others are looked at."""
        self.switch.on = True
        act(*args, **options)
        self.switch.on = False
        self.check_others()

    def come(self, version: int = 5) -> None:
        """The victim connects, again if need be."""
        will = p.Will("plain/will", b"will", 1, retain=True)
        if self.victim.wire.closed or self.victim.client_id != "victim" or not self.victim.connection.connack_sent:
            self.victim.drop()
            self.victim = self._device(version, "victim").connect(clean=False, will=will)

    def publish(self, topic: str, payload: bytes, qos: int, packet_id: int, **options: Any) -> None:
        """Until it is acknowledged, three times at most: then there has to be an end."""
        for _ in range(3):
            with self.switch.quiet():
                self.come()
                self.take(self.victim)
            assert self.victim.connection.connack_sent
            self.victim.publish(topic, payload, qos, packet_id, **options)
            answers = self.answers(packet_id)
            if not answers and qos and not self.victim.wire.closed:  # it may wait for its queue
                self.bench.advance(3)
                answers = self.answers(packet_id)
                if not answers and self.bench.engine.parking.waiting:
                    return  # what becomes of refused messages meets the defect: they wait, and nobody else does
            if answers and answers[0][0] >> 4 == p.PUBREC and not answers[0][2]:
                self.promised.add(payload)
                self.release(packet_id)
                return
            if answers or not qos:
                if answers and not answers[0][2]:
                    self.promised.add(payload)
                return
        raise AssertionError(f"{topic} {payload!r} comes for ever")

    def answers(self, packet_id: int) -> list[Any]:
        """What the victim was told of a publication of its."""
        kinds = {p.PUBACK, p.PUBREC, p.PUBCOMP}
        return [one for one in self.take(self.victim) if one[0] >> 4 in kinds and one[1] == packet_id]

    def release(self, packet_id: int) -> None:
        for _ in range(3):
            if self.victim.wire.closed:
                with self.switch.quiet():
                    self.come()
                    self.take(self.victim)
            self.victim.ack(p.PUBREL, packet_id)
            completed = self.answers(packet_id)
            if not completed and not self.victim.wire.closed:
                self.bench.advance(3)
                completed = self.answers(packet_id)
            if completed:
                return
        raise AssertionError("PUBREL comes for ever")

    def subscribe(self) -> None:
        self.come()
        self.victim.subscribe("plain/#", 2)
        self.victim.subscribe("$share/g/canary/#", 1)
        self.victim.subscribe("out/#", 1, retain_as_published=True)
        self.take(self.victim)

    def consume(self) -> None:
        md = mqmd.build(persistence=1)
        self.bench.queues.arrive("PLAIN.OUT.Q", *[(md, b"out %d" % number) for number in range(3)])
        self.bench.queues.arrive("OUT.Q", (md, b"no properties"))
        self.bench.clock.advance(0.1)

    def everything(self) -> None:
        self.step(self.come)
        self.step(self.subscribe)
        for number, (topic, payload) in enumerate([
            ("plain/a", b"one"), ("plain/twice", b"two"), ("json/d1", b'{"t": 1}'), ("json/d1", b'{"t": "\\ud800"}'),
            ("chosen/a", b'{"t": 1}'),            ("full/a", b"full"), ("nobody/knows", b"nobody"),
        ]):  # fmt: skip
            self.bench.queues.refusing["FULL.Q"] = 2053
            for qos in (0, 1, 2):
                self.step(
                    self.publish, topic, payload + b" %d" % qos if payload[:1] != b"{" else payload, qos, 10 + number
                )
        self.step(self.publish, "ask/a", b"question", 1, 30, properties=prop.encode({8: "answers/victim", 9: b"corr"}))
        self.step(
            self.publish, "plain/user", b"with properties", 1, 31, properties=prop.encode({38: [("a", "b")], 2: 60})
        )
        self.step(self.publish, "plain/kept", b"kept", 1, 32, retain=True)
        self.step(self.publish, "plain/kept", b"", 1, 33, retain=True)
        self.step(self.publish, "plain/kept", b"kept again", 2, 34, retain=True)
        self.step(self.consume)
        self.step(self.take, self.victim)
        self.step(self.bench.advance, 12)
        self.step(self.victim.drop)
        self.step(self.publish_to_absent)
        self.step(self.come)
        self.step(self.take, self.victim)
        self.step(lambda: self.victim.send(b"\xc0\x00"))
        self.step(self.stage)
        self.step(self.victim.drop)
        self.restart(on=True)
        self.step(self.come)
        self.step(self.take, self.victim)
        self.step(lambda: self.victim.unsubscribe("plain/#"))
        self.step(self.leave)
        self.restart(on=True)
        self.restart(on=False)
        self.count()

    def publish_to_absent(self) -> None:
        with self.switch.quiet():
            for number in range(3):
                self.canary.publish("plain/absent", b"absent %d" % number, 1, 500 + number)
                self.take(self.canary)
                self.promised.add(b"absent %d" % number)
        self.canary.publish("plain/absent", b"absent 9", 1, 509)
        self.take(self.canary)
        if self.canary.wire.closed:
            self._others()

    def stage(self) -> None:
        with self.switch.quiet():
            self.come()
            self.take(self.victim)
            self.victim.publish("plain/staged", b"staged", 2, 77)
            self.promised |= {b"staged"} if any(one[0] >> 4 == p.PUBREC for one in self.victim.take()) else set()

    def leave(self) -> None:
        self.victim.disconnect()

    def restart(self, *, on: bool) -> None:
        """The process is gone; it starts with the failpoint on, or not."""
        self.switch.on = on
        self.bench.kill()
        self.switch.on = False
        self.canary.wire.closed = self.listener.wire.closed = self.victim.wire.closed = True
        self._others()
        self.check_others()

    def count(self) -> None:
        """What was promised is on a queue, or was delivered."""
        self.bench.queues.refusing.clear()
        self.bench.advance(30)
        stored = b"\0".join(row[3] for queue in self.bench.queues.rows.values() for row in queue.values())
        lost = {payload for payload in self.promised if payload not in stored and payload not in self.heard}
        assert not lost, f"acknowledged and lost: {lost}"


REACHED: set[str] = set()


def modes() -> list[Any]:
    """Each function, raising always; in the long form also once, at each of its first calls."""
    found = [pytest.param(point, 0, 1 << 30, id=point.name) for point in POINTS]
    if LONG:
        found += [
            pytest.param(point, after, 1, id=f"{point.name}-{after + 1}")
            for point in POINTS
            for after in (0, 1, 2, 5, 9, 20)
        ]
    return found


class Noted(Armed):
    """A place that raises nothing, and is noted if it is passed while another failpoint is on."""

    def __init__(self, name: str, switch: Armed, passed: set[str]) -> None:
        super().__init__()
        self.name, self.switch, self.passed = name, switch, passed

    def reached(self) -> None:
        if self.switch.on:
            self.passed.add(self.name)


@pytest.fixture(scope="module")
def passed() -> set[str]:
    """The functions that the story calls. A defect in any other changes nothing of it."""
    found: set[str] = set()
    switch = Armed()
    with ExitStack() as places:
        for point in POINTS:
            places.enter_context(armed(point, Noted(point.name, switch, found)))
        Story(switch).everything()
    return found


@pytest.mark.parametrize(("point", "after", "times"), modes())
def test_the_broker_lives(point: Point, after: int, times: int, passed: set[str]) -> None:
    if point.name not in passed and not LONG:
        return
    with armed(point) as switch:
        switch.after, switch.times = after, times
        Story(switch).everything()
        REACHED.update({point.name} if switch.raised else ())


@pytest.mark.xdist_group("defects")
def test_the_story_meets_most_of_them() -> None:
    if len(REACHED) > 20:  # else this test runs without the others
        assert len(REACHED) > 90, sorted({point.name for point in POINTS} - REACHED)


def test_without_a_defect_nothing_is_set_aside() -> None:
    story = Story(Armed())
    story.everything()
    assert not story.bench.queues.rows.get(SET_ASIDE)
    assert Boom("x").args
