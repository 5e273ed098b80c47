"""gateway.mqtt.client: what a client sends, read back by the server's reader."""

from __future__ import annotations

import strategies_mqtt as mqtt
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt import client
from gateway.mqtt import packets as p
from gateway.mqtt.reader import Reader


def read_one(version, data):
    reader = Reader(1_000_000, version)
    (packet,) = reader.feed(data)
    assert reader.error is None
    return packet


@given(st.data(), mqtt.versions, mqtt.packet_ids)
def test_subscribe_and_unsubscribe(data, version, packet_id):
    wanted = data.draw(st.lists(mqtt.subscriptions(version), min_size=1, max_size=4))
    subscribe = p.Subscribe(packet_id, wanted, data.draw(mqtt.for_version(version, p.SUBSCRIBE)))
    shared = [s for s in wanted if s.filter.startswith("$share/") and s.no_local]
    if not shared:
        assert read_one(version, client.encode_subscribe(version, subscribe)) == (0x82, subscribe)
    filters = [s.filter for s in wanted]
    unsubscribe = p.Unsubscribe(packet_id, filters, data.draw(mqtt.for_version(version, p.UNSUBSCRIBE)))
    assert read_one(version, client.encode_unsubscribe(version, unsubscribe)) == (0xA2, unsubscribe)


def test_will_properties_are_encoded_when_there_are_no_raw_ones():
    connect = client.connect(5, "c", will=p.Will("t", b"p", 1, True, {0x18: 5}))
    ((_, decoded),) = Reader(1000).feed(client.encode_connect(connect))
    assert decoded.will.properties == {0x18: 5}
    assert decoded.will.raw_properties == b"\x18\0\0\0\x05"


def test_names_belong_to_versions():
    assert [client.connect(v, "c").protocol_name for v in (3, 4, 5)] == ["MQIsdp", "MQTT", "MQTT"]


def test_pingreq():
    assert client.encode_pingreq() == b"\xc0\0"
