"""gateway.pipeline.http_port: why a port cannot be had."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from gateway.pipeline.drain.journal_server import serve
from gateway.pipeline.errors import PipelineError
from gateway.pipeline.jobs.metrics import serve_metrics


def metrics(bind: str, port: int) -> Any:
    return serve_metrics(bind, port, str)


def journal(bind: str, port: int) -> Any:
    def handle(*_: object) -> Any: ...

    return serve(bind, port, handle, "token", str)


@pytest.mark.parametrize("listen", [metrics, journal])
def test_a_port_that_cannot_be_had_is_named(listen: Callable[[str, int], Any]) -> None:
    """It was `Address already in use: correct the path`, which names neither port nor remedy."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PipelineError, match=rf"127\.0\.0\.1:{port} \(Address already in use\): stop what listens"):
            listen("127.0.0.1", port)
    with pytest.raises(PipelineError, match=r"192\.0\.2\.1:1 \(Cannot assign.*\): correct the address"):
        listen("192.0.2.1", 1)
