"""PROXY headers of both versions: whole, byte by byte, with what follows, and what is none."""

from __future__ import annotations

import struct
from ipaddress import ip_network

import pytest

from gateway.net.proxy import SIGNATURE, ProxyReader, is_trusted, verified_names

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
    (1, b"PROXY TCP4 ::1 ::1 1 2\r\n"), (1, b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n"),
    (1, b"PROXY TCP6 fe80::1%\x1b[31mroot ::1 1 2\r\n"), (1, b"PROXY TCP4 1.2.3.4 x 1 2\r\n"),
    (1, b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n"), (1, b"PROXY TCP4 1.2.3.4 1.2.3.4 70000 2\r\n"),
    (1, b"PROXY TCP4 1.2.3.4 1.2.3.4 1_0 2\r\n"), (1, b"PROXY TCP4 1.2.3.4 1.2.3.4 1 \xb2\r\n"),
    (2, SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12)), (2, SIGNATURE + b"\x21\x11\x00\x04" + bytes(4)),
    (2, SIGNATURE + b"\x21\x21\x00\x0c" + bytes(12)), (2, SIGNATURE + b"\x21\x77\x00\x00"),
])  # fmt: skip
def test_what_is_no_header_is_refused(version: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="PROXY header") as raised:
        ProxyReader(version).feed(data)
    assert "root" not in str(raised.value), "what a stranger wrote goes to no log"


@pytest.mark.parametrize(("version", "data"), [(1, V2), (2, V1)])
def test_a_header_of_the_other_version_is_called_so(version: int, data: bytes) -> None:
    with pytest.raises(ValueError, match=f"of version {version}, but of version {3 - version}"):
        ProxyReader(version).feed(data)


def test_an_ipv4_client_is_named_so_in_ipv6_too() -> None:
    for version, header in (
        (1, b"PROXY TCP6 ::ffff:10.0.0.7 ::1 4711 1883\r\n"),
        (2, SIGNATURE + b"\x21\x21" + struct.pack("!H10s2s4s16sHH", 36, bytes(10), b"\xff\xff", b"\x0a\0\0\x07",
                                                 bytes(16), 4711, 1883)),
    ):  # fmt: skip
        reader = ProxyReader(version)
        assert reader.feed(header) == b""
        assert reader.peer == "10.0.0.7:4711"


@pytest.mark.parametrize(("peer", "trusted"), [
    ("10.0.0.7:5", True), ("10.0.1.7:5", False), ("[2001:db8::9]:5", True), ("[2001:db9::9]:5", False), ("unix", True),
    ("[::ffff:10.0.0.7]:5", True), ("nonsense:5", False),
])  # fmt: skip
def test_headers_are_believed_from_named_networks_only(peer: str, trusted: bool) -> None:
    networks = (ip_network("10.0.0.0/24"), ip_network("2001:db8::/32"))
    assert is_trusted(peer, networks) is trusted
    assert is_trusted(peer, None)
    assert is_trusted(peer, ()) is (peer == "unix")


def vector(kind: int, value: bytes) -> bytes:
    return struct.pack("!BH", kind, len(value)) + value


def secure(client: int, verify: int, *names: bytes) -> bytes:
    """PP2_TYPE_SSL, with the version of TLS and common names."""
    rest = vector(0x21, b"TLSv1.3") + b"".join(vector(0x22, one) for one in names)
    return vector(0x20, struct.pack("!BI", client, verify) + rest)


@pytest.mark.parametrize(("extensions", "names"), [
    (secure(7, 0, b"device-7"), ["device-7"]), (secure(3, 0, b"device-7"), ["device-7"]),
    (secure(5, 0, b"device-7"), ["device-7"]), (secure(7, 0), []), (secure(7, 0, b"a", b"b"), ["a", "b"]),
    (vector(2, b"gw.example") + secure(7, 0, "gerät".encode()) + vector(4, b"pad"), ["gerät"]),
    (secure(1, 0, b"device-7"), None), (secure(0, 0, b"device-7"), None), (secure(7, 10, b"device-7"), None),
    (secure(7, 0x100, b"device-7"), None), (secure(7, 0, b"\xff"), None), (b"", None), (vector(2, b"x"), None),
    (secure(7, 0, b"a") + secure(7, 0, b"b"), None), (vector(0x20, b"\x07\0\0\0"), None),
    (secure(7, 0, b"device-7")[:-1], None), (secure(7, 0, b"device-7") + b"\x04", None),
    (vector(0x20, struct.pack("!BI", 7, 0) + b"\x22\0\x09device-7"), None),
])  # fmt: skip
def test_only_a_certificate_that_the_proxy_has_verified_names_somebody(
    extensions: bytes, names: list[str] | None
) -> None:
    reader = ProxyReader(2)
    addresses = struct.pack("!4s4sHH", b"\x0a\0\0\x07", b"\x7f\0\0\1", 4711, 1883)
    header = SIGNATURE + b"\x21\x11" + struct.pack("!H", len(addresses + extensions)) + addresses + extensions
    assert reader.feed(header + b"rest") == b"rest"
    assert verified_names(reader.extensions) == names


def test_what_is_said_of_no_client_is_not_believed() -> None:
    for kind in (b"\x20\x11", b"\x21\x00", b"\x20\x00"):
        reader, extensions = ProxyReader(2), bytes(12) + secure(7, 0, b"device-7")
        assert reader.feed(SIGNATURE + kind + struct.pack("!H", len(extensions)) + extensions) == b""
        assert (reader.peer, reader.extensions) == ("", b"")
