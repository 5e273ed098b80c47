"""Rules that consume queues of targets: what comes of a message is committed here, then it is off its queue. Whatever
is lost in between, it is dealt with once.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest
from broker_harness import Harness
from consumed_targets import FarIntake, FarQueue, FarTarget

from gateway.broker.consumed import NAME, name_of
from gateway.broker.deliver import target_queues
from gateway.broker.targets import Targets
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.ports.batch import Stored, Unit
from gateway.ports.sources import Backout
from gateway.ports.state_queues import MARKERS, OUT, rows_of
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

MAPPING = """
version: 1
to_mqtt:
  - {name: there, queue: COMMANDS, queue_manager: QM2, topic: cmd, qos: 2}
  - {name: here, queue: COMMANDS, topic: own, qos: 1}
"""
MD = mqmd.build(persistence=1)


class Bench(Harness):
    """A broker that consumes from a target."""

    def __init__(self, mapping: str = MAPPING, *, most: int = 200, **limits: Any) -> None:
        self.there, self.most = FarQueue(), most
        super().__init__(mapping, **limits)

    def start(self) -> None:
        self.far = FarTarget({"COMMANDS": self.there, "news": self.there}, most=self.most)
        super().start()

    def join(self) -> None:
        Targets(self.engine.context, [self.far])

    @property
    def intake(self) -> FarIntake:
        return self.far.intakes[-1]

    def step(self) -> None:
        self.intake.step()

    def hear(self) -> None:
        self.intake.hear()

    def kill(self, *, taken: bool = False) -> None:
        """`taken`: the target's commit was asked for, and happens."""
        for one in self.far.intakes:
            one.lose(committed=taken)
        super().kill()

    def run(self) -> None:
        """All that can happen without time passing."""
        while self.far.run() or self.queues.commit() or self.clock._soon:
            self.clock.run()

    def put(self, *bodies: bytes, md: bytes = MD) -> None:
        for body in bodies:
            self.there.arrive(md, body)

    def markers(self) -> list[bytes]:
        return [row[3] for row in self.queues.rows.get(MARKERS, {}).values()]


class Reader:
    """A session that is kept, whose client acknowledges everything and knows what it has had."""

    def __init__(self, bench: Bench, name: str = "reader") -> None:
        self.bench, self.name = bench, name
        self.found: list[bytes] = []
        self._open = set[int]()
        self.connect()
        self.device.subscribe("#", 2)
        self.read()

    def connect(self) -> None:
        self.device = self.bench.device(5, self.name).connect(clean=False, keep_alive=0)

    def read(self) -> list[bytes]:
        """Take what has come and answer it; all that has come so far."""
        while packets := self.device.take():
            for packet in packets:
                kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
                if kind == p.PUBREL:
                    self._open.discard(packet[1])
                    self.device.ack(p.PUBCOMP, packet[1])
                elif kind == p.PUBLISH:
                    if qos < 2 or packet[2] not in self._open:
                        self.found.append(bytes(packet[4]))
                    if qos:
                        self.device.ack(p.PUBACK if qos == 1 else p.PUBREC, packet[2])
                    if qos == 2:
                        self._open.add(packet[2])
        return self.found


def test_messages_of_a_target_reach_devices_in_order_and_leave_their_queue() -> None:
    bench = Bench(most=3)
    reader = Reader(bench)
    bench.put(*(b"%d" % number for number in range(8)))
    bench.queues.arrive("COMMANDS", (MD, b"own"))
    bench.run()
    found = reader.read()
    assert [body for body in found if body != b"own"] == [b"%d" % number for number in range(8)]
    assert b"own" in found, "a queue of the same name here is another one"
    assert not bench.there.rows
    bench.engine.tick()
    bench.run()
    assert not bench.markers(), "they are not needed when the target has committed"
    counted = bench.engine.counters.mq_get_messages
    assert (counted["QM2", "there"], counted["BENCH", "here"]) == (8, 1)


def test_a_message_is_off_its_queue_only_when_its_copies_are_committed() -> None:
    bench = Bench()
    reader = Reader(bench)
    bench.run()
    bench.queues.automatic = False
    bench.put(b"1")
    while bench.far.run() or bench.clock._soon:
        bench.clock.run()
    assert bench.there.bodies == [b"1"]
    assert not reader.read()
    bench.queues.commit()
    assert bench.there.bodies == [b"1"], "the target is told now"
    bench.run()
    assert not bench.there.rows
    assert reader.read() == [b"1"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_gateway_killed_between_the_commits_delivers_once(*, taken: bool) -> None:
    bench = Bench()
    reader = Reader(bench)
    reader.device.drop()
    bench.put(b"1", b"2")
    while not bench.queues.rows.get(OUT):
        bench.far.run()
        bench.clock.run()
    bench.kill(taken=taken)
    bench.put(b"3")
    reader.connect()
    bench.run()
    assert reader.read() == [b"1", b"2", b"3"]
    assert not bench.there.rows


def test_a_target_that_is_lost_between_the_commits_gives_nothing_twice() -> None:
    bench = Bench()
    reader = Reader(bench)
    bench.run()
    bench.queues.automatic = False
    bench.put(b"1")
    while bench.far.run() or bench.clock._soon:
        bench.clock.run()
    bench.intake.lose()
    bench.put(b"2")
    bench.far.run()
    bench.clock.run()
    bench.queues.automatic = True
    bench.queues.commit()
    bench.run()
    assert reader.read() == [b"1", b"2"]
    assert not bench.there.rows


def test_what_was_backed_out_too_often_goes_to_the_back_out_queue_of_the_target() -> None:
    bench = Bench()
    bench.there.backout = Backout(2, "ASIDE")
    reader = Reader(bench)
    bench.put(b"poison", md=mqmd.with_number(MD, mqmd.AT_BACKOUT_COUNT, 2))
    bench.put(b"sound")
    bench.run()
    assert reader.read() == [b"sound"]
    assert bench.there.aside == {"ASIDE": [b"poison"]}
    assert not bench.there.rows
    assert not bench.queues.rows.get("DEAD.Q")


def test_without_a_back_out_queue_it_is_dead_lettered_here() -> None:
    bench = Bench(MAPPING.replace("topic: cmd", "topic: cmd, backout: {threshold: 1}"))
    Reader(bench)
    bench.put(b"poison", md=mqmd.with_number(MD, mqmd.AT_BACKOUT_COUNT, 1))
    bench.run()
    (row,) = bench.queues.rows["DEAD.Q"].values()
    assert b"QM2" in row[3], "its header names the queue manager it comes from"
    assert not bench.there.rows


def test_what_nobody_gets_and_cannot_be_dead_lettered_waits_with_the_others() -> None:
    bench = Bench(MAPPING.replace("topic: cmd", 'topic: "{usr.to}"'))
    reader = Reader(bench)
    bench.queues.refusing["DEAD.Q"] = 2053
    bench.put(b"no property: it cannot follow its rule")
    bench.run()
    assert len(bench.there.rows) == 1
    assert not bench.markers()
    bench.advance(4)
    bench.run()
    assert len(bench.there.rows) == 1
    del bench.queues.refusing["DEAD.Q"]
    bench.advance(4)
    bench.run()
    assert not bench.there.rows
    assert len(bench.queues.rows["DEAD.Q"]) == 1
    assert mqmd.number(next(iter(bench.queues.rows["DEAD.Q"].values()))[2], mqmd.AT_BACKOUT_COUNT) == 0
    assert not reader.read()


def test_a_back_out_queue_that_takes_nothing_holds_the_messages_until_it_does() -> None:
    bench = Bench()
    bench.there.backout = Backout(2, "ASIDE")
    bench.there.refusing.add("ASIDE")
    reader = Reader(bench)
    bench.put(b"poison", md=mqmd.with_number(MD, mqmd.AT_BACKOUT_COUNT, 2))
    bench.put(b"sound")
    for _ in range(5):
        bench.intake.step()
        bench.intake.hear()
        bench.clock.run()
        bench.queues.commit()
    assert reader.read() == [b"sound"]
    assert len(bench.there.rows) == 2
    bench.there.refusing.clear()
    bench.run()
    assert not bench.there.rows
    assert bench.there.aside == {"ASIDE": [b"poison"]}
    assert reader.read() == [b"sound"]


def test_a_rule_that_goes_gives_back_what_was_got() -> None:
    bench = Bench()
    bench.run()
    bench.put(b"1")
    bench.intake.step()
    bench.consumers.use(compile_mappings(parse_mappings([("new.yaml", "version: 1")])))
    bench.run()
    assert bench.intake.closed
    assert not bench.there.locked
    assert bench.there.bodies == [b"1"]
    bench.consumers.use(compile_mappings(parse_mappings([("new.yaml", MAPPING)])))
    reader = Reader(bench)
    bench.run()
    assert reader.read() == [b"1"]


def test_a_rule_that_goes_while_its_messages_are_committed_lets_them_go() -> None:
    bench = Bench()
    reader = Reader(bench)
    bench.run()
    bench.queues.automatic = False
    bench.put(b"1")
    while bench.far.run() or bench.clock._soon:
        bench.clock.run()
    bench.consumers.use(compile_mappings(parse_mappings([("new.yaml", "version: 1")])))
    assert not bench.intake.closed
    bench.queues.automatic = True
    bench.queues.commit()
    bench.run()
    assert bench.intake.closed
    assert reader.read() == [b"1"]
    bench.consumers.use(compile_mappings(parse_mappings([("new.yaml", MAPPING)])))
    bench.run()
    assert reader.read() == [b"1"]


def test_a_target_that_is_not_connected_is_named() -> None:
    bench = Bench(MAPPING.replace("queue_manager: QM2", "queue_manager: [QM2, QM9]"))
    assert bench.engine.context.problems == {
        "queue COMMANDS at QM9": "it cannot be consumed: the gateway is not connected to this target: start it again"
    }


def test_publications_of_a_subscription_at_a_target() -> None:
    bench = Bench(MAPPING.replace("queue: COMMANDS, queue_manager", "mq_topic: news, queue_manager"))
    reader = Reader(bench)
    bench.put(b"1")
    bench.run()
    assert reader.read() == [b"1"]
    assert [*bench.far.origins] == [("", "news", "mqgate.there")]


def test_the_name_of_a_message_does_not_change_on_its_way() -> None:
    stored = Stored(1, mqmd.with_expiry(mqmd.with_msg_id(MD, b"m" * 24), 100), b"data")
    again = Stored(7, mqmd.with_number(mqmd.with_expiry(stored.md, 60), mqmd.AT_BACKOUT_COUNT, 3), b"data")
    assert name_of(stored) == name_of(again)
    assert len(name_of(stored)) == NAME
    assert name_of(stored) != name_of(stored._replace(data=b"other"))
    assert name_of(stored) != name_of(stored._replace(md=mqmd.with_msg_id(MD, b"n" * 24)))


class Flaw:
    """A defect that is met so many times more, for the first time after so many calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = self.after = 0
        monkeypatch.setattr(target_queues, "name_of", self.name_of)
        monkeypatch.setattr(target_queues, "rows_of", self.rows_of)

    def _met(self) -> None:
        if self.times and self.after:
            self.after -= 1
        elif self.times:
            self.times -= 1
            raise ZeroDivisionError("a flaw")

    def name_of(self, stored: Stored) -> bytes:
        self._met()
        return name_of(stored)

    def rows_of(self, *asked: Any) -> Any:
        self._met()
        return rows_of(*asked)


def test_a_defect_costs_a_while_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it waits for longer."""
    flaw = Flaw(monkeypatch)
    bench = Bench()
    bench.defects = []
    reader = Reader(bench)
    bench.run()
    flaw.times = 2
    bench.put(b"1", b"2")
    bench.run()
    problems = bench.engine.context.problems
    assert "a defect" in problems["queue COMMANDS at QM2"]
    assert [(one.whom, repr(one.error)) for one in bench.defects] == [
        ("queue COMMANDS at QM2", "ZeroDivisionError('a flaw')")
    ]
    assert bench.engine.counters.set_aside["call", "ok"] == 1
    bench.advance(1.25)
    bench.run()
    assert len(bench.defects) == 2
    bench.advance(1.25)
    bench.run()
    assert not reader.read()
    bench.advance(1)
    bench.run()
    assert reader.read() == [b"1", b"2"]
    assert not bench.there.rows
    assert "queue COMMANDS at QM2" not in problems
    bench.put(b"3")
    bench.run()
    assert reader.read() == [b"1", b"2", b"3"]
    assert len(bench.defects) == 2


def test_a_rule_that_goes_after_a_defect_gives_back_what_was_got(monkeypatch: pytest.MonkeyPatch) -> None:
    flaw = Flaw(monkeypatch)
    bench = Bench()
    bench.defects = []
    bench.run()
    flaw.times = 1
    bench.put(b"1")
    bench.run()
    bench.consumers.use(compile_mappings(parse_mappings([("none.yaml", "version: 1\n")])))
    bench.advance(5)
    bench.run()
    assert bench.intake.closed
    assert bench.there.bodies == [b"1"]
    assert not bench.there.locked


@pytest.mark.parametrize("flaws", [False, True], ids=["", "with defects"])
@pytest.mark.parametrize("seed", range(1000 if os.environ.get("MQGATE_LONG") else 20))
def test_each_message_comes_once_whatever_happens(monkeypatch: pytest.MonkeyPatch, seed: int, *, flaws: bool) -> None:
    """Random steps of the target's thread, of commits here and there, lost connections and kills, and counting."""
    random = Random(seed)
    flaw = Flaw(monkeypatch)
    bench = Bench(most=random.choice([1, 2, 5, 200]))
    bench.defects = [] if flaws else None
    reader = Reader(bench)
    bench.queues.automatic = False
    sent: list[bytes] = []

    def put() -> None:
        sent.append(b"%d" % len(sent))
        bench.put(sent[-1])

    def kill() -> None:
        reader.device.drop()
        bench.queues.automatic = True
        bench.kill(taken=random.random() < 0.5)
        reader.connect()
        bench.queues.automatic = False

    steps = [put, put, bench.queues.commit, bench.queues.commit, bench.queues.land, reader.read, bench.clock.run]
    steps += 3 * [bench.step, bench.hear]
    steps += [lambda: bench.intake.lose(committed=random.random() < 0.5), lambda: bench.advance(0.5)]
    for _ in range(120):
        if flaws and random.random() < 0.05:
            flaw.times, flaw.after = 1, random.randrange(4)
        kill() if random.random() < 0.03 else random.choice(steps)()
    flaw.times = 0
    bench.queues.automatic = True
    for _ in range(4):
        bench.run()
        bench.advance(2)
        reader.read()
    assert not bench.there.rows
    assert Counter(reader.found) == Counter(sent)
    assert reader.found == sent, "in their order"
    assert len(bench.markers()) < 8


@pytest.mark.parametrize("length", [20, 200])
def test_a_commit_makes_copies_of_so_many_bytes(length: int) -> None:
    """The others wait here, also those behind one whose copies are made in slices."""
    bench = Bench()
    context, copied = bench.engine.context, list[int]()
    context.most_copied, submit = 300, context.submit

    def noted(unit: Unit, *rest: Any) -> None:
        copied.append(sum(len(body) - 2 for puts in unit.puts if puts.queue == OUT for body in puts.bodies))
        submit(unit, *rest)

    context.submit = noted
    readers = [Reader(bench, f"reader-{number}") for number in range(4)]
    bodies = [b"%02d" % number + bytes(length - 2 if number % 3 == 0 else 0) for number in range(20)]
    bench.put(*bodies)
    for _ in range(100):
        bench.run()
        bench.advance(0.25)
    assert [reader.read() for reader in readers] == [bodies] * 4
    assert max(copied) <= 300 + 4 * length
    assert sum(copied) == 4 * sum(map(len, bodies))
    assert not bench.there.rows
