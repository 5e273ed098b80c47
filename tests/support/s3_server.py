"""An S3 server on loopback, and a proxy in front of it that lets chosen requests fail: refused, lost before they
arrive, carried out with their answer lost, or not answered at all."""

from __future__ import annotations

import http.client
import logging
import re
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

BUCKET = "lake"
MANIFEST = r"/_manifest/log/"


@dataclass
class Fault:
    """What happens to requests of one kind."""

    method: str
    path: str
    """A regular expression that is found in the path."""
    does: str
    """`lost` before the server sees it, `reset` likewise and with an RST, `answer lost` after it, `no answer` until
    the client gives up (the server has carried it out), or a status code, which S3's own may follow: `400
    ExpiredToken`."""
    times: int = 1
    then: Callable[[], None] | None = None
    """Called where the request, or its answer, is lost."""

    def takes(self, method: str, path: str) -> bool:
        return self.times > 0 and method == self.method and re.search(self.path, path) is not None


@dataclass
class Proxy:
    """Counts requests and applies faults."""

    port: int
    behind: int
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.seen.append((method, path))
            for one in self.faults:
                if one.takes(method, path):
                    one.times -= 1
                    return one
        return None

    def unspent(self) -> list[Fault]:
        return [one for one in self.faults if one.times > 0]


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault(self.command, self.path)
            if fault is not None and fault.does in ("lost", "reset"):
                if fault.does == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if fault.then is not None:
                    fault.then()
                self._hang_up()
                return
            status, _, code = fault.does.partition(" ") if fault is not None else ("", "", "")
            if status.isdigit():
                text = f"<Error><Code>{code or 'Fault'}</Code></Error>"
                self._answer(int(status), [("Content-Type", "application/xml")], text.encode())
                return
            found, headers, answer = self._forward(body)
            if fault is not None:
                if fault.then is not None:
                    fault.then()
                if fault.does == "no answer":
                    with suppress(OSError):
                        self.connection.recv(1)  # nothing, when the client closes
                self._hang_up()
                return
            with suppress(BrokenPipeError, ConnectionResetError):  # a client that was killed
                self._answer(found, headers, answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

        def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", proxy.behind, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                found = connection.getresponse()
                return found.status, found.getheaders(), found.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _hang_up(self) -> None:
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            """Requests are counted, not logged."""

    return Handler


CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_REGION": "us-east-1"}


def environment(url: str) -> dict[str, str]:
    """How programs find the server, by the usual variables."""
    return CREDENTIALS | {"AWS_ENDPOINT_URL": url}


@contextmanager
def s3_found(patch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A server that programs find by the usual variables."""
    for module in ("obstore", "moto"):
        pytest.importorskip(module, reason=f"{module} is not installed: tests/run installs it")
    with s3_server() as server:
        lead_to(server, patch)
        yield server


def lead_to(server: Proxy, patch: pytest.MonkeyPatch) -> None:
    """Have programs find it."""
    for name, value in environment(server.url).items():
        patch.setenv(name, value)


@contextmanager
def s3_server() -> Iterator[Proxy]:
    """A server with an empty bucket, behind a proxy."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, behind = server.get_host_and_port()
    front = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    proxy = Proxy(front.server_port, behind)
    front.RequestHandlerClass = _handler(proxy)
    front.daemon_threads = True
    threading.Thread(target=front.serve_forever, name="s3-proxy", daemon=True).start()
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{behind}/moto-api/reset", method="POST")
        urllib.request.urlopen(request, timeout=30).close()
        request = urllib.request.Request(f"http://127.0.0.1:{behind}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        yield proxy
    finally:
        front.shutdown()
        front.server_close()
        server.stop()
