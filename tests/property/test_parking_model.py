"""Queues that refuse and recover at random, commits that take their time, kills in between: whatever happens, each
message is where its rule says or among the dead letters, once at QoS 2, and every one of them is accounted for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from broker_harness import Device, Harness
from hypothesis import given, settings
from hypothesis import strategies as st

MAPPING = """
version: 1
to_mq:
  - {name: both, topic: both, queue: FIRST.Q, continue: true, on_failure: {retry: {times: 2, from: 1s, to: 2s}}}
  - {name: both too, topic: both, queue: SECOND.Q, on_failure: {retry: {times: 2, from: 1s, to: 2s}}}
  - {name: alarm, topic: mixed, queue: FIRST.Q, when: {json: {a: 1}}, continue: true,
     on_failure: {retry: {times: 1, from: 1s, to: 2s}}}
  - {name: all, topic: mixed, queue: SECOND.Q, on_failure: {retry: {times: 0}}}
  - {name: one, topic: one, queue: FIRST.Q, on_failure: {retry: {times: 1, from: 1s, to: 1s}, then: hold}}
  - {name: other, topic: other, queue: SECOND.Q}
  - {name: bad, topic: bad, queue: FIRST.Q, payload: {format: string, ccsid: 1208}, continue: true}
  - {name: bad too, topic: bad, queue: SECOND.Q, payload: {format: json}}
"""
QUEUES = ["FIRST.Q", "SECOND.Q", "DEAD.Q"]
WHERE = {
    "both": ["FIRST.Q", "SECOND.Q"], "plain": ["SECOND.Q"], "alarm": ["FIRST.Q", "SECOND.Q"], "one": ["FIRST.Q"],
    "other": ["SECOND.Q"], "bad": ["FIRST.Q", "SECOND.Q"],
}  # fmt: skip


@dataclass
class Sent:
    kind: str
    body: bytes
    qos: int
    packet_id: int
    times: int = 1
    received: bool = False
    done: bool = False

    @property
    def topic(self) -> str:
        return "mixed" if self.kind in {"plain", "alarm"} else self.kind


@dataclass
class Client:
    """A device that keeps its promises: it acknowledges what it is told and resends what it is not."""

    bench: Harness
    name: str
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device: Device = self.bench.device(4, self.name).connect(clean=False)

    def publish(self, kind: str, qos: int) -> None:
        number = len(self.sent) + 1
        mark = b'"%s-%d"' % (self.name.encode(), number)
        body = b'{"a": %d, "id": %s}' % (kind == "alarm", mark) if kind != "bad" else b"not json: " + mark
        self.sent.append(Sent(kind, body, qos, number))
        self.device.publish(self.sent[-1].topic, body, qos, number)

    def look(self) -> None:
        for packet in self.device.take():
            kind, packet_id = packet[0] >> 4, packet[1]
            if kind not in {4, 5, 7}:
                continue
            one = self.sent[packet_id - 1]
            if kind == 5:
                one.received = True
                self.device.ack(6, packet_id)
            else:
                assert (kind, one.qos) in {(4, 1), (7, 2)}
                one.done = True

    def again(self) -> None:
        self.device = self.bench.device(4, self.name).connect(clean=False)
        self.look()
        for one in self.sent:
            if one.done:
                continue
            if one.received:
                self.device.ack(6, one.packet_id)
            else:
                one.times += 1
                self.device.publish(one.topic, one.body, one.qos, one.packet_id, dup=True)


def copies(bench: Harness) -> Counter[tuple[str, bytes]]:
    """(queue it was meant for, body) of all there is."""
    found: Counter[tuple[str, bytes]] = Counter()
    for queue in QUEUES:
        for _, stored in bench.queues.load(queue):
            data, meant = stored.data, queue
            if queue == "DEAD.Q":
                meant, data = data[12:60].decode().rstrip(), data[172:]
            found[meant, data[int.from_bytes(data[8:12], "little") :]] += 1
    return found


def balance(bench: Harness) -> None:
    counters, held = bench.engine.counters, bench.engine.parking.held()
    for rule in {route.rule.name for route in bench.engine.router.table.routes}:
        received = sum(n for (one, _), n in counters.mqtt_publish_received.items() if one == rule)
        put = sum(n for (_, one), n in counters.mq_put_messages.items() if one == rule)
        dead = sum(n for (one, _), n in counters.dlq_messages.items() if one == rule)
        dropped = sum(n for (one, _), n in counters.messages_dropped.items() if one == rule)
        assert received == put + dead + dropped + held[rule], rule


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 1), st.sampled_from(sorted(WHERE)), st.integers(1, 2)),
        st.tuples(st.just("refuse"), st.sampled_from(QUEUES), st.sampled_from([2053, 2051, 2035])),
        st.tuples(st.just("accept"), st.sampled_from(QUEUES)),
        st.tuples(st.just("little room"), st.sampled_from(QUEUES[:2]), st.integers(0, 3)),
        st.tuples(st.just("slow")),
        st.tuples(st.just("commit")),
        st.tuples(st.just("wait"), st.sampled_from([0.3, 1.1, 3.0])),
        st.tuples(st.just("kill")),
    ),
    min_size=3,
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_whatever_refuses_when(steps: list[tuple[Any, ...]]) -> None:
    bench = Harness(MAPPING)
    clients = [Client(bench, name) for name in ("a", "b")]
    for step, *values in steps:
        if step == "publish":
            clients[values[0]].publish(values[1], values[2])
        elif step == "refuse":
            bench.queues.refusing[values[0]] = values[1]
        elif step == "accept":
            bench.queues.refusing.pop(values[0], None)
        elif step == "little room":  # beyond what is there already
            bench.queues.room[values[0]] = bench.queues.depth(values[0]) + values[1]
        elif step == "slow":
            bench.queues.automatic = False
        elif step == "commit":
            bench.queues.commit()
        elif step == "wait":
            bench.advance(values[0])
        else:
            bench.kill()
            for client in clients:
                client.again()
        for client in clients:
            client.look()
        balance(bench)
    bench.queues.refusing.clear()
    bench.queues.automatic = True
    for _ in range(3):  # consumers take one message after the other
        for queue in bench.queues.room:
            bench.queues.room[queue] += 1
        while bench.queues.commit():
            pass
        bench.advance(2)
    bench.queues.room.clear()
    for _ in range(8):
        while bench.queues.commit():
            pass
        bench.advance(6)
        for client in clients:
            client.look()
    check(bench, clients)
    if ("kill",) not in steps:
        check_order(bench, clients)


def check_order(bench: Harness, clients: list[Client]) -> None:
    """What a device sent at one quality of service stands in its order on each queue."""
    for queue in QUEUES[:2]:
        bodies = [stored.data[int.from_bytes(stored.data[8:12], "little") :] for _, stored in bench.queues.load(queue)]
        for client in clients:
            for qos in (1, 2):
                numbers = {one.body: one.packet_id for one in client.sent if one.qos == qos}
                placed = [numbers[body] for body in bodies if body in numbers]
                assert placed == sorted(placed), (queue, client.name, placed)


def check(bench: Harness, clients: list[Client]) -> None:
    balance(bench)
    assert not bench.engine.parking.rows
    assert not bench.engine.parking.linked
    assert not bench.engine.parking.waiting
    assert bench.queues.depth("MQGATE.STAGED") == 0
    found = copies(bench)
    for client in clients:
        assert all(one.done for one in client.sent), [one for one in client.sent if not one.done]
        for one in client.sent:
            for queue in WHERE[one.kind]:
                count = found.pop((queue, one.body), 0)
                assert count == 1 if one.qos == 2 else 1 <= count <= one.times, (one, queue, count)
    assert not found
