"""gateway.net.api: streams of events for callers that do not read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from gateway.net.api import MAX_UNREAD, Api, _stream
from gateway.net.calls import Later, Stream, endpoint
from gateway.net.guard import Guard
from gateway.ports.people import VIEWER, Caller


class Streamed(Resource):
    """One stream, whose events the test sends."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.send: Callable[[str, object], None]
        self.stopped = 0

    def render(self, request: Request) -> Any:
        return _stream(request, Stream(self._begin), lambda: True)

    def _begin(self, send: Callable[[str, object], None]) -> Callable[[], None]:
        self.send = send
        return self._stop

    def _stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def streamed() -> Iterator[tuple[Streamed, StringTransport]]:
    resource, transport = Streamed(), StringTransport()
    site = Site(resource, reactor=Clock())
    channel: Any = site.buildProtocol(None)
    channel.makeConnection(transport)
    channel.dataReceived(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield resource, transport
    channel.connectionLost(Failure(ConnectionDone()))
    assert resource.stopped == 1


def test_a_reader_that_is_slow_misses_nothing(streamed: tuple[Streamed, StringTransport]) -> None:
    resource, transport = streamed
    for _ in range(4):
        transport.producer.pauseProducing()
        for _ in range(MAX_UNREAD // 2000):
            resource.send("trace", "x" * 1000)
        transport.producer.resumeProducing()
    assert not transport.disconnected
    assert transport.value().count(b"event: trace") == 4 * (MAX_UNREAD // 2000)


def test_one_that_does_not_read_is_ended(streamed: tuple[Streamed, StringTransport]) -> None:
    resource, transport = streamed
    transport.producer.pauseProducing()
    for _ in range(MAX_UNREAD // 500):
        resource.send("trace", "x" * 1000)
    assert transport.disconnected
    assert len(transport.value()) < MAX_UNREAD * 1.1


def test_an_answer_says_whether_its_client_still_waits() -> None:
    later = Later(lambda _told: None)
    guard = Guard({"secret": Caller("vera", "token", VIEWER)}, frozenset())
    site = Site(Api([endpoint("GET", "/queues", VIEWER, lambda _call: (200, later))], guard), reactor=Clock())
    channel: Any = site.buildProtocol(None)
    channel.makeConnection(StringTransport())
    channel.dataReceived(b"GET /queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n")
    assert later.is_wanted()
    channel.connectionLost(Failure(ConnectionDone()))
    assert not later.is_wanted()
