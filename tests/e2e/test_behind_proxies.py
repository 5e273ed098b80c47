"""What proxies in front say of their clients: addresses in HTTP headers, certificates in PROXY headers. By whom alone
it is believed, and what counts by it: shares, the log and the API."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from gateways import RunningGateway

from gateway.mqtt import client
from gateway.net.proxy import SIGNATURE

CONNACK, REFUSED = b"\x20\x02\x00\x00", b"\x20\x02\x00\x05"
PROXY, STRANGER = ("127.0.0.2", 0), ("127.0.0.1", 0)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("t")
    (directory / "alice.pw").write_text("secret")
    trusted = "port: 0, proxy_from: [127.0.0.2, 10.0.0.0/24]"
    running = RunningGateway(
        directory,
        settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: web, {trusted}, websocket: {{address_header: X-Forwarded-For}}, limits: {{connections_per_address: 2}}}}
  - {{name: deaf, port: 0, websocket: {{}}}}
  - {{name: required, {trusted}, proxy_protocol: v2, proxy_certificate: required}}
  - {{name: optional, {trusted}, proxy_protocol: v2, proxy_certificate: optional, anonymous: false}}
  - {{name: unasked, {trusted}, proxy_protocol: v2}}
security: {{users: {{alice: {{password_file: {directory}/alice.pw}}}}, anonymous: true}}
""",
    )
    with running:
        yield running


def connected(gateway: RunningGateway, name: str, source: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", gateway.ports()[name]), 60, source_address=source)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def upgraded(
    gateway: RunningGateway, client_id: str, *headers: str, name: str = "web", source: tuple[str, int] = PROXY
) -> tuple[socket.socket, str]:
    """A client that has sent CONNECT over WebSocket, and the status of its handshake."""
    sock = connected(gateway, name, source)
    lines = ["GET /mqtt HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Protocol: mqtt", *headers]  # fmt: skip
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    status = head.split(b" ")[1].decode()
    if status == "101":
        packet = client.encode_connect(client.connect(4, client_id))
        sock.sendall(bytes((0x82, 0x80 | len(packet))) + bytes(4) + packet)
        assert sock.recv(6, socket.MSG_WAITALL) == b"\x82\x04" + CONNACK
    return sock, status


def of(gateway: RunningGateway, client_id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = gateway.api("GET", "/clients")["items"]
    return next(one for one in found if one["client_id"] == client_id)


def test_a_client_behind_an_http_proxy_has_its_own_address(gateway: RunningGateway) -> None:
    header = "X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.9"
    sock, _ = upgraded(gateway, "forwarded", header)
    with sock:
        assert of(gateway, "forwarded")["peer"] == "192.0.2.7:0"
    sock, _ = upgraded(gateway, "two-lines", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: [2001:db8::7]:4711")
    with sock:
        assert of(gateway, "two-lines")["peer"] == "[2001:db8::7]:4711"


@pytest.mark.parametrize(("name", "source", "headers"), [
    ("web", STRANGER, ["X-Forwarded-For: 192.0.2.7"]), ("deaf", PROXY, ["X-Forwarded-For: 192.0.2.7"]),
    ("web", PROXY, []), ("web", PROXY, ["X-Forwarded-For: 192.0.2.7, unknown"]),
    ("web", PROXY, ["Forwarded: for=192.0.2.7", "X-Real-IP: 192.0.2.7"]),
])  # fmt: skip
def test_what_a_client_may_have_written_itself_is_not_read(
    gateway: RunningGateway, name: str, source: tuple[str, int], headers: list[str]
) -> None:
    sock, status = upgraded(gateway, "itself", *headers, name=name, source=source)
    with sock:
        assert status == "101"
        assert of(gateway, "itself")["peer"] == "{}:{}".format(*sock.getsockname())


def test_an_address_behind_a_proxy_has_a_share_of_its_own_and_is_answered(gateway: RunningGateway) -> None:
    mine = [upgraded(gateway, f"share-{number}", "X-Forwarded-For: 192.0.2.50") for number in range(3)]
    other, status = upgraded(gateway, "share-other", "X-Forwarded-For: 192.0.2.51")
    assert [one for _, one in mine] == ["101", "101", "429"]
    assert status == "101"
    assert "this address has as many connections as it may" in gateway.log
    assert '"192.0.2.50:0"' in gateway.log
    for sock in [other, *(one for one, _ in mine)]:
        sock.close()


def certified(name: str, *, flags: int = 7, verify: int = 0) -> bytes:
    """PP2_TYPE_SSL as HAProxy writes it."""
    inner = b"".join(
        struct.pack("!BH", kind, len(value)) + value for kind, value in ((0x21, b"TLSv1.3"), (0x22, name.encode()))
    )
    value = struct.pack("!BI", flags, verify) + inner
    return struct.pack("!BH", 0x20, len(value)) + value


def header(extensions: bytes = b"", command: int = 0x21) -> bytes:
    block = struct.pack("!4s4sHH", b"\xc0\x00\x02\x07", b"\x7f\0\0\1", 4711, 1883) + extensions
    return SIGNATURE + bytes((command, 0x11)) + struct.pack("!H", len(block)) + block


def answer(
    gateway: RunningGateway, name: str, extensions: bytes, *, user: str | None = None, source: tuple[str, int] = PROXY,
    password: bytes | None = None, command: int = 0x21,
) -> bytes:  # fmt: skip
    """What comes of a CONNECT behind such a header."""
    connect = client.connect(4, "certified")
    connect.username, connect.password = user, password
    with connected(gateway, name, source) as sock:
        try:
            sock.sendall(header(extensions, command) + client.encode_connect(connect))
            return sock.recv(4)
        except ConnectionError:
            return b""


def test_the_common_name_that_the_proxy_has_verified_is_the_user(gateway: RunningGateway) -> None:
    assert answer(gateway, "required", certified("device-7")) == CONNACK
    assert answer(gateway, "required", certified("device-7"), user="device-7") == CONNACK
    assert answer(gateway, "required", certified("device-7"), user="alice", password=b"secret") == REFUSED
    assert answer(gateway, "optional", certified("device-7")) == CONNACK
    assert answer(gateway, "optional", b"", user="alice", password=b"secret") == CONNACK
    connect = client.encode_connect(client.connect(4, "known"))
    with connected(gateway, "required", PROXY) as sock:
        sock.sendall(header(certified("device-8")) + connect)
        assert sock.recv(4) == CONNACK
        assert of(gateway, "known")["user"] == "device-8"


@pytest.mark.parametrize("extensions", [
    b"", certified("device-7", flags=1), certified("device-7", verify=18), certified("device-7")[:-1],
    certified("device-7") * 2,
])  # fmt: skip
def test_what_the_proxy_has_not_verified_names_nobody(gateway: RunningGateway, extensions: bytes) -> None:
    before = gateway.metric('mqgate_mqtt_auth_failures_total{listener="required",reason="certificate"}')
    assert answer(gateway, "required", extensions) == b""
    assert gateway.metric('mqgate_mqtt_auth_failures_total{listener="required",reason="certificate"}') == before + 1
    assert "no certificate that the proxy has verified" in gateway.log
    assert answer(gateway, "optional", extensions) == REFUSED


def test_a_name_that_is_none_is_nobodys(gateway: RunningGateway) -> None:
    for name in ("", "a\nb"):
        assert answer(gateway, "required", certified(name)) == REFUSED
        assert answer(gateway, "optional", certified(name)) == REFUSED


def test_certificates_are_believed_of_named_proxies_at_listeners_that_say_so(gateway: RunningGateway) -> None:
    assert answer(gateway, "required", certified("device-7"), source=STRANGER) == b""
    assert answer(gateway, "required", certified("device-7"), command=0x20) == b"", "the proxy's own connection"
    connect = client.encode_connect(client.connect(4, "unasked"))
    with connected(gateway, "unasked", PROXY) as sock:
        sock.sendall(header(certified("device-9")) + connect)
        assert sock.recv(4) == CONNACK
        assert of(gateway, "unasked")["user"] is None
