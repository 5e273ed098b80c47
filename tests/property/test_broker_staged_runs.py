"""Windows of QoS 2 over a queue manager that can move: cut anywhere, released in any order, refused, killed at any
commit. Whatever happens each publication is on its queue or among the dead letters once, and nothing stays staged.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import short_runs
from moving_queues import MovingBench

from gateway.mqtt import packets as p
from gateway.mqtt import writer

MAPPING = """
version: 1
to_mq:
  - {name: one, topic: one, queue: A, on_failure: {retry: {times: 1, from: 1s, to: 1s}, then: hold}}
  - {name: other, topic: other/+, queue: A, descriptor: {priority: 7}, on_failure: {then: dead_letter}}
  - {name: bare, topic: bare, queue: B, headers: []}
  - {name: short, topic: short, queue: B, descriptor: {expiry: 5m}}
  - {name: far, topic: far, queue: FAR}
"""
TOPICS = ["one", "one", "one", "other/1", "other/2", "bare", "short", "far"]
FULL = 2053


@pytest.fixture(autouse=True, scope="module")
def any_run_is_worth_it():
    with short_runs():
        yield


class Client:
    """A device that follows the protocol and sends what it may in one go."""

    def __init__(self, bench: MovingBench, version: int, name: str) -> None:
        self.bench, self.version, self.name = bench, version, name
        self.open: dict[int, tuple[str, bytes, bool]] = {}
        """By packet identifier: topic, payload, whether PUBREC has come."""
        self.sent: list[bytes] = []
        self.device = bench.device(version, name).connect(clean=False)

    def send(self, data: bytes, cut: int) -> None:
        at = cut % (len(data) + 1)
        for part in (data[:at], data[at:]):
            if part and not self.device.wire.closed:
                self.bench.engine.received_each([(self.device.connection, part)])

    def listen(self) -> None:
        for packet in self.device.take():
            kind = packet[0] >> 4
            if kind == p.PUBREC and packet[1] in self.open:
                topic, payload, _ = self.open[packet[1]]
                self.open[packet[1]] = topic, payload, True
            elif kind == p.PUBCOMP:
                self.open.pop(packet[1], None)

    def publish(self, topic: str, count: int, cut: int) -> None:
        free = [number for number in range(1, 25) if number not in self.open]
        chunk = b""
        for number in free[:count]:
            payload = b"%s/%d" % (self.name.encode(), len(self.sent))
            self.sent.append(payload)
            self.open[number] = topic, payload, False
            chunk += self.packet(number, dup=False)
        self.send(chunk, cut)

    def packet(self, number: int, *, dup: bool) -> bytes:
        topic, payload, _ = self.open[number]
        return writer.encode_publish(self.version, topic.encode(), payload, 2, packet_id=number, dup=dup)

    def release(self, count: int, cut: int, *, backwards: bool, again: bool) -> None:
        self.listen()
        ids = sorted((number for number, one in self.open.items() if one[2]), reverse=backwards)[:count]
        self.send(writer.encode_acks(p.PUBREL, ids + ids[: again * 2]) if ids else b"", cut)

    def resend(self) -> None:
        """What may be sent again on a new connection."""
        data = b"".join(
            writer.encode_acks(p.PUBREL, [number]) if one[2] else self.packet(number, dup=True)
            for number, one in self.open.items()
        )
        self.send(data, 0)

    def come_back(self) -> None:
        self.device.drop()
        self.device = self.bench.device(self.version, self.name).connect(clean=False)
        self.resend()


step = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 1), st.sampled_from(TOPICS), st.integers(1, 9), st.integers(0, 400)),
    st.tuples(st.just("publish"), st.integers(0, 1), st.just("one"), st.integers(1, 9), st.integers(0, 400)),
    st.tuples(st.just("release"), st.integers(0, 1), st.booleans(), st.integers(1, 12), st.integers(0, 40)),
    st.tuples(st.just("release"), st.integers(0, 1), st.booleans(), st.integers(1, 12), st.integers(0, 40)),
    st.tuples(
        st.sampled_from(["flush", "commit", "commit", "commit", "resend", "back", "kill", "wait", "turn", "end"])
    ),
)


class Model:
    def __init__(self, version: int) -> None:
        self.bench = MovingBench(MAPPING)
        self.bench.queues.automatic = True
        self.clients = [Client(self.bench, version, name) for name in ("a", "b")]
        self.bench.queues.automatic = False
        self.disturbed = False

    def take(self, one) -> None:
        bench, kind = self.bench, one[0]
        if kind == "publish":
            self.clients[one[1]].publish(one[2], one[3], one[4])
        elif kind == "release":
            self.clients[one[1]].release(one[3], one[4], backwards=one[2], again=one[4] % 3 == 0)
        elif kind == "flush":
            bench.engine.flush()
        elif kind == "commit":
            bench.engine.flush()
            bench.queues.commit()
        elif kind == "kill":
            self.kill()
        elif kind == "turn":
            self.disturbed = True
            bench.queues.refusing = {} if bench.queues.refusing else {"A": FULL, "DEAD.Q": FULL}
        elif kind == "wait":
            bench.advance(1)
        elif kind == "back":
            self.disturbed = True
            self.clients[0].come_back()
        elif kind == "resend":
            for client in self.clients:
                client.listen()
                chunk = b"".join(client.packet(number, dup=True) for number, one in client.open.items() if not one[2])
                client.send(chunk, 0)
        elif kind == "end":
            for client in self.clients:
                client.release(25, 0, backwards=False, again=False)

    def kill(self) -> None:
        self.disturbed = True
        for client in self.clients:
            client.device.wire.closed = True
        self.bench.kill()
        while self.bench.queues.commit():
            pass
        for client in self.clients:
            client.device = self.bench.device(client.version, client.name).connect(clean=False)
        while self.bench.queues.commit():
            pass
        for client in self.clients:
            client.resend()

    def settle(self) -> None:
        self.bench.queues.refusing = {}
        for _ in range(200):
            if not any(client.open for client in self.clients):
                break
            for client in self.clients:
                client.release(25, 0, backwards=False, again=False)
            self.bench.engine.flush()
            while self.bench.queues.commit():
                pass
            self.bench.advance(1)
        while self.bench.queues.commit():
            pass

    def bodies(self) -> list[bytes]:
        rows = self.bench.queues.rows
        return [body for queue in ("A", "B", "FAR", "DEAD.Q") for *_, body in rows.get(queue, {}).values()]


@settings(max_examples=150)
@given(st.sampled_from([3, 4, 5]), st.lists(step, max_size=30))
def test_once_each_and_nothing_stays(version, steps):
    model = Model(version)
    for one in steps:
        model.take(one)
    model.settle()
    assert not any(client.open for client in model.clients), "not acknowledged although everything arrived"
    sent = [payload for client in model.clients for payload in client.sent]
    ends = Counter(
        next(one for one in sorted(sent, key=len, reverse=True) if body.endswith(one)) for body in model.bodies()
    )
    assert ends == Counter(sent)
    assert not model.bench.queues.rows.get("MQGATE.STAGED")
    counted = model.bench.engine.counters
    if not model.disturbed:
        assert sum(counted.mq_put_messages.values()) == len(sent)
        assert sum(counted.mqtt_publish_received[rule, 2] for rule in ("one", "other", "bare", "short", "far")) == len(
            sent
        )


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["one", "bare", "other/1"]), st.integers(1, 6)), min_size=1, max_size=6))
def test_in_the_order_of_their_release(windows):
    """Whatever of it is moved and whatever is put."""
    bench = MovingBench(MAPPING)
    client = Client(bench, 4, "a")
    for topic, count in windows:
        client.publish(topic, count, 0)
        bench.engine.flush()
    order = [client.open[number][1] for number in sorted(client.open)]
    topics = {payload: topic for topic, payload, _ in client.open.values()}
    client.release(30, 0, backwards=False, again=False)
    bench.engine.flush()
    for queue, topic in (("A", "one"), ("A", "other/1"), ("B", "bare")):  # those of one queue differ in priority
        found = [body.rsplit(b"a/", 1)[1] for *_, body in bench.queues.rows.get(queue, {}).values()]
        numbers = [one[2:] for one in order if topics[one] == topic]
        assert [one for one in found if one in numbers] == numbers
