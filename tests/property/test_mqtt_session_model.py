"""Devices that publish, subscribe, vanish and come back over a broker that is killed at any commit: what was
acknowledged is delivered, QoS 2 once, in order, and nothing to those who did not ask. The devices follow the protocol;
the model only counts.
"""

from __future__ import annotations

import os

from broker_harness import Device, FarQueues, Harness, Queues
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.mqtt import packets as p
from gateway.session.record import key_of

TOPICS = ["a/1", "a/2", "b/1", "q/1"]
MAPPING = "version: 1\nto_mq:\n  - {name: queued, topic: 'q/#', queue: Q}\n"
FILTERS = {"a/#": {"a/1", "a/2"}, "+/1": {"a/1", "b/1", "q/1"}, "b/1": {"b/1"}, "#": set(TOPICS)}


class Subscriber:
    """A device with a persistent session and the memory the protocol asks of it."""

    def __init__(self, bench: Harness, version: int, name: str) -> None:
        self.bench, self.version, self.name = bench, version, name
        self.device: Device | None = None
        self.known = False
        self.unsure = False
        """Whether there is a session it cannot know: the broker was killed while it made one, or CONNACK was lost."""
        self.wanted: dict[str, int] = {}
        """Filters acknowledged, with the granted QoS."""
        self.ever: set[str] = set()
        self.unreleased: set[int] = set()
        self.inbox: list = []
        self.got: list[tuple[bytes, int]] = []

    @property
    def online(self) -> bool:
        return self.device is not None and not self.device.wire.closed

    def connect(self) -> None:
        if self.device is not None:
            self.device.drop()
            unread = [packet[1] for packet in self.inbox + self.device.take() if packet[0] >> 4 == p.CONNACK]
            self.unsure |= not self.known and any(not connack.reason for connack in unread)
        self.inbox.clear()
        self.device = self.bench.device(self.version, self.name).connect(clean=False)

    def step(self) -> bool:
        """Handle one packet from the broker."""
        if not self.online:
            return False
        self.inbox += self.device.take()
        if not self.inbox:
            return False
        packet = self.inbox.pop(0)
        kind = packet[0] >> 4
        if kind == p.CONNACK:
            if packet[1].reason:
                assert packet[1].reason == (0x88 if self.version == p.V5 else 3)
                assert not self.online
                return True
            if self.version != p.V31 and not self.unsure:
                assert packet[1].session_present is self.known, "the session was forgotten, or remembered too early"
            self.known, self.unsure = True, False
        elif kind == p.PUBLISH:
            self.published(packet)
        elif kind == p.PUBREL:
            self.unreleased.discard(packet[1])
            self.device.ack(p.PUBCOMP, packet[1])
        return True

    def published(self, packet) -> None:
        first, topic, packet_id, _, payload = packet
        assert topic.decode() in self.ever, f"{topic} was never asked for"
        qos = first >> 1 & 3
        if qos < 2 or packet_id not in self.unreleased:
            self.got.append((payload, qos))
        if qos == 1:
            self.device.ack(p.PUBACK, packet_id)
        elif qos == 2:
            self.unreleased.add(packet_id)
            self.device.ack(p.PUBREC, packet_id)


class Publisher:
    """A device that sends again whatever was not acknowledged when it comes back, in order."""

    def __init__(self, bench: Harness, version: int, name: str) -> None:
        self.bench, self.version, self.name = bench, version, name
        self.device: Device | None = None
        self.open: dict[int, list] = {}
        """Packet id -> [topic, payload, qos, released]."""
        self.next_id = 0
        self.done: list[tuple[str, bytes, int]] = []

    @property
    def online(self) -> bool:
        return self.device is not None and not self.device.wire.closed

    def connect(self) -> None:
        if self.online:
            self.device.drop()
        self.device = self.bench.device(self.version, self.name).connect(clean=False)
        for packet_id, (topic, payload, qos, released) in list(self.open.items()):
            if released:
                self.device.ack(p.PUBREL, packet_id)
            else:
                self.device.publish(topic, payload, qos, packet_id, dup=True)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        packet_id = 0
        if qos:
            self.next_id = self.next_id % 50 + 1
            packet_id = self.next_id
            if packet_id in self.open:
                return
            self.open[packet_id] = [topic, payload, qos, False]
        self.device.publish(topic, payload, qos, packet_id)

    def step(self) -> bool:
        if not self.online:
            return False
        taken = self.device.take()
        for packet in taken:
            kind = packet[0] >> 4
            if kind == p.PUBREC:
                if packet[1] in self.open:
                    self.open[packet[1]][3] = True
                self.device.ack(p.PUBREL, packet[1])
            elif kind in {p.PUBACK, p.PUBCOMP} and packet[1] in self.open:
                topic, payload, qos, _ = self.open.pop(packet[1])
                self.done.append((topic, payload, qos))
        return bool(taken)


class Sessions(RuleBasedStateMachine):
    queues = Queues

    @initialize(
        versions=st.tuples(*[st.sampled_from([3, 4, 5])] * 4),
        window=st.sampled_from([1, 3, 100]),
        wanted=st.tuples(*[st.tuples(st.sampled_from(sorted(FILTERS)), st.integers(0, 2))] * 2),
    )
    def begin(self, versions, window, wanted):
        self.bench = Harness(MAPPING, self.queues(), max_inflight=window)
        self.subscribers = [Subscriber(self.bench, versions[n], f"s{n}") for n in (0, 1)]
        self.publishers = [Publisher(self.bench, versions[2 + n], f"p{n}") for n in (0, 1)]
        self.number = 0
        self.owed: dict[bytes, dict[Subscriber, int]] = {}
        """By payload: who has to get it, and the QoS granted."""
        for one in [*self.subscribers, *self.publishers]:
            one.connect()
        self.settle()
        for who, (filter_, qos) in enumerate(wanted):
            self.subscribe(who, filter_, qos)

    def settle(self):
        """Everything under way arrives."""
        self.bench.queues.automatic = True
        busy = True
        while busy:
            while self.bench.queues.commit() or self.answer():
                pass
            busy = sum(one.step() for one in [*self.subscribers, *self.publishers]) > 0

    @rule(who=st.integers(0, 1), filter_=st.sampled_from(sorted(FILTERS)), qos=st.integers(0, 2))
    def subscribe_more(self, who, filter_, qos):
        self.subscribe(who, filter_, qos)

    def subscribe(self, who, filter_, qos):
        subscriber = self.subscribers[who]
        if not subscriber.online:
            subscriber.connect()
        self.settle()
        subscriber.ever |= FILTERS[filter_]
        subscriber.wanted[filter_] = qos
        subscriber.device.subscribe(filter_, qos)
        self.settle()

    def answer(self):
        return False

    @rule(who=st.integers(0, 1))
    def unsubscribe(self, who):
        subscriber = self.subscribers[who]
        if subscriber.wanted and subscriber.online:
            self.settle()
            filter_ = min(subscriber.wanted)
            del subscriber.wanted[filter_]
            subscriber.device.unsubscribe(filter_)
            self.settle()
            for payload, owed in self.owed.items():  # what its publisher has yet to send again is no longer for it
                if not self.still_wanted(subscriber, payload):
                    owed.pop(subscriber, None)

    @rule(who=st.integers(0, 1), topic=st.sampled_from(TOPICS), qos=st.integers(0, 2), count=st.integers(1, 4))
    def publish(self, who, topic, qos, count):
        publisher = self.publishers[who]
        for _ in range(count):
            if not publisher.online:
                publisher.connect()
            self.number += 1
            payload = f"{who}:{topic}:{qos}:{self.number}".encode()
            self.owed[payload] = {
                subscriber: max(granted)
                for subscriber in self.subscribers
                if (granted := [q for f, q in subscriber.wanted.items() if topic in FILTERS[f]])
            }
            publisher.publish(topic, payload, qos)

    @rule()
    def hold_commits(self):
        self.bench.queues.automatic = False

    @rule(count=st.integers(1, 3))
    def commit(self, count):
        for _ in range(count):
            self.bench.queues.commit()

    @rule(who=st.integers(0, 3), steps=st.integers(1, 4))
    def work(self, who, steps):
        for _ in range(steps):
            [*self.subscribers, *self.publishers][who].step()

    @rule(who=st.integers(0, 3), orderly=st.booleans())
    def leave(self, who, orderly):
        one = [*self.subscribers, *self.publishers][who]
        if one.online:
            if orderly:
                one.device.disconnect()
            one.device.drop()

    @rule(who=st.integers(0, 3))
    def come_back(self, who):
        [*self.subscribers, *self.publishers][who].connect()

    @rule()
    def kill(self):
        for one in [*self.subscribers, *self.publishers]:
            if one.device is not None:
                one.device.wire.closed = True
        for one in self.subscribers:
            one.unsure = not one.known
        self.bench.kill()

    @rule()
    def wait(self):
        self.bench.clock.advance(1)
        self.bench.engine.tick()

    @rule()
    def wait_for_long(self):
        """Who has no CONNACK by then is refused."""
        self.bench.advance(11)

    @rule(who=st.integers(0, 1))
    def make_a_session_that_is_not_committed(self, who):
        self.end(who)
        self.bench.queues.automatic = False
        self.subscribers[who].connect()

    def end(self, who):
        """A session ends with the connection of a clean one, whatever the last one had waiting."""
        subscriber = self.subscribers[who]
        if subscriber.online:
            subscriber.device.drop()
        gone = self.bench.device(subscriber.version, subscriber.name).connect(clean=True)
        self.settle()
        assert [packet[1].session_present for packet in gone.take() if packet[0] >> 4 == p.CONNACK] == [False]
        rows = self.bench.queues.rows.get("MQGATE.OUT", {}).values()
        assert not [row for row in rows if row[1] == key_of(subscriber.name)], "of the session that is over"
        gone.drop()
        self.settle()
        subscriber.device, subscriber.known, subscriber.unsure = None, False, False
        subscriber.wanted.clear()
        subscriber.unreleased.clear()
        for owed in self.owed.values():
            owed.pop(subscriber, None)

    @invariant()
    def qos_2_is_never_doubled(self):
        for subscriber in getattr(self, "subscribers", []):
            twice = [payload for payload, qos in subscriber.got if qos == 2]
            assert len(twice) == len(set(twice)), "delivered twice at QoS 2"

    def teardown(self):
        if not hasattr(self, "bench"):
            return
        for one in [*self.subscribers, *self.publishers]:
            one.connect()
            self.settle()
        self.settle()
        for publisher in self.publishers:
            assert not publisher.open, "not acknowledged although everything arrived"
            for _topic, payload, qos in publisher.done:
                self.check_delivered(payload, qos)
            self.check_queued(publisher)
        for subscriber in self.subscribers:
            self.check_order(subscriber)
        self.check_nothing_is_left()

    def check_delivered(self, payload, qos):
        for subscriber, granted in self.owed[payload].items():
            copies = [got for got, _ in subscriber.got if got == payload]
            if min(qos, granted) >= 1 and self.still_wanted(subscriber, payload):
                assert copies, f"{payload} never reached {subscriber.name}"
            if qos == 2 and granted == 2:
                assert len(copies) <= 1, f"{payload} reached {subscriber.name} twice"

    def check_queued(self, publisher):
        """What was acknowledged lies on the rule's queue: QoS 1 at least once, QoS 2 once."""
        bodies = [row[3] for row in self.bench.queues.rows.get("Q", {}).values()]
        for topic, payload, qos in publisher.done:
            if topic == "q/1":
                copies = sum(body.endswith(payload) for body in bodies)
                assert copies == 1 if qos == 2 else copies >= 1, f"{payload} lies {copies} times on its queue"

    def still_wanted(self, subscriber, payload):
        """A subscription that ended meanwhile may have taken undelivered messages' reason away (QoS 2 not released)."""
        topic = payload.decode().split(":")[1]
        return any(topic in FILTERS[f] and q >= 1 for f, q in subscriber.wanted.items())

    def check_order(self, subscriber):
        """First copies at QoS 1 of one publisher on one topic come in order [MQTT3-4.6.0-6] [MQTT5-4.6.0-5]."""
        firsts: dict[tuple[str, str], list[int]] = {}
        seen = set()
        for payload, qos in subscriber.got:
            who, topic, sent_qos, number = payload.decode().split(":")
            if payload in seen or qos != 1 or sent_qos != "1":
                continue
            seen.add(payload)
            firsts.setdefault((who, topic), []).append(int(number))
        for key, numbers in firsts.items():
            assert numbers == sorted(numbers), f"{key} out of order: {numbers}"

    def check_nothing_is_left(self):
        rows = self.bench.queues.rows
        assert not rows.get("MQGATE.STAGED"), "staged messages without an owner"
        assert not rows.get("MQGATE.OUT"), "delivered messages that are still stored"


class FarSessions(Sessions):
    """The same over a queue manager that is asked, and whose commits are seen before they are heard of."""

    queues = FarQueues

    def answer(self):
        return self.bench.queues.answer()

    @rule()
    def a_question_is_read(self):
        self.bench.queues.look()

    @rule()
    def an_answer_arrives(self):
        self.bench.queues.answer()

    @rule()
    def a_commit_can_be_seen(self):
        self.bench.queues.land()

    @rule(who=st.integers(0, 1))
    def begin_anew(self, who):
        """Once in order, then with a clean session."""
        self.end(who)
        self.subscribers[who].connect()
        self.settle()


for _model in (Sessions, FarSessions):
    _model.TestCase.settings = settings(
        max_examples=1500 if os.environ.get("MQGATE_LONG") else 40, stateful_step_count=40, deadline=None
    )
TestSessions = Sessions.TestCase
TestFarSessions = FarSessions.TestCase
