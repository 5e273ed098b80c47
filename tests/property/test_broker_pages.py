"""Messages from queues as columns and one by one: the same comes of both, in the same order for every session."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from typing import NamedTuple
from unittest import mock

from broker_harness import Harness, Queues
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.broker.deliver import consumers, pages
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Stored
from gateway.ports.sources import Backout

MAPPING = """
version: 1
to_mqtt:
  - {name: plain, queue: A.Q, topic: "down/{usr.site}", qos: from_persistence}
  - {name: one, queue: B.Q, topic: "cmd", client: "{usr.site}", qos: 1}
  - {name: retained, queue: C.Q, topic: "kept/{usr.site}", retain: from_property, qos: 1}
  - {name: number, queue: D.Q, topic: "down/{mqtt.msgId}", qos: 1}
  - {name: user, queue: E.Q, topic: "down/x", qos: 1, user_properties: usr, backout: {threshold: 2, queue: ASIDE.Q}}
  - {name: json, queue: F.Q, topic: "down/{json.s}", qos: 1}
  - {name: twice, queue: G.Q, topic: "down/{usr.site}", qos: 2}
"""
QUEUES = ["A.Q", "A.Q", "A.Q", "B.Q", "C.Q", "D.Q", "E.Q", "F.Q", "F.Q", "G.Q"]
JSON = [b'{"s": "s1"}', b'{"s": "s2"}', b'{"s": "s1"}  ', b'{"s": "s1"} 1']
SUBSCRIBERS = (
    # version, clean, filter, QoS, options of CONNECT
    (4, False, "down/#", 1, {}),
    (5, False, "down/s1", 2, {0x21: 3, 0x22: 1}),
    (4, True, "down/+", 1, {}),
    (5, True, "down/s2", 0, {0x27: 60}),
    (4, False, "$share/g/down/s3", 1, {}),
    (4, False, "kept/#", 1, {}),
)


class Written(NamedTuple):
    """A message as its putter wrote it: head and body, cut where he likes."""

    head: bytes
    body: bytes


class Page:
    """Columns of a page of the bench."""

    def __init__(self, queues, rows) -> None:
        self._queues, self._rows = queues, rows
        self.tokens = [token for token, _ in rows]
        self.heads = [queues.written[token].head for token in self.tokens]
        self.bodies = [queues.written[token].body for token in self.tokens]

    def stored(self, first, last):
        return [Stored(token, row[2], row[3]) for token, row in self._rows[first:last]]


class Side:
    """A bench with devices that get what is on its queues: together, or one by one and each made anew."""

    def __init__(self, *, together, max_queued) -> None:
        self.together = together
        self.queues = Queues()
        self.queues.written = {}
        self.queues.fetch_page = self.page
        self.bench = Harness(MAPPING, queues=self.queues, max_queued=max_queued, max_total_queued=3 * max_queued)
        if not together:
            self.bench.consumers.handover.repeated.find = mock.Mock(return_value=None)
        self.devices = []
        for number, (version, clean, filter_, qos, properties) in enumerate(SUBSCRIBERS):
            device = self.bench.device(version, f"s{number}").connect(clean=clean, properties=dict(properties))
            device.subscribe(filter_, qos)
            self.devices.append(device)

    def page(self, queue, key, limit):
        rows = [(token, row) for token, row in self.queues._ordered(queue) if row[1] == key][:limit]
        plain = 0
        while plain < len(rows) and is_plain(rows[plain][1][2]):
            plain += 1
        return Page(self.queues, rows[:plain]) if plain else None

    def arrive(self, queue, messages):
        rows = self.queues.rows.setdefault(queue, {})
        for head, body in messages:
            token = next(self.queues._tokens)
            self.queues._priorities[token] = 0
            self.queues.written[token] = Written(head, body)
            rows[token] = (0, b"", mqmd.with_msg_id(head[:364], token.to_bytes(24, "big")), head[364:] + body)
        if queue in self.queues.consumed:
            self.queues.consumed[queue]()
        self.bench.clock.advance(0.3)
        self.bench.engine.flush()

    def do(self, what, value):
        with ExitStack() as patched:
            if not self.together:
                patched.enter_context(mock.patch.object(pages._PageHandover, "_groups", nothing_plain))
                patched.enter_context(mock.patch.object(pages._PageHandover, "_by_head", return_value=[]))
                patched.enter_context(mock.patch.object(self.bench.engine.in_flight, "take", nothing_taken))
            self._do(what, value)

    def _do(self, what, value):
        if what == "drop":
            self.devices[value].drop()
        elif what == "ack":
            self.devices[value].send(b"".join(map(answer_to, self.told[value])))
        else:
            self.arrive(what, value)

    def state(self):
        counters = self.bench.engine.counters
        sessions = [device.connection.session for device in self.devices]
        self.told = [device.take() for device in self.devices]
        return (
            self.told,
            [(one.stored, one.stored_bytes, one.delivered) for one in sessions],
            [(list(one.outflow.inflight), one.outflow.queued, one.outflow.unfetched) for one in sessions],
            {name: [row[1:] for row in rows.values()] for name, rows in self.queues.rows.items()},
            counters.packets_out, counters.bytes_out,
            dict(counters.messages_dropped), dict(counters.mqtt_publish_sent), dict(counters.dlq_messages),
            dict(counters.route_matched), dict(counters.transform_errors), dict(counters.mq_get_messages),
        )  # fmt: skip


def nothing_taken(_connection, _data, offset):
    return offset


def answer_to(packet):
    kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
    if kind == p.PUBLISH and qos:
        return writer.encode_acks(p.PUBACK if qos == 1 else p.PUBREC, [packet[2]])
    return writer.encode_acks(p.PUBCOMP, [packet[1]]) if kind == p.PUBREL else b""


def nothing_plain(_passing, row):
    return [], row


def is_plain(md):
    number = mqmd.number
    return (
        not number(md, mqmd.AT_REPORT)
        and number(md, mqmd.AT_EXPIRY) == -1
        and not number(md, mqmd.AT_BACKOUT_COUNT)
        and not number(md, mqmd.AT_MSG_FLAGS)
    )


_HEADS: dict[bytes, bytes] = {}


def shared(head):
    """One object for equal heads, as a store gives them."""
    return _HEADS.setdefault(head, head)


@st.composite
def messages(draw):
    """Heads and bodies of messages that have much in common with their neighbours."""
    site = draw(st.sampled_from(["s0", "s1", "s1", "s2", "s3", "nobody", "a/b"]))
    numbered = draw(st.sampled_from([True, True, False]))
    folders = [folder("usr", [("site", site)])]
    if draw(st.integers(0, 5)) == 5:
        folders.append(folder("mqps", [("Ret", "1")]))
    md = mqmd.build(
        persistence=draw(st.sampled_from([1, 0])),
        expiry=draw(st.sampled_from([-1] * 9 + [50])),
        report=draw(st.sampled_from([0] * 9 + [1])), reply_to_q="REPORTS.Q",
        correl_id=draw(st.sampled_from([bytes(24)] * 9 + [b"c" * 24])),
        backout_count=draw(st.sampled_from([0] * 9 + [3])),
    )  # fmt: skip
    md = mqmd.with_described(md, 546, 1208, b"MQHRF2  ")
    where = draw(st.sampled_from(["head", "identifier", "descriptor", "further", "in the body"]))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        payload = draw(st.binary(max_size=4) | st.sampled_from([b"1</msgId></mqtt>", b"0123", *JSON]))
        if not numbered:
            header = rfh2.build(folders, encoding=546, coded_char_set_id=1208, format_name=b"        ")
            whole, at = header + payload, len(header)
        else:
            template = rfh2.build_template(folders, "mqtt", {"clientId": "c", "qos": 1}, "msgId")
            tail = template.tails[draw(st.sampled_from([1, 2, 77, 65535]))]
            if draw(st.integers(0, 9)) == 9:  # what no packet identifier looks like
                tail = draw(st.sampled_from([b"x", b"", b"1", b"</msgId></mqtt>", b"123456</msgId></mqtt>"])).ljust(
                    len(tail)
                )[: len(tail)]
            whole, at = template.head + tail + payload, len(template.head)
            if where == "head":
                at += len(tail)
        at = {"descriptor": 0, "further": len(whole), "in the body": len(whole) - len(payload) + 11}.get(where, at)
        made.append((shared(md + whole[:at]), whole[at:]))
    return made


@st.composite
def stories(draw):
    """Room in a session, and what happens: of few kinds of messages many, for what is known of them matters."""
    kinds = st.sampled_from(draw(st.lists(messages(), min_size=1, max_size=4)))
    queues = st.sampled_from(draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2)))
    arrivals = st.tuples(queues, st.lists(kinds, min_size=1, max_size=6).map(lambda some: [*chain(*some)]))
    others = st.tuples(st.sampled_from(["ack", "ack", "drop"]), st.integers(0, len(SUBSCRIBERS) - 1))
    return draw(st.sampled_from([5, 300])), draw(st.lists(arrivals | arrivals | others, max_size=12))


@settings(max_examples=300, deadline=None)
@given(stories())
def test_pages_do_what_one_by_one_does(story):
    max_queued, steps = story
    sides = [Side(together=together, max_queued=max_queued) for together in (True, False)]
    for side in sides:
        side.queues.backouts["A.Q"] = Backout(2, "ASIDE.Q")
        side.state()
    for what, value in steps:
        for side in sides:
            side.do(what, value)
        assert sides[0].state() == sides[1].state()


def test_messages_like_the_first_are_not_looked_at_alone():
    side = Side(together=True, max_queued=1000)
    template = rfh2.build_template([folder("usr", [("site", "s1")])], "mqtt", {"clientId": "c", "qos": 1}, "msgId")
    head = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ") + template.head
    several = [(head, template.tails[number] + b"%d" % number) for number in range(1, 150)]
    with mock.patch.object(
        pages._PageHandover, "one_by_one", autospec=True, side_effect=pages._PageHandover.one_by_one
    ) as alone:
        side.arrive("A.Q", several)
        assert alone.call_count == 1, "the first of its kind"
    [_, told, *_] = side.state()[0]
    sent = [packet[4] for packet in told if packet[0] >> 4 == 3]
    assert sent == [b"%d" % number for number in range(1, 4)], "as many as it takes at once, in order"
    held = side.devices[1].connection.session
    assert held.stored == 149


def test_a_page_is_no_longer_than_there_is_room_for():
    side = Side(together=True, max_queued=500)
    [source] = [one for one in side.bench.consumers.sources.values() if one.queue == "A.Q"]
    source.batch = consumers.DEEP
    header = rfh2.build([folder("usr", [("site", "s1")])], encoding=546, coded_char_set_id=1208, format_name=b" " * 8)
    head = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ") + header
    side.arrive("A.Q", [(head, b"%d" % number) for number in range(900)])
    session = side.devices[0].connection.session
    assert 500 - consumers.BATCH < session.stored <= 500
    assert len(side.queues.rows["A.Q"]) == 900 - session.stored, "the others stay on their queue"
    assert not side.queues.rows.get("DEAD.Q")


def test_what_there_is_no_room_for_goes_its_own_way():
    for together in (True, False):
        side = Side(together=together, max_queued=5)
        header = rfh2.build(
            [folder("usr", [("site", "s1")])], encoding=546, coded_char_set_id=1208, format_name=b" " * 8
        )
        head = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ") + header
        side.do("A.Q", [(head, b"known")])
        for device in side.devices:
            device.drop()
        side.do("A.Q", [(head, b"%d" % number) for number in range(20)])
        sessions = [device.connection.session for device in side.devices[:2]]
        assert [one.stored for one in sessions] == [5, 5]
        assert not side.queues.rows["A.Q"]
        lost = side.bench.engine.counters.messages_dropped["_none", "session_full"]
        assert lost == 2 * 16, "each message that a session had no room for is counted"


def test_messages_of_several_topics_stay_in_order():
    for persistence in (0, 1):
        side = Side(together=True, max_queued=300)
        md = mqmd.with_described(mqmd.build(persistence=persistence), 546, 1208, b"MQHRF2  ")
        one, other = (
            md
            + rfh2.build([folder("usr", [("site", site)])], encoding=546, coded_char_set_id=1208, format_name=b" " * 8)
            for site in ("s1", "s2")
        )
        side.do("A.Q", [(one, b"known"), (other, b"known")])
        side.state()
        side.do("A.Q", [(head, b"%d" % number) for number in range(5) for head in (one, other)])
        told = side.state()[0]
        for number in (0, 2):
            sent = [(packet[1], packet[4]) for packet in told[number] if packet[0] >> 4 == 3]
            assert sent == [(b"down/" + site, b"%d" % number) for number in range(5) for site in (b"s1", b"s2")]


def test_nothing_overtakes_what_is_copied_in_slices():
    side = Side(together=True, max_queued=300)
    side.bench.engine.context.most_copied = 150
    header = rfh2.build(
        [folder("usr", [("site", "s1")])], encoding=546, coded_char_set_id=1208, format_name=b"        "
    )
    md = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ")
    bodies = [b"%02d" % number + b"x" * (60 if number in {0, 4, 9} else 1) for number in range(16)]
    for some in (bodies[:4], bodies[4:]):  # the first, which is long, is looked at alone
        side.arrive("A.Q", [(shared(md + header), body) for body in some])
    for _ in bodies:
        side.bench.advance(0.3)
    assert [packet[4] for packet in side.devices[0].take() if packet[0] >> 4 == p.PUBLISH] == bodies
    assert not side.queues.rows["A.Q"]
