"""Anything at the MQI socket: the server answers or cuts the peer off, nobody else notices; the library says 2009."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import mqi_clients
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers import ManualScheduler

from gateway.mqi.server_protocol import ServerProtocol
from gateway.mqi.wire import HEADER, MAGIC, PROTOCOL_VERSION, Frames, Verb
from gateway.queue_manager.embedded import EmbeddedQueueManager

ROUNDS = 3000 if os.environ.get("MQGATE_LONG") else 150


def _blob(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


GREETING = MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + b"".join(map(_blob, [b"", b"u", b"", b"", b"", b""]))
OPEN_A = struct.pack("<i", 1) + b"".join(map(_blob, [b"A", b"", b"", b"", b"", b""])) + struct.pack("<i", 0x7A)
MD = b"MD  " + struct.pack("<iiiiiii", 2, 0, 8, -1, 0, 546, 0) + b" " * 8 + struct.pack("<ii", 0, 0) + bytes(300)
MD += struct.pack("<4i", 1, 0, 0, -1)


def _frame(verb: int, body: bytes, tag: int = 1, flags: int = 0) -> bytes:
    return HEADER.pack(len(body) + 4, verb, flags, tag) + body


class Peer:
    """A server protocol and what it has answered."""

    def __init__(self, queue_manager: EmbeddedQueueManager) -> None:
        self.answers = Frames()
        self.closed = False
        self.protocol = ServerProtocol(queue_manager, self.answers.add, self._close, monotonic=lambda: 0.0, user="me")

    def _close(self) -> None:
        self.closed = True

    def reasons(self) -> list[int]:
        return [struct.unpack_from("<ii", body)[1] for _verb, _flags, _tag, body in self.answers.take()]


@pytest.fixture(scope="module")
def queue_manager():
    made = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), "DEFINE QLOCAL(A)")
    yield made
    made.close()


def _greeted(queue_manager: EmbeddedQueueManager) -> Peer:
    peer = Peer(queue_manager)
    peer.protocol.receive(_frame(Verb.CONNECT, GREETING) + _frame(Verb.OPEN, OPEN_A))
    assert peer.reasons() == [0, 0]
    return peer


@given(st.binary(max_size=200))
def test_any_bytes_from_a_stranger(queue_manager: EmbeddedQueueManager, data: bytes) -> None:
    peer = Peer(queue_manager)
    peer.protocol.receive(data)
    peer.protocol.connection_lost()
    assert peer.protocol._connection is None


@given(st.sampled_from(list(Verb)), st.binary(max_size=500), st.integers(0, 255))
def test_any_body_for_any_verb(queue_manager: EmbeddedQueueManager, verb: Verb, body: bytes, flags: int) -> None:
    peer = _greeted(queue_manager)
    peer.protocol.receive(_frame(verb, body, flags=flags))
    assert peer.closed or peer.protocol.waiting or verb is Verb.DISCONNECT or peer.answers.waiting() >= 0
    peer.protocol.connection_lost()


VALID = [
    (Verb.PUT, struct.pack("<4i", 1, 0, 0, 9) + MD + _blob(b"") + _blob(b"data")),
    (Verb.PUT1, OPEN_A[:-4] + struct.pack("<3i", 0, 0, 9) + MD + _blob(b"") + _blob(b"data")),
    (Verb.GET, struct.pack("<7i", 1, 0, 0, 0, 0, 2, 100) + bytes(16) + MD),
    (Verb.INQUIRE, struct.pack("<3i", 1, 1, 3)),
    (Verb.SET, struct.pack("<3i", 1, 1, 10) + _blob(struct.pack("<i", 0)) + _blob(b"")),
    (Verb.COMMIT, b""),
    (Verb.BACK_OUT, b""),
    (Verb.STATUS, struct.pack("<i", 0)),
    (Verb.CLOSE, struct.pack("<2i", 1, 0)),
]


@settings(max_examples=ROUNDS)
@given(st.lists(st.tuples(st.sampled_from(VALID), st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6))
def test_valid_frames_with_a_byte_changed(
    queue_manager: EmbeddedQueueManager, calls: list[tuple[tuple[Verb, bytes], int, int]]
) -> None:
    peer = _greeted(queue_manager)
    for (verb, body), at, value in calls:
        changed = bytearray(body)
        if changed:
            changed[at % len(changed)] = value
        peer.protocol.receive(_frame(verb, bytes(changed)))
    peer.protocol.connection_lost()
    sane = _greeted(queue_manager)  # nobody else has noticed
    sane.protocol.receive(_frame(Verb.DISCONNECT, b""))
    assert sane.reasons() == [0]


def test_a_unit_of_work_of_a_lost_peer_is_backed_out(queue_manager: EmbeddedQueueManager) -> None:
    before = queue_manager.depth("A")
    peer = _greeted(queue_manager)
    peer.protocol.receive(_frame(Verb.PUT, struct.pack("<4i", 1, 2, 0, 9) + MD + _blob(b"") + _blob(b"data")))
    assert peer.reasons() == [0]
    peer.protocol.connection_lost()
    assert queue_manager.depth("A") == before


def test_a_waiting_get_is_answered_and_cancelled(queue_manager: EmbeddedQueueManager) -> None:
    drained, waiting, putting = (_greeted(queue_manager) for _ in range(3))
    get = struct.pack("<7i", 1, 0, 0, 0, 0, 2, 100) + bytes(16) + MD
    while True:
        drained.protocol.receive(_frame(Verb.GET, get))
        if drained.reasons() != [0]:
            break
    wait = struct.pack("<7i", 1, 1, -1, 0, 0, 2, 100) + bytes(16) + MD
    waiting.protocol.receive(_frame(Verb.GET, wait) + _frame(Verb.COMMIT, b"", tag=2))
    assert waiting.protocol.waiting
    assert waiting.reasons() == []
    put = _frame(Verb.PUT, struct.pack("<4i", 1, 0, 0, 9) + MD + _blob(b"") + _blob(b"data"))
    putting.protocol.receive(put)
    assert waiting.reasons() == [0, 0]  # the get, then the commit that had come behind it
    waiting.protocol.receive(_frame(Verb.GET, wait))
    waiting.protocol.connection_lost()
    putting.protocol.receive(put)
    drained.protocol.receive(_frame(Verb.GET, get))
    assert drained.reasons() == [0]  # the lost peer has not taken it


# The other side: the library against a server that answers nonsense


@pytest.mark.mqi
def test_the_library_survives_any_answer(tmp_path: Path) -> None:
    program = mqi_clients.sanitized_program()
    path = tmp_path / "nonsense.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    chance = random.Random(7)
    threading.Thread(target=_answer_nonsense, args=(listener, chance), daemon=True).start()
    command = [str(program), "any_answers", str(ROUNDS)]
    environment = {**os.environ, "MQGATE_MQI": str(path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, env=environment)
    listener.shutdown(socket.SHUT_RDWR)  # or its thread would wait for one more
    listener.close()
    assert done.stdout == "survived\n", done.stderr


def _answer_nonsense(listener: socket.socket, chance: random.Random) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), peer:
            frames = Frames()
            while chunk := peer.recv(65536):
                frames.add(chunk)
                for verb, _flags, tag, _body in frames.take():
                    peer.sendall(_nonsense(verb, tag, chance))


def _nonsense(verb: int, tag: int, chance: random.Random) -> bytes:
    if verb == Verb.CONNECT and chance.random() < 0.9:
        body = struct.pack("<3i", 0, 0, PROTOCOL_VERSION) + _blob(b"QM1") + bytes(24)
    else:
        body = struct.pack("<2i", *chance.choice([(0, 0), (1, 2080), (2, 2033), (7, 1)])) + chance.randbytes(
            chance.choice([0, 4, 40, 400, 500])
        )
        if chance.random() < 0.5 and len(body) > 400:
            body = (
                body[:372]
                + struct.pack("<ii", chance.randrange(100), chance.choice([0, 20, 64, 65, 1 << 30, -1]))
                + body[380:]
            )
    length = len(body) + 4 if chance.random() < 0.95 else chance.choice([0, 3, 1 << 28, 0xFFFFFFFF])
    return HEADER.pack(length, verb, 0, tag if chance.random() < 0.98 else 9) + body
