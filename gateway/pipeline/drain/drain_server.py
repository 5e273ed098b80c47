"""The pipeline's service beside a drainer, over HTTP with a token: what a gateway's administration port would answer.

The standard library's server, a thread for each connection; `url` of the data source and of jobs may point here.
"""

from __future__ import annotations

import hmac
import json
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gateway.pipeline.source.service import JSON, PREFIX, Query, Reply

MAX_BODY = 256 * 2**20
Handle = Callable[[str, str, Query, bytes], Reply]


class Server(ThreadingHTTPServer):
    """A thread for each connection; one that breaks off, or is no TLS, is not worth a page of text."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Told only when the mistake is ours."""
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
    """Answer /api/pipeline/ for whoever has the token, and /metrics for everybody. Runs until `shutdown`."""
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
            """Without a length: the end of the connection is the end of the answer."""
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            for part in reply.body:
                self.wfile.write(part)

        do_GET = do_POST = answer  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Requests are not news."""

    server = Server((bind, port), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        # The handshake is made by the connection's own thread: a client that says nothing keeps nobody else waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, name="pipeline-service", daemon=True).start()
    return server


def problem(status: int, text: str) -> Reply:
    """An error, as the service tells one."""
    return Reply(status, JSON, iter([json.dumps({"error": text, "kind": ""}).encode()]))
