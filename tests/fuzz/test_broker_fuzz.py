"""Any bytes on any connection: the broker raises nothing, other clients go on, and nothing is left that leaks."""

from __future__ import annotations

import strategies_mqtt as mqtt
from broker_harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt import client

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: '#', queue: Q}\n"


class Deaf:
    """Stands for the reader of a client whose version only the stream knows."""

    error = None

    def feed(self, _data: bytes) -> list:
        return []


def good_client_works(bench: Harness) -> None:
    device = bench.device(4, "a good client").connect()
    device.subscribe("still/alive", 1)
    device.take()
    device.publish("still/alive", b"x", 1, 1)
    assert sorted(packet[0] >> 4 for packet in device.take()) == [3, 4]
    device.disconnect()


@given(st.data(), st.lists(mqtt.streams(), min_size=1, max_size=3), st.sampled_from(["version: 1\n", MAPPING]))
def test_any_streams(data, streams, mapping):
    bench = Harness(mapping, max_packet=50_000, max_inflight=5, max_subscriptions=5, max_topic_levels=10)
    for stream in streams:
        device = bench.device(4, "fuzz")
        device.wire.reader = Deaf()
        for chunk in data.draw(mqtt.chunked(stream)):
            device.send(chunk)
        if data.draw(st.booleans()):
            device.drop()
    bench.advance(2)
    good_client_works(bench)


@given(
    mqtt.versions,
    st.lists(st.one_of(mqtt.client_packets(3), mqtt.client_packets(4), mqtt.client_packets(5)), max_size=20),
)
def test_any_packets_in_any_order(version, packets):
    bench = Harness(max_inflight=5)
    device = bench.device(version, "fuzz").connect(clean=False)
    for packet in packets:
        device.send(packet)
    bench.kill()
    again = bench.device(version, "fuzz").connect(clean=False)
    assert again.take()[0][1].reason == 0
    good_client_works(bench)


@given(mqtt.connects())
def test_any_connect(connect):
    bench = Harness()
    device = bench.device(connect.version, connect.client_id)
    device.send(client.encode_connect(connect))
    if not device.wire.closed:
        assert device.take()
    device.drop()
    bench.advance(1)
    good_client_works(bench)
