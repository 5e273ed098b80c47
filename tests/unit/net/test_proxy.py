"""PROXY headers of both versions: whole, byte by byte, with what follows, and what is none."""

from __future__ import annotations

import struct

import pytest

from gateway.net.proxy import SIGNATURE, ProxyReader

V1 = b"PROXY TCP6 2001:db8::7 ::1 4711 1883\r\n"
V2 = SIGNATURE + b"\x21\x11" + struct.pack("!H4s4sHH", 12, b"\x0a\0\0\x07", b"\x7f\0\0\1", 4711, 1883)
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"


@pytest.mark.parametrize(("version", "header", "peer"), [
    (1, V1, "[2001:db8::7]:4711"), (1, b"PROXY UNKNOWN\r\n", ""), (2, V2, "10.0.0.7:4711"), (2, LOCAL, ""),
])  # fmt: skip
def test_headers_whole_byte_by_byte_and_with_trailing_bytes(version: int, header: bytes, peer: str) -> None:
    whole = ProxyReader(version)
    assert whole.feed(header + b"rest") == b"rest"
    assert whole.peer == peer
    slow = ProxyReader(version)
    answers = [slow.feed(header[index : index + 1]) for index in range(len(header))]
    assert answers == [None] * (len(header) - 1) + [b""]
    assert slow.peer == peer


@pytest.mark.parametrize(("version", "data"), [
    (1, b"\x10\x0c\x00\x04MQTT"), (1, b"PROXY " + b"x" * 110), (1, b"PROXY TCP4 1.2.3.4\r\n"),
    (1, b"PROXY UDP4 a b c d\r\n"), (1, b"PROXY TCP4 1.2.3.4 x 1 y\r\n".replace(b"1.2.3.4", b"nonsense")),
    (2, b"\x10\x0c\x00\x04MQTT\x04\x02\x00"), (2, SIGNATURE + b"\x11\x11\x00\x00"),
    (2, SIGNATURE + b"\x21\x11\xff\xff"), (2, SIGNATURE + b"\x23\x11\x00\x00"),
])  # fmt: skip
def test_what_is_no_header_is_refused(version: int, data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- whatever is wrong, the connection ends
        ProxyReader(version).feed(data)
