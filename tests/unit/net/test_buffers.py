"""gateway.net.buffers: what is kept for all connections of a hub together, with real sockets."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
from collections.abc import Iterator

import pytest
from broker_harness import Harness

from gateway.broker.publish.kept_routes import ROUTE_BYTES
from gateway.mqtt import client, writer
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.reactor import HubReactor
from gateway.net.websocket import WebSocketServer
from gateway.net.wrapping import WebSocketWrapping
from gateway.session.connection import CLOSED, NEW, ONLINE, Connection

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 't', queue: Q}\n"
KIB = 1 << 10
REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Clients:
    """The clients of one hub."""

    def __init__(self, most: int) -> None:
        self.harness = Harness(MAPPING, max_buffered_bytes=most, receive_maximum=60_000)
        self.harness.clock.monotonic = lambda: 0.0  # on a busy machine these would be put off
        self.hub = Hub(HubReactor(), self.harness.engine)
        self.links: list[HubSocket] = []
        self.theirs: list[socket.socket] = []

    def accepted(self) -> Connection:
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        link = HubSocket(self.hub, ours, "10.0.0.9:1", "plain")
        link.connection = self.harness.engine.connected(link)
        self.hub.add(link)
        self.links.append(link)
        self.theirs.append(theirs)
        return link.connection

    def online(self, version: int = 5) -> Connection:
        connection = self.accepted()
        self.send(len(self.theirs) - 1, client.encode_connect(client.connect(version, f"c{len(self.theirs)}")))
        assert connection.state == ONLINE
        self.theirs[-1].recv(1000)
        return connection

    def over_websocket(self) -> Connection:
        """A connection that has opened a WebSocket and sent no CONNECT."""
        connection, link = self.accepted(), self.links[-1]
        link.wrapping = WebSocketWrapping(link, WebSocketServer("/mqtt", [], {"localhost"}))
        self.send(len(self.theirs) - 1, REQUEST)
        assert b" 101 " in self.theirs[-1].recv(1000)
        return connection

    def send(self, number: int, data: bytes) -> None:
        """Send data, and have all of it read."""
        sock, link = self.theirs[number], self.links[number]
        sock.setblocking(False)
        left = memoryview(data)
        while left and not link.closed:
            with contextlib.suppress(BlockingIOError):
                left = left[sock.send(left) :]
            while not link.closed and _unread(link):
                self.hub.wait(5)
        sock.setblocking(True)

    def held(self) -> int:
        return sum(
            len(link.connection.reader.held or b"") + link.buffered()
            for link in self.links
            if link.connection is not None
        )


def _unread(link: HubSocket) -> int:
    return int.from_bytes(fcntl.ioctl(link.fd, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.fixture
def clients() -> Iterator[Clients]:
    made = Clients(1024 * KIB)
    yield made
    for sock in made.theirs:
        sock.close()
    for link in made.links:
        link.abort()


def framed(payload: bytes, opcode: int = 2) -> bytes:
    """A WebSocket frame of a client."""
    return bytes((0x80 | opcode, 0x80 | len(payload))) + bytes(4) + payload


PINGS = framed(bytes(100), 9) * 1000


def begun(size: int) -> bytes:
    """The first bytes of a PUBLISH of 900 KiB."""
    return writer.encode_publish(5, b"t", bytes(900 * KIB), 1, packet_id=1)[:size]


def test_who_has_most_begun_is_closed_with_a_reason(clients: Clients) -> None:
    connections = [clients.online() for _ in range(5)]
    for number, size in enumerate((300 * KIB, 20 * KIB, 310 * KIB, 200 * KIB)):
        clients.send(number, begun(size))
    assert [connection.state for connection in connections] == [ONLINE] * 5, "830 KiB of 1024"
    clients.send(4, begun(290 * KIB))
    assert [connection.state for connection in connections] == [ONLINE, ONLINE, CLOSED, ONLINE, ONLINE]
    assert clients.theirs[2].recv(1)[0] >> 4 == 14
    assert b"\x97" in clients.theirs[2].recv(10)
    assert clients.harness.engine.counters.mqtt_disconnects["plain", "buffers_full"] == 1
    assert clients.held() == 810 * KIB


def test_the_others_finish_what_they_have_begun(clients: Clients) -> None:
    connections = [clients.online() for _ in range(3)]
    whole = begun(1000 * KIB)
    clients.send(0, whole[: 500 * KIB])
    clients.send(1, whole[: 600 * KIB])
    assert [connection.state for connection in connections] == [ONLINE, CLOSED, ONLINE]
    clients.send(0, whole[500 * KIB :])
    assert clients.theirs[0].recv(1)[0] >> 4 == 4, "PUBACK"
    for _ in range(20):  # 18 MB in all, and never much of it at once
        clients.send(2, whole)
    assert connections[2].state == ONLINE


def test_who_leaves_most_unread_is_closed(clients: Clients) -> None:
    readers = [clients.online() for _ in range(3)]
    for number in range(2):
        clients.send(number, client.encode_subscribe(5, Subscribe(1, [Subscription("t", 0)])))
        clients.theirs[number].recv(100)
    for _ in range(40):
        clients.send(2, writer.encode_publish(5, b"t", bytes(60 * KIB), 0, packet_id=0))
        clients.theirs[1].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            clients.theirs[1].recv(1 << 20)
        clients.hub.wait(0)
    assert readers[0].state == CLOSED
    assert clients.links[0].closed, "not only when its five seconds are over"
    assert [readers[1].state, readers[2].state] == [ONLINE, ONLINE]
    assert clients.harness.engine.counters.mqtt_disconnects["plain", "slow_consumer"] == 1


def test_answers_to_pings_that_are_not_read_are_counted_too(clients: Clients) -> None:
    connections = [clients.over_websocket() for _ in range(3)]
    for number in range(3):
        clients.send(number, framed(client.encode_connect(client.connect(5, f"w{number}"))))
    for count, number in ((9, 0), (7, 1), (1, 2)):
        for _ in range(count):
            clients.send(number, PINGS)
    assert [connection.state for connection in connections] == [CLOSED, ONLINE, ONLINE]
    assert clients.harness.engine.counters.mqtt_disconnects["plain", "slow_consumer"] == 1


def test_a_stranger_leaves_little_unread(clients: Clients) -> None:
    clients.harness.engine.limits.max_buffered_bytes = 0
    stranger, link = clients.over_websocket(), clients.links[-1]
    clients.send(0, PINGS)
    assert (stranger.state, link.closed) == (NEW, False)
    for _ in range(4):
        clients.send(0, PINGS)
    assert (stranger.state, link.closed) == (CLOSED, True)


def test_many_ever_so_small_pieces_are_counted_too(clients: Clients) -> None:
    connections = [clients.online(4) for _ in range(40)]
    for _ in range(10):
        for number in range(40):
            clients.send(number, begun(4 * KIB) if not connections[number].reader.held else bytes(4 * KIB))
    assert clients.held() <= 1024 * KIB * 17 // 16
    assert 10 <= [connection.state for connection in connections].count(CLOSED) < 40


def test_the_topics_of_aliases_are_kept_too(clients: Clients) -> None:
    connections = [clients.online() for _ in range(6)]
    for number in range(6):
        for alias in range(1, 11 if number == 3 else 3):
            topic = b"%d" % alias + bytes([97 + number]) * 60_000
            clients.send(number, writer.encode_publish(5, topic, b"", 0, properties=b"\x23\x00" + bytes([alias])))
    assert [connection.state for connection in connections] == [ONLINE, ONLINE, ONLINE, CLOSED, ONLINE, ONLINE]
    assert b"\x97" in clients.theirs[3].recv(10)


def test_the_routes_of_who_has_most_are_dropped(clients: Clients) -> None:
    limits = clients.harness.engine.limits
    limits.max_buffered_bytes = 100 * ROUTE_BYTES
    few, many = clients.online(), clients.online()

    def publish(number: int, topic: str) -> None:
        clients.send(number, writer.encode_publish(5, topic.encode(), b"", 0))

    def kept() -> list[int]:
        return [sum(map(len, connection.caches)) for connection in (few, many)]

    for number in range(20):
        publish(0, f"few/{number}")
    for number in range(70):
        publish(1, f"many/{number}")
    assert kept() == [20, 70]
    for number in range(500):
        publish(1, f"more/{number}")
        assert sum(kept()) <= 100 + 25
    assert kept()[0] == 20
    assert [few.state, many.state] == [ONLINE, ONLINE]


def test_a_limit_that_is_lowered_holds_at_once(clients: Clients) -> None:
    connection = clients.online()
    clients.send(0, begun(500 * KIB))
    clients.harness.engine.limits.max_buffered_bytes = 0
    clients.online()
    assert connection.state == ONLINE
    clients.harness.engine.limits.max_buffered_bytes = 400 * KIB
    clients.online()
    assert connection.state == CLOSED
