"""Messages that other programs put on queues that rules take from: whatever their bytes say, each reaches devices or is
dead-lettered with its reason. None meets a defect, stays, or ends a connection."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from broker_harness import Harness

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mqtt import packets as p

RULES = {
    "topic": "user_properties: all, retain: from_property",
    "levels": "topic: 'a/{usr.site}/{json.a}', convert: 1208",
    "everything": "topic: fixed, user_properties: all, convert: 1208, response_topic: 'answers/{md.MsgId}'",
    "descriptor": "topic: 'm/{md.ReplyToQ}/{md.UserIdentifier}/{md.CorrelIdText}'",
    "client": "topic: c, client: '{usr.client}'",
    "group": "topic: g, groups: whole",
}
NUMBERS = (0, -1, 1, 35, 37, 2**31 - 1, -(2**31), 37, 1200, 65_535)
MESSAGE = rfh2.build(
    ["<mqps><Top>t</Top></mqps>", "<usr><site>s</site><client>device</client></usr>"], format_name=b"MQSTR   "
)
Message = tuple[bytes, bytes]


def headed(data: bytes) -> Message:
    return mqmd.build(persistence=1, format="MQHRF2"), data


def of_folders(*folders: str) -> Message:
    return headed(rfh2.build(folders, format_name=b"MQSTR   ") + b'{"a": 1}')


def messages() -> Iterator[Message]:
    """What is wrong in a header, then in the descriptor, then in the body."""
    for at in (4, 8, 12, 16, 28, 32, 36):  # each number of the header
        for number in NUMBERS:
            yield headed(MESSAGE[:at] + struct.pack("<i", number) + MESSAGE[at + 4 :])
    for cut in range(0, len(MESSAGE), 9):
        yield headed(MESSAGE[:cut])
    for topic in ("", "a/+", "#", "&#0;", "&#xD800;", "x" * 65_536, "$SYS/a", "/" * 65_535, "&#xFFFF;"):
        yield of_folders(f"<mqps><Top>{topic}</Top></mqps>")
    for name, text in (
        ("qos", "9"),
        ("contentType", "c" * 70_000),
        ("responseTopic", "a/#"),
        ("userProperties", "-1,,"),
    ):
        yield of_folders("<mqps><Top>t</Top></mqps>", f"<mqtt><{name}>{text}</{name}></mqtt>")
    for form in (b"MQDEAD", b"MQXMIT", b"MQHMDE", b"MQHDIST", b"MQHREF", b"MQPCF", b"MQCICS", b"\xd4\xd8\xe2\xe3\xd9"):
        for data in (b"", bytes(700), b"DLH \1\0\0\0" + b"\xff" * 600, b"XQH \1\0\0\0" + bytes(600)):
            yield mqmd.with_described(mqmd.build(persistence=1), 546, 1208, form.ljust(8)), data
    for ccsid in (0, -1, -3, 37, 500, 1047, 1399, 65_535, 2**31 - 1):
        for text in (b"\x0eAB", b"\x0f", b"\xc1\xff", b""):
            yield mqmd.build(persistence=1, format="MQSTR", coded_char_set_id=ccsid, encoding=-1), text
    for field in (mqmd.REPLY_TO_Q, mqmd.USER_IDENTIFIER, mqmd.CORREL_ID, mqmd.FORMAT):
        for byte in (b"\xff", b"/", b"\0"):
            md = mqmd.build(persistence=1, report=0x7000003)
            yield md[: field.start] + byte * (field.stop - field.start) + md[field.stop :], b'{"a": 1}'
    for body in (
        b"[" * 100_000,
        b'{"a":' + b"9" * 1_000_000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"a": "x/y"}',
        b'{"a": {}}',
    ):
        yield headed(MESSAGE + body)


@pytest.mark.parametrize("rule", RULES)
def test_each_reaches_devices_or_the_dead_letters(rule: str) -> None:
    bench = Harness(f"version: 1\nto_mqtt:\n  - {{name: r, queue: IN.Q, qos: 1, {RULES[rule]}}}\n")
    device = bench.device(5, "device").connect()
    device.subscribe("#", 1)
    device.take()
    for number, (md, data) in enumerate(messages()):
        before = bench.queues.depth("DEAD.Q")
        bench.queues.arrive("IN.Q", (md, data))
        bench.clock.run()
        got = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
        for packet in got:
            device.ack(p.PUBACK, packet[2])
        assert not bench.queues.depth("IN.Q"), number
        assert not device.wire.closed, number
        assert got or bench.queues.depth("DEAD.Q") > before, number
