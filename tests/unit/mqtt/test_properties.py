"""gateway.mqtt.properties: every property of every packet, encoded and decoded, and what is refused."""

from __future__ import annotations

import pytest
import strategies_mqtt as mqtt
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt import packets, properties

TYPES = [properties.WILL, *range(packets.CONNECT, packets.AUTH + 1)]
CARRIERS = [kind for kind in TYPES if kind not in {packets.PINGREQ, packets.PINGRESP}]


@pytest.mark.parametrize("from_server", [False, True])
@given(data=st.data())
def test_properties_come_back_in_order_mqtt_3_3_2_18(data, from_server):
    kind = data.draw(st.sampled_from(CARRIERS))
    wanted = data.draw(mqtt.property_dicts(kind, from_server))
    assert properties.decode(properties.encode(wanted), kind, from_server=from_server) == wanted


@pytest.mark.parametrize("row", properties.DEFINITIONS.values(), ids=lambda row: row.name)
def test_each_property_in_each_packet(row):
    value = {"byte": 1, "UTF-8 string": "t", "binary data": b"b", "UTF-8 string pair": ("k", "v")}.get(row.type.name, 7)
    block = properties.encode({row.identifier: [value] if row.repeatable else value})
    if row.identifier == properties.AUTHENTICATION_DATA:
        block += properties.encode({properties.AUTHENTICATION_METHOD: "X"})
    for kind in TYPES:
        if kind in row.packets:
            from_server = (kind, False, row.identifier) in mqtt.WRONG_SIDE
            assert row.identifier in properties.decode(block, kind, from_server=from_server)
        else:
            with pytest.raises(MalformedPacket, match="may not occur"):
                properties.decode(block, kind)


@pytest.mark.parametrize(
    "row", [r for r in properties.DEFINITIONS.values() if r.identifier != 0x26], ids=lambda row: row.name
)
def test_twice_is_a_protocol_error(row):
    value = {"byte": 1, "UTF-8 string": "t", "binary data": b"b"}.get(row.type.name, 7)
    block = properties.encode({row.identifier: [value] if row.repeatable else value}) * 2
    kind = packets.SUBSCRIBE if row.repeatable else min(row.packets)
    with pytest.raises(ProtocolError, match="twice") as raised:
        properties.decode(block, kind)
    assert raised.value.reason == 0x82


@pytest.mark.parametrize(
    ("block", "kind", "reason"),
    [
        ("01 02", packets.PUBLISH, 0x82),
        ("17 02", packets.CONNECT, 0x82),
        ("19 02", packets.CONNECT, 0x82),
        ("21 0000", packets.CONNECT, 0x82),
        ("27 00000000", packets.CONNECT, 0x82),
        ("23 0000", packets.PUBLISH, 0x94),
        ("0B 05", packets.PUBLISH, 0x82),
        ("0B 00", packets.SUBSCRIBE, 0x82),
        ("08 0003 612F23", packets.PUBLISH, 0x82),
        ("08 0000", packets.PUBLISH, 0x82),
        ("1C 0001 73", packets.DISCONNECT, 0x82),
        ("16 0001 73", packets.CONNECT, 0x82),
        ("00", packets.CONNECT, 0x81),
        ("8001", packets.CONNECT, 0x81),
        ("02 0000", packets.PUBLISH, 0x81),
        ("03 0002 61", packets.PUBLISH, 0x81),
        ("03 0001 FF", packets.PUBLISH, 0x81),
        ("26 0001 61", packets.PUBLISH, 0x81),
        ("0B FFFFFFFF01", packets.SUBSCRIBE, 0x81),
    ],
)
def test_refused_with_its_reason(block, kind, reason):
    with pytest.raises(ProtocolError) as raised:
        properties.decode(bytes.fromhex(block), kind)
    assert raised.value.reason == reason


def test_session_expiry_in_a_servers_disconnect_mqtt_3_14_2_2():
    block = properties.encode({properties.SESSION_EXPIRY_INTERVAL: 1})
    with pytest.raises(ProtocolError):
        properties.decode(block, packets.DISCONNECT, from_server=True)


def test_user_properties_are_capped():
    block = properties.encode({properties.USER_PROPERTY: [("k", str(n)) for n in range(1000)]})
    assert len(properties.decode_publish(block)[properties.USER_PROPERTY]) == 1000
    with pytest.raises(ProtocolError, match="more than 10 user properties") as raised:
        properties.decode(block, packets.PUBLISH, max_user_properties=10)
    assert raised.value.reason == 0x97


def test_a_client_accepts_several_subscription_identifiers():
    assert properties.decode(b"\x0b\x01\x0b\x02", packets.PUBLISH, from_server=True) == {0x0B: [1, 2]}


@given(mqtt.property_dicts(packets.PUBLISH, False))
def test_user_properties_and_expiry_are_separated_from_the_others(found):
    separated = properties.separate(properties.encode(found))
    own = {properties.RESPONSE_TOPIC, properties.CORRELATION_DATA, properties.TOPIC_ALIAS}
    assert (separated is None) == bool(found.keys() & own)
    if separated is not None:
        rest, users = separated
        assert [(name.decode(), value.decode()) for name, value in users] == found.get(properties.USER_PROPERTY, [])
        varying = {properties.USER_PROPERTY, properties.MESSAGE_EXPIRY_INTERVAL}
        assert rest == properties.encode({key: value for key, value in found.items() if key not in varying})
