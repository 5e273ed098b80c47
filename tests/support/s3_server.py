"""An S3 server on loopback whose front lets chosen requests fail: refused, lost before they arrive, carried out with
their answer lost, or not answered at all."""

from __future__ import annotations

import io
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

import pytest
from kept_connections import EndingServer

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
    application: Any
    """The S3 of moto, by WSGI: a second server behind the first would take half of the processor time."""
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
        disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgement of its headers

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
            from werkzeug.test import run_wsgi_app

            parts, status, headers = run_wsgi_app(proxy.application, self._environ(body), buffered=True)
            return int(status.partition(" ")[0]), list(headers), b"".join(parts)

        def _environ(self, body: bytes) -> dict[str, Any]:
            path, _, query = self.path.partition("?")
            path = unquote(path).encode().decode("latin-1")
            said = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()}
            return said | {
                "REQUEST_METHOD": self.command, "SCRIPT_NAME": "", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_URI": self.path, "RAW_URI": self.path, "SERVER_NAME": "127.0.0.1",
                "SERVER_PORT": str(proxy.port), "SERVER_PROTOCOL": self.request_version,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body),
                "wsgi.errors": sys.stderr, "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
            }  # fmt: skip

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
    """A server with an empty bucket."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.core.base_backend import BackendDict
    from moto.core.model_instances import reset_model_data
    from moto.s3.models import s3_backends
    from moto.server import create_backend_app

    BackendDict.reset()
    reset_model_data()
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
    front = EndingServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    proxy = Proxy(front.server_port, create_backend_app("s3"))
    front.RequestHandlerClass = _handler(proxy)
    threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, name="s3-proxy", daemon=True).start()
    try:
        yield proxy
    finally:
        front.shutdown()
        front.server_close()
