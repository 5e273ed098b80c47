"""Batches with messages for another queue manager: every order of commits, kills and lost answers, and counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from broker_harness import Device, Harness, Queues

from gateway.broker.targets import Targets, marker_key_of
from gateway.mqtt import packets as p
from gateway.ports.batch import Done, Failure, Outcome, Stored, Unit
from gateway.ports.state_queues import MARKERS

MAPPING = """
version: 1
to_mq:
  - {name: there, topic: "there/#", queue: THERE, queue_manager: QM2, headers: []}
  - {name: here, topic: "here/#", queue: HERE, headers: []}
"""


class Far:
    """A target whose commits return when the test says so. It may be given up meanwhile."""

    name = "QM2"

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.away = ""
        self._ready: Callable[[list[Stored]], None] = lambda _markers: None
        self._running: tuple[Unit, Done] | None = None

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        self._ready = call

    def ready(self) -> None:
        self.away = ""
        self._ready(self.queues.fetch(MARKERS, marker_key_of("BENCH"), 500))

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
                self.ready()

        self.queues.submit(unit, finished)

    def give_up(self) -> None:
        if self._running is not None:
            (unit, done), self._running, self.away = self._running, None, "silent"
            done(unit, Outcome([Failure(-1, 2009, "silent", away=True)]))

    def go(self) -> None:
        """It is lost while nothing is under way."""
        if self._running is None and not self.queues.waiting:
            self.away = "gone"


class Bench(Harness):
    """A broker with a target."""

    def __init__(self) -> None:
        self.there = Queues()
        self.there.automatic = False
        super().__init__(MAPPING)

    def start(self) -> None:
        super().start()
        self.far = Far(self.there)
        Targets(self.engine.context, [self.far])
        self.far.ready()

    def kill(self) -> None:
        self.there.waiting.clear()
        self.there.landed.clear()
        super().kill()

    def bodies(self, queue: str) -> list[bytes]:
        return [row[3] for row in self.there.rows.get(queue, {}).values()]

    def run(self) -> None:
        """Everything is answered."""
        for _ in range(200):
            if not (self.there.commit() or self.queues.commit()):
                if self.far.away == "gone":
                    self.far.ready()
                if not self.engine.parking.waiting:
                    return
                self.advance(31)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def connected(bench: Bench) -> Device:
    device = bench.device(5, "device").connect(clean=False, keep_alive=0)
    bench.run()
    device.take()
    return device


def test_qos_1_is_acknowledged_when_both_have_committed(bench: Bench) -> None:
    device = connected(bench)
    bench.queues.automatic = False
    device.publish("there/a", b"1", 1, 1)
    assert not device.take()
    bench.there.commit()
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBACK]
    assert bench.bodies("THERE") == [b"1"]


def test_what_goes_elsewhere_does_not_wait_for_a_target_that_is_away(bench: Bench) -> None:
    device, other = connected(bench), bench.device(5, "other").connect()
    other.take()
    bench.far.go()
    device.publish("there/a", b"1", 1, 1)
    other.publish("here/a", b"2", 1, 1)
    assert [packet[0] >> 4 for packet in other.take()] == [p.PUBACK]
    bench.advance(80)
    assert not device.take(), "however often it was tried, it is not dead-lettered"
    bench.far.ready()
    bench.advance(2)
    bench.run()
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBACK], "soon after it is back"
    assert bench.bodies("THERE") == [b"1"]


def test_what_was_refused_before_the_target_went_has_all_its_retries_afterwards(bench: Bench) -> None:
    device = connected(bench)
    bench.far.go()
    device.publish("there/a", b"1", 1, 1)
    bench.advance(80)
    bench.far.ready()
    bench.there.refusing["THERE"] = 2053
    bench.there.automatic = True
    bench.advance(5)
    assert not device.take()
    assert "DEAD.Q" not in bench.queues.rows
    del bench.there.refusing["THERE"]
    bench.advance(30)
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBACK]


def test_a_refusal_of_the_target_is_dead_lettered_here(bench: Bench) -> None:
    device = connected(bench)
    bench.there.refusing["THERE"] = 2085
    device.publish("there/a", b"1", 1, 1)
    bench.run()
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBACK]
    assert not bench.bodies("THERE")
    assert len(bench.queues.rows["DEAD.Q"]) == 1


@pytest.mark.parametrize("seed", range(150))
def test_qos_2_is_there_once_whatever_happens(bench: Bench, seed: int) -> None:
    """Random steps; a device that sends again what was not answered, and counting."""
    random = Random(seed)
    device = connected(bench)
    bench.queues.automatic = False
    received, completed = set[int](), set[int]()
    sent: list[int] = []

    def hear() -> None:
        for packet in device.take():
            if packet[0] >> 4 == p.PUBREC:
                received.add(packet[1])
                device.ack(p.PUBREL, packet[1])
            elif packet[0] >> 4 == p.PUBCOMP:
                completed.add(packet[1])

    def publish() -> None:
        if len(sent) < 8:
            sent.append(len(sent) + 1)
            device.publish("there/a", b"%d" % sent[-1], 2, sent[-1])

    def kill() -> None:
        nonlocal device
        bench.queues.automatic = True
        bench.kill()
        device = connected(bench)
        for number in sent:
            if number in received - completed:
                device.ack(p.PUBREL, number)
            elif number not in completed:
                device.publish("there/a", b"%d" % number, 2, number, dup=True)
        bench.queues.automatic = False

    def give_up() -> None:
        bench.far.give_up()

    def go() -> None:
        bench.far.go()

    steps = [publish, publish, bench.there.commit, bench.there.land, bench.queues.commit, bench.queues.land, hear, hear]
    steps += [kill, give_up, go, lambda: bench.advance(1)]
    for _ in range(40):
        random.choice(steps)()
        if bench.far.away == "gone" and random.random() < 0.3:
            bench.far.ready()
    for _ in range(20):
        bench.run()
        hear()
    assert completed == set(sent)
    assert Counter(bench.bodies("THERE")) == Counter(b"%d" % number for number in sent)
    assert len(bench.there.rows.get(MARKERS, {})) < 8
