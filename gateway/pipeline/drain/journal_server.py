"""The journal that a drainer fills, served to readers over HTTP with a token, as a gateway's administration port does.

The draining process owns the journal, so readers find cursors, leases and messages at its address: option `url` of the
data source and of jobs. One thread drains; requests come in others and hold the same lock. The server is the standard
library's, with a thread for each connection.
"""

from __future__ import annotations

import hmac
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gateway.errors import StoreUnavailable
from gateway.pipeline.http_port import listening
from gateway.pipeline.journal.owner import StoreJournal
from gateway.pipeline.journal.service import JSON, PREFIX, Query, Reply
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import StoreUnit

MAX_BODY = 256 * 2**20
Handle = Callable[[str, str, Query, bytes], Reply]


class LockedJournal(StoreJournal):
    """A store that one thread fills and others read: each frame, and the maintenance due after it, under the lock."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, clock)
        self.lock = threading.RLock()

    def commit(self, unit: StoreUnit) -> None:
        """One frame, then one bounded step of maintenance."""
        with self.lock:
            super().commit(unit)
            with suppress(StoreUnavailable):  # a full disk: the frame is stored all the same
                self.maintain()

    def tidy(self) -> None:
        """All the maintenance there is, while no messages come."""
        with self.lock, suppress(StoreUnavailable):
            while self.store.wants_maintenance:
                self.maintain()

    def guarded(self, handle: Handle) -> Handle:
        """A handler that holds the lock. The body of its reply is read from the files afterwards, without the lock."""

        def locked(method: str, path: str, query: Query, body: bytes) -> Reply:
            with self.lock:
                return handle(method, path, query, body)

        return locked


def open_journal(folder: Path) -> LockedJournal:
    """The journal in a folder, created if there is none. StoreInUse while another process owns it."""
    return LockedJournal(Store.open(folder, clock=time.time))


class _Server(ThreadingHTTPServer):
    """A thread for each connection. Connections that break off or speak no TLS are not reported."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report only errors of our own."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def serve(
    bind: str,
    port: int,
    handle: Handle,
    token: str,
    metrics: Callable[[], str],
    certificate: tuple[Path, Path] | None = None,
) -> ThreadingHTTPServer:
    """Answer /api/pipeline/ for clients that send the token, and /metrics for all. Runs until `shutdown`."""
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        timeout = 60  # a reader that stops reading does not keep its thread for ever

        def answer(self) -> None:
            split = urlsplit(self.path)
            if split.path == "/metrics" and self.command == "GET":
                self.send(Reply(200, "text/plain; version=0.0.4; charset=utf-8", iter([metrics().encode()])))
            elif not hmac.compare_digest(self.headers.get("Authorization", "").encode(), expected):
                self.send(problem(401, "send the token of this drainer as a bearer token"))
            elif not split.path.startswith(PREFIX):
                self.send(problem(404, f"there is nothing at {split.path}"))
            else:
                self.pipeline(split.path.removeprefix(PREFIX), dict(parse_qsl(split.query)))

        def pipeline(self, path: str, query: Query) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > MAX_BODY:
                self.send(problem(413, f"a request has at most {MAX_BODY} bytes"))
                return
            self.send(handle(self.command, path, query, self.rfile.read(length)))

        def send(self, reply: Reply) -> None:
            """Without Content-Length: the end of the connection ends the reply."""
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            for part in reply.body:
                self.wfile.write(part)

        do_GET = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Requests are not logged."""

    server = listening(_Server, bind, port, Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        # The connection's own thread makes the handshake: a client that sends nothing keeps no others waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, name="pipeline-service", daemon=True).start()
    return server


def problem(status: int, text: str) -> Reply:
    """An error in the form that `PipelineService` gives errors."""
    return Reply(status, JSON, iter([json.dumps({"error": text, "kind": ""}).encode()]))
