"""Long answers: pieces from an iterator, made in a thread and sent as fast as the client reads them.

`handle(method, path, query, body)` makes the answers; the guard authenticates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twisted.internet.interfaces import IPullProducer
from twisted.internet.threads import deferToThread
from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from gateway.net.calls import Problem
from gateway.net.guard import Guard, check_host
from gateway.net.http import Bounded
from gateway.ports.people import OPERATOR, VIEWER

MAX_BATCH = 4 << 20
"""The longest batch of the pipeline's sink."""
Handle = Callable[[str, str, Mapping[str, str], bytes], tuple[int, str, Iterator[bytes]]]


class StreamedAnswers(Bounded):
    """Answers all requests below one path."""

    isLeaf = True

    def __init__(self, handle: Handle, guard: Guard) -> None:
        super().__init__()
        self._handle = handle
        self._guard = guard

    def most(self, request: Request, method: str, path: str) -> int | None:
        """One batch of the pipeline's sink; None: the request will be refused. Twisted keeps what is longer than 100 KB
        in a temporary file."""
        del path
        try:
            self._check(request, method)
        except Problem:
            return None
        return MAX_BATCH

    def render(self, request: Request) -> Any:
        """Call `handle`, then send the answer piece by piece."""
        try:
            status, kind, body = self._answer(request)
        except Problem as problem:
            status, kind, body = (
                problem.status,
                "application/json",
                iter([json.dumps({"error": str(problem)}).encode()]),
            )
        request.setResponseCode(status)
        request.setHeader("content-type", kind)
        request.registerProducer(_Pieces(request, body), streaming=False)
        return NOT_DONE_YET

    def _check(self, request: Request, method: str) -> None:
        """Raise Problem unless the caller may make this request."""
        check_host(request, self._guard.hosts, method)
        self._guard.check(request, self._guard.caller_of(request), VIEWER if method == "GET" else OPERATOR, method)

    def _answer(self, request: Request) -> tuple[int, str, Iterator[bytes]]:
        method = request.method.decode("latin-1")
        self._check(request, method)
        content: Any = request.content
        data = content.read(MAX_BATCH + 1)
        if len(data) > MAX_BATCH:
            raise Problem(413, "Too long", f"a request has at most {MAX_BATCH} bytes")
        path = "/".join(segment.decode("utf-8", "replace") for segment in request.postpath or ())
        query = {
            name.decode("utf-8", "replace"): values[-1].decode("utf-8", "replace")
            for name, values in request.args.items()
        }
        return self._handle(method, path, query, data)


@implementer(IPullProducer)
class _Pieces:
    """Makes each piece when the one before has been written to the socket, so that a slow client costs the memory of
    one."""

    def __init__(self, request: Request, body: Iterator[bytes]) -> None:
        self._request = request
        self._body = body
        self._over = False
        self._busy = False
        request.notifyFinish().addErrback(lambda _: self.stopProducing())

    def resumeProducing(self) -> None:
        """Make the next piece, as the transport wants more."""
        if self._busy or self._over:
            return
        self._busy = True
        deferToThread(next, self._body, None).addCallbacks(self._made, self._failed)

    def stopProducing(self) -> None:
        """The client has disconnected."""
        self._over = True

    def _made(self, piece: bytes | None) -> None:
        self._busy = False
        if self._over:
            return
        if piece is None:
            self._finish()
        elif piece:
            self._request.write(piece)
        else:
            self.resumeProducing()

    def _failed(self, _: object) -> None:
        """Break the connection. As the headers are sent already, nothing else shows that the answer is incomplete."""
        self._busy = False
        if not self._over:
            self._over = True
            transport: Any = self._request.transport
            if transport is not None:
                transport.abortConnection()

    def _finish(self) -> None:
        self._over = True
        self._request.unregisterProducer()
        self._request.finish()
