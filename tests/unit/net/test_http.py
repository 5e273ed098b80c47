"""The HTTP server of the admin port, with a clock of its own."""

from __future__ import annotations

import weakref

import pytest
from twisted.internet.error import ConnectionAborted
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from gateway.net import http
from gateway.net.http import LINGER_SECONDS, REQUEST_SECONDS, SILENT_SECONDS, AdminSite, Folder

HEAD = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nX: "
UNKNOWN = b"BREW /pot HTCPCP/1.0\r\n"


def sent_slowly(first: bytes, seconds: int) -> StringTransport:
    """A client that sends one byte every second."""
    clock, transport = Clock(), StringTransport()
    connection = AdminSite(Folder(), clock, lambda *_: None).buildProtocol(None)
    connection.makeConnection(transport)
    connection.dataReceived(first)
    for _ in range(seconds):
        clock.advance(1)
        if not transport.disconnecting:
            connection.dataReceived(b"a")
    return transport


@pytest.mark.parametrize(("first", "status"), [(HEAD, 408), (UNKNOWN, 400)])
def test_a_request_that_comes_byte_by_byte_does_not_keep_its_connection(first: bytes, status: int) -> None:
    """Some hundreds of these would leave no connection for probes, and an orchestrator would restart the gateway."""
    transport = sent_slowly(first, REQUEST_SECONDS + 2)
    assert transport.value().startswith(b"HTTP/1.1 %d " % status)
    assert transport.disconnecting


@pytest.mark.parametrize(("first", "spoken"), [(b"\x10\x0f\x00\x04MQTT", "MQTT"), (b"\x16\x03\x01\x02\x00", "TLS")])
def test_another_protocol_is_answered_at_once_and_said(first: bytes, spoken: str) -> None:
    clock, transport, said = Clock(), StringTransport(), []
    site = AdminSite(Folder(), clock, lambda *_: None)
    site.on_other = lambda peer, why: said.append((peer, why))
    connection = site.buildProtocol(None)
    connection.makeConnection(transport)
    connection.dataReceived(first)
    connection.dataReceived(first)
    assert transport.value().startswith(b"HTTP/1.1 400 ")
    assert transport.value().count(f"speaks {spoken}".encode()) == 1
    assert [f"speaks {spoken}" in why for _, why in said] == [True]
    clock.advance(LINGER_SECONDS + 1)
    assert transport.disconnecting


def test_a_body_may_begin_as_another_protocol_does() -> None:
    connection, transport = AdminSite(Folder(), Clock(), lambda *_: None).buildProtocol(None), StringTransport()
    connection.makeConnection(transport)
    connection.dataReceived(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
    connection.dataReceived(b"\x10\x16")
    assert not transport.value()


def test_one_that_is_slow_and_there_in_time_is_answered() -> None:
    clock, transport = Clock(), StringTransport()
    connection = AdminSite(Folder(), clock, lambda *_: None).buildProtocol(None)
    connection.makeConnection(transport)
    for _ in range(3):
        for piece in (HEAD, b"b", b"\r\n", b"\r\n"):
            clock.advance(REQUEST_SECONDS / 5)
            connection.dataReceived(piece)
        clock.advance(0)
        assert transport.value().startswith(b"HTTP/1.1 404 ")
        transport.clear()


def test_of_as_many_as_may_be_the_oldest_that_says_nothing_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends nothing and waits for nothing must not keep a probe out."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    site = AdminSite(Folder(), Clock(), lambda *_: None)
    connections, transports = [], [StringTransport() for _ in range(5)]
    for at, transport in enumerate(transports):
        connection = site.buildProtocol(None)
        connections.append(connection)
        connection.makeConnection(transport)
        connection.dataReceived(HEAD + b"x" + b"\r\n\r\n" * (at == 0))  # the first one waits for its answer
    assert [transport.disconnecting for transport in transports] == [False, True, True, False, False]
    for connection in connections[3:]:
        connection.dataReceived(b"\r\n\r\n")
    assert site.buildProtocol(None) is None, "all of them are being answered"


class Followed(Resource):
    """Is answered for as long as somebody reads: `registerProducer` is all that Twisted needs of a producer."""

    isLeaf = True

    def render_GET(self, request: Request) -> int:
        """Answer a request."""
        request.write(b"x" * 1000)
        request.registerProducer(self, streaming=True)
        return NOT_DONE_YET

    def pauseProducing(self) -> None:
        """Nothing is made."""

    resumeProducing = stopProducing = pauseProducing


class Forgiving(StringTransport):
    """Lets a producer be unregistered that is not registered, as sockets do."""

    def unregisterProducer(self) -> None:
        """There is none any more."""
        self.producer = None


class Following:
    """Clients of a site that all follow something, one a second."""

    def __init__(self, clients: int, version: bytes = b"1.1") -> None:
        self.clock, root = Clock(), Folder()
        root.putChild(b"followed", Followed())
        self.site = AdminSite(root, self.clock, lambda *_: None)
        self.version = version
        self.connections: list[http.Connection] = []
        self.transports: list[StringTransport] = []
        for _ in range(clients):
            self.another()

    def another(self) -> None:
        """One more."""
        self.clock.advance(1)
        connection, transport = self.site.buildProtocol(None), StringTransport()
        connection.makeConnection(transport)
        connection.dataReceived(b"GET /followed HTTP/%s\r\nHost: localhost\r\n\r\n" % self.version)
        self.clock.advance(0)
        assert b"200" in transport.value()
        self.connections.append(connection)
        self.transports.append(transport)

    @property
    def ended(self) -> list[int]:
        """Which of them were."""
        return [at for at, transport in enumerate(self.transports) if transport.disconnected]


def test_who_does_not_read_makes_way_first_and_then_who_follows_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long answers that nobody reads must not keep a probe out."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)
    following = Following(4)
    following.connections[2].pauseProducing()
    following.clock.advance(1)
    following.connections[1].pauseProducing()
    following.connections[3].pauseProducing()
    following.connections[3].resumeProducing()
    for expected in ([2], [1, 2], [0, 1, 2]):
        following.another()
        assert following.ended == expected


def test_what_nobody_reads_of_all_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pages of 8 MiB must not take a gigabyte."""
    monkeypatch.setattr(http, "MAX_UNREAD", 1000)
    following = Following(3)
    first, second, third = following.connections
    for connection in (second, first, third):
        following.clock.advance(1)
        connection.pauseProducing()
        connection.write(bytes(400))
    assert following.ended == [1]
    first.resumeProducing()
    third.write(bytes(600))
    assert following.ended == [1]
    third.write(b"x")
    assert following.ended == [1, 2]
    first.pauseProducing()
    first.write(bytes(1000))
    assert following.ended == [1, 2], "what has ended is not counted"
    second.pauseProducing()
    second.write(bytes(2000))
    assert following.ended == [1, 2], "nor what is still made for it"


def test_an_answer_that_ends_its_connection_has_to_be_read_in_time() -> None:
    """A stranger could keep a connection for ever with HTTP/1.0, each answer of which ends with its connection."""
    clock, transport = Clock(), Forgiving()
    connection = AdminSite(Folder(), clock, lambda *_: None).buildProtocol(None)
    connection.makeConnection(transport)
    connection.dataReceived(b"GET /nothing HTTP/1.0\r\n\r\n")
    clock.advance(0)
    assert (transport.disconnecting, transport.disconnected) == (True, False)
    for _ in range(SILENT_SECONDS + 20):
        clock.advance(1)
    assert transport.disconnected


def test_nothing_is_left_of_a_connection_that_was_silent_for_too_long() -> None:
    """What its client had not read stayed in the memory with it."""
    clock, transport = Clock(), Forgiving()
    site = AdminSite(Folder(), clock, lambda *_: None)
    connection = site.buildProtocol(None)
    connection.makeConnection(transport)
    for _ in range(SILENT_SECONDS + 20):
        clock.advance(1)
    assert transport.disconnected
    connection.connectionLost(Failure(ConnectionAborted()))
    left = weakref.ref(connection)
    del connection, transport
    clock.advance(SILENT_SECONDS)
    assert left() is None
