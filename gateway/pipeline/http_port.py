"""The ports on which jobs serve metrics and drains their journal, or the sentence that says why there is none."""

from __future__ import annotations

import errno
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from gateway.pipeline.errors import PipelineError

Server = TypeVar("Server", bound=ThreadingHTTPServer)


def listening(kind: type[Server], bind: str, port: int, handler: type[BaseHTTPRequestHandler]) -> Server:
    """A server that listens on a port. PipelineError where it cannot."""
    try:
        return kind((bind, port), handler)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "stop what listens there, or give another port" if taken else "correct the address, or give another port"
        raise PipelineError(f"no requests can be answered on {bind}:{port} ({error.strerror}): {hint}") from error
