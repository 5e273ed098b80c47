"""Extreme values of the fields of CONNECT: an answer, or the end of this connection; the broker goes on, and what it
stored is read again.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from broker_harness import Harness

from gateway.mqtt import client
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop

LONG = 65_535
IDENTIFIERS = ["", "x", "x" * 24, "x" * LONG, "ü" * (LONG // 2), "\U0010ffff" * (LONG // 4), "a/b", "+", "#",
               "$SYS", "{client}", "\u202e", " ", "\ufeff"]  # fmt: skip
TOPICS = ["w", "/" * 199, "x" * LONG, "\U0010fffd" * 16_000, "$SYS/x", "a" * 60_000 + "/b"]
VERSIONS = [3, 4, 5]
NUMBERS: dict[int, list[Any]] = {
    prop.SESSION_EXPIRY_INTERVAL: [0, 1, 0xFFFFFFFE, 0xFFFFFFFF],
    prop.RECEIVE_MAXIMUM: [1, 0xFFFF],
    prop.MAXIMUM_PACKET_SIZE: [1, 2, 20, 0xFFFFFFFF],
    prop.TOPIC_ALIAS_MAXIMUM: [0, 0xFFFF],
    prop.REQUEST_RESPONSE_INFORMATION: [0, 1],
    prop.REQUEST_PROBLEM_INFORMATION: [0, 1],
    prop.USER_PROPERTY: [[("", "")], [("k" * 1000, "v" * 1000)] * 20],
    prop.AUTHENTICATION_METHOD: ["", "x" * LONG],
}


def lives(bench: Harness) -> None:
    """Somebody else is served, and everything that is stored can be read at a start."""
    well = bench.device(5, "well-behaved").connect()
    well.publish("a", b"x", 1, 1)
    assert [packet[0] >> 4 for packet in well.take()] == [p.CONNACK, p.PUBACK]
    bench.kill()


def tried(bench: Harness, version: int, connect: p.Connect) -> None:
    device = bench.device(version, connect.client_id)
    device.send(client.encode_connect(connect))
    if not device.wire.closed:
        device.subscribe("a", 1)
        device.publish("a", b"x", 1, 1)
    device.drop()
    lives(bench)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("clean", [True, False])
def test_names(version: int, clean: bool) -> None:
    bench = Harness(max_packet=1 << 20, max_connect=1 << 20)
    for client_id, user in itertools.product(IDENTIFIERS, [None, *IDENTIFIERS[1:5]]):
        connect = client.connect(version, client_id, clean_start=clean)
        connect.username, connect.password = user, None if user is None else b"\xff" * LONG
        if version == 5:
            connect.properties = {
                prop.REQUEST_RESPONSE_INFORMATION: 1,
                prop.SESSION_EXPIRY_INTERVAL: 0 if clean else 60,
            }
        tried(bench, version, connect)


@pytest.mark.parametrize("version", VERSIONS)
def test_wills(version: int) -> None:
    bench = Harness(max_packet=1 << 20, max_connect=1 << 20)
    for topic, payload, qos, retain in itertools.product(TOPICS, [b"", b"\xff" * LONG], [0, 1, 2], [False, True]):
        for index, raw in enumerate(
            (b"", b"\x18\xff\xff\xff\xff", b"\x02\x00\x00\x00\x00") if version == 5 else (b"",)
        ):
            properties = [{}, {prop.WILL_DELAY_INTERVAL: 0xFFFFFFFF}, {prop.MESSAGE_EXPIRY_INTERVAL: 0}][index]
            will = p.Will(topic, payload, qos, retain, raw_properties=raw, properties=properties)
            tried(bench, version, client.connect(version, "w", clean_start=False, will=will))


@pytest.mark.parametrize("keep_alive", [0, 1, 0xFFFF])
def test_numbers(keep_alive: int) -> None:
    bench = Harness(max_packet=1 << 20, max_connect=1 << 20)
    for key, values in NUMBERS.items():
        for value in values:
            connect = client.connect(5, "n" * LONG, clean_start=False, keep_alive=keep_alive)
            connect.properties = {key: value}
            tried(bench, 5, connect)


def test_response_information_is_a_topic_or_is_not_given_mqtt5_3_1_2_28() -> None:
    bench = Harness(max_connect=1 << 20)
    for client_id, given in (
        ("line7", True),
        ("x" * LONG, False),
        ("a/+", False),
        ("#", False),
        ("x" * (LONG - 6), True),
    ):
        device = bench.device(5, client_id).connect(properties={prop.REQUEST_RESPONSE_INFORMATION: 1})
        ((_, connack),) = device.take()
        assert connack.reason == 0
        assert connack.properties.get(prop.RESPONSE_INFORMATION) == (f"reply/{client_id}" if given else None)
