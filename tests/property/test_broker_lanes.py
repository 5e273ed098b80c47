"""The fast lane, in Python and compiled, against the plain lane: whatever several clients send, cut anywhere and
committed at any time, the same comes of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from functools import partial

import pytest
from broker_harness import Harness
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import FORMS, lane
from long_form import examples

from gateway.broker.gateways.to_others import ToOthers
from gateway.broker.publish import fast
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.ports.state_queues import FORWARD, OUT, REQUESTS, RETAINED
from gateway.routing.filters import Interest

MAPPING = """
version: 1
to_mq:
  - {name: dear, topic: 'q/dear', queue: Q1, descriptor: {priority: 7}, on_failure: {then: drop}}
  - {name: other, topic: 'q/other', queue: Q1, headers: [mcd], properties: {client: '{client}'}}
  - {name: short, topic: 'q/short', queue: SHORT, too_long: reject}
  - {name: json, topic: 'q/json', queue: Q1, payload: {format: json}}
  - {name: first, topic: 'two/+', queue: Q1, continue: true, descriptor: {priority: 3}}
  - {name: second, topic: 'two/#', queue: Q3, properties: {topic: '{topic}'}}
  - {name: time, topic: 'f/time', queue: Q1, properties: {client: '{client}', at: '{received_at}'}}
  - {name: more, topic: 'f/more', queue: Q2, properties: {at: '{received_at}', a: '{property.a}', n: 'x{packet_id}'}}
  - {name: field, topic: 'f/field', queue: Q1, properties: {v: '{json.a}', text: 'a{json.a}'}}
  - {name: condition, topic: 'f/when', queue: Q2, when: {json: {a: 1}}}
  - {name: both, topic: 'f/both', queue: Q1, when: {json: {a: 1}, payload: {at_most: 12}}, payload: {format: json},
     properties: {n: '{packet_id}', v: '{json.a}', at: '{received_at}', b: '{json.b:int}', c: '{json.a} at'}}
  - {name: else, topic: 'f/both', queue: Q2, when: {json: {a: 2.5}}, properties: {b: '{json.b}', a: '{property.a}'}}
  - {name: rest, topic: 'f/+', queue: Q2, when: {json: {a: '<x>'}}, headers: [mqtt]}
  - {name: first of, topic: 'g/#', queue: Q1, when: {payload: {at_most: 8}}}
  - {name: second of, topic: 'g/#', queue: Q3, payload: {format: json}, descriptor: {priority: 2}}
  - {name: alarms, topic: 'i/#', queue: Q1, when: {json: {a: 1}}, payload: {format: json}}
  - {name: of users, topic: 'j/1', queue: Q1, properties: {o: '{property.a}', w: '{property.&x}', v: '{json.a}'}}
  - {name: of one, topic: 'j/2', queue: Q2, properties: {w: '<{property.&x}>'}, user_properties: false}
  - {name: on, topic: 'h/#', queue: Q1, when: {json: {a: 1}}, continue: true}
  - {name: and on, topic: 'h/#', queue: Q3, when: {json: {a: 1}}}
  - {name: text, topic: 'f/text', queue: Q2, payload: {format: string}, properties: {o: '{json.o}', n: '{packet_id}'}}
  - {name: expiry, topic: 'f/expiry', queue: Q2, descriptor: {expiry: 5m}, properties: {a: '{property.a}'}}
  - {name: alone, topic: 'f/alone', queue: Q1, headers: [mcd], properties: {client: '{client}'}, user_properties: false}
  - {name: targets, topic: 'q/spread', queue: Q3, queue_manager: [A, B, C]}
  - {name: turns, topic: 'f/spread', queue: Q3, queue_manager: [A, B], spread: round_robin,
     properties: {at: '{received_at}'}}
  - {name: choice, topic: 'f/chosen', queue: Q3, queue_manager: [A, B], properties: {v: '{json.a}'}}
  - {name: each, topic: 'd/{x}/a', queue: 'D{x}', properties: {client: '{client}'}}
  - {name: timed, topic: 'd/{x}/t', queue: 'D{x}', properties: {client: '{client}', at: '{received_at}'}}
  - {name: each too, topic: 'e/{x}', queue: 'D{x}', properties: {client: '{client}'}}
  - {name: linked, topic: 'l/{x}', queue: 'D{x}', properties: {client: '{client}'}, continue: true}
  - {name: and here, topic: 'l/+', queue: Q1, properties: {client: '{client}'}}
  - {name: archive, topic: 'k/#', queue: Q1, continue: true, properties: {at: '{received_at}'}}
  - {name: alarm, topic: 'k/#', queue: Q2, when: {json: {a: 1}}, continue: true, headers: [mqtt]}
  - {name: alarm too, topic: 'k/#', queue: Q3, when: {json: {a: '<x>'}}, payload: {format: json}}
  - {name: of site, topic: 'p/1', queue: Q1, when: {properties: {a: b}}}
  - {name: of any, topic: 'p/1', queue: Q3, when: {properties: {a: '*', '&x': '<*'}}, properties: {at: '{received_at}'}}
  - {name: of some, topic: 'p/2', queue: Q1, when: {properties: {a: b}, json: {a: 1}}, descriptor: {priority: 3}}
  - {name: of rest, topic: 'p/2', queue: Q3, properties: {a: '{property.a}', topic: '{topic}'}}
  - {name: asked, topic: 'r/1', queue: Q1, descriptor: {reply_to: {queue: R}}, properties: {topic: '{topic}'}}
  - {name: asked at, topic: 'r/2', queue: Q2, descriptor: {reply_to: {queue: R}, message_type: request,
     correlation: '{client}'}, properties: {at: '{received_at}', correlationData: x, who: '{client}'}, headers: [mcd]}
  - {name: asked if, topic: 'r/3', queue: Q1, when: {json: {a: 1}}, descriptor: {reply_to: {queue: R}}}
  - {name: not asked, topic: 'r/3', queue: Q3, descriptor: {reply_to: {queue: R}, message_type: datagram}}
  - {name: asked too, topic: 'r/s', queue: Q2, descriptor: {reply_to: {queue: R}}}
  - {name: all, topic: 'q/#', queue: Q2, properties: {topic: '{topic}'}}
"""
VERSIONS = (3, 4, 5, 5)
TOPICS = [b"q/1"] * 4 + [
    b"q/2",
    b"q/dear",
    b"q/other",
    b"q/short",
    b"q/json",
    b"two/1",
    b"not",
    b"not",
    b"q/+",
    b"",
    b"s/1",
]
TOPICS += [
    b"f/time",
    b"f/more",
    b"f/field",
    b"f/when",
    b"f/both",
    b"f/both",
    b"g/1",
    b"g/1",
    b"h/1",
    b"f/text",
    b"f/expiry",
    b"f/alone",
    b"q/spread",
    b"f/spread",
    b"f/chosen",
    b"w/1",
    b"w/1",
    b"w/2",
    b"not",
    b"not/2",
    b"p/1",
    b"k/1",
    b"k/1",
    b"k/s",
    b"p/2",
    b"p/2",
]
TOPICS += [b"r/1", b"r/1", b"r/2", b"r/3", b"r/s"]
TOPICS += [b"d/1/a", b"d/1/a", b"d/2/a", b"d/2/t", b"e/1", b"e/2", b"e/s"]
PAYLOADS = [
    b'{"a": 1}',
    b'{"a": "<x>"}',
    b'{"a": 2.5, "b": 1}',
    b"{",
    b"[1]",
    b'{"a": 1, "b": "x"}',
    b'{"a": "\\ud800"}',
]
PAYLOADS += [b'{"o": {"p": [1, "\xc3\xa9"]}}', b'{"a": 1e400}', b'{"a": 123456789012345678901}', b"\xff"]
ELSEWHERE = st.sampled_from(
    [(), (), ("q/1",), ("#",), ("+/1", "f/#", "not", "two/#"), ("q/+", "$share/g/q/2", "f/both"), ("s/1", "q/json")]
)
"""What clients of two other gateways subscribe to; the second has the first of it only."""
IDS = st.lists(st.integers(1, 8), min_size=1, max_size=8, unique=True)
SHORT = 300
"""MAXMSGL of the queue of a rule that refuses what is too long: the longest payloads are."""
USERS = b"\x26\x00\x01a\x00\x01b"
TRACED = b"\x26\x00\x0btraceparent\x00\x37" + b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
ASKS = b"\x08\x00\x03a/b\x09\x00\x01c"
PROPERTIES = [
    USERS, USERS + b"\x26\x00\x02&x\x00\x03<&>", USERS * 2, b"\x26\x00\x01a\x00\x01\xff", b"\x02\x00\x00\x00\x09",
    b"\x23\x00\x01", b"\x23\x00\x01" + USERS, b"\x23\x00\x00", b"\x23\x00\xff", b"\x01\x01", b"\x03\x00\x01t",
    b"\x01\x00", b"\x03\x00\x01t\x01\x01" + USERS, b"\x01\x01\x02\x00\x00\x00\x09\x03\x00\x01t", b"\x01\x02",
    b"\x03\x00\x01\x00", b"\x09\x00\x02\x00\xff", b"\x08\x00\x03a/b\x09\x00\x01c", b"\x08\x00\x03a/+",
    b"\x01\x01\x01\x01",
    b"\x03\x00\x82" + b"t" * 130, b"\x23\x00\x01\x03\x00\x01t\x02\x00\x00\x00\x07" + USERS, b"\x0b\x01",
    b"\x02\x00\x00\x00\x09\x03\x00\x01t\x23\x00\x02", b"\x26\x00\x01a\x00\x01c", b"\x26\x00\x01a\x00\x82" + b"b" * 130,
    b"\x26\x00", b"\x02\x00\x00\x00\x09\x02\x00\x00\x00\x09", USERS + b"\x02\x00\x00\x00\x00",
    b"\x08\x00\x03a/b\x09\x00\x01d\x03\x00\x01t", b"\x08\x00\x03a/b", b"\x08\x00\x03a/c\x09\x00\x00" + USERS,
    TRACED, TRACED + ASKS, USERS + TRACED + b"\x03\x00\x01t", TRACED * 2, TRACED[:-1] + b"x", TRACED[:-2] + b"00",
    b"\x09\x00\x19" + b"x" * 25 + b"\x08\x00\x03a/b\x02\x00\x00\x00\x09", b"\x09\x00\x18" + b"y" * 24,
]  # fmt: skip


def test_the_extension_is_there():
    assert fast.compiled() or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@st.composite
def packet(draw, version, retains):
    kind = draw(st.sampled_from(["publish"] * 12 + ["ack", "ack", "rare", "rubbish"]))
    if kind == "ack":
        return writer.encode_acks(draw(st.sampled_from([p.PUBACK, p.PUBREL, p.PUBREL])), draw(IDS))
    if kind == "rare":
        return client.encode_unsubscribe(version, p.Unsubscribe(draw(st.integers(1, 9)), ["x/+"]))
    if kind == "rubbish":  # when a PINGREQ is answered depends on what others have sent
        return draw(st.binary(min_size=1, max_size=8)).replace(b"\xc0", b"")
    qos = draw(st.sampled_from([1, 1, 1, 1, 0, 0, 2, 2]))
    made = writer.encode_publish(
        version, draw(st.sampled_from(TOPICS)),
        draw(st.one_of(st.sampled_from(PAYLOADS), st.binary(max_size=20), st.binary(min_size=120, max_size=150))), qos,
        retain=retains and draw(st.integers(0, 5)) >= 3, dup=qos > 0 and draw(st.integers(0, 9)) == 9,
        packet_id=draw(st.integers(1, 300 if qos == 1 else 8)) if qos else 0,
        properties=draw(st.sampled_from([b""] * 6 + PROPERTIES)) if version == 5 else b"",
    )  # fmt: skip
    if draw(st.integers(0, 30)) == 30:  # a byte that is wrong: an identifier of 0, a length that does not fit
        at = draw(st.integers(0, len(made) - 1))
        made = made[:at] + bytes([draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))]) + made[at + 1 :]
    return made


@st.composite
def runs(draw, version, retains):
    """Several of one kind, as devices send them."""
    one = draw(packet(version, retains))
    if draw(st.booleans()) or not one or one[0] >> 4 != 3:
        return one
    qos, retain = one[0] >> 1 & 3, bool(one[0] & 1)
    topic, begin = draw(st.sampled_from(TOPICS)), draw(st.integers(1, 40))
    properties = draw(st.sampled_from([b"", *PROPERTIES])) if version == 5 else b""
    return b"".join(
        writer.encode_publish(
            version,
            topic,
            b'{"a": %d}' % number,
            min(qos, 2),
            retain=retain,
            packet_id=number if qos else 0,
            properties=properties,
        )
        for number in range(begin, begin + draw(st.integers(2, 7)))
    )


@st.composite
def streams(draw):
    """What each client sends in each round."""
    rounds = draw(st.integers(1, 5))
    found = []
    who = draw(st.integers(0, 3))  # of several that retain on one topic the last wins, and any may be the last
    for number, version in enumerate(VERSIONS):
        data = b"".join(draw(st.lists(runs(version, number == who), max_size=6)))
        cuts = sorted(draw(st.lists(st.integers(0, len(data)), min_size=rounds - 1, max_size=rounds - 1)))
        found.append([data[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(data)])])
    return list(zip(*found, strict=True))


def what_is_kept(one):
    """What is kept of a publication of QoS 2."""
    if isinstance(one, tuple):
        return one[0], one[1][2:], one[2] >> 1 & 3, bool(one[2] & 1), one[3] if len(one) > 3 else b""
    return one.topic, one.payload, one.qos, one.retain, one.properties


TOKEN = re.compile(rb"MQGR.{20}", re.DOTALL)


def _without_token(value):
    """Those of a gateway's requests count up over all of its clients."""
    return TOKEN.sub(b"MQGR", value) if isinstance(value, bytes) else value


def by_client(rows):
    """Rows in the order of each client, by priority and persistence, and dead letters by the queue that refused them:
    others have none among them."""
    found = {}
    for head, *more in [tuple(_without_token(value) for value in row) for row in rows]:
        whole = head + more[0] if isinstance(more[0], bytes) else head
        name = re.search(rb"(?:>|\x02\x00)(c\d)", whole)  # in a folder, in a record
        refused = whole[376:424] if whole[364:368] == b"DLH " else b""
        found.setdefault((name and name[1], head[40:48], refused), []).append((head, *more))
    return found


def released_by(destination, row):
    """The packet identifier of a row that releases a staged message."""
    mark = destination.marks.get(row)
    return mark and mark.released and mark.released[1]


def in_order(name, rows):
    """Rows of a queue; what is retained is one for each topic, in no order that anybody could see."""
    if name == REQUESTS:
        return sorted(rows.values(), key=lambda row: row[2:])
    return sorted(rows.values(), key=lambda row: row[1]) if name == RETAINED else rows.values()


NUMBER = re.compile(rb'"n":(\d+)')


def without_number(name, message):
    """Those of a gateway's publications count up over all of its clients."""
    return NUMBER.sub(b"", message) if name == FORWARD else message


def numbers(rows):
    """By the gateway that they are for."""
    found = {}
    for _, key, _, data in rows.values():
        found.setdefault(key, []).append(int(NUMBER.search(data)[1]))
    return found


def destinations(batch):
    """Rows, policies and publishers by address: what is put to many queues as if each had its own destination."""
    found = {}
    for one in batch.destinations.values():
        rows = enumerate(zip(one.puts.heads, one.puts.bodies, strict=True))
        found[one.address] = (
            [(head, body, one.policy(row).rule, released_by(one, row)) for row, (head, body) in rows],
            {*one.contributors}, {*one.unanswered},
        )  # fmt: skip
    for mixed in batch.mixed:
        rows = zip(mixed.puts.queues, mixed.publishers, mixed.puts.heads, mixed.puts.bodies, strict=True)
        for queue, publisher, head, body in rows:
            more = found.setdefault(mixed.address._replace(queue=queue), ([], set(), set()))
            more[0].append((head, body, mixed.policy.rule, None))
            more[1].add(publisher)
    return {address: (by_client(rows), *map(len, who)) for address, (rows, *who) in found.items()}


def copies_of(watcher):
    """What a subscriber has been sent, without the identifiers, which are in the order of all."""
    packets = [packet for packet in watcher.wire.packets if packet[0] >> 4 == p.PUBLISH]
    return sorted([(first, topic, block, payload) for first, topic, _, block, payload in packets], key=repr)


class Side:
    """A bench whose clients' packets are taken by one form of the lanes."""

    harness = Harness

    def __init__(self, form: str, elsewhere: tuple[str, ...] = (), **limits) -> None:
        self.form = form
        self.noted = []
        self.bench = self.harness(MAPPING, **({"receive_maximum": 8, "max_payload": 140, "max_packet": 200} | limits))
        self.devices = [self.bench.device(version, f"c{n}").connect() for n, version in enumerate(VERSIONS)]
        self.listener = self.bench.device(4, "listener").connect(clean=False)
        self.listener.subscribe("s/#", 1)
        self.listener.subscribe("e/s", 1)
        self.watchers = [self.bench.device(version, f"watcher{version}").connect() for version in (4, 5)]
        for filter_ in ("w/+", "f/time", "f/both", "g/1", "q/other", "k/s", "r/s"):
            self.watchers[0].subscribe(filter_, 1)
        for filter_ in ("w/2", "f/more", "d/1/a"):
            self.watchers[1].subscribe(filter_, 1, retain_as_published=True)
        for watcher in self.watchers:
            watcher.take()
        self.bench.queues.automatic = False
        self.bench.queues.longest["SHORT"] = SHORT
        engine = self.bench.engine
        engine.router.new_span = lambda: b"the span"
        engine.context.on_hop = lambda hop: partial(self.noted.append, hop)
        others = ToOthers(engine.context, engine.router, "aa")
        engine.fan_out.forward, engine.fan_out.forward_all = others.send, others.send_all
        for filters, gateway in ((elsewhere, "bb"), (elsewhere[:1], "cc")):
            for filter_ in filters:
                engine.router.subscribe_elsewhere(gateway, filter_, Interest(1))

    def take(self, chunks: list[bytes]) -> None:
        arrived = [
            (device.connection, chunk)
            for device, chunk in zip(self.devices, chunks, strict=True)
            if chunk and not device.wire.closed
        ]
        with lane(self.form):
            self.bench.engine.received_each(arrived)

    def commit(self):
        """All that there is, and what comes of that."""
        self.bench.engine.flush()
        while self.bench.queues.commit():
            pass

    def state(self):
        engine, batch = self.bench.engine, self.bench.engine.context.batch
        listener = self.listener.connection.session
        counters, connections = engine.counters, [device.connection for device in self.devices]
        return {
            "told": [device.take() for device in self.devices],
            "closed": [(device.wire.closed, device.connection.close_reason) for device in self.devices],
            "pending": [(one.inbound_pending, one.uncompleted, one.session.received) for one in connections],
            "published": [one.published for one in connections],
            "put to": self.bench.queues.put_to,
            "rows": {
                name: by_client((without_number(name, row[2] + row[3]), row[0], row[1]) for row in in_order(name, rows))
                for name, rows in self.bench.queues.rows.items()
                # the subscriber's packet identifiers are in the order of all; what is cleared again may be put nowhere
                if name != OUT and rows
            },
            "inbound": [{k: what_is_kept(v) for k, v in one.session.inbound.items()} for one in connections],
            "staged": [sorted(one.session.staged_tokens) for one in connections],
            "aliases": [one.aliases for one in connections],
            "retained": sorted((one.topic, one.payload, one.properties) for one in engine.retained),
            "noted": sorted(self.noted), "batch": destinations(batch),
            "linked": by_client(
                (link.rows[0][0].puts.heads[link.rows[0][1]], *(one.puts.bodies[row] for one, row in link.rows))
                for link in batch.links.all()
            ),
            "stored": listener.stored_bytes, "copies": [copies_of(watcher) for watcher in self.watchers],
            "in": counters.packets_in, "out": counters.packets_out, "bytes": counters.bytes_in,
            "counted": [dict(each) for each in (
                counters.mq_put_messages, counters.mq_put_bytes, counters.messages_dropped, counters.route_matched,
                counters.mqtt_publish_received, counters.mqtt_publish_sent, counters.transform_errors,
            )],
            "answered": batch.answered, "unrouted": counters.messages_unrouted,
        }  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(120), deadline=None)
@given(streams(), st.lists(st.sampled_from(["no", "flush", "commit"]), min_size=5, max_size=5), ELSEWHERE)
def test_the_fast_lane_does_what_the_plain_lane_does(form, rounds, then, elsewhere):
    sides = [Side(form, elsewhere), Side("plain", elsewhere)]
    for number, chunks in enumerate(rounds):
        for side in sides:
            side.take(chunks)
        assert sides[0].state() == sides[1].state()
        for side in sides:
            if then[number] != "no":
                side.bench.engine.flush()
            if then[number] == "commit":
                side.bench.queues.commit()
        assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.engine.flush()
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()
    for order in numbers(sides[0].bench.queues.rows.get(FORWARD, {})).values():
        assert order == sorted(set(order))


DEVICES = [
    "d/1/a",
    "d/1/a",
    "d/2/a",
    "d/2/a",
    "d/3/a",
    "d/1/t",
    "e/1",
    "e/2",
    "e/s",
    "d/s/a",
    "l/1",
    "q/1",
    "k/1",
    "k/2",
    "k/2",
]
STEP = st.tuples(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(DEVICES), st.sampled_from([1] * 9 + [0, 2])), max_size=7),
    st.sampled_from(["no", "commit", "commit", "refuse"]),
    st.sets(st.sampled_from(["D1", "D2", "Ds"]), min_size=1), st.sampled_from([2053, 2051, 2085]),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, min_size=1, max_size=4))
@example([([(1, "l/1", 1), (1, "d/1/a", 1), (1, "l/1", 1)], "commit", {"D1"}, 2053)])
@example([([(0, "k/1", 1), (0, "k/2", 1), (0, "k/1", 1), (1, "q/1", 1)], "refuse", {"Q2"}, 2053)])
@example([([(0, "d/1/a", 0), (0, "d/2/a", 1), (0, "d/1/a", 1), (1, "d/1/a", 1)], "refuse", {"D1", "D2"}, 2085)])
@example([([(0, "d/1/a", 1), (0, "d/1/t", 1), (0, "l/1", 1), (1, "l/1", 1)], "refuse", {"D1"}, 2085)])
def test_a_queue_for_each_device_is_as_if_each_had_its_own_columns(form, steps):
    sides, ids = [Side(form), Side("plain")], itertools.count(1)
    for sent, then, refusing, reason in steps:
        chunks = [[b""] for _ in VERSIONS]
        for who, topic, qos in sent:
            packet_id = next(ids) if qos else 0
            payload = b'{"a": %d}' % (len(chunks[who]) % 2) if topic[0] == "k" else b"%d" % len(chunks[who])
            chunks[who].append(writer.encode_publish(VERSIONS[who], topic.encode(), payload, qos, packet_id=packet_id))
        for side in sides:
            side.take([b"".join(chunk) for chunk in chunks])
        assert sides[0].state() == sides[1].state()
        for side in sides:
            side.bench.queues.refusing = dict.fromkeys(refusing, reason) if then == "refuse" else {}
            if then != "no":
                side.commit()
        assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.queues.refusing = {}
        side.bench.engine.flush()
        for _ in range(2):  # what was refused is tried again
            while side.bench.queues.commit():
                pass
            side.bench.clock.advance(60)
    assert sides[0].state() == sides[1].state()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=4, max_size=4))
def test_so_it_is_with_any_bytes(form, chunks):
    sides = [Side(form), Side("plain")]
    for side in sides:
        side.take(chunks)
        side.bench.engine.flush()
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()


def rest(side: Side, who: int, data: bytes) -> bytes:
    """What the fast lane leaves."""
    with lane(side.form):
        left = side.bench.engine.fast_lane.take([(side.devices[who].connection, data)])
    return left[0][1][left[0][2] :] if left else b""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("who", range(4))
def test_ordinary_packets_are_taken_whole(form, who):
    side = Side(form, receive_maximum=100)
    version = VERSIONS[who]
    for qos in (0, 1, 2):
        chunk = b"".join(
            writer.encode_publish(version, b"q/%d" % (n % 3), b"x" * n, qos, packet_id=n if qos else 0)
            for n in range(1, 9)
        )
        assert rest(side, who, chunk + chunk[:5]) == chunk[:5]
    assert side.bench.engine.context.batch.rows == 24
    side.bench.engine.flush()
    side.bench.queues.commit()
    assert rest(side, who, writer.encode_acks(p.PUBREL, range(1, 9))) == b""
    side.bench.engine.flush()
    side.bench.queues.commit()
    assert len(side.bench.queues.rows["Q2"]) == 24


ORDINARY = {
    "a content type": (b"q/1", b"\x03\x00\x10application/json"),
    "a payload that is text": (b"q/1", b"\x01\x01"),
    "both, user properties and an expiry": (b"q/2", b"\x01\x01\x02\x00\x00\x00\x3c\x03\x00\x04text" + USERS),
    "a content type for a form": (b"f/time", b"\x03\x00\x04text" + USERS),
    "user properties for a form": (b"f/field", USERS),
    "user properties for a form and a subscriber": (b"f/time", USERS),
    "a user property that a rule asks for": (b"p/1", USERS),
    "others that it does not have": (b"p/1", b"\x26\x00\x01a\x00\x01c"),
    "none where a rule asks for some": (b"p/1", b""),
    "several queues by what is in the payload": (b"k/1", b""),
    "several queues, user properties": (b"k/1", b"\x26\x00\x01b\x00\x01b"),
    "several queues and a subscriber": (b"k/s", b"\x26\x00\x01b\x00\x01b"),
    "nobody": (b"not", b""),
    "nobody, with properties": (b"not", b"\x03\x00\x04text" + USERS),
    "nobody, a request": (b"not", ASKS),
    "a subscriber": (b"w/1", b"\x03\x00\x04text\x02\x00\x00\x00\x3c" + USERS),
    "a subscriber, a request": (b"w/1", ASKS),
    "a subscriber, an alias": (b"w/1", b"\x23\x00\x01"),
    "an alias": (b"q/1", b"\x23\x00\x01"),
    "a queue and a subscriber": (b"q/other", b"\x03\x00\x04text"),
    "a form and a subscriber": (b"f/both", b"\x03\x00\x04text"),
    "a queue that refuses what is too long": (b"q/short", b""),
    "a name that stands twice": (b"q/1", USERS * 2),
    "a name that the rule sets": (b"p/2", USERS),
    "several queues, a name twice": (b"k/1", USERS * 2),
    "a form and a subscriber, a name twice": (b"f/both", USERS * 2),
    "a trace context": (b"q/1", USERS + TRACED),
    "a trace context for a form": (b"f/field", TRACED),
    "a trace context for a subscriber": (b"w/1", TRACED),
    "a request that no rule knows": (b"q/1", ASKS),
    "a request that is answered": (b"r/1", ASKS + USERS),
    "a request with another correlation": (b"r/2", b"\x08\x00\x03a/b\x02\x00\x00\x00\x3c"),
    "a request by what is in the payload": (b"r/3", b"\x09\x00\x01c\x08\x00\x03a/b\x03\x00\x01t"),
}
"""Topics, and properties."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("shape", ORDINARY)
def test_what_devices_send_is_ordinary(form, shape, retain):
    topic, properties = ORDINARY[shape]
    side = Side(form, receive_maximum=100, max_payload=1000, max_packet=1000)
    chunk = b"".join(
        writer.encode_publish(
            5, topic, b'{"a": 1}', qos, retain=retain, packet_id=n if qos else 0, properties=properties
        )
        for qos in (
            (1,) if topic[:1] == b"k" else (0, 1)
        )  # of QoS 0 one message goes otherwise than two that go together
        for n in range(1, 4)
    )
    assert rest(side, 2, chunk) == b""
    assert side.devices[2].connection.published == (3 if topic[:1] == b"k" else 6)


AT_QOS_2 = [
    "a content type", "a payload that is text", "user properties for a form",
    "user properties for a form and a subscriber", "a user property that a rule asks for",
    "others that it does not have", "none where a rule asks for some", "several queues by what is in the payload",
    "several queues, user properties", "nobody", "nobody, with properties", "a subscriber, a request",
    "a name that stands twice", "a name that the rule sets", "several queues, a name twice",
    "a trace context", "a trace context for a form", "a request that no rule knows",
    "a request that is answered", "a request by what is in the payload",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("shape", AT_QOS_2)
def test_so_it_is_at_qos_2(form, shape, retain):
    topic, properties = ORDINARY[shape]
    side = Side(form, receive_maximum=100, max_payload=1000, max_packet=1000)
    sent = [
        writer.encode_publish(5, topic, b'{"a": %d}' % (n % 2), 2, retain=retain, packet_id=n, properties=properties)
        for n in range(1, 7)
    ]
    assert rest(side, 2, b"".join(sent)) == b""
    side.bench.engine.flush()
    side.bench.queues.commit()
    if shape.startswith("nobody"):  # the plain lane releases what nobody gets
        return
    assert rest(side, 2, writer.encode_acks(p.PUBREL, range(1, 7))) == b""
    assert not side.devices[2].connection.session.inbound


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([
                b"q/1", b"f/field", b"f/when", b"f/alone", b"g/1", b"h/1", b"p/1", b"p/2", b"k/1", b"f/time", b"f/both",
                b"q/other", b"r/1", b"r/3", b"w/1", b"not",
            ]),
            st.sampled_from([*PAYLOADS[:6], b""]),
            st.sampled_from([b""] * 3 + [USERS, b"\x03\x00\x01t", b"\x01\x01" + USERS, ASKS]),
            st.sampled_from([False, False, True]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.permutations(range(1, 9)),
    st.booleans(),
    st.sampled_from([2, 1000]),
)  # fmt: skip
@example(
    [(b"q/1", b"1", b"", False), (b"f/alone", b"1", b"", True), *[(b"f/field", b'{"a": 1}', b"", False)] * 2],
    [1, 3, 2, 4, 5, 6, 7, 8], False, 1000,
)  # fmt: skip
def test_what_is_staged_is_released_as_by_the_plain_lane(form, sent, order, refused, room):
    """Rows, what is linked, what they release, what is retained: also after a queue has refused."""
    sides = [Side(form, max_retained=room), Side("plain", max_retained=room)]
    for side in sides:
        packets = [
            writer.encode_publish(5, topic, payload, 2, retain=retain, packet_id=number, properties=block)
            for number, (topic, payload, block, retain) in enumerate(sent, 1)
        ]
        side.take([b"", b"", b"".join(packets), b""])
        side.bench.engine.flush()
        side.bench.queues.commit()
        side.take([b"", b"", writer.encode_acks(p.PUBREL, [number for number in order if number <= len(sent)]), b""])
    assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.queues.refusing = {"Q1": 2053} if refused else {}
        side.commit()
    assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.queues.refusing = {}
        side.bench.clock.advance(60)
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()


@pytest.mark.parametrize("form", FORMS)
def test_it_takes_up_again_behind_a_packet_that_is_not_ordinary(form):
    side = Side(form, receive_maximum=100)
    one = writer.encode_publish(4, b"q/1", b"x", 1, packet_id=7)
    calls = []
    plain = side.bench.engine.plain_lane
    packet = plain.packet
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        stack.enter_context(lane(form))
        patch.setattr(plain, "packet", lambda *a: (calls.append(a[1]), packet(*a)))
        side.bench.engine.received_each([(side.devices[1].connection, one * 3 + b"\xc0\x00" + one * 3)])
    assert calls == [(0xC0,)]
    assert side.bench.engine.context.batch.rows == 6
