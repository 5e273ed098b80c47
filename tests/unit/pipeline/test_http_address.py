"""What is told of an address where a gateway does not answer as it should."""

from __future__ import annotations

import socket

import pytest

from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.source.http_access import HttpAddress


def test_tls_is_spoken_to_a_port_without_it() -> None:
    """It waits for the end of a line, which never comes."""
    with socket.create_server(("127.0.0.1", 0)) as plain:
        address = HttpAddress(f"https://127.0.0.1:{plain.getsockname()[1]}", "", "", "")
        with pytest.raises(QueueUnreachable, match=r"no TLS connection to https.*: write http:// where the gateway"):
            address.call("GET", "groups", timeout=0.2)
