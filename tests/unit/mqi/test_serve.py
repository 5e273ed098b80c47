"""The threaded MQI server and the scheduler it runs with; sockets and signals of the standalone queue manager."""

from __future__ import annotations

import os
import select
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
from embedded_rig import md
from raw_mqi import MD, OPEN_A, Program, blob

from gateway.errors import MqgateError
from gateway.mqi.serve import MqiServer
from gateway.mqi.wire import HEADER, Verb
from gateway.ports.mqi import ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler


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
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_socket_is_its_owners_alone_and_goes_with_the_server(server: MqiServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    server.stop()
    assert not server.path.exists()
    server.stop()


def test_the_process_of_a_program_is_shown(queue_manager: EmbeddedQueueManager, server: MqiServer) -> None:
    program = Program(server.path).greeted()
    for command in (f"DISPLAY CONN(*) WHERE(PID EQ {os.getpid()})", "DISPLAY QSTATUS(A) TYPE(HANDLE) PID"):
        assert f"PID({os.getpid()})" in "".join(queue_manager.mqsc(command).lines)
    program.socket.close()


def test_a_subscription_is_answered_as_the_library_asks_for_it(server: MqiServer) -> None:
    """Earlier libraries send no identity, and accept nothing behind the options."""
    create_managed, unlimited, as_published = 2 | 32, -1, -3
    program = Program(server.path).greeted()
    body = struct.pack("<5i", create_managed, unlimited, 1, as_published, 0) + bytes(24)
    body += b"".join(map(blob, [b"", b"", b"a/b", b"", b"told", b""]))
    answers = [program.call(Verb.SUBSCRIBE, asked) for asked in (body, body + bytes(32) + blob(b"identity"))]
    assert [reason for reason, _ in answers] == [0, 0]
    assert [len(answer) for _, answer in answers] == [8 + 24 + 7 + 4, 8 + 24 + 7 + 4 + 12 + 8 + 4 + 32 + 12]
    program.socket.close()


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


def test_a_long_answer_is_not_copied_for_each_of_its_pieces(
    queue_manager: EmbeddedQueueManager, server: MqiServer
) -> None:
    """A hundred megabytes are sent in five hundred pieces."""
    data = bytes(range(256)) * 12_000
    connection = queue_manager.connect()
    connection.put1(ObjectDescriptor("A"), md(), PutOptions(4), data)
    program = Program(server.path).greeted()
    body = struct.pack("<7i", 1, 4, 0, 0, 0, 2, len(data)) + bytes(16) + MD
    program.socket.sendall(HEADER.pack(len(body) + 4, Verb.GET, 0, 1) + body)
    [serving] = server._programs.values()
    _until(lambda: serving.unsent and isinstance(serving.unsent[0], memoryview))
    whole = serving.unsent[0].obj
    received = program.socket.recv(HEADER.size)
    total = HEADER.unpack(received)[0] + HEADER.size - 4
    while len(received) < total:
        assert all(left.obj is whole for left in list(serving.unsent))
        received += program.socket.recv(100_000)
    assert data in received


def test_disconnecting_commits(queue_manager: EmbeddedQueueManager, server: MqiServer) -> None:
    program = Program(server.path).greeted()
    assert program.put(2) == 0
    assert program.call(Verb.DISCONNECT)[0] == 0
    assert queue_manager.depth("A") == 1


def test_the_answer_of_a_program_that_has_gone_reaches_no_other(server: MqiServer) -> None:
    """What the program had sent is still taken in, and a program that connects then gets its descriptor."""
    gone = Program(server.path).greeted()
    kept = socket.socket(socket.AF_UNIX)
    [served] = server._programs
    seen: list[object] = []

    def meanwhile() -> None:
        gone.socket.sendall(HEADER.pack(len(OPEN_A) + 4, Verb.OPEN, 0, 7) + OPEN_A)
        gone.socket.shutdown(socket.SHUT_RDWR)
        for _ in range(2):  # what it has sent, and then that it has gone
            server._receive(server._poll.poll(0))
        kept.connect(str(server.path))
        server._receive(server._poll.poll(0))
        server._send()
        seen.extend([list(server._programs), select.select([kept], [], [], 0)[0]])

    server.soon(meanwhile)
    _until(lambda: len(seen) == 2)
    assert seen == [[served], []]
    other = Program.__new__(Program)
    other.socket = kept
    other.greeted()


def test_a_waiting_get_does_not_hold_up_other_programs(server: MqiServer) -> None:
    waiting, putting = Program(server.path).greeted(), Program(server.path).greeted()
    waiting.start_get(1)
    assert putting.put() == 0
    reason, body = waiting.answer()
    assert reason == 0
    assert b"data" in body


def test_a_wait_that_ends_empty_is_2033(server: MqiServer) -> None:
    program = Program(server.path).greeted()
    program.start_get(1, 30)
    assert program.answer()[0] == 2033


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


def test_a_program_that_asks_to_be_told_is_told_that_the_queue_manager_stops(
    queue_manager: EmbeddedQueueManager, server: MqiServer
) -> None:
    waiting = Program(server.path).greeted()
    assert waiting.put(2) == 0
    waiting.start_get(1 | 0x2000)
    _until(lambda: queue_manager.core.queues["A"].waiters)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert waiting.answer()[0] == 2161
    assert waiting.put(2 | 0x2000) == 2161
    assert waiting.call(Verb.COMMIT)[0] == 0, "it may end its unit of work"
    waiting.socket.close()
    stopping.join(60)
    assert not stopping.is_alive()
    assert queue_manager.depth("A") == 1


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
        assert done.wait(60)
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
        program.start_get(0)
        assert program.answer()[0] == expected
        persistent = MD[:44] + struct.pack("<i", 1) + MD[48:]
        put = struct.pack("<4i", 1, 0, 0, 9) + persistent + blob(b"") + blob(b"kept")
        assert program.call(Verb.PUT, put)[0] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.close()
