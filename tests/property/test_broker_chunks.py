"""The compiled fast lane of chunks against the plain lane: any bytes in any chunks, the same comes of both."""

from __future__ import annotations

import gc
import itertools
import os
import sys

import pytest
from broker_harness import Harness
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.bridge.assembly import NO_TAILS
from gateway.broker.publish import fast
from gateway.broker.publish.route import FastPath, Route
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import MQMD_LENGTH, Address

MAPPING = """
version: 1
to_mq:
  - {name: dear, topic: 'q/dear', queue: Q1, descriptor: {priority: 7}, on_failure: {then: drop}}
  - {name: other, topic: 'q/other', queue: Q1, headers: []}
  - {name: all, topic: 'q/#', queue: Q2, properties: {topic: '{topic}'}}
"""
VERSIONS = (3, 4, 5)
IDS = st.lists(st.integers(1, 8), min_size=1, max_size=8, unique=True)

if fast.compiled_chunks:
    from gateway.broker.publish import _chunks

pytestmark = pytest.mark.skipif(not fast.compiled_chunks, reason="no compiler where the gateway was installed")


def test_the_extension_is_there():
    assert fast.compiled() or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@st.composite
def packet(draw, version):
    kind = draw(st.sampled_from(["publish"] * 10 + ["ack", "ping", "rubbish"]))
    if kind == "ack":
        return writer.encode_acks(draw(st.sampled_from([p.PUBACK, p.PUBREL, p.PUBREL])), draw(IDS))
    if kind == "ping":
        return b"\xc0\x00"
    if kind == "rubbish":
        return draw(st.binary(min_size=1, max_size=8))
    qos = draw(st.sampled_from([1, 1, 1, 1, 0, 0, 2, 2]))
    properties = draw(st.sampled_from([b""] * 6 + [b"\x26\x00\x01a\x00\x01b"]))
    made = writer.encode_publish(
        version, draw(st.sampled_from([b"q/1", b"q/1", b"q/1", b"q/2", b"q/dear", b"q/other", b"not", b"q/+", b""])),
        draw(st.one_of(st.binary(max_size=20), st.binary(min_size=120, max_size=150))), qos,
        retain=draw(st.integers(0, 9)) == 9, dup=qos > 0 and draw(st.integers(0, 9)) == 9,
        packet_id=draw(st.integers(1, 300 if qos == 1 else 8)) if qos else 0,
        properties=properties if version == 5 else b"",
    )  # fmt: skip
    if draw(st.integers(0, 30)) == 30:  # a byte that is wrong: an identifier of 0, a length that does not fit
        at = draw(st.integers(0, len(made) - 1))
        made = made[:at] + bytes([draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))]) + made[at + 1 :]
    return made


@st.composite
def streams(draw):
    """Version, and what its client sends, cut anywhere."""
    version = draw(st.sampled_from(VERSIONS))
    data = b"".join(draw(st.lists(packet(version), max_size=12)))
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=5)) | {0, len(data)})
    return version, [data[start:stop] for start, stop in itertools.pairwise(cuts)]


def plain(one):
    """What is kept of a publication of QoS 2."""
    return one if isinstance(one, tuple) else (one.topic, one.payload, one.qos, one.retain, one.properties)


class Side:
    """A bench with one client, with the compiled lane or without."""

    def __init__(self, version: int, *, compiled: bool) -> None:
        self.compiled = compiled
        self.bench = Harness(MAPPING, receive_maximum=8, max_payload=140, max_packet=160)
        self.device = self.bench.device(version, "c").connect()
        self.bench.queues.automatic = False

    def take(self, chunk: bytes, *, flushed: bool) -> None:
        if self.device.wire.closed:
            return
        fast.compiled_chunks = self.compiled
        try:
            self.bench.engine.received(self.device.connection, chunk)
        finally:
            fast.compiled_chunks = True
        if flushed:
            self.bench.engine.flush()

    def state(self):
        counters, connection = self.bench.engine.counters, self.device.connection
        return (
            self.device.take(),
            self.device.wire.closed,
            connection.close_reason,
            connection.inbound_pending,
            {name: list(rows.values()) for name, rows in self.bench.queues.rows.items()},
            {number: plain(one) for number, one in connection.session.inbound.items()},
            connection.session.staged_tokens,
            connection.session.received,
            counters.packets_in,
            counters.packets_out,
            counters.bytes_in,
            dict(counters.mq_put_messages),
            dict(counters.mq_put_bytes),
        )


@pytest.fixture(params=[0, fast.MANY], ids=["many topics", "few topics"])
def many(request):
    """How many topics a client has before its routes lie where the compiled lane finds them quickly."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fast, "MANY", request.param)
        yield


@pytest.mark.usefixtures("many")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams(), st.lists(st.sampled_from(["no", "flush", "commit"]), min_size=8, max_size=8))
def test_the_fast_lane_does_what_the_plain_lane_does(stream, then):
    version, chunks = stream
    sides = [Side(version, compiled=True), Side(version, compiled=False)]
    for number, chunk in enumerate(chunks):
        for side in sides:
            side.take(chunk, flushed=then[number] != "no")
            if then[number] == "commit":
                side.bench.queues.commit()
        assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.engine.flush()
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()


def cold(first, topic):
    """A route that leads nowhere by itself."""
    return Route(topic.decode("utf-8", "replace"), topic, first)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 60), st.sampled_from([0x30, 0x32]), st.booleans())
def test_any_bytes_are_left_alone(data, offset, first, version_5):
    replies: list[bytes] = []
    limits = (version_5, 1000, 1000)
    assert _chunks.take(data, offset, *limits, first, {}, cold, {}, replies) == (offset, 0)
    assert _chunks.stage_records(data, offset, *limits, {}, cold, {}, [], [], [], replies) == (offset, 0)
    assert _chunks.release_records(data, offset, ({},) * 8, {}, {}, {}, None, [], replies) == (offset, 0)
    ids: list[int] = []
    bodies: list[bytes] = []
    inbound: dict[int, object] = {}
    stop, rows, size, longest = _chunks.stage_run(data, offset, *limits, 1, 9, {}, inbound, None, ids, bodies, replies)
    assert len(ids) == len(bodies) == len(inbound) == rows == len(b"".join(replies)) // 4
    assert (stop > offset, size, longest) == (rows > 0, sum(map(len, bodies)), max(map(len, bodies), default=0))
    replies.clear()
    assert _chunks.release_run(data, offset, {}, None, [], replies) == (offset, 0, 0)
    assert replies == []
    topic = _chunks.topic(data, offset, 1000)
    assert topic is None or topic in data


LIMITS = (False, 99, 99)
PUBLISH = writer.encode_publish(4, b"q/1", b"x", 1, packet_id=9)
TWICE = writer.encode_publish(4, b"q/1", b"x", 2, packet_id=9)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("take", ()), ("take", (1,) * 10), ("take", (b"", 0, *LIMITS, 0x34, {}, cold, {}, [])),
        ("take", (b"", -1, *LIMITS, 0x32, {}, cold, {}, [])),
        ("take", (PUBLISH, 0, *LIMITS, 0x32, {b"q/1": 1}, cold, {}, [])),
        ("take", (PUBLISH, 0, *LIMITS, 0x32, {}, 1, {}, [])),
        ("stage_records", ()), ("stage_records", (1,) * 12),
        ("stage_records", (b"", -1, *LIMITS, {}, cold, {}, [], [], [], [])),
        ("stage_records", (TWICE, 0, *LIMITS, {b"q/1": 1}, cold, {}, [], [], [], [])),
        ("release_records", ()), ("release_records", (1,) * 9),
        ("release_records", (b"", -1, ({},) * 8, {}, {}, {}, None, [], [])),
        ("release_records", (b"", 0, ({},) * 7, {}, {}, {}, None, [], [])),
        ("release_records", (b"\x62\x02\0\1", 0, (1,) * 8, {1: (b"t", b"\1\0", 4)}, {1: 1}, {}, None, [], [])),
        ("stage_run", ()), ("stage_run", (1,) * 13), ("stage_run", (b"", -1, *LIMITS, 1, 1, {}, {}, None, [], [], [])),
        ("stage_run", (TWICE, 0, *LIMITS, 1, 1, None, {}, None, [], [], [])),
        ("release_run", ()), ("release_run", (1,) * 6), ("release_run", (b"", -1, {}, None, [], [])),
        ("release_run", (b"\x62\x02\0\1", 0, {}, None, ["a"], [])),
        ("pair", ()), ("pair", ({}, (), ())), ("pair", ({}, [], 1)),
        ("length", ((b"",),)), ("length", (["a"],)),
        ("configure", (1, 1, 2, 2)), ("configure", (int, 1, 2, 2)),
        ("configure", (type("Bare", (), {"fast_path": 1}), 1, 2, 2)),
        ("configure", (Route, 1, 2)),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors(call, arguments):
    with pytest.raises((TypeError, AttributeError)):
        getattr(_chunks, call)(*arguments)


def test_a_run_is_taken_whole():
    sender = Side(5, compiled=True)
    chunk = b"".join(writer.encode_publish(5, b"q/%d" % (n % 3), b"x" * n, 1, packet_id=n) for n in range(1, 9))
    assert sender.bench.engine.fast_lane.take_chunk(sender.device.connection, chunk + chunk[:5]) == chunk[:5]
    assert sender.bench.engine.context.batch.rows == 8


def test_a_window_of_qos_2_is_taken_whole():
    sender = Side(4, compiled=True)
    chunk = b"".join(writer.encode_publish(4, b"q/1", b"x" * n, 2, packet_id=n) for n in range(1, 9))
    assert sender.bench.engine.fast_lane.take_chunk(sender.device.connection, chunk) == b""
    sender.bench.engine.flush()
    sender.bench.queues.commit()
    released = writer.encode_acks(p.PUBREL, range(1, 9))
    assert sender.bench.engine.fast_lane.take_chunk(sender.device.connection, released + chunk) == b""
    assert sender.bench.engine.context.batch.rows == 16
    destinations = sender.bench.engine.context.batch.destinations.values()
    assert [one.releases for one in destinations] == [8]


def test_a_packet_identifier_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="2 bytes"):
        _chunks.configure(Route, 1, 2, 4)


def test_ids_are_paired_with_what_kind_of_token_there_is():
    large = (1 << 64) - 2
    for tokens in (
        range(7, 9),
        range(large, large + 2),
        range(large + 1, large + 3),
        range(-1, 1),
        range(9, 5, -2),
        [b"a", b"b"],
        ("x", "y"),
    ):
        paired = {3: 0}
        _chunks.pair(paired, [1, 2], tokens)
        assert paired == {3: 0, 1: tokens[0], 2: tokens[1]}
    with pytest.raises(ValueError, match="as many"):
        _chunks.pair({}, [1, 2], range(3))


def test_a_release_is_known_by_its_row():
    """Neighbours of one destination are noted together, and by row when somebody asks."""
    sender = Side(4, compiled=True)
    topics = [b"q/1", b"q/1", b"q/other", b"q/1", b"q/1"]
    sender.take(
        b"".join(writer.encode_publish(4, t, b"", 2, packet_id=n) for n, t in enumerate(topics, 1)), flushed=True
    )
    sender.bench.queues.commit()
    tokens = dict(sender.device.connection.session.staged_tokens)
    sides = []
    for compiled in (True, False):
        other = Side(4, compiled=compiled)
        other.take(
            b"".join(writer.encode_publish(4, t, b"", 2, packet_id=n) for n, t in enumerate(topics, 1)), flushed=True
        )
        other.bench.queues.commit()
        other.take(writer.encode_acks(p.PUBREL, [2, 1, 3, 5, 4]), flushed=False)
        batch = other.bench.engine.context.batch
        destinations = list(batch.destinations.values())
        assert sum(one.releases for one in destinations) == 5
        by_row = {
            one.address.queue: {row: mark.released[1:] for row, mark in one.marks.items()} for one in destinations
        }
        assert sum(one.releases for one in destinations) == 5
        sides.append(by_row)
    assert sides[0] == sides[1]
    assert sides[0] == {
        "Q2": {0: (2, tokens[2]), 1: (1, tokens[1]), 2: (5, tokens[5]), 3: (4, tokens[4])},
        "Q1": {0: (3, tokens[3])},
    }


def test_heads_are_those_of_the_routes_whatever_the_neighbours():
    """The same objects, so that a frame needs no look at their bytes to see what repeats."""
    sender = Side(4, compiled=True)
    topics = [b"q/1", b"q/2", b"q/2", b"q/3", b"q/1"]
    chunk = b"".join(writer.encode_publish(4, topic, b"x", 1, packet_id=n) for n, topic in enumerate(topics, 1))
    sender.bench.engine.fast_lane.take_chunk(sender.device.connection, chunk)
    (destination,) = sender.bench.engine.context.batch.destinations.values()
    puts = destination.puts
    routes = [sender.device.connection.caches[2][topic] for topic in topics]
    assert [id(head) for head in puts.heads] == [id(route.head) for route in routes]
    assert all(len(head) > MQMD_LENGTH for head in puts.heads)


ADDRESS = Address("Q")


def led(first, topic):
    """A route to a queue, known by its head."""
    route = cold(first, topic)
    route.fast_path, route.version, route.address, route.head, route.tails = (
        FastPath.DIRECT,
        0,
        ADDRESS,
        b"head of " + topic,
        NO_TAILS,
    )
    return route


@st.composite
def topics_in_turn(draw):
    """TopicCache short and long, many of them alike, some of equal hash; how often they are all forgotten."""
    count = draw(st.integers(1, 400))
    shape = draw(st.sampled_from([b"%d", b"plant/%d/x", b"t" * 34 + b"/%07d", b"t" * 40 + b"/%07d", b"%d" + b"t" * 90]))
    order = draw(st.lists(st.integers(0, count - 1), max_size=200))
    return [shape % n for n in order or range(count)], draw(st.integers(1, 60))


@settings(max_examples=100)
@given(topics_in_turn(), st.integers(0, 3))
def test_topics_lead_where_the_dict_says(sent, forgotten):
    """Whatever is forgotten in between, and of what is refused later."""
    topics, chunk = sent
    cache = _chunks.TopicCache()

    def missing(first, topic):
        return cache.setdefault(topic, led(first, topic))

    heads: list[bytes] = []
    expected: list[bytes] = []
    for number, begin in enumerate(range(0, 2 * len(topics), chunk)):
        some = (topics * 2)[begin : begin + chunk]
        data = b"".join(writer.encode_publish(4, topic, b"x", 1, packet_id=n) for n, topic in enumerate(some, 1))
        prepared = {ADDRESS: (ADDRESS, heads, [], None)}
        went = _chunks.take(data, 0, *LIMITS[:1], 999, 999, 0x32, cache, missing, prepared, [])
        assert went == (len(data), len(some))
        expected += [b"head of " + topic for topic in some]
        assert heads == expected
        if forgotten and number % 4 == forgotten:
            cache.clear()
            assert len(cache) == 0


def test_a_route_without_its_fast_path_is_not_taken_however_it_was_found():
    cache, heads = _chunks.TopicCache({b"t/%d" % n: led(2, b"t/%d" % n) for n in range(100)}), []
    data = b"".join(writer.encode_publish(4, b"t/%d" % n, b"x", 1, packet_id=n + 1) for n in range(100))
    each = len(data[: data.index(b"t/1")]) - 4
    arguments = (data, 0, False, 999, 999, 0x32, cache, lambda *_: None, {ADDRESS: (ADDRESS, heads, [], None)}, [])
    assert _chunks.take(*arguments) == _chunks.take(*arguments) == (len(data), 100)
    cache[b"t/3"].fast_path = FastPath.NONE
    assert _chunks.take(*arguments) == (3 * each, 3)
    cache[b"t/2"].changes[0] += 1
    assert _chunks.take(*arguments) == (2 * each, 2)
    assert len(heads) == 205


@pytest.mark.parametrize("end", ["cleared", "dropped", "in a cycle"])
def test_routes_go_with_their_cache(end):
    cache, heads = _chunks.TopicCache({b"t/%d" % n: led(2, b"t/%d" % n) for n in range(100)}), []
    data = b"".join(writer.encode_publish(4, b"t/%d" % n, b"x", 1, packet_id=n + 1) for n in range(100))
    for _ in range(2):
        _chunks.take(data, 0, False, 999, 999, 0x32, cache, cold, {ADDRESS: (ADDRESS, heads, [], None)}, [])
    head = cache[b"t/7"].head
    heads.clear()
    held = sys.getrefcount(head)
    if end == "cleared":
        cache.clear()
    elif end == "in a cycle":
        cache[b"t/7"].stored[0, True, ()] = cache
    cache = None
    gc.collect()
    left = sys.getrefcount(head)
    assert left == held - 1
