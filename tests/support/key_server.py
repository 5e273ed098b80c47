"""A provider of identities that does as it is told: over loopback, with or without TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

PrivateKey = ec.EllipticCurvePrivateKey
Handler = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; `give` answers it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgement of its headers
    server: Any

    def do_GET(self) -> None:
        self.server.owner.serve(self)

    do_POST = do_GET

    def give(self, body: object, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def raw(self, *pieces: bytes) -> None:
        """These bytes, as they are."""
        self.close_connection = True
        for piece in pieces:
            self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Tests say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: KeyServer

    def handle_error(self, *_: object) -> None:
        """Clients that go away are what is tested."""


class KeyServer:
    """Answers `paths`, and counts who asked for what. `hold`: while it is set, requests wait."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.asked: list[str] = []
        self.paths: dict[str, Handler] = {}
        self.free = threading.Event()
        self.free.set()
        self._server = _Server(("127.0.0.1", 0), Request)
        self._server.owner = self
        self.port = self._server.server_address[1]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*map(str, certificate))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def serve(self, request: Request) -> None:
        self.asked.append(request.path)
        self.free.wait(60)
        handler = self.paths.get(request.path)
        if handler is None:
            request.give({"error": "no such path"}, 404)
        else:
            handler(request)

    def publishes(self, *keys: tuple[str | None, PrivateKey], path: str = "/keys", **headers: str) -> None:
        """From now on these are the keys."""
        document = {"keys": [published(key, kid) for kid, key in keys]}
        self.paths[path] = lambda request: request.give(document, **headers)

    def discovered(self, jwks_uri: str | None = None, issuer: str | None = None) -> None:
        """It says where its keys are."""
        document = {"issuer": issuer or self.url, "jwks_uri": f"{self.url}/keys" if jwks_uri is None else jwks_uri}
        self.paths["/.well-known/openid-configuration"] = lambda request: request.give(document)

    def close(self) -> None:
        self.free.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def published(key: PrivateKey, kid: str | None = None, **more: object) -> dict[str, object]:
    """The public half of a key as an issuer publishes it."""
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return {**public, "use": "sig", "alg": "ES256", **({"kid": kid} if kid else {}), **more}


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def signed(key: PrivateKey, kid: str | None, /, **claims: object) -> bytes:
    """A token of a day for `d7`, if nothing else is said: some are made when tests are collected."""
    import time

    body = {"sub": "d7", "exp": time.time() + 86_400, **claims}
    return jwt.encode(body, key, "ES256", {"kid": kid} if kid else None).encode()
