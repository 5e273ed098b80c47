"""No input makes the codec raise anything but what it documents; the reader raises nothing at all."""

from __future__ import annotations

import strategies_mqtt as mqtt
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ProtocolError
from gateway.mqtt import properties, topics
from gateway.mqtt.client import server_reader
from gateway.mqtt.connect import decode_connect
from gateway.mqtt.decoders import FROM_CLIENT, FROM_SERVER, decode_rare
from gateway.mqtt.reader import Reader

bodies = st.binary(max_size=80)


def outcome(call, *args, **options) -> ProtocolError | None:
    """The documented refusal; anything else is a bug and passes through."""
    try:
        call(*args, **options)
    except ProtocolError as error:
        return error
    return None


def documented(error: ProtocolError | None) -> bool:
    return error is None or (error.reason >= 0x80 and bool(str(error)))


@given(mqtt.streams(), st.integers(8, 2000))
def test_reader_of_a_server(stream, max_packet):
    reader = Reader(max_packet)
    reader.feed(stream)
    assert reader.error is None or isinstance(reader.error, ProtocolError)


@given(mqtt.versions, st.binary(max_size=200))
def test_reader_of_a_client(version, garbage):
    reader = server_reader(version)
    reader.feed(garbage)
    assert reader.error is None or isinstance(reader.error, ProtocolError)


@given(mqtt.versions, st.booleans(), st.integers(0, 255), bodies)
def test_decoders(version, from_server, first, body):
    grammar = (FROM_SERVER if from_server else FROM_CLIENT)[version]
    if first >> 4 not in grammar.decoders:
        return
    assert documented(outcome(decode_rare, grammar, first, body, version))


@given(st.sampled_from([b"\0\x06MQIsdp\x03", b"\0\x04MQTT\x04", b"\0\x04MQTT\x05"]), st.integers(0, 255), bodies)
def test_connect(start, flags, body):
    assert documented(outcome(decode_connect, 0x10, start + bytes((flags,)) + body))


@given(st.integers(0, 15), st.booleans(), bodies)
def test_properties(packet_type, from_server, block):
    assert documented(outcome(properties.decode, block, packet_type, from_server=from_server))


@given(st.binary(max_size=30), st.text(max_size=30))
def test_topics(name, filter_):
    topics.topic_name_error(name, 3)
    topics.filter_error(filter_, 3)
    topics.split_shared(filter_)
