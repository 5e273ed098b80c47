"""A durable session that is away, so that a peer has somewhere to store what it acknowledges.

RabbitMQ answers a publication that nobody has subscribed to at once and keeps it nowhere. To compare like with like its
publishing cases run with one durable session subscribed to everything and disconnected: each message then goes to that
session's queue, on disk before the acknowledgement.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

CLIENT = b"stored-bench"
DISCONNECT = b"\xe0\x00"


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _connected(port: int, *, clean: bool) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(_packet(0x10, _text(b"MQTT") + bytes((4, 2 if clean else 0, 0, 0)) + _text(CLIENT)))
    answer = made.recv(4)
    if len(answer) != 4 or answer[3]:
        raise RuntimeError(f"the peer on port {port} refused the stored session: {answer.hex()}")
    return made


@contextmanager
def stored_session(port: int) -> Iterator[None]:
    """One durable session, subscribed to `#` at QoS 1 and away; gone afterwards with all that was stored for it."""
    with _connected(port, clean=False) as client:
        client.sendall(_packet(0x82, b"\x00\x01" + _text(b"#") + b"\x01"))
        if client.recv(5)[-1:] != b"\x01":
            raise RuntimeError(f"the peer on port {port} did not take the subscription at QoS 1")
        client.sendall(DISCONNECT)
    try:
        yield
    finally:
        with _connected(port, clean=True) as client:
            client.sendall(DISCONNECT)
