"""Messages in segments and groups, end to end: from a device through a short queue back to devices, and from an
application; on the embedded queue manager and on `ibm` (in long runs with both bindings: tests/contract has them)."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import mq_segments
import pytest
from bridge_estate import BACKENDS, Estate, estate, wait

from gateway.mq import mqmd, situations
from gateway.mq.headers import dlh, rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mq.situations import Putter
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Puts
from gateway.rules.feedback import Feedback

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
LONG = bool(os.environ.get("MQGATE_LONG"))
DEAD = "G.DEAD"
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: SHORT.Q, too_long: segment}
  - {name: held, topic: "held/#", queue: SHORT.Q, too_long: segment, on_failure: {then: hold}}
to_mqtt:
  - {name: back, queue: SHORT.Q, topic: "back/{mqtt.clientId}", qos: 1}
  - {name: applications, queue: PARTS.Q, topic: "parts/{usr.site}", qos: 1}
  - {name: whole, queue: GROUPS.Q, topic: "groups", qos: 1, groups: whole}
  - {name: loose, queue: LOOSE.Q, topic: "loose/{md.MsgSeqNumber}", qos: 1, user_properties: all}
  - {name: to one, transmission_queue: DEVICES}
"""
OBJECTS = f"""
DEFINE QLOCAL({DEAD}) MAXDEPTH(99999) REPLACE
ALTER QMGR DEADQ({DEAD})
DEFINE QLOCAL(SHORT.Q) MAXMSGL(65536) REPLACE
DEFINE QLOCAL(PARTS.Q) REPLACE
DEFINE QLOCAL(POISON.Q) BOTHRESH(2) BOQNAME(ASIDE.Q) REPLACE
DEFINE QLOCAL(ASIDE.Q) REPLACE
DEFINE QLOCAL(GROUPS.Q) REPLACE
DEFINE QLOCAL(LOOSE.Q) REPLACE
DEFINE QLOCAL(REPORTS) REPLACE
DEFINE QLOCAL(DEVICES) USAGE(XMITQ) REPLACE
"""
SETTINGS = "mqtt: {max_packet: 2MiB, max_payload: 2MiB}\n"
USER = 0x26
COD, PAN, NAN, EXCEPTION = 0x800, 1, 2, 0x1000000
MQFB_PAN, MQFB_NAN, MQFB_COD = 275, 276, 260


@pytest.fixture(scope="module", params=[*BACKENDS, "pymqi"] if LONG else BACKENDS)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    with estate(tmp_path_factory.mktemp(request.param), request.param, MAPPING, OBJECTS, SETTINGS) as made:
        yield made


def put_all(bridge: Estate, queue: str, messages: list[tuple[bytes, bytes]]) -> None:
    """As they are, in one unit of work."""
    connection = bridge.application.connection
    puts = Puts(queue, heads=[md for md, _ in messages], bodies=[data for _, data in messages])
    connection.put_run(puts, False)
    connection.session.commit()


def segments(data: bytes, size: int, name: bytes, **fields: Any) -> list[tuple[bytes, bytes]]:
    md = mqmd.build(msg_flags=1, persistence=1, **fields)
    return mq_segments.segments(md, data, size, group_id=name.ljust(24, b"\0"))


def with_site(data: bytes, name: bytes, **fields: Any) -> list[tuple[bytes, bytes]]:
    """Segments of a message with a property."""
    header = rfh2.build([folder("usr", [("site", "lima")])], encoding=546, coded_char_set_id=1208)
    made = segments(header + data, 65_536, name, format="MQHRF2", coded_char_set_id=1208, **fields)
    first, *others = made
    return [first, *[(mqmd.with_format(md, b" " * 8), body) for md, body in others]]


@pytest.mark.parametrize(("topic", "qos"), [("up/x", 0), ("up/x", 1), ("up/x", 2), ("held/x", 1)])
def test_a_mebibyte_through_a_queue_of_64_kib(bridge: Estate, topic: str, qos: int) -> None:
    payload = random.Random(qos).randbytes(1 << 20)
    with bridge.device("sender") as sender, bridge.device("receiver") as receiver:
        receiver.subscribe("back/#", 1)
        assert sender.publish(topic, payload, qos) == 0
        found, body, _, _ = receiver.receive()
        assert (found, body == payload) == ("back/sender", True)
        sender.publish(topic, b"short", 1)
        assert receiver.receive()[1] == b"short"
        assert receiver.silent()
    assert bridge.application.look("SHORT.Q") == []


def test_equal_messages_are_each_a_message(bridge: Estate) -> None:
    """Sent in one go and cut in one go: none is mixed up with another."""
    payload = bytes(range(256)) * 400
    with bridge.device("sender") as sender, bridge.device("receiver") as receiver:
        receiver.subscribe("back/#", 1)
        for _ in range(3):
            sender.publish("up/x", payload, 0)
        assert [receiver.receive()[1] for _ in range(3)] == [payload] * 3


def test_what_applications_put_in_segments(bridge: Estate) -> None:
    """In any order and in several units of work; a session that is away has it when it is back, whatever was killed."""
    data = random.Random(3).randbytes(200_000)
    with bridge.device("pump", clean=False) as pump:
        pump.subscribe("parts/#", 1)
    bridge.application.put("PARTS.Q", b"plain", usr={"site": "lima"})
    for part in reversed(with_site(data, b"away")):
        put_all(bridge, "PARTS.Q", [part])
    wait(lambda: bridge.application.look("PARTS.Q") == [])
    bridge.restart()
    with bridge.device("pump", clean=False) as pump:
        assert pump.receive()[:2] == ("parts/lima", b"plain")
        topic, body, _, _ = pump.receive()
        assert (topic, body == data) == ("parts/lima", True)
        assert pump.silent()


def test_one_report_for_a_message_in_segments(bridge: Estate) -> None:
    """COD of the queue manager, PAN of the gateway: about the message, not about each segment."""
    bridge.application.clear("REPORTS")
    asks = {"report": COD | PAN, "reply_to_q": "REPORTS", "msg_id": b"asked".ljust(24, b"\0")}
    with bridge.device("pump") as pump:
        pump.subscribe("parts/#", 1)
        put_all(bridge, "PARTS.Q", with_site(b"r" * 200_000, b"reports", **asks))
        assert len(pump.receive()[1]) == 200_000
        found = [mqmd.unpack(one.md) for one in bridge.application.messages("REPORTS", 2)]
    assert sorted(one.feedback for one in found) == [MQFB_COD, MQFB_PAN]
    assert {one.correl_id for one in found} == {b"asked".ljust(24, b"\0")}


def test_a_message_in_segments_that_leads_nowhere_is_one_dead_letter(bridge: Estate) -> None:
    bridge.application.clear(DEAD, "REPORTS")
    asks = {"report": EXCEPTION, "reply_to_q": "REPORTS"}
    put_all(bridge, "PARTS.Q", segments(b"d" * 200_000, 65_536, b"dead", **asks))  # without the property
    [letter] = wait(lambda: bridge.application.look(DEAD))
    assert int.from_bytes(letter.data[8:12], "little") == Feedback.VALUE_MISSING
    assert letter.data[172:] == b"d" * 200_000
    md = mqmd.unpack(letter.md)
    assert (md.msg_flags & 6, md.offset) == (0, 0)
    assert len(bridge.application.messages("REPORTS")) == 1
    assert bridge.application.look("PARTS.Q") == []


def test_poison_in_segments_goes_aside_in_one_piece(bridge: Estate) -> None:
    msg_id, got = b"poison".ljust(24, b"\0"), bridge.application.connection
    put_all(bridge, "POISON.Q", with_site(b"p" * 200_000, b"poison", msg_id=msg_id))
    for _ in range(2):
        for _segment in bridge.application.look("POISON.Q"):
            assert got.get(got.input("POISON.Q"), msg_id, "POISON.Q") is not None
        got.session.back()
    bridge.reload(MAPPING + "  - {name: poison, queue: POISON.Q, topic: poison}\n")
    [aside] = bridge.application.messages("ASIDE.Q")
    assert aside.body.raw == b"p" * 200_000
    assert mqmd.unpack(aside.md).msg_id == msg_id
    assert bridge.application.look("POISON.Q") == []
    bridge.reload(MAPPING)


def test_segments_that_are_too_much_are_a_dead_letter_that_says_so(bridge: Estate) -> None:
    """More than a message may be: cut to what the dead-letter queue takes, and gone with all its segments."""
    bridge.application.clear(DEAD)
    put_all(bridge, "PARTS.Q", with_site(bytes(6 << 20), b"too much"))
    [letter] = wait(lambda: bridge.application.look(DEAD))
    assert int.from_bytes(letter.data[8:12], "little") == Feedback.TOO_LONG
    assert len(letter.data) == 4_194_304
    assert bridge.application.look("PARTS.Q") == []
    bridge.application.clear(DEAD)


def test_what_expires_in_segments_is_gone(bridge: Estate) -> None:
    parts = with_site(b"e" * 200_000, b"expires", expiry=10)
    put_all(bridge, "PARTS.Q", parts[:-1])
    wait(lambda: bridge.application.look("PARTS.Q") == [])
    with bridge.device("pump") as pump:
        pump.subscribe("parts/#", 1)
        assert pump.silent()


def test_a_group_reaches_devices_whole_and_in_order(bridge: Estate) -> None:
    members = mq_segments.group(
        [(mqmd.build(persistence=1), b"%d" % number) for number in range(1, 5)], b"grouped".ljust(24, b"\0")
    )
    with bridge.device("pump") as pump:
        pump.subscribe("groups", 1)
        for member in (members[3], members[1], members[0]):
            put_all(bridge, "GROUPS.Q", [member])
        put_all(bridge, "GROUPS.Q", [(mqmd.build(persistence=1), b"alone")])
        assert pump.receive()[1] == b"alone"
        assert pump.silent(1.5)
        put_all(bridge, "GROUPS.Q", [members[2]])
        found = [pump.receive() for _ in range(4)]
    assert [one[1] for one in found] == [b"1", b"2", b"3", b"4"]
    users = [dict(one[3][USER]) for one in found]
    assert {one["md.GroupId"] for one in users} == {b"grouped".ljust(24, b"\0").hex()}
    assert [(one["md.MsgSeqNumber"], one["md.MsgFlags"]) for one in users] == [
        ("1", "8"), ("2", "8"), ("3", "8"), ("4", "24"),
    ]  # fmt: skip


def test_groups_as_they_come(bridge: Estate) -> None:
    members = mq_segments.group([(mqmd.build(persistence=1), b"%d" % n) for n in (1, 2)], b"loose".ljust(24, b"\0"))
    with bridge.device("pump") as pump:
        pump.subscribe("loose/#", 1)
        put_all(bridge, "LOOSE.Q", list(reversed(members)))
        found = [pump.receive() for _ in range(2)]
    assert [(one[0], one[1]) for one in found] == [("loose/2", b"2"), ("loose/1", b"1")]
    assert dict(found[0][3][USER])["md.MsgFlags"] == "24"


def test_a_gateway_that_is_killed_leaves_no_half_of_anything(bridge: Estate) -> None:
    """Each message in segments and each group is on its queue or in the session, whole, whenever it is killed; the
    session has it once."""
    count, kills = (60, 6) if LONG else (10, 1)
    with bridge.device("steady", clean=False) as device:
        device.subscribe("parts/#", 1)
        device.subscribe("groups", 1)
    expected = []
    for number in range(count):
        put_all(bridge, "PARTS.Q", with_site(b"%d " % number * 9_000, b"kill %d" % number))
        pair = [(mqmd.build(persistence=1), b"%d-%d" % (number, at)) for at in range(2)]
        put_all(bridge, "GROUPS.Q", mq_segments.group(pair, b"kill %d" % number + bytes(24 - 5 - len(str(number)))))
        expected += [b"%d " % number * 9_000, *[data for _, data in pair]]
        if number % (count // kills) == 6:
            time.sleep(random.Random(number).random() / 20)
            bridge.restart()
    wait(lambda: not bridge.application.look("PARTS.Q") and not bridge.application.look("GROUPS.Q"), 60)
    with bridge.device("steady", clean=False) as device:
        found = [device.receive()[1] for _ in expected]
        assert device.silent()
    assert sorted(found) == sorted(expected)
    groups = [body for body in found if b"-" in body]
    assert groups == [b"%d-%d" % (number, at) for number in range(count) for at in range(2)]


def test_headers_are_told_and_taken_off(bridge: Estate) -> None:
    """A chain of headers, in segments or not: user properties of their fields, the body byte for byte."""
    inner = mqmd.with_described(mqmd.build(), 546, 1208, b"MQSTR   ")
    header = dlh.build(2053, "SOME.Q", "QM9", inner, put_date="20260101", put_time="12000000")
    for body, group in ((b"short", b""), (b"long" * 40_000, b"chain")):
        md = mqmd.build(format="MQDEAD", encoding=546, coded_char_set_id=1208, persistence=1, msg_flags=1)
        parts = mq_segments.segments(md, header + body, 65_536, group_id=group.ljust(24, b"\0"))
        with bridge.device("pump") as pump:
            pump.subscribe("loose/#", 1)
            put_all(bridge, "LOOSE.Q", parts)
            _, payload, _, properties = pump.receive()
        assert payload == body
        users = dict(properties[USER])
        assert (users["MQDLH.DestQName"], users["MQDLH.DestQMgrName"]) == ("SOME.Q", "QM9")
        assert "2053" in users["MQDLH.Reason"]


def test_a_device_that_refuses_is_told_to_the_application(bridge: Estate) -> None:
    """NAN and exception, with our reason."""
    bridge.application.clear("REPORTS")
    with bridge.device("pump") as pump:
        pump.subscribe("loose/#", 1)
        asks = {"report": NAN | EXCEPTION | PAN, "reply_to_q": "REPORTS"}
        bridge.application.put("LOOSE.Q", b"unwanted", **asks)
        packet = pump.next(p.PUBLISH)
        pump.socket.sendall(writer.encode_ack(5, p.PUBACK, packet[2], 0x83, {}))
        found = [mqmd.unpack(one.md).feedback for one in bridge.application.messages("REPORTS", 2)]
    assert sorted(found) == sorted([MQFB_NAN, Feedback.REJECTED])


def test_poison_without_a_queue_for_it_is_a_dead_letter(bridge: Estate) -> None:
    bridge.application.clear(DEAD)
    bridge.mqsc("DEFINE QLOCAL(STRICT.Q) BOTHRESH(1) REPLACE")
    bridge.application.back_out("STRICT.Q", bridge.application.put("STRICT.Q", b"poison"), 1)
    bridge.reload(MAPPING + "  - {name: strict, queue: STRICT.Q, topic: strict}\n")
    [letter] = wait(lambda: bridge.application.look(DEAD))
    assert int.from_bytes(letter.data[8:12], "little") == 2362
    assert letter.data[172:] == b"poison"
    bridge.reload(MAPPING)
    bridge.application.clear(DEAD)


def test_what_is_incomplete_stays_and_is_named_once(bridge: Estate) -> None:
    """In the log, on the admin page and as a metric, until it is whole."""
    parts = with_site(b"i" * 200_000, b"incomplete")
    with bridge.device("pump") as pump:
        pump.subscribe("parts/#", 1)
        put_all(bridge, "PARTS.Q", parts[1:])
        bridge.application.put("PARTS.Q", b"passes", usr={"site": "lima"})
        assert pump.receive()[1] == b"passes"
        series = 'mqgate_queue_incomplete_messages{queue="PARTS.Q"}'
        wait(lambda: bridge.gateway.metric(series) == 1, 60)
        assert bridge.gateway.log.count('"queue.incomplete"') == 1
        assert parts[0][0][mqmd.GROUP_ID].hex() in bridge.gateway.log
        assert any("PARTS.Q" in text for text in bridge.troubles())
        put_all(bridge, "PARTS.Q", parts[:1])
        assert len(pump.receive()[1]) == 200_000
        wait(lambda: bridge.gateway.metric(series) == 0, 60)
    assert bridge.gateway.log.count('"queue.incomplete"') == 1


def test_everything_is_accounted_for(bridge: Estate) -> None:
    """A publication in sixteen segments is one message."""
    before = bridge.account()["up"]
    with bridge.device("counted") as device:
        device.publish("up/x", bytes(1 << 20), 1)
    after = wait(lambda: (now := bridge.account()["up"])["mq_put_messages"] > before["mq_put_messages"] and now)
    for name in ("mqtt_publish_received", "mq_put_messages"):
        assert after[name] - before[name] == 1, name

    def settled() -> bool:
        """Each message is taken once, whoever gets it."""
        now = bridge.account()
        rules = ("back", "applications", "whole", "loose")
        return all(now[rule]["mq_get_messages"] == now[rule]["route_matched"] for rule in rules)

    wait(settled)  # handed over before the unit of work that takes it is committed


def test_segments_behind_transmission_headers_reach_their_device_whole(bridge: Estate) -> None:
    """What MQ Telemetry would address to a device, put in segments in any order and in several units of work."""
    data, putter = random.Random(7).randbytes(150_000), Putter("mqm", "QM9", 7, "20260101", "12000000")
    parts = [
        situations.to_transmission(*one, "direct/cmd", "addressed", msg_id=b"t%023d" % number, putter=putter)
        for number, one in enumerate(segments(data, 65_536, b"transmitted", format="MQSTR"))
    ]
    whole = situations.to_transmission(
        mqmd.build(persistence=1), b"one", "direct/x", "addressed", msg_id=b"u" * 24, putter=putter
    )
    with bridge.device("addressed") as device:
        for part in (parts[2], parts[0], whole, parts[1]):
            put_all(bridge, "DEVICES", [part])
        found = {topic: body for topic, body, *_ in (device.receive(), device.receive())}
        assert found["direct/x"] == b"one"
        assert found["direct/cmd"] == data
        assert device.silent()
    assert bridge.application.look("DEVICES") == []
