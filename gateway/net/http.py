"""The HTTP server of the admin port, and pages answered from memory. Knows nothing of what it serves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

Answer = tuple[int, bytes, str]
"""Status, body, content type."""
MAX_BODY = 4 << 20
MAX_CONNECTIONS = 500
_TOO_LONG = (
    b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"  # nothing of it was kept
)


class Page(Resource):
    """A GET that is answered from memory."""

    isLeaf = True

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        super().__init__()
        self._answer = answer

    def render_GET(self, request: Request) -> bytes:
        """Call the function of the page and send its answer."""
        status, body, content_type = self._answer(request)
        request.setResponseCode(status)
        request.setHeader("content-type", content_type)
        request.setHeader("cache-control", "no-store")
        return body


class BoundedRequest(Request):
    """A request with a bounded body: the connection ends when it is too long, announced or sent in chunks."""

    def gotLength(self, length: int | None) -> None:
        """Check Content-Length before any of the body is kept."""
        super().gotLength(None if length is not None and length > MAX_BODY else length)
        if length is not None and length > MAX_BODY:
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """A part of the body."""
        content: Any = self.content
        if content.tell() + len(data) > MAX_BODY:
            self._refuse()
        else:
            super().handleContentChunk(data)

    def _refuse(self) -> None:
        channel: Any = self.channel
        if not channel.transport.disconnecting:
            channel.transport.write(_TOO_LONG)
            channel.transport.loseConnection()


class AdminSite(Site):
    """HTTP without an access log, with bounds on how many connections there are and how long a silent one is kept."""

    displayTracebacks = False
    noisy = False

    def __init__(self, root: Resource) -> None:
        super().__init__(root, requestFactory=BoundedRequest, timeout=60)
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()

    def buildProtocol(self, addr: Any) -> Any:
        """A connection; None refuses it."""
        if len(self._open) >= MAX_CONNECTIONS:
            return None
        protocol = super().buildProtocol(addr)
        self._open.add(protocol)
        return protocol

    def log(self, request: Any) -> None:
        """No access log: it would be full of scrapes."""


def listen(reactor: Any, root: Resource, bind: str, port: int) -> IListeningPort:
    """Serve `root`; OSError (as Twisted's CannotListenError) says what is in the way."""
    listening: IListeningPort = reactor.listenTCP(port, AdminSite(root), interface=bind)
    return listening
