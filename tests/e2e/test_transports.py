"""Every way in: TLS with and without client certificates, WebSocket with and without TLS, Unix socket, PROXY, IPv6."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from certificates import Authority
from gateways import RunningGateway

from gateway.mqtt import client

CONNECT = client.encode_connect(client.connect(4, "raw"))
CONNACK = b"\x20\x02\x00\x00"


class World:
    """A gateway with every kind of listener, and the certificates."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "another authority")
        self.server = self.authority.issue("localhost")
        self.device = self.authority.issue("device-7")
        self.expired = self.authority.issue("device-old", days=-1)
        self.revoked = self.authority.issue("device-lost")
        self.foreign = self.stranger.issue("device-foreign")
        self.authority.revoke(self.revoked[0])
        tls = f"certificate: {self.server[0]}, key: {self.server[1]}"
        crl = self.authority.revocation_list()
        clients = f"client_ca: {self.authority.path}, client_certificate: required, crl: {crl}"
        self.gateway = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{{tls}}}}}
  - {{name: new, port: 0, tls: {{{tls}, minimum_version: "1.3"}}}}
  - {{name: mutual, port: 0, tls: {{{tls}, {clients}}}}}
  - {{name: web, port: 0, websocket: {{path: /mqtt, origins: ["https://ops.example"]}}}}
  - {{name: secureweb, port: 0, websocket: {{}}, tls: {{{tls}}}}}
  - {{name: local, unix: {directory}/mqtt.sock}}
  - {{name: proxied, port: 0, proxy_protocol: v2}}
  - {{name: proxied1, port: 0, proxy_protocol: v1}}
  - {{name: six, port: 0, bind: "::1"}}
  - {{name: both, port: 0, bind: "::", anonymous: true}}
  - {{name: both-web, port: 0, bind: "::", anonymous: true, websocket: {{hosts: [gw.plant.example]}}}}
  - {{name: balanced, port: 0, proxy_protocol: v1, proxy_from: [127.0.0.2, 10.0.0.0/8]}}
  - {{name: balanced-web, port: 0, proxy_protocol: v1, proxy_from: [127.0.0.2], websocket: {{}}}}
""",
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("t"))
    with made.gateway:
        made.ports = made.gateway.ports()  # type: ignore[attr-defined]
        yield made


def port(world: World, name: str) -> int:
    return int(world.ports[name])  # type: ignore[attr-defined]


def greet(sock: socket.socket) -> bytes:
    sock.settimeout(60)
    sock.sendall(CONNECT)
    return sock.recv(4)


def mosquitto(world: World, name: str, *more: str) -> int:
    command = ["mosquitto_pub", "-h", "localhost", "-p", str(port(world, name)), "--cafile", str(world.authority.path),
               "-t", "a", "-m", "x", "-q", "1", *more]  # fmt: skip
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode


def test_mosquitto_publishes_over_tls(world: World) -> None:
    assert mosquitto(world, "tls") == 0


def test_a_client_that_does_not_trust_the_server_stays_out(world: World) -> None:
    context = ssl.create_default_context(cafile=str(world.stranger.path))
    with socket.create_connection(("127.0.0.1", port(world, "tls"))) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.parametrize(("name", "version", "accepted"), [
    ("tls", ssl.TLSVersion.TLSv1_2, True), ("tls", ssl.TLSVersion.TLSv1_3, True),
    ("new", ssl.TLSVersion.TLSv1_2, False), ("new", ssl.TLSVersion.TLSv1_3, True),
])  # fmt: skip
def test_the_lowest_tls_version_is_kept(world: World, name: str, version: ssl.TLSVersion, accepted: bool) -> None:
    context = ssl.create_default_context(cafile=str(world.authority.path))
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port(world, name))) as raw:
        try:
            with context.wrap_socket(raw, server_hostname="localhost") as tls:
                assert greet(tls) == CONNACK
                assert accepted
        except (ssl.SSLError, ConnectionError):
            assert not accepted


def test_a_client_certificate_is_asked_for_and_names_the_user(world: World) -> None:
    certificate, key = world.device
    assert mosquitto(world, "mutual", "--cert", str(certificate), "--key", str(key)) == 0
    assert mosquitto(world, "mutual", "--cert", str(certificate), "--key", str(key), "-u", "device-7", "-P", "x") == 0
    assert mosquitto(world, "mutual", "--cert", str(certificate), "--key", str(key), "-u", "somebody", "-P", "x") != 0


@pytest.mark.parametrize("which", ["none", "expired", "revoked", "foreign"])
def test_no_other_certificate_gets_in(world: World, which: str) -> None:
    more: list[str] = []
    if which != "none":
        certificate, key = getattr(world, which)
        more = ["--cert", str(certificate), "--key", str(key)]
    assert mosquitto(world, "mutual", *more) != 0


def websocket_publish(world: World, name: str, tls: bool) -> int:
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, transport="websockets", client_id=f"ws-{name}")
    made.ws_set_options(path="/mqtt")
    if tls:
        made.tls_set(ca_certs=str(world.authority.path))
    made.connect("localhost", port(world, name))
    made.loop_start()
    try:
        info = made.publish("web/a", b"x" * 20_000, qos=2)
        info.wait_for_publish(60)
        return int(info.is_published())
    finally:
        made.disconnect()
        made.loop_stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_paho_publishes_over_websocket_with_and_without_tls(world: World) -> None:
    assert websocket_publish(world, "web", tls=False)
    assert websocket_publish(world, "secureweb", tls=True)


def handshake(
    world: World,
    path: str = "/mqtt",
    protocol: str = "mqtt",
    origin: str = "",
    host: str = "localhost",
    name: str = "web",
) -> str:
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]  # fmt: skip
    if protocol:
        lines.append(f"Sec-WebSocket-Protocol: {protocol}")
    if origin:
        lines.append(f"Origin: {origin}")
    with socket.create_connection(("127.0.0.1", port(world, name))) as sock:
        sock.settimeout(60)
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        return sock.recv(4096).decode().split("\r\n", 1)[0]


def opened(world: World) -> socket.socket:
    """A WebSocket whose handshake is done; it chose the sub-protocol."""
    sock = socket.create_connection(("127.0.0.1", port(world, "web")))
    sock.settimeout(60)
    lines = ["GET /mqtt HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Protocol: chat, mqtt"]  # fmt: skip
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += sock.recv(1)
    assert b"sec-websocket-protocol: mqtt\r\n" in answer.lower()
    return sock


def frame(data: bytes, kind: int = 2) -> bytes:
    """A frame of a client, masked with zeros."""
    return bytes((0x80 | kind, 0x80 | len(data))) + b"\0\0\0\0" + data


def carried(sock: socket.socket, count: int) -> bytes:
    """The next bytes that come in binary frames, of whatever length."""
    data = b""
    while len(data) < count:
        first, length = sock.recv(1), sock.recv(1)[0]
        assert first == b"\x82"
        data += sock.recv(length, socket.MSG_WAITALL)
    return data


def test_the_subprotocol_is_mqtt_mqtt_6_0_0_4(world: World) -> None:
    opened(world).close()


def test_packets_need_not_end_with_a_frame_mqtt_6_0_0_2(world: World) -> None:
    with opened(world) as sock:
        sock.sendall(frame(CONNECT[:5]))
        sock.sendall(frame(CONNECT[5:6]) + frame(CONNECT[6:] + b"\xc0\0\xc0"))
        assert carried(sock, 6) == CONNACK + b"\xd0\0"
        sock.sendall(frame(b"\0"))
        assert carried(sock, 2) == b"\xd0\0"


def test_text_frames_end_the_connection_mqtt_6_0_0_1(world: World) -> None:
    with opened(world) as sock:
        sock.sendall(frame(CONNECT))
        assert carried(sock, 4) == CONNACK
        sock.sendall(frame(b"text", kind=1))
        assert sock.recv(2)[:1] == b"\x88"  # Close
        while sock.recv(100):
            pass


def test_websocket_paths_protocols_and_origins_are_checked_mqtt_6_0_0_3(world: World) -> None:
    assert " 101 " in handshake(world)
    assert " 101 " in handshake(world, protocol="mqttv3.1")
    assert " 101 " in handshake(world, origin="https://ops.example")
    assert " 404 " in handshake(world, path="/other")
    assert " 400 " in handshake(world, protocol="chat")
    assert " 403 " in handshake(world, origin="https://evil.example")


def test_a_page_whose_name_was_bent_to_this_address_stays_out(world: World) -> None:
    assert " 101 " in handshake(world, origin="http://localhost:8083", host="localhost:8083")
    assert " 101 " in handshake(world, origin="http://127.0.0.1:8083", host="127.0.0.1:8083")
    assert " 403 " in handshake(world, origin="http://evil.example:8083", host="evil.example:8083")
    assert " 101 " in handshake(world, name="both-web", origin="http://gw.plant.example", host="gw.plant.example")
    assert " 421 " in handshake(world, name="both-web", host="evil.example")


def refused(world: World) -> int:
    return int(world.gateway.metric('mqgate_mqtt_connects_total{listener="web",protocol="3.1.1",result="malformed"}'))


def test_a_handshake_that_is_none_is_a_counted_line_and_no_defect(world: World) -> None:
    before = refused(world)
    assert " 404 " in handshake(world, path="//[")
    assert " 400 " in handshake(world, protocol="\xff")
    assert " 400 " in handshake(world, host="\xe4")
    assert refused(world) == before + 3
    assert "WebSocket: a header that is not text" in world.gateway.log
    assert '"defect"' not in world.gateway.log


def test_a_close_behind_a_close_over_tls_is_no_defect(world: World) -> None:
    context = ssl.create_default_context(cafile=str(world.authority.path))
    with socket.create_connection(("127.0.0.1", port(world, "secureweb"))) as raw:
        tls = context.wrap_socket(raw, server_hostname="localhost")
        tls.settimeout(60)
        lines = ["GET /mqtt HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Protocol: mqtt"]  # fmt: skip
        tls.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert b" 101 " in tls.recv(4096)
        close = frame(b"\x03\xe8", kind=8)
        tls.sendall(frame(CONNECT) + frame(b"\xe0\x00") + close + close)
        with contextlib.suppress(OSError):
            for _ in range(5):
                tls.sendall(close)
            while tls.recv(100):
                pass
    assert greet(world.gateway.connect()) == CONNACK
    assert '"defect"' not in world.gateway.log


def test_an_ipv4_client_of_an_ipv6_listener_has_its_own_address(world: World) -> None:
    with socket.create_connection(("127.0.0.1", port(world, "both"))) as sock:
        assert greet(sock) == CONNACK
        own = sock.getsockname()[1]
        assert any(one["peer"] == f"127.0.0.1:{own}" for one in world.gateway.api("GET", "/clients")["items"])
    assert " 101 " in handshake(world, name="both-web", host="127.0.0.1")


@pytest.mark.parametrize("name", ["balanced", "balanced-web"])
def test_proxy_headers_are_believed_from_where_the_settings_say(world: World, name: str) -> None:
    header = b"PROXY TCP4 10.9.9.9 127.0.0.1 4711 1883\r\n"
    address = ("127.0.0.1", port(world, name))
    more = CONNECT if name == "balanced" else b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(address, source_address=("127.0.0.2", 0)) as sock:
        sock.settimeout(60)
        sock.sendall(header + more)
        assert sock.recv(4)
    with socket.create_connection(address) as sock, contextlib.suppress(ConnectionError):
        sock.settimeout(60)
        sock.sendall(header + more)
        assert sock.recv(4) == b""
    assert world.gateway.metric(f'mqgate_mqtt_connects_total{{listener="{name}",protocol="3.1.1",result="malformed"}}')
    assert "proxy_from" in world.gateway.log


def test_a_unix_socket_is_a_listener_like_any_other(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(world.gateway.directory / "mqtt.sock"))
        assert greet(sock) == CONNACK


def test_ipv6(world: World) -> None:
    with socket.create_connection(("::1", port(world, "six"))) as sock:
        assert greet(sock) == CONNACK


PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11" + struct.pack(
    "!H4s4sHH", 12, b"\x0a\x00\x00\x07", b"\x7f\0\0\1", 4711, 1883
)


@pytest.mark.parametrize(("name", "header"), [
    ("proxied", PROXY_V2), ("proxied1", b"PROXY TCP4 10.0.0.7 127.0.0.1 4711 1883\r\n"),
])  # fmt: skip
def test_the_proxy_protocol_names_the_client_byte_by_byte(world: World, name: str, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port(world, name))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(header)):
            sock.sendall(header[index : index + 1])
        assert greet(sock) == CONNACK
        sock.sendall(b"\xe0\x00")
        assert sock.recv(1) == b""
    assert "10.0.0.7:4711" in world.gateway.log


def test_a_connection_without_its_proxy_header_is_closed(world: World) -> None:
    with socket.create_connection(("127.0.0.1", port(world, "proxied"))) as sock:
        sock.settimeout(60)
        sock.sendall(CONNECT)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(4) == b""
