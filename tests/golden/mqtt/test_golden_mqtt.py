"""Every golden case whole, byte by byte, and with more behind it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mqtt_cases as cases

from gateway.errors import ProtocolError
from gateway.mqtt.client import server_reader
from gateway.mqtt.decoders import FROM_SERVER
from gateway.mqtt.packets import Connect
from gateway.mqtt.reader import Reader

MAX_PACKET = 1_000_000


def feed(reader: Reader, chunks: list[bytes]):
    packets = [packet for chunk in chunks for packet in reader.feed(chunk)]
    if isinstance(reader.error, ProtocolError):
        return packets, (type(reader.error), reader.error.reason)
    return packets, None


def check(make_reader, text: str, outcome, follower: bytes, follower_packet) -> Reader:
    raw = cases.octets(text)
    violation = isinstance(outcome[0], type)
    expected = ([], outcome) if violation else ([outcome], None)
    reader = make_reader()
    assert feed(reader, [raw]) == expected
    assert feed(make_reader(), [raw[i : i + 1] for i in range(len(raw))]) == expected
    more = ([], outcome) if violation else ([outcome, follower_packet], None)
    assert feed(make_reader(), [raw + follower]) == more
    assert feed(make_reader(), [raw, follower]) == more
    return reader


def identify(table):
    return [pytest.param(*case[1:], id=f"{case[0]} ({case[1]})") for case in table]


@pytest.mark.parametrize(("version", "text", "outcome"), identify(cases.CONNECTS))
def test_connect(version, text, outcome):
    if isinstance(outcome, Connect):
        outcome = (cases.octets(text)[0], outcome)
    reader = check(lambda: Reader(MAX_PACKET), text, outcome, b"\xc0\0", (0xC0,))
    assert reader.version == version


@pytest.mark.parametrize(("version", "text", "outcome"), identify(cases.PUBLISHES + cases.OTHERS))
def test_from_client(version, text, outcome):
    check(lambda: Reader(MAX_PACKET, version), text, outcome, b"\xc0\0", (0xC0,))


@pytest.mark.parametrize(("version", "text", "outcome"), identify(cases.FROM_SERVER))
def test_from_server(version, text, outcome):
    check(lambda: server_reader(version), text, outcome, b"\xd0\0", (0xD0,))


@pytest.mark.parametrize("first", range(256))
@pytest.mark.parametrize("version", [3, 4, 5])
def test_every_first_byte_is_decoded_or_refused(version, first):
    reader = Reader(MAX_PACKET, version)
    packets = reader.feed(bytes((first, 0)))
    assert len(packets) == (reader.error is None)
    assert set(FROM_SERVER) == {3, 4, 5}
