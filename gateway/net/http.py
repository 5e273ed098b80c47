"""The admin port: metrics, probes, and below /api/v1 whatever the application mounts. No business of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

Answer = tuple[int, bytes, str]
"""Status, body, content type."""


class Page(Resource):
    """A GET that is answered from memory."""

    isLeaf = True

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        super().__init__()
        self._answer = answer

    def render_GET(self, request: Request) -> bytes:
        """Ask, and say what came of it."""
        status, body, content_type = self._answer(request)
        request.setResponseCode(status)
        request.setHeader("content-type", content_type)
        request.setHeader("cache-control", "no-store")
        return body


class AdminSite(Site):
    """HTTP without an access log, with a bound on how long a silent connection is kept."""

    displayTracebacks = False
    noisy = False

    def __init__(self, root: Resource) -> None:
        super().__init__(root, timeout=60)

    def log(self, request: Any) -> None:
        """Scrapes are no news."""


def listen(reactor: Any, root: Resource, bind: str, port: int) -> IListeningPort:
    """Serve `root`; OSError (as Twisted's CannotListenError) says what is in the way."""
    listening: IListeningPort = reactor.listenTCP(port, AdminSite(root), interface=bind)
    return listening
