"""Messages of queues whose headers were seen before, and each looked at anew: the same comes of both."""

from __future__ import annotations

from unittest import mock

import pytest
from broker_harness import Harness
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bridge import outbound
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import writer

MAPPING = """
version: 1
to_mq:
  - {name: ask, topic: ask, queue: ASKED, descriptor: {reply_to: {queue: R.Q}}}
to_mqtt:
  - {name: answers, queue: R.Q, qos: from_persistence, response_topic: "back/{md.UserIdentifier}"}
  - {name: more answers, queue: P.Q, qos: from_persistence}
  - {name: plain, queue: A.Q, topic: "down/{usr.site}", qos: from_persistence}
  - {name: body, queue: B.Q, topic: "down/{json.site}", qos: 1}
  - {name: descriptor, queue: C.Q, topic: "down/{md.ApplIdentityData}", qos: 1}
  - {name: one, queue: D.Q, topic: "cmd", client: "{usr.site}", qos: 1}
  - {name: text, queue: E.Q, topic: "down/text", convert: 1208, qos: 2}
  - {name: all, queue: F.Q, topic: "down/{usr.site}", user_properties: all, order_by: "{md.UserIdentifier}"}
  - {name: of one, queue: H.Q, topic: "cmd", client: "{json.site}", order_by: "{json.n}{usr.site}", qos: 1}
  - {name: first, queue: G.Q, topic: "down/{usr.site}/{usr.none}"}
  - {name: second, queue: G.Q, topic: "down/second", strip_headers: false}
"""
QUEUES = ["A.Q", "B.Q", "C.Q", "D.Q", "E.Q", "F.Q", "G.Q", "H.Q"]


JSON = [
    b'{"site": %b, "n": 1}' % one for one in (b'"s0"', b'"s1"', b'"1"', b"1", b"1e16", b'"1e+16"', b"null", b'"None"')
]


@st.composite
def messages(draw):
    """A queue, and descriptor and data of a message that has much in common with others."""
    usr = [("site", draw(st.sampled_from(["lima", "lima", "lima", "s0", "a/b"])))]
    if draw(st.integers(0, 5)) == 5:
        usr.append(("traceparent", "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"))
    body = draw(st.sampled_from([b"go", b"", b'{"site": "x"}', b'{"site": "y"}', b"\xe9", b"\xff" * 30, *JSON]))
    kind = draw(st.sampled_from([b"MQSTR   ", b"MQSTR   ", b"        ", b"MQHRF2  ", b"MQDEAD  "]))
    folders = [folder("usr", usr)]
    if draw(st.integers(0, 5)) == 5:
        folders.append(folder("mqtt", [("responseTopic", "answers"), ("qos", 1)]))
    data = rfh2.build(folders, encoding=546, coded_char_set_id=draw(st.sampled_from([1208, 850])), format_name=kind)
    md = mqmd.build(
        persistence=draw(st.sampled_from([1, 1, 0])), expiry=draw(st.sampled_from([-1, -1, 50])),
        appl_identity_data=draw(st.sampled_from(["", "p", "q"])), user_identifier=draw(st.sampled_from(["u", "v"])),
        report=draw(st.sampled_from([0, 0, 0, 1])), reply_to_q="REPORTS.Q", msg_type=draw(st.sampled_from([8, 8, 1])),
        correl_id=draw(st.sampled_from([bytes(24), bytes(24), b"c" * 24])),
        msg_id=draw(st.binary(min_size=24, max_size=24)),
        backout_count=draw(st.sampled_from([0, 0, 0, 3])),
    )  # fmt: skip
    if draw(st.integers(0, 4)) == 4:  # no header of ours
        return draw(st.sampled_from(QUEUES)), (mqmd.with_described(md, 546, 1208, kind), body)
    whole = data + body
    if draw(st.integers(0, 9)) == 9:
        whole = whole[: draw(st.integers(0, len(whole)))]
    return draw(st.sampled_from(QUEUES)), (mqmd.with_described(md, 546, 1208, b"MQHRF2  "), whole)


class Side:
    """A bench with devices that get what is on its queues."""

    def __init__(self, *, remembers) -> None:
        self.bench = Harness(MAPPING)
        if not remembers:
            self.bench.consumers.handover.repeated.find = mock.Mock(return_value=None)
            self.bench.consumers.handover.answers.find = mock.Mock(return_value=None)
        self.devices = [
            self.bench.device(version, f"s{number}").connect(clean=clean)
            for number, (version, clean) in enumerate([(5, False), (4, False), (5, True)])
        ]
        for number, device in enumerate(self.devices):
            device.subscribe("down/#", number)
            device.take()

    def arrive(self, queue, message):
        self.bench.queues.arrive(queue, message)
        self.bench.clock.advance(0.3)
        self.bench.engine.flush()
        counters = self.bench.engine.counters
        return (
            [device.take() for device in self.devices],
            {name: [row[1:] for row in rows.values()] for name, rows in self.bench.queues.rows.items()},
            dict(counters.messages_dropped), dict(counters.mqtt_publish_sent), dict(counters.dlq_messages),
            dict(counters.route_matched), dict(counters.transform_errors),
        )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(messages(), max_size=10))
def test_what_is_remembered_is_what_would_be_made_again(arriving):
    remembers, forgets = Side(remembers=True), Side(remembers=False)
    for queue, message in arriving:
        assert remembers.arrive(queue, message) == forgets.arrive(queue, message)


ASKS = [b"\x08\x00\x06down/a", b"\x08\x00\x06down/b\x09\x00\x01c", b"\x08\x00\x04$SYS", b"\x08\x00\x06down/b"]
ANSWERS = st.tuples(
    st.integers(0, 5), st.sampled_from([b"MQSTR   ", b"        ", b"MQDEAD  "]), st.sampled_from([b"go", b"", b"\xff"]),
    st.sampled_from([-1, -1, 50]), st.sampled_from([0, 1]), st.sampled_from([8, 2, 1]), st.sampled_from([1208, 850]),
    st.sampled_from(["u", "v"]), st.sampled_from([0, 0, 1]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ASKS), min_size=1, max_size=6), st.lists(ANSWERS, max_size=8))
def test_so_it_is_with_answers_to_requests(asked, answers):
    sides = [Side(remembers=True), Side(remembers=False)]
    for side in sides:
        side.devices[0].send(b"".join(writer.encode_publish(5, b"ask", b"?", 0, properties=block) for block in asked))
        side.bench.engine.flush()
    tokens = [row[2][mqmd.MSG_ID] for row in sides[0].bench.queues.rows["ASKED"].values()]
    for number, kind, body, expiry, persistence, what, ccsid, user, report in answers:
        token = tokens[number % len(tokens)]  # perhaps for the second time
        md = mqmd.build(
            correl_id=token, expiry=expiry, persistence=persistence, msg_type=what, user_identifier=user,
            msg_id=body.ljust(24), report=report, reply_to_q="REPORTS.Q",
        )  # fmt: skip
        message = mqmd.with_described(md, 546, ccsid, kind), body
        queue = "R.Q" if number > 1 else "P.Q"
        assert sides[0].arrive(queue, message) == sides[1].arrive(queue, message)


def test_an_answer_like_the_last_is_not_taken_apart():
    side = Side(remembers=True)
    side.devices[0].send(b"".join(writer.encode_publish(5, b"ask", b"?", 0, properties=block) for block in ASKS[:2]))
    side.bench.engine.flush()
    first, second = [row[2][mqmd.MSG_ID] for row in side.bench.queues.rows["ASKED"].values()]
    side.arrive("P.Q", (mqmd.build(correl_id=first, persistence=1), b"one"))
    with mock.patch.object(outbound, "read_message", side_effect=AssertionError("taken apart")):
        told = side.arrive("P.Q", (mqmd.build(correl_id=second, persistence=1), b"two"))[0]
    assert [packet[1:5:3] for packet in told[2]] == [(b"down/b", b"two")]
    assert b"\x09\x00\x01c" in told[2][0][3]


def test_a_message_like_the_last_is_not_taken_apart():
    side = Side(remembers=True)
    header = rfh2.build(
        [folder("usr", [("site", "lima")])], encoding=546, coded_char_set_id=1208, format_name=b"MQSTR   "
    )
    md = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQHRF2  ")
    side.arrive("A.Q", (md, header + b"first"))
    side.arrive("B.Q", (md, header + b'{"site": "x"}'))
    with mock.patch.object(outbound, "read_message", side_effect=AssertionError("taken apart")):
        told = side.arrive("A.Q", (md, header + b"second"))[0]
        told_too = side.arrive("B.Q", (md, header + b'{"site": "x", "n": 2}'))[0]
        with pytest.raises(AssertionError, match="taken apart"):
            side.arrive("B.Q", (md, header + b'{"site": "y"}'))
    assert [packet[4] for packet in told[1]] == [b"second"]
    assert [(packet[1], packet[4]) for packet in told_too[1]] == [(b"down/x", b'{"site": "x", "n": 2}')]
