"""Publications for subscribers and acknowledgements of subscribers, in runs and one by one: the same comes of both."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from unittest import mock

import lanes
import pytest
from broker_harness import Harness
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import examples

from gateway.bridge import set_aside
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.state_queues import OUT, RETAINED, SET_ASIDE
from gateway.session.record import decode_publication

MAPPING = """
version: 1
to_mq:
  - {name: one, topic: 'a/1', queue: Q1}
  - {name: strict, topic: 'a/2', queue: Q1, too_long: reject}
  - {name: two, topic: 'a/3', queue: Q2, continue: true}
  - {name: more, topic: 'a/3', queue: Q1}
"""
SUBSCRIBERS = (
    # version, clean, filter, QoS, options of CONNECT
    (4, False, "a/#", 1, {}),
    (4, False, "+/1", 0, {}),
    (4, True, "a/#", 1, {}),
    (4, True, "#", 0, {}),
    (5, False, "#", 2, {0x21: 3, 0x22: 1}),
    (5, True, "b/1", 0, {0x27: 40, 0x22: 1}),
    (5, True, "a/1", 1, {0x27: 12}),
    (4, False, "$share/g/a/#", 1, {}),
    (5, True, "$share/g/a/#", 2, {0x21: 4, 0x22: 1}),
    (5, False, "$share/g/a/#", 1, {0x21: 2}),
    (4, True, "$share/h/+/1", 0, {}),
    (5, True, "$share/h/+/1", 1, {}),
)
AS_PUBLISHED = {4, 6, 8, 9}
"""Those of them that want RETAIN as it was published."""
USER = b"\x26\x00\x01a\x00\x01"
PROPERTIES = st.sampled_from(
    [b""] * 5
    + [USER + b"b", USER + b"c", USER + b"b" + USER + b"c", b"\x02\x00\x00\x00\x09" + USER + b"b", b"\x03\x00\x01t"]
)
TOPICS = st.sampled_from([b"a/1"] * 4 + [b"a/2", b"a/3", b"b/1", b"b/2", b"nobody", b"$own/x"])


PUBLISHERS = 4


def in_order(name, rows):
    """What is retained is one for each topic, in no order that anybody could see."""
    found = [row[1:] for row in rows.values()]
    return sorted(found) if name == RETAINED else found


def one_by_one(*arguments):
    return arguments[-1]


class Side:
    """A bench with a publisher and its subscribers; commits return when the test says so."""

    def __init__(self, version, *, in_runs, publishers=1, max_queued=6) -> None:
        self.in_runs = in_runs
        self.bench = Harness(MAPPING, max_queued=max_queued, max_payload=40)
        self.devices = [self.bench.device(version, "publisher").connect()]
        for number, (form, clean, filter_, qos, properties) in enumerate(SUBSCRIBERS):
            device = self.bench.device(form, f"s{number}").connect(clean=clean, properties=dict(properties))
            device.subscribe(filter_, qos, retain_as_published=number in AS_PUBLISHED)
            self.devices.append(device)
        self.devices += [self.bench.device(version, f"p{number}").connect() for number in range(1, publishers)]
        self.told = [device.take() for device in self.devices]
        self.bench.queues.automatic = False

    def do(self, who, chunk):
        device = self.devices[who]
        with self.in_its_way():
            if chunk == "drop":
                device.drop()
            else:
                device.send(chunk)

    def publish(self, chunks):
        """A round of what several publishers send."""
        engine, publishers = self.bench.engine, self.publishers
        with self.in_its_way():
            arrived = zip([device.connection for device in publishers], chunks, strict=False)
            engine.received_each([one for one in arrived if one[1]])
            engine.flush()

    @property
    def publishers(self):
        """Their devices."""
        return [self.devices[0], *self.devices[1 + len(SUBSCRIBERS) :]]

    def release_all(self):
        """A round in which each publisher releases what is staged of his, which he knows."""
        staged = [device.connection.session.staged_tokens for device in self.publishers]
        self.publish([writer.encode_acks(p.PUBREL, ids) if ids else b"" for ids in map(list, staged)])

    @contextmanager
    def in_its_way(self):
        with ExitStack() as patched:
            fan_out, in_flight = self.bench.engine.fan_out, self.bench.engine.in_flight
            if not self.in_runs:
                patched.enter_context(mock.patch.object(fan_out, "admits", return_value=False))
                patched.enter_context(mock.patch.object(in_flight, "take", one_by_one))
            yield

    def release(self, at):
        """PUBRELs of all that is staged once it is, beginning with one of them."""
        while self.bench.queues.commit():
            pass
        ids = list(self.devices[0].connection.session.inbound)
        self.do(0, b"".join(writer.encode_acks(p.PUBREL, [number]) for number in ids[at:] + ids[:at]))

    def state(self):
        counters = self.bench.engine.counters
        sessions = [device.connection.session for device in self.devices]
        return (
            [device.take() for device in self.devices],
            [device.wire.closed for device in self.devices],
            [(one.stored, one.stored_bytes, one.delivered, one.received) for one in sessions],
            [list(one.outflow.inflight) for one in sessions],
            [one.outflow.unfetched for one in sessions],
            self.devices[0].connection.inbound_pending, self.devices[0].connection.uncompleted,
            sorted(sessions[0].inbound), sorted(sessions[0].staged_tokens),
            {name: in_order(name, rows) for name, rows in self.bench.queues.rows.items() if rows},
            counters.packets_in, counters.packets_out, counters.bytes_in, counters.bytes_out,
            dict(counters.mqtt_publish_sent), dict(counters.messages_dropped), counters.messages_unrouted,
            dict(counters.route_matched),
        )  # fmt: skip


@st.composite
def publications(draw, version):
    """What a publisher sends at once."""
    made = b""
    for _ in range(draw(st.integers(1, 8))):
        qos = draw(st.sampled_from([1, 1, 1, 0, 2, 2]))
        made += writer.encode_publish(
            version, draw(TOPICS), draw(st.binary(max_size=3) | st.binary(min_size=38, max_size=42)), qos,
            retain=draw(st.integers(0, 9)) > 6, packet_id=draw(st.integers(1, 30)) if qos else 0,
            properties=draw(PROPERTIES) if version == 5 else b"",
        )  # fmt: skip
        if draw(st.integers(0, 9)) == 9:
            made += b"\xc0\x00"
    return made


@st.composite
def stories(draw):
    """Version of the publisher, and who sends what, in order."""
    version = draw(st.sampled_from([4, 5]))
    acks = st.lists(
        st.builds(
            lambda kind, number: writer.encode_acks(kind, [number]),
            st.sampled_from([p.PUBACK] * 5 + [p.PUBREC, p.PUBCOMP]), st.integers(1, 9),
        ), min_size=1, max_size=8,
    ).map(b"".join)  # fmt: skip
    subscribers = st.integers(1, len(SUBSCRIBERS))
    step = st.one_of(
        st.tuples(st.just(0), publications(version)),
        st.tuples(st.just(0), publications(version)),
        st.tuples(subscribers, acks),
        st.tuples(subscribers, st.sampled_from(["drop", b"\xc0\x00"])),
        st.tuples(st.just(-1), st.just(b"")),
        st.tuples(st.just(-2), st.integers(0, 9)),
    )
    return version, draw(st.lists(step, max_size=12))


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
@settings(max_examples=examples(200), deadline=None)
@given(stories())
def test_runs_do_what_one_by_one_does(form, story):
    with lanes.lane(form):
        compare(*story)


def compare(version, steps):
    sides = [Side(version, in_runs=True), Side(version, in_runs=False)]
    for who, chunk in steps:
        for side in sides:
            if who == -1:
                side.bench.queues.commit()
            elif who < 0:
                side.release(chunk)
            else:
                side.do(who, chunk)
        assert sides[0].state() == sides[1].state()
    for side in sides:
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()


@st.composite
def rounds(draw):
    """What each of several publishers sends at once: one publication, for which everybody has room. Else who is looked
    at by himself comes after the others."""
    version = draw(st.sampled_from([4, 5]))
    topics = st.sampled_from([b"a/1", b"b/1", b"b/2", b"a/9"])
    one = st.builds(
        lambda topic, payload, qos, block, retain: writer.encode_publish(
            version, topic, payload, qos, retain=retain, packet_id=7 if qos else 0,
            properties=block if version == 5 else b"",
        ),
        topics, st.binary(max_size=3), st.sampled_from([1, 1, 2, 2, 0]),
        st.sampled_from([b"", USER + b"b", USER + b"c"]), st.sampled_from([False, False, True]),
    )  # fmt: skip
    acks = st.builds(
        lambda kind, last: writer.encode_acks(kind, [*range(1, last + 1)]),
        st.sampled_from([p.PUBACK, p.PUBREC, p.PUBCOMP]), st.integers(1, 9),
    )  # fmt: skip
    step = st.one_of(
        st.tuples(st.just("publish"), st.lists(one | st.just(b""), min_size=2, max_size=PUBLISHERS)),
        st.tuples(st.just("release"), st.just(b"")),
        st.tuples(st.integers(1, len(SUBSCRIBERS)), acks),
        st.tuples(st.integers(1, len(SUBSCRIBERS)), st.just("drop")),
        st.tuples(st.just("commit"), st.just(b"")),
    )
    return version, draw(st.lists(step, max_size=8))


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
@settings(max_examples=examples(30), deadline=None)
@given(rounds())
def test_what_several_publish_in_a_round_goes_the_same_way(form, story):
    version, steps = story
    with lanes.lane(form):
        sides = [Side(version, in_runs=way, publishers=PUBLISHERS, max_queued=100) for way in (True, False)]
        for who, what in [*steps, ("commit", b""), ("commit", b"")]:
            for side in sides:
                if who == "publish":
                    side.publish(what)
                elif who == "release":
                    side.release_all()
                elif who == "commit":
                    side.bench.queues.commit()
                else:
                    side.do(who, what)
            assert sides[0].state() == sides[1].state()


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_a_session_gets_what_several_publish_in_a_round_as_one_run(form):
    with lanes.lane(form):
        side = Side(4, in_runs=True, publishers=PUBLISHERS)
        chunks = [writer.encode_publish(4, b"a/9", b"%d" % at, 1, packet_id=7) for at in range(PUBLISHERS - 1)]
        side.publish([*chunks, writer.encode_publish(4, b"a/1", b"last", 1, packet_id=7)])
        of_one = [one for one in side.bench.engine.context.running.deliveries if one[0].client_id == "s0"]
        assert [one[-1] for one in of_one] == [PUBLISHERS]
        side.bench.queues.commit()
        told = [(packet[1], packet[4]) for packet in side.devices[1].take()]
        assert told == [(b"a/9", b"0"), (b"a/9", b"1"), (b"a/9", b"2"), (b"a/1", b"last")]


def published_at_qos_2(side):
    """What each publisher has published and not released yet; one has another topic."""
    topics = [b"a/1", b"a/1", b"a/9", b"a/1"]
    side.publish([
        writer.encode_publish(4, topic, b"%d" % at, 2, packet_id=7) for at, topic in enumerate(topics)
    ])  # fmt: skip
    while side.bench.queues.commit():
        pass
    for device in side.devices:
        device.take()


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_a_session_gets_what_several_release_in_a_round_as_one_run(form):
    with lanes.lane(form):
        side = Side(4, in_runs=True, publishers=PUBLISHERS)
        published_at_qos_2(side)
        side.release_all()
        runs = {one[0].client_id: one[-1] for one in side.bench.engine.context.running.deliveries}
        assert (runs["s0"], runs["s4"]) == (PUBLISHERS, PUBLISHERS), "at QoS 1 and at QoS 2"
        side.bench.queues.commit()
        at_qos_2 = side.devices[5]
        sent = at_qos_2.take()
        assert [packet[4] for packet in sent] == [b"0", b"1", b"2"], "its Receive Maximum is 3"
        at_qos_2.send(writer.encode_acks(p.PUBREC, [packet[2] for packet in sent]))
        side.bench.queues.commit()
        assert [packet[:2] for packet in at_qos_2.take()] == [(0x62, packet[2]) for packet in sent]
        stored = [decode_publication(row[-1]) for row in side.bench.queues.rows[OUT].values()]
        released = {number: (one.topic, one.client_id) for one, number, _, is_released in stored if is_released}
        of = [(b"a/1", "publisher"), (b"a/1", "p1"), (b"a/9", "p2")]
        assert released == dict(zip([packet[2] for packet in sent], of, strict=True))


def release_with_a_defect(side):
    """What the second publisher sent meets one where it is stored for s0."""
    published_at_qos_2(side)
    fan_out, store = side.bench.engine.fan_out, side.bench.engine.fan_out.store
    side.bench.defects = []

    def stored(session, item, prefixes):
        if (session.client_id, item.publication.payload) == ("s0", b"1"):
            raise ZeroDivisionError
        return store(session, item, prefixes)

    with (
        mock.patch.object(fan_out, "copy_all", side_effect=ZeroDivisionError),
        mock.patch.object(fan_out, "store", stored),
    ):
        side.release_all()
    while side.bench.queues.commit():
        pass
    assert [[packet[:2] for packet in device.take()] for device in side.publishers] == [[(0x70, 7)]] * PUBLISHERS


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_what_is_released_in_a_round_and_meets_a_defect_is_set_aside_for_who_would_get_it(form):
    """Its record is taken and its PUBCOMP written: its publisher does not send it again."""
    with lanes.lane(form):
        side = Side(4, in_runs=True, publishers=PUBLISHERS)
        release_with_a_defect(side)
        assert [packet[4] for packet in side.devices[1].take()] == [b"0", b"2", b"3"]
        assert [packet[4] for packet in side.devices[3].take()] == [b"0", b"1", b"2", b"3"]
        assert [(one.what, one.whom, one.kept) for one in side.bench.defects] == [("stored", "s0", True)]
        (aside,) = side.bench.queues.rows[SET_ASIDE].values()
        kept = set_aside.strip(aside[-2], aside[-1])
        assert decode_publication(kept.data)[0].payload == b"1"


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_what_is_released_and_cannot_be_set_aside_is_stored(form):
    with lanes.lane(form):
        side = Side(4, in_runs=True, publishers=PUBLISHERS)
        side.bench.queues.refusing[SET_ASIDE] = 2053
        release_with_a_defect(side)
        assert sorted(packet[4] for packet in side.devices[1].take()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_a_round_whose_copies_meet_a_defect_is_copied_one_by_one(form):
    with lanes.lane(form):
        side = Side(4, in_runs=True, publishers=PUBLISHERS)
        fan_out, store = side.bench.engine.fan_out, side.bench.engine.fan_out.store
        side.bench.defects = []

        def stored(session, item, prefixes):
            if item.publication.payload == b"2":
                raise ZeroDivisionError
            return store(session, item, prefixes)

        chunks = [writer.encode_publish(4, b"a/1", b"%d" % at, 1, packet_id=7) for at in range(PUBLISHERS)]
        with (
            mock.patch.object(fan_out, "copy_all", side_effect=ZeroDivisionError),
            mock.patch.object(fan_out, "store", stored),
        ):
            side.publish(chunks)
        while side.bench.queues.commit():
            pass
        publishers = side.publishers
        assert [device.wire.closed for device in publishers] == [at == 2 for at in range(PUBLISHERS)]
        assert [len(device.take()) for device in publishers] == [at != 2 for at in range(PUBLISHERS)]
        assert [packet[4] for packet in side.devices[1].take()] == [b"0", b"1", b"3"]
        sessions = [device.connection.session for device in side.devices]
        assert sessions[1].stored == 3
        assert not fan_out.relayed
        assert not fan_out.rooms


def slow_way(_connection, packet):
    raise AssertionError(f"{packet} was looked at alone")


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
@pytest.mark.parametrize("version", [4, 5])
def test_pubrels_of_one_topic_are_taken_at_once(form, version):
    with lanes.lane(form):
        side = Side(version, in_runs=True)
        sent = [writer.encode_publish(version, b"a/1", b"%d" % at, 2, packet_id=at) for at in range(1, 6)]
        side.do(0, b"".join(sent))
        side.bench.queues.commit()
        side.bench.engine.plain_lane.handlers[6] = slow_way
        assert [packet[:2] for packet in side.devices[0].take()] == [(0x50, at) for at in range(1, 6)]
        side.do(0, b"".join(writer.encode_acks(p.PUBREL, [at]) for at in range(1, 6)))
        side.bench.queues.commit()
        assert [packet[:2] for packet in side.devices[0].take()] == [(0x70, at) for at in range(1, 6)]
        for device in (side.devices[1], side.devices[3]):
            assert [packet[4] for packet in device.take()] == [b"1", b"2", b"3", b"4", b"5"]
        session = side.devices[0].connection.session
        assert not session.inbound
        assert not session.staged_tokens


@pytest.mark.parametrize("form", [form for form in lanes.FORMS if "few" not in form])
def test_pubrels_of_a_run_that_meets_a_defect_are_taken_one_by_one(form):
    with lanes.lane(form):
        sides = [Side(5, in_runs=True), Side(5, in_runs=False)]
        for side in sides:
            sent = [writer.encode_publish(5, b"a/1", b"%d" % at, 2, packet_id=at) for at in range(1, 6)]
            side.do(0, b"".join(sent))
            with mock.patch.object(side.bench.engine.fan_out, "relay", side_effect=ZeroDivisionError):
                side.release(0)
            while side.bench.queues.commit():
                pass
        assert sides[0].state() == sides[1].state()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_run_is_taken_in_at_once_and_settled_at_once(qos):
    side = Side(4, in_runs=True)
    side.bench.engine.plain_lane.handlers[3] = side.bench.engine.plain_lane.handlers[4] = slow_way
    sent = b"".join(writer.encode_publish(4, b"a/1", b"%d" % at, qos, packet_id=at * qos) for at in range(1, 6))
    side.do(0, sent)
    side.bench.queues.commit()
    assert [packet[4] for packet in side.devices[1].take()] == [b"1", b"2", b"3", b"4", b"5"]
    if not qos:
        return
    assert [packet[:2] for packet in side.devices[0].take()] == [(0x40, at) for at in range(1, 6)]
    ids = list(side.devices[1].connection.session.outflow.inflight)
    side.do(1, writer.encode_acks(p.PUBACK, ids))
    side.bench.queues.commit()
    session = side.devices[1].connection.session
    assert (session.stored, session.stored_bytes, session.delivered) == (0, 0, 5)
