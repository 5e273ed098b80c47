"""gateway.mqtt.reader: a packet with more filters than are allowed is refused before any of them is made."""

from __future__ import annotations

import pytest

from gateway.errors import MalformedPacket, ProtocolError
from gateway.mqtt.packets import V5, V31, V311
from gateway.mqtt.reader import Reader
from gateway.mqtt.writer import frame

QUOTA = 0x97


def named(kind: int, version: int, count: int) -> bytes:
    each = b"\0\1a\0" if kind == 0x82 else b"\0\1a"
    return frame(kind, b"\0\1" + (b"\0" if version == V5 else b"") + each * count)


@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize("kind", [0x82, 0xA2])
def test_as_many_as_are_looked_at_and_no_more(kind: int, version: int) -> None:
    reader = Reader(1 << 20, version, max_filters=300)
    assert len(reader.feed(named(kind, version, 300))) == 1
    assert reader.error is None
    assert reader.feed(named(kind, version, 301)) == []
    assert isinstance(reader.error, ProtocolError)
    assert reader.error.reason == QUOTA


@pytest.mark.parametrize("kind", [0x82, 0xA2])
@pytest.mark.parametrize("body", [b"\0\1", b"\0\1\xff\xff\xff\xff\x7f", b"\0\1\0" + b"\0\1a\0" * 5 + b"\xff\xff"])
def test_broken_ones_are_malformed_as_ever(kind: int, body: bytes) -> None:
    reader = Reader(1 << 20, V5, max_filters=1)
    reader.feed(frame(kind, body))
    assert isinstance(reader.error, ProtocolError)
    if len(body) < 10:
        assert isinstance(reader.error, MalformedPacket | ProtocolError)
