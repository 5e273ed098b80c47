"""Publications that other gateways have put for this one, many at a time and one by one: the same comes of both."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from several_brokers import Estate

from gateway.broker.gateways.forwarded import Forwarded, UsualRecords, decode_forwarded, encode_forwarded
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.ownership import forward_key
from gateway.ports.state_queues import FORWARD, OUT
from gateway.session.publication import Publication

SUBSCRIBERS = (
    # version, clean, filter, QoS, options of CONNECT, options of SUBSCRIBE
    (4, False, "a/#", 1, {}, {}),
    (4, False, "+/1", 0, {}, {}),
    (4, True, "a/#", 1, {}, {}),
    (4, True, "#", 0, {}, {}),
    (5, False, "#", 2, {0x21: 3, 0x22: 1}, {}),
    (5, True, "a/1", 1, {}, {"retain_as_published": True}),
    (5, False, "$share/g/a/#", 1, {}, {}),
)
USER = b"\x26\x00\x01a\x00\x01"
ORIGINS = ["0a" * 12, "0b" * 12]

publications = st.builds(
    Publication,
    st.sampled_from([b"a/1", b"a/1", b"a/2", b"b/1", b"nobody", "a/ü".encode()]),
    st.binary(max_size=3) | st.binary(min_size=38, max_size=42) | st.just(b',"n":1,'),
    st.integers(0, 2),
    st.sampled_from([False] * 4 + [True]),
    st.sampled_from([b"", b"", USER + b"b", USER + b"c", b"\x03\x00\x01t"]),
    st.sampled_from([0.0, 0.0, 1_000_050.0, 1.0]),
    st.sampled_from(["c1", "c1", "ü"]),
)


@st.composite
def runs(draw):
    """Of one publisher: often alike."""
    like = draw(publications)
    origin, to = draw(st.sampled_from(ORIGINS)), draw(st.sampled_from([["me"], ["me", "other"]]))
    groups = draw(st.sampled_from([[]] * 6 + [["$share/g/a/#"]]))
    found = []
    for number in range(draw(st.sampled_from([1, 1, 2, 5, 7]))):
        block = draw(st.sampled_from([like.properties] * 5 + [b"", USER + b"d"]))
        payload = b"%d" % number + like.payload
        one = Publication(like.topic, payload, like.qos, like.retain, block, like.expires, like.client_id)
        found.append(Forwarded(one, origin, 0, to, direct=True, groups=groups))
    return found


class Side:
    """A gateway with subscribers; commits return when the test says so."""

    def __init__(self, *, together: bool) -> None:
        self.together = together
        self.estate = Estate()
        self.node = self.estate.start(max_queued=12, max_payload=60)
        self.devices = []
        for number, (version, clean, filter_, qos, properties, options) in enumerate(SUBSCRIBERS):
            device = self.node.bench.device(version, f"s{number}")
            device.connect(clean=clean, properties=dict(properties))
            self.estate.settle(0.3)
            device.subscribe(filter_, qos, **options)
            self.devices.append(device)
        self.estate.settle(0.3)
        for device in self.devices:
            device.take()

    def put(self, found: list[Forwarded]) -> None:
        for forwarded in found:
            prefix, body = encode_forwarded(forwarded)
            row = (0, forward_key(self.node.instance), bytes(364), prefix + body)
            token = next(self.estate.tokens)
            self.estate.rows.setdefault(FORWARD, {})[token] = row
            self.estate.priorities[token] = 0

    def read(self) -> None:
        incoming = self.node.bench.engine.ownership.from_others.incoming
        with mock.patch.object(incoming, "hand_over", incoming.hand_over if self.together else lambda _part: False):
            self.node.look_ahead()
            self.node.turn()

    def state(self):
        engine = self.node.bench.engine
        counters, sessions = engine.counters, [device.connection.session for device in self.devices]
        return (
            [device.take() for device in self.devices],
            [device.wire.closed for device in self.devices],
            [(one.stored, one.stored_bytes, one.delivered) for one in sessions],
            [list(one.outflow.inflight) for one in sessions],
            {name: [row[1:] for row in self.estate.rows.get(name, {}).values()] for name in (OUT, FORWARD)},
            counters.packets_out, dict(counters.mqtt_publish_sent), dict(counters.messages_dropped),
            engine.ownership.moves.last,
        )  # fmt: skip


steps = st.one_of(
    st.lists(runs(), min_size=1, max_size=4),
    st.just("read"),
    st.just("commit"),
    st.tuples(st.integers(0, len(SUBSCRIBERS) - 1), st.sampled_from(["drop", *range(1, 6)])),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=10))
def test_many_at_a_time_do_what_one_by_one_does(story):
    sides, numbers = [Side(together=True), Side(together=False)], dict.fromkeys(ORIGINS, 1_000)
    for step in [*story, "read", "commit"]:
        found: list[Forwarded] = []
        if isinstance(step, list):
            for forwarded in [one for run in step for one in run]:
                numbers[forwarded.origin] += 1
                found.append(forwarded._replace(number=numbers[forwarded.origin]))
        for side in sides:
            if found:
                side.put(found)
            elif step == "read":
                side.read()
            elif step == "commit":
                while side.node.commit():
                    pass
            elif isinstance(step, tuple) and step[1] == "drop":
                side.devices[step[0]].drop()
            elif isinstance(step, tuple) and not side.devices[step[0]].wire.closed:
                side.devices[step[0]].send(writer.encode_acks(p.PUBACK, [step[1]]))
        states = [side.state() for side in sides]
        for left, right in zip(*states, strict=True):
            assert left == right


@given(publications, st.integers(0, 1 << 60), st.lists(st.sampled_from(["aa", "bb"]), max_size=2), st.booleans())
def test_what_is_usual_is_decoded_as_it_was_put(publication, number, to, direct):
    forwarded = Forwarded(publication, "0a" * 12, number, to, direct)
    data = b"".join(encode_forwarded(forwarded))
    usual = UsualRecords().decode(data)
    assert (usual is not None) is bool(number and to and direct)
    if usual is not None:
        read = decode_forwarded(data)
        one = read.publication
        assert usual.front[:5] == (one.topic, one.client_id, one.qos, one.retain, one.expires)
        assert (usual.block, usual.payload) == (one.properties, one.payload)
        assert (usual.origin, usual.number) == (read.origin, read.number)


@given(publications, st.integers(0, 200), st.binary(max_size=3), st.integers(0, 3))
def test_nothing_else_is_taken_for_it(publication, at, bytes_, left_out):
    data = b"".join(encode_forwarded(Forwarded(publication, "0a" * 12, 77, ["aa"], direct=True)))
    broken = data[:at] + bytes_ + data[at + left_out :]
    records = UsualRecords()
    records.decode(data)
    usual = records.decode(broken)
    if usual is not None:  # it is one all the same
        read = decode_forwarded(broken)
        one = read.publication
        assert (usual.front.topic, usual.block, usual.payload) == (one.topic, one.properties, one.payload)
        assert (usual.origin, usual.number) == (read.origin, read.number)
        assert read == Forwarded(one, read.origin, read.number, read.to, direct=True)


@pytest.mark.parametrize("clients", [1, 10])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_usual_is_looked_at_together(clients, qos):
    side = Side(together=True)
    for device in side.devices[2:4]:
        device.take()
    side.node.bench.engine.fan_out.deliver_to = None  # whatever goes one by one meets a defect
    side.put(
        [
            Forwarded(
                Publication(b"a/1", b"%d" % n, qos, retain=False, client_id=f"c{n % clients}"), ORIGINS[0], n, ["me"],
                direct=True,
            )
            for n in range(1, 11)
        ]
    )  # fmt: skip
    side.read()
    while side.node.commit():
        side.node.turn()
    for device in side.devices[2:4]:
        assert [packet[4] for packet in device.take()] == [b"%d" % number for number in range(1, 11)]


def test_only_those_for_a_session_that_has_moved_of_late_are_looked_at_alone():
    side = Side(together=True)
    other = side.estate.start()
    other.bench.device(4, "mover").connect(clean=False)
    side.estate.settle(0.5)
    mover = side.node.bench.device(4, "mover")
    mover.connect(clean=False)
    side.estate.settle(0.5)
    mover.subscribe("b/#", 1)
    side.estate.settle(0.5)
    moves = side.node.bench.engine.ownership.moves
    assert moves.any_came
    reader, alone = side.node.bench.engine.ownership.from_others, []
    sort = reader._sort
    reader._sort = lambda stored: (alone.append(stored), sort(stored))
    topics = [b"a/1", b"b/1", b"a/1"]
    side.put(
        [
            Forwarded(Publication(topic, b"%d" % number, 1, retain=False), ORIGINS[0], number, ["me"], direct=True)
            for number, topic in enumerate(topics, 1)
        ]
    )
    side.read()
    side.estate.settle(0.5)
    assert [b"b/1" in stored.data for stored in alone] == [True]
    assert [packet[4] for packet in side.devices[3].take() if packet[0] >> 4 == p.PUBLISH] == [b"1", b"2", b"3"]
