"""The threaded MQI server and the scheduler it runs with; sockets and signals of the standalone queue manager."""

from __future__ import annotations

import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import MqgateError
from gateway.mqi.serve import MqiServer
from gateway.mqi.wire import HEADER, MAGIC, PROTOCOL_VERSION, Verb
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler


def _blob(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


GREETING = MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + b"".join(map(_blob, [b""] * 6))
OPEN_A = struct.pack("<i", 1) + b"".join(map(_blob, [b"A", b"", b"", b"", b"", b""])) + struct.pack("<i", 0x7A)
MD = b"MD  " + struct.pack("<iiiiiii", 2, 0, 8, -1, 0, 546, 0) + b" " * 8 + struct.pack("<ii", 0, 0) + bytes(300)
MD += struct.pack("<4i", 1, 0, 0, -1)


class Program:
    """A connected program, spoken for byte by byte."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(path))

    def call(self, verb: Verb, body: bytes = b"") -> tuple[int, bytes]:
        self.socket.sendall(HEADER.pack(len(body) + 4, verb, 0, 1) + body)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        length, _verb, _flags, _tag = HEADER.unpack(self._read(HEADER.size))
        body = self._read(length - 4)
        return struct.unpack_from("<ii", body)[1], body[8:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def greeted(self) -> Program:
        assert self.call(Verb.CONNECT, GREETING)[0] == 0
        assert self.call(Verb.OPEN, OPEN_A)[0] == 0
        return self

    def put(self, options: int = 0) -> int:
        return self.call(Verb.PUT, struct.pack("<4i", 1, options, 0, 9) + MD + _blob(b"") + _blob(b"data"))[0]


@pytest.fixture
def queue_manager() -> Iterator[EmbeddedQueueManager]:
    with ThreadScheduler() as scheduler:
        made = EmbeddedQueueManager.open(None, "QM1", scheduler, "DEFINE QLOCAL(A)")
        yield made
        made.close()


@pytest.fixture
def server(queue_manager: EmbeddedQueueManager, tmp_path: Path) -> Iterator[MqiServer]:
    made = MqiServer(queue_manager, tmp_path / "mqi.sock", max_connections=2)
    made.start()
    yield made
    made.stop()


def _until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_socket_is_its_owners_alone_and_goes_with_the_server(server: MqiServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    server.stop()
    assert not server.path.exists()
    server.stop()


def test_a_stale_socket_is_replaced_and_a_served_one_refused(
    queue_manager: EmbeddedQueueManager, server: MqiServer, tmp_path: Path
) -> None:
    with pytest.raises(MqgateError, match="another process"):
        MqiServer(queue_manager, server.path).start()
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    other = MqiServer(queue_manager, stale)
    other.start()
    Program(stale).greeted()
    other.stop()


def test_a_program_that_dies_is_backed_out(queue_manager: EmbeddedQueueManager, server: MqiServer) -> None:
    program = Program(server.path).greeted()
    assert program.put(2) == 0
    program.socket.close()
    _until(lambda: len(server._programs) == 0)
    assert queue_manager.depth("A") == 0


def test_disconnecting_commits(queue_manager: EmbeddedQueueManager, server: MqiServer) -> None:
    program = Program(server.path).greeted()
    assert program.put(2) == 0
    assert program.call(Verb.DISCONNECT)[0] == 0
    assert queue_manager.depth("A") == 1


def test_a_waiting_get_does_not_hold_up_other_programs(server: MqiServer) -> None:
    waiting, putting = Program(server.path).greeted(), Program(server.path).greeted()
    wait = struct.pack("<7i", 1, 1, -1, 0, 0, 2, 100) + bytes(16) + MD
    waiting.socket.sendall(HEADER.pack(len(wait) + 4, Verb.GET, 0, 1) + wait)
    assert putting.put() == 0
    reason, body = waiting.answer()
    assert reason == 0
    assert b"data" in body


def test_a_wait_that_ends_empty_is_2033(server: MqiServer) -> None:
    program = Program(server.path).greeted()
    wait = struct.pack("<7i", 1, 1, 30, 0, 0, 2, 100) + bytes(16) + MD
    assert program.call(Verb.GET, wait)[0] == 2033


def test_one_too_many_is_turned_away(server: MqiServer) -> None:
    kept = [Program(server.path).greeted() for _ in range(2)]
    with pytest.raises((EOFError, OSError)):
        Program(server.path).greeted()
    kept.pop().socket.close()
    _until(lambda: len(server._programs) == 1)
    Program(server.path).greeted()


def test_stopping_cuts_programs_off(server: MqiServer) -> None:
    program = Program(server.path).greeted()
    server.stop()
    with pytest.raises((EOFError, OSError)):
        program.call(Verb.COMMIT)


# The scheduler


def test_calls_run_in_order_of_their_time() -> None:
    ran: list[int] = []
    done = threading.Event()
    with ThreadScheduler() as scheduler:
        scheduler.later(0.03, lambda: (ran.append(3), done.set()))
        scheduler.later(0.01, lambda: ran.append(2))
        scheduler.soon(lambda: ran.append(1))
        cancel = scheduler.later(0.02, lambda: ran.append(99))
        cancel()
        cancel()
        assert done.wait(10)
    assert ran == [1, 2, 3]


def test_nothing_runs_after_the_end() -> None:
    ran: list[int] = []
    with ThreadScheduler() as scheduler:
        scheduler.later(60, lambda: ran.append(1))
    assert not scheduler._thread.is_alive()
    assert ran == []
    assert abs(scheduler.now() - time.time()) < 5
    assert scheduler.monotonic() <= time.monotonic()


# The standalone queue manager


def test_it_says_when_it_is_ready_and_keeps_messages(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(A) DEFPSIST(YES) REPLACE\n")
    command = [sys.executable, "-m", "gateway.mqi.serve", str(tmp_path / "qm"), "--name", "QM1"]
    command += ["--objects", str(tmp_path / "objects.mqsc")]
    for expected in (2033, 0):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == f"QM1 answers at {tmp_path / 'qm' / 'mqi.sock'}\n"
        program = Program(tmp_path / "qm" / "mqi.sock").greeted()
        get = struct.pack("<7i", 1, 0, 0, 0, 0, 2, 100) + bytes(16) + MD
        assert program.call(Verb.GET, get)[0] == expected
        persistent = MD[:44] + struct.pack("<i", 1) + MD[48:]
        put = struct.pack("<4i", 1, 0, 0, 9) + persistent + _blob(b"") + _blob(b"kept")
        assert program.call(Verb.PUT, put)[0] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()
