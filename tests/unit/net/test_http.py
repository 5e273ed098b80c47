"""The HTTP server of the admin port, with a clock of its own."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from gateway.net import http
from gateway.net.http import LINGER_SECONDS, REQUEST_SECONDS, AdminSite, Folder

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
