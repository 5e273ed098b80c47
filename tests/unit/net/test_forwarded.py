"""Who the client behind HTTP proxies is: read from the right, as far as trusted proxies have written it."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.net.forwarded import MAX_FORWARDED, MOST_PROXIES, client_of

TRUSTED = (ip_network("10.0.0.0/24"), ip_network("2001:db8:1::/48"))


def client(value: bytes, header: str = "X-Forwarded-For") -> str:
    return client_of(header, [(b"x-other", b"9.9.9.9"), (header.lower().encode(), value)], TRUSTED)


@pytest.mark.parametrize(("value", "peer"), [
    (b"192.0.2.7", "192.0.2.7:0"), (b"6.6.6.6, 192.0.2.7", "192.0.2.7:0"),
    (b"6.6.6.6,192.0.2.7\t, 10.0.0.9", "192.0.2.7:0"),
    (b"192.0.2.7:4711", "192.0.2.7:4711"), (b"2001:db8::7", "[2001:db8::7]:0"), (b"[2001:db8::7]", "[2001:db8::7]:0"),
    (b"[2001:db8::7]:4711, 2001:db8:1::1", "[2001:db8::7]:4711"), (b"::ffff:192.0.2.7", "192.0.2.7:0"),
    (b"192.0.2.7, ::ffff:10.0.0.9", "192.0.2.7:0"), (b"10.0.0.8, 10.0.0.9", "10.0.0.8:0"),
    (b"", ""), (b"unknown", ""), (b"192.0.2.7, unknown", ""), (b"unknown, 10.0.0.9", "10.0.0.9:0"), (b"192.0.2.7,", ""),
    (b"192.0.2.7:70000", ""), (b"192.0.2.7:", ""), (b"fe80::1%eth0", ""), (b"[192.0.2.7", ""), (b"192.0.2.07", ""),
    (b"localhost", ""), (b"\xff\xb2", ""), (b"1.2.3.4 5.6.7.8", ""), (b"\x1b[31m", ""),
])  # fmt: skip
def test_the_last_address_that_is_no_proxy_is_the_client(value: bytes, peer: str) -> None:
    assert client(value) == peer
    assert client(value, "x-real-ip") == peer


@pytest.mark.parametrize(("value", "peer"), [
    (b"for=192.0.2.7", "192.0.2.7:0"), (b'For="[2001:db8::7]:4711";proto=https', "[2001:db8::7]:4711"),
    (b'for=6.6.6.6, proto=https;by=10.0.0.1;FOR="192.0.2.7:80" , for=10.0.0.9', "192.0.2.7:80"),
    (b'for=192.0.2.7;host="a, for=6.6.6.6, b"', "192.0.2.7:0"),
    (b'for=192.0.2.7;host="\\", for=6.6.6.6"', "192.0.2.7:0"),
    (b"for=_hidden", ""), (b"for=unknown, for=10.0.0.9", "10.0.0.9:0"), (b"for=192.0.2.7, by=10.0.0.1", ""),
    (b'x="y, for=192.0.2.7', ""), (b"192.0.2.7", ""), (b"for=[2001:db8::7]", ""), (b"for=192.0.2.7:80", ""), (b"", ""),
])  # fmt: skip
def test_forwarded_is_read_by_its_own_syntax(value: bytes, peer: str) -> None:
    assert client(value, "Forwarded") == peer


def test_several_lines_are_one_list() -> None:
    lines = [
        (b"X-Forwarded-For", b"6.6.6.6"),
        (b"x-forwarded-for", b"192.0.2.7, 10.0.0.8"),
        (b"x-forwarded-for", b"10.0.0.9"),
    ]
    assert client_of("X-Forwarded-For", lines, TRUSTED) == "192.0.2.7:0"
    assert client_of("X-Forwarded-For", lines, ()) == "10.0.0.9:0"
    assert client_of("X-Forwarded-For", [], TRUSTED) == ""


@pytest.mark.parametrize("sent", [b'for="6.6.6.6', b"\\", b"a=b;" * 2000])
def test_what_a_client_has_sent_spoils_no_line_of_its_proxy(sent: bytes) -> None:
    assert client_of("Forwarded", [(b"Forwarded", sent), (b"Forwarded", b"for=192.0.2.7")], TRUSTED) == "192.0.2.7:0"
    assert client_of("Forwarded", [(b"Forwarded", sent), (b"Forwarded", b"for=10.0.0.9")], TRUSTED) == "10.0.0.9:0"


@pytest.mark.parametrize("value", [
    b"10.0.0.9," * 1800, b"," * 16_000, b" " * 16_000, b"6.6.6.6," * 2000 + b"10.0.0.9", b'"' * 16_000, b"[" * 16_000,
    b"for=10.0.0.9," * 1200, b"for=" + b"a" * 16_000, b'for="' + b"\\" * 16_000, b"\t" * 4000 + b"\x00", b"a=b;" * 1000,
])  # fmt: skip
def test_what_a_hostile_client_writes_names_nobody_else(value: bytes) -> None:
    for header in ("X-Forwarded-For", "Forwarded"):
        assert client(value, header) in {"", "10.0.0.9:0", "6.6.6.6:0"}


def test_so_many_proxies_are_looked_at_and_no_more() -> None:
    assert client(b"192.0.2.7" + b",10.0.0.9" * (MOST_PROXIES - 1)) == "192.0.2.7:0"
    assert client(b"192.0.2.7" + b",10.0.0.9" * MOST_PROXIES) == "10.0.0.9:0"
    assert client(b"x=" + b"y" * MAX_FORWARDED + b",for=192.0.2.7", "Forwarded") == ""
