"""The batch reader agrees with the plain one: any packets, any chunking, any garbage."""

from __future__ import annotations

import strategies_mqtt as mqtt
from hypothesis import given
from hypothesis import strategies as st
from oracle_mqtt import Oracle

from gateway.mqtt import client
from gateway.mqtt.reader import Reader

MAX_PACKET = 30_000


def run(reader, chunks):
    packets = [packet for chunk in chunks for packet in reader.feed(chunk)]
    error = reader.error
    return packets, type(error).__name__, error and error.reason, reader.version


@given(st.data(), mqtt.streams(), st.sampled_from([MAX_PACKET, 300, 60]))
def test_any_stream_in_any_chunks(data, stream, max_packet):
    chunks = data.draw(mqtt.chunked(stream))
    assert run(Reader(max_packet), chunks) == run(Oracle(max_packet), [stream])


@given(mqtt.versions, st.binary(max_size=300))
def test_garbage_after_connect(version, garbage):
    assert run(Reader(MAX_PACKET, version), [garbage]) == run(Oracle(MAX_PACKET, version), [garbage])


@given(mqtt.versions, st.sampled_from([0x30, 0x32, 0x34, 0x3B]), st.binary(max_size=40), st.binary(max_size=4))
def test_any_publish_body(version, first, body, after):
    stream = bytes((first, len(body))) + body + after
    assert run(Reader(MAX_PACKET, version), [stream]) == run(Oracle(MAX_PACKET, version), [stream])


@given(mqtt.versions, st.integers(0, 255), st.binary(max_size=12), st.binary(max_size=4))
def test_any_first_byte(version, first, body, after):
    stream = bytes((first, len(body))) + body + after
    assert run(Reader(MAX_PACKET, version), [stream]) == run(Oracle(MAX_PACKET, version), [stream])


@given(mqtt.streams())
def test_byte_by_byte(stream):
    stream = stream[:3000]
    single = [stream[i : i + 1] for i in range(len(stream))]
    assert run(Reader(MAX_PACKET), single) == run(Oracle(MAX_PACKET), [stream])


@given(mqtt.connects())
def test_connect_survives_the_wire(connect):
    reader = Reader(100_000)
    assert reader.feed(client.encode_connect(connect)) == [(0x10, connect)]
    assert reader.error is None
    assert reader.version == connect.version
