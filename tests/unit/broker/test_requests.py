"""Requests that nobody answers are forgotten in time, and not before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from broker_harness import Harness

from gateway.bridge.request import Request
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.rules.feedback import Feedback

QUEUE = "MQGATE.REQUESTS"
MAPPING = """
version: 1
to_mq:
  - {name: ask, topic: ask, queue: ASKED, descriptor: {reply_to: {queue: ANSWERS}}, continue: true}
  - {name: with one of its own, topic: ask, queue: OWN, descriptor: {correlation: own, reply_to: {queue: ANSWERS}}}
  - {name: alone, topic: alone, queue: ALONE, descriptor: {reply_to: {queue: ANSWERS}}}
to_mqtt:
  - {name: answers, queue: ANSWERS}
"""


def asked(bench: Harness, name: str, ago: float, expiry: int = 0) -> bytes:
    """A request as it was stored so long ago."""
    request = Request(name, f"answers/{name}", b"", expiry)
    put = datetime.fromtimestamp(bench.clock.now() - ago, UTC)
    md = mqmd.build(put_date=put.strftime("%Y%m%d"), put_time=put.strftime("%H%M%S00"))
    token = next(bench.queues._tokens)
    bench.queues._priorities[token] = 0
    bench.queues.rows.setdefault(QUEUE, {})[token] = (0, request.token, md, request.encode())
    return request.token


def test_only_those_whose_time_is_over_go() -> None:
    bench = Harness()
    asked(bench, "short", 200, 60)
    young = asked(bench, "patient", 200, 600)
    asked(bench, "long ago", 8 * 86_400)
    last = asked(bench, "last week", 6 * 86_400)
    asked(bench, "capped", 8 * 86_400, 99_999_999)
    bench.advance(1)
    assert {key for key, _ in bench.queues.load(QUEUE)} == {young, last}
    bench.clock.advance(3600)
    bench.engine.tick()
    assert {key for key, _ in bench.queues.load(QUEUE)} == {last}


@pytest.mark.parametrize("data", [b"", b"\x09\x00\x02c1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("topic", "queues"), [(b"ask", ["ASKED", "OWN"]), (b"alone", ["ALONE"])])
def test_each_of_several_equal_requests_is_answered(topic: bytes, queues: list[str], qos: int, data: bytes) -> None:
    """Many devices have one response topic and no correlation data, and do not wait for the first answer."""
    bench = Harness(MAPPING)
    device = bench.device(5, "dev").connect()
    device.subscribe("to/dev", 1)
    device.take()
    asks = b""
    for number in (1, 2, 3):
        packet = {"packet_id": number} if qos else {}
        asks += writer.encode_publish(5, topic, b"?", qos, properties=b"\x08\x00\x06to/dev" + data, **packet)
    device.send(asks)
    device.send(b"".join(b"\x62\x02\x00%c" % number for number in (1, 2, 3)) if qos == 2 else b"\xc0\x00")
    device.take()
    for queue in queues:
        rows = [row[2] for row in bench.queues.rows[queue].values()]
        assert len({md[mqmd.MSG_ID] for md in rows}) == len(rows) == 3
        for number, md in enumerate(rows):
            same = md[mqmd.CORREL_ID] == md[mqmd.MSG_ID]
            assert same == (queue != "OWN")
            bench.queues.arrive("ANSWERS", (mqmd.build(correl_id=md[mqmd.MSG_ID]), b"%d" % number))
    bench.clock.run()
    bench.engine.flush()
    got = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    assert [packet[4] for packet in got] == [b"0", b"1", b"2"] * len(queues)
    assert bench.queues.depth("DEAD.Q") == 0
    assert bench.queues.depth(QUEUE) == 0


def test_a_second_answer_is_dead_lettered_as_one_that_nobody_waits_for() -> None:
    """It was said to have no topic, as if its rule were wrong."""
    bench = Harness(MAPPING)
    token = asked(bench, "dev", 1)
    device = bench.device(5, "dev").connect()
    device.subscribe("answers/dev", 1)
    device.take()
    for body in (b"first", b"second"):
        bench.queues.arrive("ANSWERS", (mqmd.build(correl_id=token), body))
        bench.clock.run()
        bench.engine.flush()
    assert [packet[4] for packet in device.take() if packet[0] >> 4 == p.PUBLISH] == [b"first"]
    [(_, dead)] = bench.queues.load("DEAD.Q")
    assert int.from_bytes(dead.data[8:12], "little") == Feedback.REQUEST_UNKNOWN
    assert bench.engine.counters.dlq_messages["answers", "other"] == 1
    assert not any(bench.engine.counters.transform_errors.values())
