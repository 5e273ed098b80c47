"""Limits at the network edge of a running gateway: shares of addresses, rates of listeners, and the PROXY header before
TLS and WebSocket. What the broker limits is in tests/unit/broker, what attackers get from it in test_attacks.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from gateways import RunningGateway

from gateway.mqtt import client, writer

CONNACK = 2
PROXY_V1 = "PROXY TCP4 10.0.0.%d 127.0.0.1 4711 1883\r\n"


class World:
    """The gateway, and connections to its listeners."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        certificate, key = self.authority.issue("localhost")
        tls = f"tls: {{certificate: {certificate}, key: {key}}}"
        self.gateway = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: shared, port: 0, limits: {{connections_per_address: 2}}}}
  - {{name: rare, port: 0, limits: {{connects_per_second: 2}}}}
  - {{name: slow, port: 0, limits: {{publishes_per_second: 20}}}}
  - {{name: metered, port: 0, limits: {{total_publishes_per_second: 20}}}}
  - {{name: proxied, port: 0, proxy_protocol: v1, limits: {{connections_per_address: 1}}}}
  - {{name: proxied-tls, port: 0, proxy_protocol: v1, {tls}, limits: {{connections_per_address: 1}}}}
  - {{name: proxied-web, port: 0, proxy_protocol: v1, websocket: {{}}}}
mqtt: {{connect_timeout: 5s}}
""",
        )
        self.ports: dict[str, int] = {}

    def open(self, name: str) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.ports[name]), 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("limits"))
    with made.gateway:
        made.ports = made.gateway.ports()
        yield made


def let_in(sock: socket.socket, name: str = "a") -> bool:
    """Whether CONNECT is answered."""
    try:
        sock.sendall(client.encode_connect(client.connect(4, name)))
        return sock.recv(4)[:1] == b"\x20"
    except OSError:
        return False


def refused(world: World, listener: str) -> float:
    return world.gateway.metric(
        f'mqgate_mqtt_connects_total{{listener="{listener}",protocol="3.1.1",result="too_many"}}'
    )


def publish(*socks: socket.socket, bursts: int = 4) -> float:
    """Seconds until bursts of twenty from each are acknowledged."""
    begun = time.monotonic()
    packets = b"".join(writer.encode_publish(4, b"a", b"x", 1, packet_id=one) for one in range(1, 21))
    for _ in range(bursts):
        for sock in socks:
            sock.sendall(packets)
        for sock in socks:
            left = 20 * 4
            while left:
                left -= len(sock.recv(left))
    return time.monotonic() - begun


def test_an_address_has_its_share_of_a_listener(world: World) -> None:
    with world.open("shared") as one, world.open("shared") as two:
        assert let_in(one, "one")
        assert let_in(two, "two")
        with world.open("shared") as three:
            assert not let_in(three, "three")
    until = time.monotonic() + 60
    while True:  # the two are gone, and their places free, as soon as the gateway has seen it
        with world.open("shared") as again:
            if let_in(again, "again"):
                break
        assert time.monotonic() < until
    assert refused(world, "shared") >= 1
    assert "this address has as many connections as it may" in world.gateway.log


def test_a_listener_has_a_rate_of_connections(world: World) -> None:
    until = time.monotonic() + 60
    while not refused(world, "rare"):  # a busy machine may take seconds for a few of them
        assert time.monotonic() < until
        with contextlib.ExitStack() as opened:
            socks = [opened.enter_context(world.open("rare")) for _ in range(6)]
            answers = [let_in(sock, f"rare-{number}") for number, sock in enumerate(socks)]
    assert not all(answers)
    while not any(answers):
        assert time.monotonic() < until
        with world.open("rare") as sock:
            answers = [let_in(sock, "rare")]


def test_a_client_has_the_rate_of_its_listener(world: World) -> None:
    with world.open("slow") as slow, world.open("plain") as plain:
        assert let_in(slow, "slow")
        assert let_in(plain, "plain")
        assert publish(slow) > 1.5
        publish(plain)  # has none
    assert world.gateway.metric('mqgate_backpressure_events_total{cause="client_rate"}') >= 1


def test_who_is_read_later_is_said_to_be(world: World) -> None:
    with world.open("slow") as slow:
        assert let_in(slow, "slowed")
        packets = b"".join(writer.encode_publish(4, b"a", b"x", 1, packet_id=one) for one in range(1, 101))
        slow.sendall(packets)
        until = time.monotonic() + 60
        while "more than its rates allow" not in (world.gateway.api("GET", "/clients/slowed")["held_back"] or ""):
            assert time.monotonic() < until


def test_all_clients_of_a_listener_share_its_total(world: World) -> None:
    with world.open("metered") as one, world.open("metered") as two:
        assert let_in(one, "one")
        assert let_in(two, "two")
        assert publish(one, two, bursts=3) > 1.5


def test_behind_a_proxy_the_share_is_the_clients_not_the_balancers(world: World) -> None:
    with world.open("proxied") as one, world.open("proxied") as two, world.open("proxied") as same:
        one.sendall((PROXY_V1 % 1).encode())
        two.sendall((PROXY_V1 % 2).encode())
        assert let_in(one, "one")
        assert let_in(two, "two")
        same.sendall((PROXY_V1 % 1).encode())
        assert not let_in(same, "same")


def test_the_proxy_header_comes_before_tls(world: World) -> None:
    context = ssl.create_default_context(cafile=str(world.authority.path))
    opened = []
    try:
        for number, name in ((7, "one"), (8, "two"), (7, "same")):
            raw = world.open("proxied-tls")
            opened.append(raw)
            for byte in (PROXY_V1 % number).encode():
                raw.sendall(bytes((byte,)))
            if name == "same":
                with pytest.raises((ssl.SSLError, OSError)):
                    context.wrap_socket(raw, server_hostname="localhost").recv(1)
                continue
            tls = context.wrap_socket(raw, server_hostname="localhost")
            opened.append(tls)
            assert let_in(tls, name)
    finally:
        for sock in opened:
            sock.close()
    until = time.monotonic() + 60
    while "10.0.0.7:4711" not in world.gateway.log:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_proxy_header_comes_before_websocket(world: World) -> None:
    handshake = (
        b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    with world.open("proxied-web") as sock:
        sock.sendall((PROXY_V1 % 9).encode() + handshake)
        assert b" 101 " in sock.recv(4096)


@pytest.mark.parametrize("name", ["proxied", "proxied-tls", "proxied-web"])
def test_a_proxy_header_that_is_none_or_never_comes_ends_the_connection(world: World, name: str) -> None:
    with world.open(name) as none, world.open(name) as silent:
        none.sendall(b"GET / HTTP/1.1\r\n\r\n")
        for sock in (none, silent):
            sock.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""
    assert '"defect"' not in world.gateway.log
