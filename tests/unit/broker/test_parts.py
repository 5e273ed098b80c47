"""What is cut off a unit of work for which a queue has no room: whole publications, in the order of each queue."""

from __future__ import annotations

from collections import Counter

import pytest
from broker_harness import Device, Harness, Queues
from refused_queues import FULL, MAPPING, PUBACK, PUBCOMP, PUBREL, balance, bodies

from gateway.broker.batch import Batch
from gateway.broker.marks import Mark
from gateway.broker.refused.parts import cut
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import STAGED
from gateway.session.session import Session

HOLDING = (
    MAPPING.replace("times: 2, ", "").replace("THEN", "hold").replace("queue: SECOND.Q}", "queue: SECOND.Q, HELD}")
)
HOLDING = HOLDING.replace("HELD", "on_failure: {retry: {from: 1s, to: 4s}, then: hold}")


def told(device: Device) -> list[int]:
    return [packet[1] for packet in device.take() if packet[0] >> 4 in {PUBACK, PUBCOMP}]


def emptied(bench: Harness, wanted: int, *queues: str) -> dict[str, list[bytes]]:
    """Queues are emptied every 5 seconds until this many messages in all were on them."""
    found: dict[str, list[bytes]] = {queue: [] for queue in queues}
    for _ in range(100):
        bench.advance(5)
        balance(bench)
        for queue in queues:
            found[queue] += bodies(bench, queue)
            bench.queues.rows.get(queue, {}).clear()
        if sum(map(len, found.values())) >= wanted:
            break
    return found


def ended(bench: Harness) -> None:
    parking = bench.engine.parking
    assert (parking.waiting, parking.deferred, parking.linked) == ({}, {}, {})
    assert (parking.rows, parking.unanswered) == (0, 0)
    assert bench.queues.depth("MQGATE.STAGED") == 0
    balance(bench)


class CountedToken(int):
    """Counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedToken.compared += 1
        return super().__eq__(other)

    __hash__ = int.__hash__


def test_staged_messages_are_not_compared_with_each_other_when_their_publications_are_cut_off() -> None:
    """A client may have released 65,535 at once."""
    rows, session, batch = 200, Session("d", 5), Batch()
    address, policy = Address("FIRST.Q"), Policy("r", 0, 1.0, 1.0, "hold", "reject")
    for number in range(rows):
        destination, row = batch.put(address, policy, b"", b"%d" % number)
        token = CountedToken(number)
        destination.mark(row, Mark((session, number, token)))
        batch.take(STAGED, session.staged_key, CountedToken(number))
    rest = cut(batch, batch.destinations[address])
    assert rest is not None
    taken = [one.takes[STAGED, session.staged_key].tokens for one in (batch, rest)]
    assert taken == [list(range(rows // 2)), list(range(rows // 2, rows))]
    assert CountedToken.compared <= 4 * rows


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("room", [{"FIRST.Q": 3}, {"SECOND.Q": 1}, {"FIRST.Q": 2, "SECOND.Q": 3}])
def test_publications_with_two_destinations_go_as_room_comes(room: dict[str, int], qos: int) -> None:
    bench = Harness(HOLDING)
    devices = [bench.device(4, f"d{number}").connect(clean=False) for number in range(2)]
    bench.queues.refusing["FIRST.Q"] = FULL
    for number in range(1, 7):
        for device in devices:
            device.publish("both/a", b"%s %d" % (device.client_id.encode(), number), qos, number)
            if qos == 2:
                device.ack(PUBREL, number)
    assert bench.engine.parking.rows == 24
    bench.queues.refusing.clear()
    bench.queues.room.update(room)
    found = emptied(bench, 24, "FIRST.Q", "SECOND.Q")
    for device in devices:
        own = [b"%s %d" % (device.client_id.encode(), number) for number in range(1, 7)]
        for queue, there in found.items():
            assert [body for body in there if body in own] == own, queue
        assert told(device) == [1, 2, 3, 4, 5, 6]
    ended(bench)


def test_what_has_one_destination_keeps_its_place_among_them() -> None:
    """On each of their queues; what belongs to one client is told in order."""
    bench = Harness(HOLDING)
    device = bench.device(4, "d").connect()
    bench.queues.refusing["FIRST.Q"] = FULL
    topics = ["both/a", "second", "both/a", "first", "both/b", "second", "first", "both/a"]
    for number, topic in enumerate(topics, 1):
        device.publish(topic, b"%d" % number, 1, number)
    bench.queues.refusing.clear()
    bench.queues.room.update({"FIRST.Q": 1, "SECOND.Q": 1})
    found = emptied(bench, 12 - 1, "FIRST.Q", "SECOND.Q")
    assert found == {"FIRST.Q": [b"1", b"3", b"4", b"5", b"7", b"8"], "SECOND.Q": [b"1", b"2", b"3", b"5", b"6", b"8"]}
    assert told(device) == [1, 2, 3, 4, 5, 6, 7, 8]
    ended(bench)


PRIORITIES = """
version: 1
to_mq:
  - {name: high, topic: "+/high", queue: A.Q, descriptor: {priority: 7}, continue: true, FAILURE}
  - {name: low, topic: "+/low", queue: A.Q, descriptor: {priority: 2}, continue: true, FAILURE}
  - {name: and b, topic: "two/+", queue: B.Q, FAILURE}
""".replace("FAILURE", "on_failure: {retry: {from: 1s, to: 4s}, then: hold}")


@pytest.mark.parametrize("first", ["high", "low"])
def test_a_queue_that_gets_them_at_several_priorities_may_be_filled_by_others_than_those_it_refuses(first: str) -> None:
    bench = Harness(PRIORITIES)
    device = bench.device(4, "d").connect()
    bench.queues.refusing.update({"A.Q": FULL, "B.Q": FULL})
    kinds = [first, *["low" if first == "high" else "high"] * 5, first]
    for number, kind in enumerate(kinds, 1):
        device.publish(f"two/{kind}", b"%d" % number, 1, number)
    bench.queues.refusing.clear()
    bench.queues.room["A.Q"] = 1
    found = emptied(bench, 14, "A.Q", "B.Q")
    assert found["A.Q"] == found["B.Q"] == [b"%d" % number for number in range(1, 8)]
    assert told(device) == [1, 2, 3, 4, 5, 6, 7]
    ended(bench)


def test_what_none_of_its_queues_refuses_goes_although_another_stays_full() -> None:
    """It was sent before, and lined up in the same unit of work."""
    rules = [
        f"{{name: {topic} {queue}, topic: {topic}, queue: {queue}, continue: true, "
        "on_failure: {retry: {from: 1s, to: 4s}, then: hold}}"
        for topic, queue in [("ab", "A.Q"), ("ab", "B.Q"), ("bc", "B.Q"), ("bc", "C.Q")]
    ]
    bench = Harness("\n  - ".join(["version: 1\nto_mq:", *rules]))
    device = bench.device(4, "d").connect()
    bench.queues.refusing["A.Q"] = FULL
    for number, topic in enumerate(["ab", "ab", "bc", "ab"], 1):
        device.publish(topic, b"%d" % number, 1, number)
    bench.queues.refusing = {"C.Q": FULL}
    bench.advance(20)
    assert (bodies(bench, "A.Q"), bodies(bench, "B.Q")) == ([b"1", b"2"], [b"1", b"2"])
    bench.queues.refusing.clear()
    bench.advance(20)
    assert (bodies(bench, "A.Q"), bodies(bench, "B.Q")) == ([b"1", b"2", b"4"], [b"1", b"2", b"3", b"4"])
    assert told(device) == [1, 2, 3, 4]
    ended(bench)


def test_dead_letters_of_several_queues_go_as_the_dead_letter_queue_is_emptied() -> None:
    """All of those of one queue come before all of those of the other there: no cut keeps that."""
    bench = Harness(MAPPING.replace("THEN", "dead_letter").replace("queue: SECOND.Q}", "queue: SECOND.Q, AT ONCE}")
                    .replace("AT ONCE", "on_failure: {retry: {times: 0}}"))  # fmt: skip
    device = bench.device(4, "d").connect()
    bench.queues.refusing.update({"FIRST.Q": FULL, "SECOND.Q": FULL, "DEAD.Q": FULL})
    for number in range(1, 7):
        device.publish("both/a", b"%d" % number, 1, number)
    bench.advance(60)
    del bench.queues.refusing["DEAD.Q"]
    bench.queues.room["DEAD.Q"] = 3
    found = emptied(bench, 12, "DEAD.Q")["DEAD.Q"]
    assert Counter(found) == dict.fromkeys([b"%d" % number for number in range(1, 7)], 2)
    assert list(dict.fromkeys(found)) == sorted(set(found)), "in order"
    assert told(device) == [1, 2, 3, 4, 5, 6]
    ended(bench)


def test_two_rules_of_unlike_patience_keep_nothing_from_going() -> None:
    """What was given up first stands before what was sent before it on the dead-letter queue, and behind it on the
    other queue."""
    retry = "on_failure: {{retry: {{times: {1}, from: 1s, to: 1s}}}}"
    rule = f"{{{{name: {{0}}, topic: 'x/{{0}}', queue: A.Q, continue: true, {retry}}}}}"
    held = "{name: both, topic: 'x/+', queue: B.Q, on_failure: {retry: {from: 1s, to: 1s}, then: hold}}"
    rules = [rule.format("soon", 0), rule.format("late", 6), held]
    bench = Harness("\n  - ".join(["version: 1\nto_mq:", *rules]))
    device = bench.device(4, "d").connect()
    bench.queues.refusing.update({"A.Q": FULL, "B.Q": FULL})
    for number in range(1, 9):
        device.publish("x/late" if number % 2 else "x/soon", b"%d" % number, 1, number)
    bench.advance(60)
    del bench.queues.refusing["B.Q"]
    bench.queues.room["B.Q"] = 2
    found = emptied(bench, 8, "B.Q")
    bench.advance(30)
    assert sorted(found["B.Q"]) == sorted(bodies(bench, "DEAD.Q")) == [b"%d" % number for number in range(1, 9)]
    assert told(device) == [1, 2, 3, 4, 5, 6, 7, 8]
    ended(bench)


class ShortQueues(Queues):
    """A.Q takes messages of up to 600 bytes."""

    def commit(self) -> bool:
        self.longest["A.Q"] = 600
        rows = [
            row
            for unit, _ in self.waiting[:1]
            for puts in unit.puts
            for row in zip(puts.heads, puts.bodies, strict=True)
        ]
        self.refusing = {"A.Q": 2030} if any(len(head) - 364 + len(body) > 600 for head, body in rows) else {}
        return super().commit()


def test_a_long_message_in_segments_fits_without_what_comes_behind_it() -> None:
    failure = "too_long: segment, on_failure: {retry: {from: 1s, to: 4s}, then: hold}"
    bench = Harness(f"version: 1\nto_mq:\n  - {{name: long, topic: a, queue: A.Q, {failure}}}\n", ShortQueues())
    device = bench.device(4, "d").connect()
    bench.queues.room["A.Q"] = 0
    device.publish("a", b"x" * 3000, 1, 1)
    device.publish("a", b"y", 1, 2)
    (parked,) = bench.engine.parking.waiting.values()
    bench.queues.room["A.Q"] = segments = parked.batch.rows - 1
    assert segments > 4
    bench.advance(5)
    assert bench.queues.depth("A.Q") == segments
    bench.queues.rows["A.Q"].clear()
    bench.advance(5)
    assert bodies(bench, "A.Q") == [b"y"]
    assert told(device) == [1, 2]
    ended(bench)
