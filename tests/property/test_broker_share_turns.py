"""A message of a shared subscription goes to a member that can take it, else to one that has room, whatever members and
messages there were before; who is passed over is asked again in time."""

from __future__ import annotations

from typing import Any

from broker_harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.session.session import Session

FILTERS = ("$share/g/a/#", "$share/g/a/1", "$share/h/a/1")
SIZES = (0, 10, 40, 90)
MEMBERS = 3
who = st.integers(0, MEMBERS - 1)
publications = st.tuples(
    st.just("publish"), st.sampled_from(SIZES), st.sampled_from([0, 5]), st.sampled_from([1, 1, 1, 0])
)
steps = st.lists(
    st.one_of(
        publications,
        publications,
        publications,
        st.tuples(
            st.just("connect"),
            who,
            st.sampled_from([False, False, True]),
            st.integers(1, 3),
            st.sampled_from([0, 0, 60]),
        ),
        st.tuples(st.just("subscribe"), who, st.sampled_from(FILTERS), st.integers(0, 2)),
        st.tuples(st.just("unsubscribe"), who, st.sampled_from(FILTERS)),
        st.tuples(st.just("acknowledge"), who, st.integers(1, 3)),
        st.tuples(st.just("drop"), who),
        st.tuples(st.just("drop"), who),
        st.tuples(st.just("later"), st.just(10)),
    ),
    max_size=60,
)


class Group:
    """Clients that share a subscription, and may share others."""

    def __init__(self) -> None:
        self.bench = Harness(max_queued=3, max_queued_bytes=100)
        self.devices: dict[int, Any] = {}
        self.unanswered: dict[int, list[Any]] = {}
        self.sender = self.bench.device(5, "sender").connect()
        self.number = 0
        for member in range(MEMBERS):
            self.connect(member, clean=False, window=2, largest=0)
            self.subscribe(member, FILTERS[0], 1)

    def connect(self, who: int, clean: bool, window: int, largest: int) -> None:
        limits = {prop.RECEIVE_MAXIMUM: window, prop.SESSION_EXPIRY_INTERVAL: 0 if clean else 1000}
        if largest:
            limits[prop.MAXIMUM_PACKET_SIZE] = largest
        self.devices[who] = self.bench.device(5, f"m{who}").connect(clean=clean, properties=limits)
        self.unanswered[who] = []

    def subscribe(self, who: int, filter_: str, qos: int) -> None:
        if who in self.devices:
            self.devices[who].subscribe(filter_, qos)

    def unsubscribe(self, who: int, filter_: str) -> None:
        if who in self.devices:
            self.devices[who].unsubscribe(filter_)

    def drop(self, who: int) -> None:
        if who in self.devices:
            self.devices.pop(who).drop()

    def later(self, seconds: float) -> None:
        self.bench.advance(seconds)

    def acknowledge(self, who: int, count: int) -> None:
        if who not in self.devices:
            return
        device, waits = self.devices[who], self.unanswered[who]
        waits += [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH and packet[0] & 6]
        for packet in waits[:count]:
            if packet[0] & 4:
                device.ack(p.PUBREC, packet[2])
            device.ack(p.PUBCOMP if packet[0] & 4 else p.PUBACK, packet[2])
        del waits[:count]

    def publish(self, size: int, expiry: int, qos: int) -> None:
        self.number += 1
        block = prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: expiry}) if expiry else b""
        before = {one: held(one) for one in self.sessions()}
        able = {name: self.members(name, size, at_once=True) for name in FILTERS}
        room = {name: self.members(name, size, at_once=False) for name in FILTERS}
        self.sender.publish("a/1", bytes(size), qos, self.number if qos else 0, properties=block)
        self.sender.take()
        if not qos:
            return
        taken = {one for one in self.sessions() if held(one) > before[one]}
        for name in FILTERS:
            if (best := able[name] or room[name]) and all(self.qos(one, name) for one in best):
                assert taken & set(best) or self.several(room)

    def several(self, room: dict[str, list[Session]]) -> bool:
        """Whether a copy for one subscription may have taken the room of another."""
        return sum(map(bool, room.values())) > 1

    def sessions(self) -> list[Session]:
        return [
            one for one in map(self.bench.engine.sessions.get, (f"m{n}" for n in range(MEMBERS))) if one is not None
        ]

    def qos(self, session: Session, name: str) -> int:
        return session.subscriptions[name].options.qos

    def members(self, name: str, size: int, *, at_once: bool) -> list[Session]:
        stored, limits = self.bench.engine.context.stored, self.bench.engine.limits
        found = []
        for one in self.sessions():
            if name not in one.subscriptions:
                continue
            full = stored.full(limits, one, size) if one.durable else one.outflow.queued >= limits.max_queued
            fits = one.connection is None or size + 20 <= one.outflow.max_packet
            if fits and not full and (one.can_take or not at_once):
                found.append(one)
        return found

    def check(self) -> None:
        for name in FILTERS:
            group = self.bench.engine.router.subscriptions.group(name)
            if group is not None:
                rings = [session for ring in group.members.rings for session in ring]
                assert len(rings) == len(set(rings)) == len(group.members)
                assert set(rings) == set(group.members)
                assert all(least <= group.members.full_from for least in group.members.rings.full.values())
                for session in (*group.members.rings.passed, *group.members.rings.full):
                    assert any(one is group.members for one in session.passed_over or ())
                    assert not session.can_take or session in group.members.rings.full


def held(session: Session) -> int:
    """Messages that wait for it, or for its acknowledgement."""
    return session.stored if session.durable else session.outflow.queued + len(session.outflow.inflight)


@given(steps)
def test_whoever_can_take_a_message_or_has_room_is_found(many: list[Any]) -> None:
    group = Group()
    for step, *args in many:
        getattr(group, step)(*args)
        group.check()
