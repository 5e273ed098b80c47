"""Much for readers that are slow, over TCP, TLS and WebSocket: they are not taken for those who never read."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt.packets import CONNACK, PINGRESP, PUBLISH, SUBACK, Subscribe, Subscription

MIB = 1 << 20
PING = b"\xc0\0"
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Client:
    """One that reads when the test says so."""

    def __init__(self, port: int, name: str, *, web: bool = False, trust: ssl.SSLContext | None = None) -> None:
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), 60)
        if trust is not None:
            self.sock = trust.wrap_socket(self.sock, server_hostname="localhost")
        self.web, self.raw, self.left, self.reader = web, b"", 0, client.server_reader(5)
        self.reader.max_packet = 64 * MIB
        if web:
            self.sock.sendall(REQUEST)
            while not self.raw.endswith(b"\r\n\r\n"):
                self.raw += self.sock.recv(1)
            self.raw = b""
        self.send(client.encode_connect(client.connect(5, name, keep_alive=0)))
        self.until(CONNACK)

    def send(self, data: bytes) -> None:
        if self.web:
            for at in range(0, len(data), 100):
                part = data[at : at + 100]
                self.sock.sendall(bytes((0x82, 0x80 | len(part))) + b"\0\0\0\0" + part)
        else:
            self.sock.sendall(data)

    def _unframed(self, data: bytes) -> bytes:
        """Of whole and unmasked frames."""
        self.raw, found = self.raw + data, b""
        while self.left or len(self.raw) >= 10 or (len(self.raw) >= 2 and self.raw[1] < 126):
            if not self.left:
                size = {126: 2, 127: 8}.get(self.raw[1], 0)
                self.left = int.from_bytes(self.raw[2 : 2 + size], "big") if size else self.raw[1]
                self.raw = self.raw[2 + size :]
            part = self.raw[: self.left]
            found, self.raw, self.left = found + part, self.raw[len(part) :], self.left - len(part)
            if not self.raw:
                break
        return found

    def until(self, kind: int, count: int = 1) -> list[int]:
        """The lengths of what is published to it until so many packets of this kind have come."""
        sizes = list[int]()
        while count:
            data = self.sock.recv(MIB)
            assert data, "the gateway closed the connection"
            for packet in self.reader.feed(self._unframed(data) if self.web else data):
                if packet[0] >> 4 == PUBLISH:
                    sizes.append(len(packet[4]))
                count -= packet[0] >> 4 == kind
        return sizes


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, ssl.SSLContext]]:
    directory: Path = tmp_path_factory.mktemp("slow")
    authority = Authority(directory)
    certificate, key = authority.issue("localhost")
    (directory / "none.yaml").write_text("version: 1\n")
    settings = f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{certificate: {certificate}, key: {key}}}}}
  - {{name: web, port: 0, websocket: {{}}}}
mqtt: {{max_packet: 64MiB, max_queued_bytes: 64MiB}}
mappings: [none.yaml]
"""
    with RunningGateway(directory, settings=settings) as running:
        yield running, ssl.create_default_context(cafile=str(authority.path))


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("way", ["plain", "tls", "web"])
def test_messages_of_any_size_reach_one_that_is_slow(
    gateway: tuple[RunningGateway, ssl.SSLContext], way: str, qos: int
) -> None:
    """It asks for something else meanwhile, in pieces, so that a wrapping has to take them itself."""
    running, trust = gateway
    ports, sizes = running.ports(), [16 * MIB, 9 * MIB] if qos == 0 else [MIB // 2] * 36
    reader = Client(ports[way], f"reader {qos}", web=way == "web", trust=trust if way == "tls" else None)
    reader.send(client.encode_subscribe(5, Subscribe(1, [Subscription(way, qos)])))
    reader.until(SUBACK)
    sender = Client(ports["plain"], "sender")
    for number, size in enumerate(sizes, 1):
        sender.send(writer.encode_publish(5, way.encode(), bytes(size), qos, packet_id=number if qos else 0))
        sender.send(PING)
        sender.until(PINGRESP)
        for part in (PING[:1], PING[1:]):
            reader.send(part)
    assert reader.until(PINGRESP, len(sizes)) == sizes
    for one in (reader, sender):
        one.sock.close()
