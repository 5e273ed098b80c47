"""gateway.mqtt.reader: the contract of feed() and error; bounded time and memory. Bytes are in golden/mqtt."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.errors import MalformedPacket, PacketTooLarge, ProtocolError
from gateway.mqtt import client, writer
from gateway.mqtt.reader import Reader
from tests.support.uncollected import left_in_cycles

CONNECT = {version: client.encode_connect(client.connect(version, "c")) for version in (3, 4, 5)}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_packets_before_a_violation_are_returned_and_nothing_after(version):
    ping = b"\xc0\0"
    reader = Reader(1000)
    packets = reader.feed(CONNECT[version] + ping + b"\0\0" + ping)
    assert [packet[0] for packet in packets] == [0x10, 0xC0]
    assert isinstance(reader.error, MalformedPacket)
    assert reader.feed(ping) == []
    assert reader.version == version


def test_the_version_of_a_refused_connect_is_known():
    reader = Reader(1000)
    assert reader.feed(bytes.fromhex("100D 0004 4D515454 05 03 0000 00 0000")) == []
    assert isinstance(reader.error, MalformedPacket)
    assert reader.version == 5


@pytest.mark.parametrize(("level", "version"), [(6, 4), (3, 4), (0x84, 4)])
def test_an_unknown_level_is_answered_as_its_connect_is_written_mqtt_3_1_2_2(level, version):
    reader = Reader(1000)
    reader.feed(bytes.fromhex("100C 0004 4D515454") + bytes((level,)) + bytes.fromhex("02 0000 0000"))
    assert isinstance(reader.error, ProtocolError)
    assert (reader.error.reason, reader.version) == (0x84, version)


@pytest.mark.parametrize("level", [0, 6, 99])
def test_an_unknown_level_in_the_layout_of_5_0_is_answered_in_it_mqtt_3_1_2_2(level):
    reader = Reader(1000)
    reader.feed(bytes.fromhex("100E 0004 4D515454") + bytes((level,)) + bytes.fromhex("02 003C 00 0001 61"))
    assert reader.error is not None
    assert (reader.error.reason, reader.version) == (0x84, 5)


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        (bytes.fromhex("16030100f5010000f10303"), "speaks TLS, which is for a listener with `tls`"),
        (b"GET /mqtt HTTP/1.1\r\n", "speaks HTTP or WebSocket, which is for a listener with `websocket`"),
        (b"PROXY TCP4 10.0.0.7 10.0.0.1 5 1883\r\n", "speaks PROXY, which is for a listener with `proxy_protocol`"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", "speaks PROXY, which is for a listener with `proxy_protocol`"),
        (b"\x40\x02\0\1", "the first packet is PUBACK: send CONNECT first"),
        (b"\xf0\0", "the first packet is AUTH: send CONNECT first"),
    ],
)
def test_who_comes_to_the_port_of_another_protocol_is_told_which(beginning, said):
    for form in ("feed", "first"):
        reader = Reader(1000)
        getattr(reader, form)(beginning)
        assert type(reader.error) is ProtocolError
        assert said in str(reader.error)


def test_the_first_byte_decides_before_the_packet_is_whole():
    reader = Reader(1000, 4)
    reader.feed(b"\x36")
    assert isinstance(reader.error, MalformedPacket)


@pytest.mark.parametrize("first", [0x11, 0x18, 0x1F])
def test_so_do_the_flags_of_connect_as_soon_as_it_cannot_be_one_of_mqisdp_mqtt_2_2_2_2(first):
    begun = {version: bytes((first,)) + CONNECT[version][1:] for version in CONNECT}
    for version, until in ((4, 4), (5, 4), (3, len(begun[3]))):
        reader = Reader(1000)
        for at in range(until - 1):
            assert reader.first(begun[version][at : at + 1]) == (None, b"")
            assert reader.error is None
        packet, _ = reader.first(begun[version][until - 1 : until])
        assert (packet is None) is isinstance(reader.error, MalformedPacket) is (version != 3)


@pytest.mark.parametrize("length", [b"\x80", b"\x80\x01", b"\xff\xff\x03"])
def test_where_its_name_begins_is_known_when_its_length_is(length):
    reader = Reader(1 << 20)
    reader.first(b"\x11" + length)
    assert reader.error is None
    reader.first(b"\x00\x04" if length != b"\x80" else b"\x01\x00\x04")
    assert isinstance(reader.error, MalformedPacket)


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
@pytest.mark.parametrize("version", [4, 5])
def test_the_maximum_counts_the_whole_packet_mqtt5_3_1_2_24(version, size, fits):
    overhead = len(writer.encode_publish(version, b"a", b""))
    packet = writer.encode_publish(version, b"a", b"x" * (size - overhead))
    assert len(packet) == size
    reader = Reader(100, version)
    assert len(reader.feed(packet)) == fits
    assert (reader.error is None) is fits


@pytest.mark.parametrize("limit", [127, 128, 129, 130, 131, 200, 20_000])
def test_the_maximum_at_the_edges_of_the_length_field(limit):
    for payload in (limit - 6, limit - 5, limit - 4, limit - 3):
        packet = writer.encode_publish(4, b"a", b"x" * payload)
        reader = Reader(limit, 4)
        assert len(reader.feed(packet)) == (len(packet) <= limit)
        assert (reader.error is None) == (len(packet) <= limit)


def test_a_huge_length_costs_nothing():
    tracemalloc.start()
    try:
        reader = Reader(1_000_000)
        reader.feed(b"\x10\xff\xff\xff\x7f")
        for _ in range(100):
            reader.feed(b"x" * 65536)
        assert isinstance(reader.error, PacketTooLarge)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_announced_length_alone_reserves_no_memory():
    tracemalloc.start()
    try:
        readers = [Reader(200_000_000, 4) for _ in range(50)]
        for reader in readers:
            reader.feed(b"\x30\xff\xff\xff\x3f" + b"x" * 100)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_large_packet_in_small_chunks_is_copied_once_not_each_time():
    """This is counted, not timed: the bytes that are fed are only ever appended to what is held."""
    packet = writer.encode_publish(4, b"a", b"x" * 4_000_000)
    reader = Reader(5_000_000, 4)
    packets = [p for i in range(0, len(packet), 100) for p in reader.feed(packet[i : i + 100])]
    assert len(packets) == 1
    assert len(packets[0][4]) == 4_000_000


def test_two_bytes_at_a_time_hold_no_more_than_the_packet():
    packet = writer.encode_publish(4, b"a", b"x" * 200_000)
    tracemalloc.start()
    try:
        reader = Reader(1_000_000, 4)
        for i in range(0, len(packet) - 2, 2):
            reader.feed(packet[i : i + 2])
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_an_empty_chunk_changes_nothing():
    reader = Reader(1000)
    assert reader.feed(b"") == []
    assert reader.error is None


def test_the_last_packets_of_a_chunk_may_have_two_bytes():
    reader = Reader(1000, 4)
    assert reader.feed(b"\x40\x02\x00\x07\xc0\0\xc0\0") == [(0x40, 7, 0, b""), (0xC0,), (0xC0,)]
    assert reader.feed(b"\xe0") == []
    assert len(reader.feed(b"\0")) == 1


def test_idle_readers_are_small():
    tracemalloc.start()
    try:
        readers = [Reader(1000, 4) for _ in range(100)]
        assert tracemalloc.get_traced_memory()[0] / len(readers) < 200
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [
    b"\x20\x02\x00\x00", b"\x10\x03\x00\x01x", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00" + b"\x79" * 60_000,
    b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00\x30\x05\x00\x09abc" + b"\x79" * 60_000, b"\x10\xff\xff\xff\xff",
])  # fmt: skip
def test_a_violation_keeps_nothing_of_what_was_read(data: bytes) -> None:
    """No frame, and so no chunk, can be reached from its error: it is freed with its connection, not by the garbage
    collector."""

    def read() -> None:
        reader = Reader(1 << 20)
        reader.feed(data)
        assert reader.error is not None
        assert (reader.error.__traceback__, reader.error.__context__, reader.error.__cause__) == (None, None, None)

    assert left_in_cycles(read, "gateway") == []
