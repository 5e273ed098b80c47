"""Publications that clients of other gateways want, taken by the fast lane: what is put for them is what the plain lane
puts, once, and it is acknowledged with that or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_harness import Device, Harness
from lanes import FORMS, lane
from refused_queues import FULL, PUBACK, PUBCOMP, PUBREC, PUBREL, bodies

from gateway.broker.gateways.forwarded import Forwarded, decode_forwarded
from gateway.broker.gateways.to_others import ToOthers
from gateway.mqtt import writer
from gateway.ports.ownership import WHO_GETS_IT, forward_key
from gateway.ports.state_queues import FORWARD
from gateway.routing.filters import Interest

MAPPING = """
version: 1
to_mq:
  - {name: one, topic: 'a/#', queue: ONE.Q, on_failure: {retry: {times: 100, from: 1s, to: 1s}, then: hold}}
  - {name: stamped, topic: 'b/#', queue: TWO.Q, properties: {at: '{received_at}', place: '{property.site}'}}
  - {name: both, topic: 'c/#', queue: ONE.Q, continue: true}
  - {name: and on, topic: 'c/#', queue: TWO.Q}
"""
HERE, NEAR, FAR = "aa", "bb", "cc"
SITE, LINE = b"\x26\x00\x04site\x00\x04lima", b"\x26\x00\x04line\x00\x017"


@pytest.fixture(params=FORMS)
def bench(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with lane(request.param):
        yield started(Harness(MAPPING))


def started(bench: Harness) -> Harness:
    """Others want everything; another one a part of it."""
    engine = bench.engine
    others = ToOthers(engine.context, engine.router, HERE)
    engine.fan_out.forward, engine.fan_out.forward_all = others.send, others.send_all
    engine.router.subscribe_elsewhere(NEAR, "#", Interest(2))
    engine.router.subscribe_elsewhere(FAR, "a/+", Interest(0))
    bench.others = others  # type: ignore[attr-defined]
    return bench


def kill(bench: Harness) -> None:
    bench.kill()
    started(bench)


def put_for(bench: Harness, gateway: str) -> list[Forwarded]:
    rows = bench.queues.rows.get(FORWARD, {}).values()
    return [decode_forwarded(data) for _, key, _, data in rows if key == forward_key(gateway)]


def payloads(bench: Harness, gateway: str) -> list[bytes]:
    return [one.publication.payload for one in put_for(bench, gateway)]


def slow_way(_connection: object, packet: object) -> None:
    raise AssertionError(f"{packet} was looked at alone")


def publish(device: Device, topic: bytes, *bodies: bytes, qos: int = 1, **more: Any) -> None:
    version = device.version
    device.send(
        b"".join(
            writer.encode_publish(version, topic, body, qos, packet_id=number if qos else 0, **more)
            for number, body in enumerate(bodies, 1)
        )
    )


def release(device: Device, count: int) -> None:
    device.send(b"".join(writer.encode_acks(PUBREL, [number]) for number in range(1, count + 1)))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", [b"a/1", b"b/1", b"c/1", b"none"])
def test_the_fast_lane_takes_what_is_wanted_elsewhere(bench: Harness, version: int, qos: int, topic: bytes) -> None:
    device = bench.device(version, "c1").connect()
    device.take()
    if qos < 2 or topic in {b"a/1", b"none"}:  # without others, too, the plain lane looks at the rest
        bench.engine.plain_lane.handlers[3] = bench.engine.plain_lane.handlers[6] = slow_way
    properties = {"properties": SITE} if version == 5 and topic in {b"a/1", b"b/1"} else {}
    publish(device, topic, b"x", b"y", b"z", qos=qos, **properties)
    if qos == 2:
        assert not put_for(bench, NEAR)
        release(device, 3)
    found = put_for(bench, NEAR)
    assert [one.publication.payload for one in found] == [b"x", b"y", b"z"]
    assert {(one.origin, one.direct, one.publication.qos, one.publication.topic) for one in found} == {
        (HERE, True, qos, topic)
    }
    assert [one.publication.properties for one in found] == [properties.get("properties", b"")] * 3
    assert found[0].to == ([NEAR, FAR] if topic == b"a/1" else [NEAR])
    assert payloads(bench, FAR) == ([b"x", b"y", b"z"] if topic == b"a/1" else [])
    assert found[2].number == found[0].number + 2 == bench.others.number  # type: ignore[attr-defined]
    answers = {0: [], 1: [PUBACK] * 3, 2: [PUBREC] * 3 + [PUBCOMP] * 3}[qos]
    assert [packet[0] >> 4 for packet in device.take()] == answers


def test_retain_expiry_and_alias_cross(bench: Harness) -> None:
    device = bench.device(5, "c1").connect()
    bench.engine.plain_lane.handlers[3] = slow_way
    hop = b"\x02\x00\x00\x00\x09\x23\x00\x01"
    publish(device, b"a/1", b"kept", retain=True, properties=SITE)
    publish(device, b"a/1", b"aliased", properties=SITE + hop)
    publish(device, b"", b"again", properties=b"\x23\x00\x01" + SITE + LINE)
    kept, aliased, again = (one.publication for one in put_for(bench, NEAR))
    assert kept.retain
    assert not aliased.retain
    assert (aliased.expires, aliased.properties) == (bench.clock.now() + 9, SITE)
    assert (again.topic, again.expires, again.properties) == (b"a/1", 0.0, SITE + LINE)


def test_what_is_wanted_at_a_gateway_whose_sessions_are_unread_is_put_for_it_once(bench: Harness) -> None:
    """It may have told what its clients want before it ended, while this gateway began."""
    bench.others.unread = {NEAR, "dd"}  # type: ignore[attr-defined]
    bench.engine.router.sent_on = lambda _topic: True  # as `SessionMoves` has it then
    device = bench.device(5, "c1").connect()
    publish(device, b"news", b"x", qos=2)
    release(device, 1)
    assert [(one.direct, one.unread) for one in put_for(bench, NEAR)] == [(True, False)]
    assert [(one.direct, one.unread) for one in put_for(bench, "dd")] == [(True, True)]
    assert [one.unread_at for gateway in (NEAR, "dd") for one in put_for(bench, gateway)] == [["dd"]] * 2


def test_for_whose_unread_sessions_it_is_put_is_not_said_to_earlier_releases(bench: Harness) -> None:
    bench.others.unread = {"dd"}  # type: ignore[attr-defined]
    bench.others.all_read = lambda reads: reads < WHO_GETS_IT  # type: ignore[attr-defined]
    bench.engine.router.sent_on = lambda _topic: True
    publish(bench.device(5, "c1").connect(), b"news", b"x", qos=1)
    assert [(one.unread, one.unread_at) for one in put_for(bench, "dd")] == [(True, [])]


def test_numbers_leave_a_gap_where_they_become_longer(bench: Harness) -> None:
    bench.others.number = 97  # type: ignore[attr-defined]
    device = bench.device(4, "c1").connect()
    publish(device, b"a/1", b"x", b"y", b"z")
    publish(device, b"a/1", b"w")
    found = put_for(bench, NEAR)
    assert [one.publication.payload for one in found] == [b"x", b"y", b"z", b"w"]
    assert [one.number for one in found] == [100, 101, 102, 103]


def test_each_gets_them_in_the_order_of_their_publisher(bench: Harness) -> None:
    device = bench.device(4, "c1").connect()
    listener = bench.device(4, "listener").connect()
    listener.subscribe("a/2", 1)
    topics = [b"a/1", b"b/1", b"a/2", b"a/1", b"c/1", b"none", b"a/2", b"b/1"]
    device.send(
        b"".join(writer.encode_publish(4, topic, b"%d" % n, 1, packet_id=n) for n, topic in enumerate(topics, 1))
    )
    assert payloads(bench, NEAR) == [b"%d" % number for number in range(1, 9)]
    assert payloads(bench, FAR) == [b"1", b"3", b"4", b"7"]


def test_a_queue_that_refuses_has_it_put_for_others_once(bench: Harness) -> None:
    device = bench.device(4, "c1").connect(clean=False)
    publish(device, b"a/1", b"once", qos=2)
    bench.queues.refusing["ONE.Q"] = FULL
    device.take()
    release(device, 1)
    assert payloads(bench, NEAR) == [b"once"]
    assert not device.take()
    for _ in range(2):
        bench.advance(2)
        kill(bench)
        device = bench.device(4, "c1").connect(clean=False)
        release(device, 1)
    bench.queues.refusing.clear()
    bench.advance(20)
    assert PUBCOMP in {packet[0] >> 4 for packet in device.take()}
    assert bodies(bench, "ONE.Q") == payloads(bench, NEAR) == [b"once"]
    assert not bench.queues.rows["MQGATE.STAGED"]


def broken(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_defect_of_the_fast_lane_leaves_it_to_the_plain_one(bench: Harness, qos: int) -> None:
    bench.engine.fan_out.forward_all = broken
    device = bench.device(4, "c1").connect()
    publish(device, b"a/1", b"x", b"y", qos=qos)
    if qos == 2:
        release(device, 2)
    assert payloads(bench, NEAR) == [b"x", b"y"]
    assert bodies(bench, "ONE.Q") == [b"x", b"y"]
    assert not device.wire.closed


@pytest.mark.parametrize("qos", [1, 2])
def test_what_cannot_be_put_for_others_is_not_acknowledged(bench: Harness, qos: int) -> None:
    bench.defects = []
    device = bench.device(4, "c1").connect(clean=False)
    publish(device, b"a/1", b"x", qos=qos) if qos == 2 else None
    device.take()
    bench.engine.fan_out.forward_all = bench.engine.fan_out.forward = broken
    if qos == 2:
        release(device, 1)
    else:
        publish(device, b"a/1", b"x")
    assert device.wire.closed
    assert not device.take()
    assert not payloads(bench, NEAR)
    aside = list(bench.queues.rows.get("MQGATE.SET.ASIDE", {}).values())
    assert sum(b">publication<" in row[3] for row in aside) == (qos == 2)
    started(bench)
    device = bench.device(4, "c1").connect(clean=False)
    device.take()
    if qos == 1:  # it is sent again
        publish(device, b"a/1", b"x", dup=True)
        assert payloads(bench, NEAR) == [b"x"]
    else:  # it is on its queue, once
        release(device, 1)
        assert bodies(bench, "ONE.Q") == [b"x"]
