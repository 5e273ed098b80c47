"""Batches with messages for another queue manager: every order of commits, kills and lost answers, and counting."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import pytest
from broker_harness import Device, Harness, Queues

from gateway.broker.targets import Targets, marker_key_of
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Done, Failure, Outcome, Stored, Unit
from gateway.ports.state_queues import MARKERS, STAGED, TOGETHER

MAPPING = """
version: 1
to_mq:
  - {name: there, topic: "there/#", queue: THERE, queue_manager: QM2, headers: []}
  - {name: here, topic: "here/#", queue: HERE, headers: []}
  - {name: clients, topic: "clients/#", queue: THERE, queue_manager: [QM2, QM3], headers: []}
  - {name: turns, topic: "turns/#", queue: THERE, queue_manager: [QM2, QM3], spread: round_robin, headers: []}
"""


class Far:
    """A target whose commits return when the test says so. It may be given up meanwhile."""

    def __init__(self, queues: Queues, name: str = "QM2") -> None:
        self.queues, self.name = queues, name
        self.away = ""
        self._ready: Callable[[list[Stored]], None] = lambda _markers: None
        self._running: tuple[Unit, Done] | None = None

    def fence_off(self, gateways: Iterable[str]) -> None:
        assert not [*gateways]

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
        self.there, self.third = Queues(), Queues()
        self.there.automatic = self.third.automatic = False
        self.late: set[str] = set()
        """Targets that are away when the gateway starts."""
        super().__init__(MAPPING)

    def join(self) -> None:
        self.far, self.other = Far(self.there), Far(self.third, "QM3")
        Targets(self.engine.context, [self.far, self.other])

    def start(self) -> None:
        super().start()
        for far in (self.far, self.other):
            if far.name in self.late:
                far.away = "gone"
            else:
                far.ready()

    def kill(self) -> None:
        for queues in (self.there, self.third):
            queues.waiting.clear()
            queues.landed.clear()
        super().kill()

    def bodies(self, queue: str) -> list[bytes]:
        return [row[3] for row in self.there.rows.get(queue, {}).values()]

    def everywhere(self, queue: str) -> Counter[bytes]:
        return Counter(self.bodies(queue) + [row[3] for row in self.third.rows.get(queue, {}).values()])

    def run(self) -> None:
        """Everything is answered."""
        for _ in range(200):
            if not (self.there.commit() or self.third.commit() or self.queues.commit()):
                for far in (self.far, self.other):
                    if far.away == "gone":
                        far.ready()
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


@pytest.mark.parametrize("topic", ["there/a", "clients/a", "turns/a"])
@pytest.mark.parametrize("seed", range(400 if os.environ.get("MQGATE_LONG") else 60))
def test_qos_2_is_there_once_whatever_happens(bench: Bench, seed: int, topic: str) -> None:
    """Random steps; a device that sends again what was not answered, and counting."""
    random = Random(seed)
    device = connected(bench)

    def listen() -> None:
        """Every other time somebody here hears of it too."""
        if seed % 2:
            bench.device(5, "reader").connect().subscribe(topic, 1)

    listen()
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
            device.publish(topic, b"%d" % sent[-1], 2, sent[-1])

    def kill() -> None:
        nonlocal device
        bench.queues.automatic = True
        bench.late = {name for name in ("QM2", "QM3") if random.random() < 0.3}
        bench.kill()
        listen()
        device = bench.device(5, "device").connect(clean=False, keep_alive=0)
        device.take()
        for number in sent:
            if number in received - completed:
                device.ack(p.PUBREL, number)
            elif number not in completed:
                device.publish(topic, b"%d" % number, 2, number, dup=True)
        bench.queues.automatic = False

    def give_up() -> None:
        random.choice([bench.far, bench.other]).give_up()

    def go() -> None:
        random.choice([bench.far, bench.other]).go()

    steps = [publish, publish, bench.there.commit, bench.there.land, bench.queues.commit, bench.queues.land, hear, hear]
    steps += [bench.third.commit, bench.third.land] if topic != "there/a" else []
    steps += [kill, give_up, go, lambda: bench.advance(1)]
    for _ in range(40):
        random.choice(steps)()
        for far in (bench.far, bench.other):
            if far.away == "gone" and random.random() < 0.3:
                far.ready()
    for _ in range(20):
        bench.run()
        hear()
    assert completed == set(sent)
    assert bench.everywhere("THERE") == Counter(b"%d" % number for number in sent)
    assert len(bench.there.rows.get(MARKERS, {})) < 8


@pytest.mark.parametrize("listens", [False, True])
def test_what_is_staged_under_another_key_keeps_its_name_in_markers(bench: Bench, *, listens: bool) -> None:
    """A gateway that shared the state queues has put it; one that has them for itself gets its PUBREL again."""
    bench.engine.context.sessions._staged_key = b""
    device = connected(bench)
    device.publish("there/a", b"once", 2, 7)
    bench.run()
    device.ack(p.PUBREL, 7)
    bench.queues.automatic = False
    bench.there.commit()
    for _ in (1, 2):
        bench.queues.automatic = True
        bench.kill()
        bench.run()
    assert {row[1] for row in bench.queues.rows[STAGED].values()} == {TOGETHER}
    if listens:
        bench.device(5, "reader").connect().subscribe("there/#", 1)
    back = bench.device(5, "device").connect(clean=False, keep_alive=0)
    back.take()
    back.ack(p.PUBREL, 7)
    bench.run()
    assert [packet[0] >> 4 for packet in back.take()] == [p.PUBCOMP]
    assert bench.bodies("THERE") == [b"once"]


def test_the_messages_of_a_client_go_to_one_of_several_and_to_the_next_while_it_is_away(bench: Bench) -> None:
    devices = [bench.device(5, f"client-{number}").connect() for number in range(8)]
    for number, device in enumerate(devices):
        for turn in range(3):
            device.publish("clients/a", b"%d:%d" % (number, turn), 1, 1 + turn)
            bench.run()
    first = bench.bodies("THERE")
    second = [row[3] for row in bench.third.rows["THERE"].values()]
    assert not {body[:1] for body in first} & {body[:1] for body in second}
    assert len(first) + len(second) == 24
    assert first == sorted(first), "in their order"
    counted = bench.engine.counters.mq_put_messages
    assert (counted["QM2", "clients"], counted["QM3", "clients"]) == (len(first), len(second))
    bench.far.go()
    for device in devices:
        device.publish("clients/a", b"away", 1, 9)
        bench.there.automatic = bench.third.automatic = True
        bench.third.commit()
    assert bench.bodies("THERE") == first
    assert bench.everywhere("THERE")[b"away"] == 8
    bench.far.ready()
    devices[int(first[0][:1])].publish("clients/a", b"back", 1, 10)
    assert bench.bodies("THERE") == [*first, b"back"]


def test_in_turn_each_takes_a_message(bench: Bench) -> None:
    device = connected(bench)
    for number in range(6):
        device.publish("turns/a", b"%d" % number, 1, 1 + number)
        bench.run()
    assert len(bench.bodies("THERE")) == 3
    bench.other.go()
    for number in range(6, 9):
        device.publish("turns/a", b"%d" % number, 1, 1 + number)
        bench.there.commit()
    assert len(bench.bodies("THERE")) == 6
    assert bench.everywhere("THERE") == Counter(b"%d" % number for number in range(9))


def test_what_a_lost_target_may_have_stays_with_it_and_everything_else_goes_on(bench: Bench) -> None:
    device, other = connected(bench), bench.device(5, "other").connect()
    other.take()
    device.publish("turns/a", b"two", 2, 1)
    bench.run()
    device.take()
    device.ack(p.PUBREL, 1)
    lost, queues = (bench.far, bench.there) if bench.there.waiting else (bench.other, bench.third)
    rest = bench.third if queues is bench.there else bench.there
    queues.land()
    lost.give_up()
    other.publish("turns/a", b"one", 1, 1)
    rest.commit()
    assert [packet[0] >> 4 for packet in other.take()] == [p.PUBACK]
    assert not device.take(), "nobody knows yet where it is"
    bench.run()
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBCOMP]
    assert bench.everywhere("THERE") == Counter([b"two", b"one"])


def test_who_only_shares_a_unit_with_what_a_lost_target_may_have_does_not_wait_for_it(bench: Bench) -> None:
    device, other = connected(bench), bench.device(5, "other").connect()
    other.take()
    device.publish("turns/a", b"two", 2, 1)
    bench.run()
    device.take()
    bench.engine.received_each([(other.connection, writer.encode_publish(5, b"turns/a", b"one", 1, packet_id=1))])
    device.ack(p.PUBREL, 1)
    lost, queues = (bench.far, bench.there) if bench.there.waiting else (bench.other, bench.third)
    rest = bench.third if queues is bench.there else bench.there
    queues.land()
    lost.give_up()
    rest.commit()
    assert [packet[0] >> 4 for packet in other.take()] == [p.PUBACK]
    assert not device.take(), "nobody knows yet where it is"
    bench.run()
    assert [packet[0] >> 4 for packet in device.take()] == [p.PUBCOMP]
    assert bench.everywhere("THERE")[b"two"] == 1


def test_what_was_released_before_a_restart_waits_until_all_that_may_have_it_have_been_asked(bench: Bench) -> None:
    device = connected(bench)
    device.publish("turns/a", b"two", 2, 1)
    bench.run()
    bench.queues.automatic = False
    device.ack(p.PUBREL, 1)
    taker, name = (bench.there, "QM2") if bench.there.waiting else (bench.third, "QM3")
    taker.commit()
    bench.queues.automatic = True
    bench.late = {name}
    bench.kill()
    device = bench.device(5, "device").connect(clean=False)
    device.take()
    device.ack(p.PUBREL, 1)
    device.publish("turns/a", b"new", 2, 2)
    assert not bench.there.waiting
    assert not bench.third.waiting
    bench.run()
    assert sorted(packet[0] >> 4 for packet in device.take()) == [p.PUBREC, p.PUBCOMP]
    assert bench.everywhere("THERE") == Counter([b"two"])


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_subscriber_has_had_is_put_once_when_its_target_is_lost_meanwhile(bench: Bench, killed: bool) -> None:
    """Its staged record is replaced then, and the marker there has the name of the first one."""
    reader = bench.device(5, "reader").connect()
    reader.subscribe("there/#", 2)
    device = connected(bench)
    device.publish("there/a", b"two", 2, 1)
    bench.run()
    device.ack(p.PUBREL, 1)
    bench.there.land()
    bench.far.give_up()
    if killed:
        bench.kill()
        device = connected(bench)
        device.ack(p.PUBREL, 1)
    bench.run()
    assert device.take()[-1][0] >> 4 == p.PUBCOMP
    assert bench.bodies("THERE") == [b"two"]
