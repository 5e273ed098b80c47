"""The C library reads an answer in whatever pieces it comes, and accepts nothing that was not asked for."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import mqi_clients
import pytest
from embedded_rig import md
from schedulers import ManualScheduler

from gateway.mq import constants as mq
from gateway.mqi.server_protocol import ServerProtocol
from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = pytest.mark.mqi
Send = Callable[[socket.socket, bytes], None]
LONG = ctypes.c_int32


def in_pieces(*sizes: int) -> Send:
    def send(peer: socket.socket, answer: bytes) -> None:
        for size in cycle(sizes):
            if not answer:
                return
            peer.sendall(answer[:size])
            answer = answer[size:]

    return send


def with_more(peer: socket.socket, answer: bytes) -> None:
    peer.sendall(answer + b"more" if answer[4] == 3 else answer)  # behind the answer to MQOPEN


class Library:
    """Returns the calls of a program, with their reason codes."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(mqi_clients.installation().library), mode=ctypes.RTLD_GLOBAL)
        self.connection, self.reason = LONG(), 0

    def call(self, name: str, *arguments: object) -> int:
        code, reason = LONG(), LONG()
        first = (self.connection,) if name not in {"MQCONN", "MQDISC"} else ()
        getattr(self._library, name)(*first, *arguments, ctypes.byref(code), ctypes.byref(reason))
        return reason.value

    def connect(self) -> int:
        return self.call("MQCONN", b"QM1".ljust(48), ctypes.byref(self.connection))

    def disconnect(self) -> int:
        return self.call("MQDISC", ctypes.byref(self.connection))

    def open(self, queue: bytes, options: int) -> tuple[int, LONG]:
        handle = LONG()
        described = b"OD  " + struct.pack("<2i", 1, 1) + queue.ljust(48) + b" " * 48 + b"AMQ.*".ljust(48) + b" " * 12
        made = ctypes.create_string_buffer(described)
        return self.call("MQOPEN", made, LONG(options), ctypes.byref(handle)), handle

    def put(self, handle: LONG, data: bytes) -> int:
        options = b"PMO " + struct.pack("<7i", 1, mq.MQPMO_NO_SYNCPOINT, -1, 0, 0, 0, 0) + b" " * 96
        descriptor = ctypes.create_string_buffer(md())
        return self.call("MQPUT", handle, descriptor, ctypes.create_string_buffer(options), LONG(len(data)), data)

    def get(self, handle: LONG, size: int) -> tuple[int, bytes]:
        options = b"GMO " + struct.pack("<5i", 1, mq.MQGMO_NO_SYNCPOINT, 0, 0, 0) + b" " * 48
        room, length = ctypes.create_string_buffer(size), LONG()
        descriptor = ctypes.create_string_buffer(md())
        reason = self.call(
            "MQGET", handle, descriptor, ctypes.create_string_buffer(options), LONG(size), room, ctypes.byref(length)
        )
        return reason, room.raw[: length.value]


class Served:
    """A queue manager behind a socket whose answers are sent in the given way."""

    def __init__(self, path: Path, send: Send) -> None:
        self._manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), "DEFINE QLOCAL(Q)")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._send = send
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            protocol = ServerProtocol(
                self._manager, lambda answer: self._send(peer, answer), lambda: None, monotonic=time.monotonic,
            )  # fmt: skip
            while chunk := peer.recv(1 << 20):
                protocol.receive(chunk)
            protocol.connection_lost()

    def close(self) -> None:
        self._thread.join(60)
        self._listener.close()
        self._manager.close()


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Send], Library]]:
    made: list[Served] = []
    program = Library()

    def start(send: Send) -> Library:
        made.append(Served(tmp_path / "mqi.sock", send))
        monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "mqi.sock"))
        assert program.connect() == 0
        return program

    yield start
    program.disconnect()
    for one in made:
        one.close()


@pytest.mark.parametrize("sizes", [(1,), (7, 1), (8,), (4095, 2), (1 << 20,)], ids=str)
def test_an_answer_is_read_in_any_pieces(serve, sizes) -> None:
    program = serve(in_pieces(*sizes))
    reason, handle = program.open(b"Q", mq.MQOO_INPUT_SHARED | mq.MQOO_OUTPUT)
    assert reason == 0
    for data in (b"", b"short", b"x" * 4000, b"y" * 20_000, b"z"):
        assert program.put(handle, data) == 0
        assert program.get(handle, 30_000) == (0, data)
    assert program.get(handle, 30_000)[0] == mq.MQRC_NO_MSG_AVAILABLE


def test_what_follows_an_answer_ends_the_connection(serve) -> None:
    program = serve(with_more)
    assert program.open(b"Q", mq.MQOO_OUTPUT)[0] == mq.MQRC_CONNECTION_BROKEN
