"""gateway.mqtt.writer: bytes as the specifications show them, and what a client's reader makes of them."""

from __future__ import annotations

import pytest
import strategies_mqtt as mqtt
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt import packets as p
from gateway.mqtt import properties, writer
from gateway.mqtt.client import server_reader


def read_one(version, data):
    reader = server_reader(version)
    (packet,) = reader.feed(data)
    assert reader.error is None
    return packet


@pytest.mark.parametrize(
    ("version", "connack", "encoded"),
    [
        (3, p.Connack(True, 2), "20 02 00 02"),  # MQIsdp: the first byte is reserved
        (4, p.Connack(True, 0), "20 02 01 00"),
        (4, p.Connack(False, 5), "20 02 00 05"),
        (5, p.Connack(False, 0), "20 03 00 00 00"),
        (5, p.Connack(True, 0, {0x21: 20}), "20 06 01 00 03 21 00 14"),
    ],
)
def test_connack(version, connack, encoded):
    assert writer.encode_connack(version, connack) == bytes.fromhex(encoded)


def test_publish_is_the_seeds_example():
    assert writer.encode_publish(3, b"a/b", b"", 1, packet_id=10) == bytes.fromhex("32 07 0003 612F62 000A")


@given(
    mqtt.versions,
    mqtt.topic_names,
    mqtt.payloads,
    st.integers(0, 2),
    st.booleans(),
    mqtt.packet_ids,
    mqtt.property_dicts(p.PUBLISH, from_server=True),
)
def test_publish_template(version, topic, payload, qos, retain, packet_id, props):
    block = properties.encode(props) if version == 5 else b""
    template = writer.PublishTemplate(version, topic.encode(), payload, qos, retain=retain, properties=block)
    first = 0x30 | qos << 1 | retain
    expected = (first, topic.encode(), packet_id if qos else 0, block, payload)
    frame = template.send(packet_id) if qos else template.whole
    assert read_one(version, frame) == expected
    assert len(frame) == template.size
    assert frame == writer.encode_publish(
        version, topic.encode(), payload, qos, retain=retain, packet_id=packet_id, properties=block
    )
    if qos:
        assert read_one(version, template.resend(packet_id)) == (first | 8, *expected[1:])


@given(
    st.sampled_from([p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP]), st.lists(mqtt.packet_ids, max_size=50), mqtt.versions
)
def test_acks_in_order_mqtt_4_6(packet_type, ids, version):
    encoded = writer.encode_acks(packet_type, ids)
    first = packet_type << 4 | (2 if packet_type == p.PUBREL else 0)
    assert server_reader(version).feed(encoded) == [(first, i, 0, b"") for i in ids]
    assert encoded == b"".join(writer.encode_ack(version, packet_type, i) for i in ids)


@pytest.mark.parametrize(
    ("version", "reason", "props", "encoded"),
    [
        (4, 0x87, {0x1F: "no"}, "40 02 00 01"),
        (5, 0x87, None, "40 03 00 01 87"),
        (5, 0, {0x1F: "n"}, "40 08 00 01 00 04 1F 00 01 6E"),
    ],
)
def test_ack_with_a_reason(version, reason, props, encoded):
    assert writer.encode_ack(version, p.PUBACK, 1, reason, props) == bytes.fromhex(encoded)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_suback_and_unsuback(version):
    suback = p.Suback(7, [0, 1, 2, 0x80], {0x1F: "r"} if version == 5 else {})
    assert read_one(version, writer.encode_suback(version, suback)) == (0x90, suback)
    codes = [0, 0x11] if version == 5 else []
    assert read_one(version, writer.encode_unsuback(version, p.Suback(7, codes))) == (0xB0, p.Suback(7, codes))
    assert writer.encode_unsuback(4, p.Suback(7, [0x11])) == bytes.fromhex("B0 02 00 07")


def test_disconnect_auth_pingresp():
    assert writer.encode_disconnect(4, p.Disconnect(0x8E)) == bytes.fromhex("E0 00")
    assert writer.encode_disconnect(5, p.Disconnect()) == bytes.fromhex("E0 00")
    assert writer.encode_disconnect(5, p.Disconnect(0x8E)) == bytes.fromhex("E0 01 8E")
    assert writer.encode_disconnect(5, p.Disconnect(0x9C, {0x1C: "s"})) == bytes.fromhex("E0 06 9C 04 1C 00 01 73")
    assert writer.encode_auth(p.Auth(0x18, {0x15: "X"})) == bytes.fromhex("F0 06 18 04 15 00 01 58")
    assert writer.PINGRESP_BYTES.hex() == "d000"
