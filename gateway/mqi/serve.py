"""`python -m gateway.mqi.serve DIR`: an embedded queue manager behind the MQI socket, without a gateway.

For developing and testing MQ programs, and for programs that are to run at full speed. DIR `:memory:` keeps nothing on
disk; the socket is then given with `--socket`. Prints one line when it is ready and ends on SIGTERM or SIGINT.

One thread serves all programs: what lies in their sockets at a time shares one commit. The socket's permissions are the
access control; a program that gives no password runs as the user the operating system names.
"""

from __future__ import annotations

import argparse
import gc
import os
import pwd
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.errors import MqgateError
from gateway.mqi.rounds import Rounds
from gateway.mqi.server_protocol import ServerProtocol
from gateway.mqi.sockets import read, receive, send_each
from gateway.ports.mqi import QueueManager
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

_PEER = struct.Struct("3i")
QUIESCE_SECONDS = 0.5
"""How long programs that have been told that the queue manager stops have to finish their work and disconnect."""
MAX_PROGRAMS = 1000
_MODE = 0o600
"""The permissions of the socket: programs of other users cannot connect."""


class MqiServer:
    """Listens on `path` from `start` to `stop`: one thread for all programs."""

    def __init__(
        self, queue_manager: QueueManager, path: Path, *, max_connections: int = MAX_PROGRAMS,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> None:  # fmt: skip
        """`on_fatal` is called with a defect that has ended the thread, in that thread."""
        self.path = path
        self._on_fatal = on_fatal
        self._queue_manager = queue_manager
        self._max_connections = max_connections
        self._listener: socket.socket | None = None
        self._programs: dict[int, _Program] = {}
        self._protocols: dict[int, ServerProtocol] = {}
        """By descriptor: the protocol that takes what comes from the socket."""
        self._answered: dict[_Program, None] = {}
        """Programs to which something has to be sent."""
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._rounds = Rounds(queue_manager, time.monotonic, self._plan, self._exchange)
        self._thread: threading.Thread | None = None
        self._ident = 0
        """The identifier of the thread, set in it."""
        self._stopping = self._planned = False

    def start(self) -> None:
        """Bind and accept. A socket file that no process serves is replaced; one that is served is refused."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            _clear_stale(self.path)
            old = os.umask(0o777 & ~_MODE)  # the file must never be wider open, not even for an instant
            try:
                listener.bind(str(self.path))
            finally:
                os.umask(old)
            listener.listen(64)
        except BaseException:
            listener.close()
            raise
        listener.settimeout(0)
        self._listener = listener
        self._poll.register(listener, select.EPOLLIN)
        self._queue_manager.serve_through(self._rounds.soon)
        self._thread = threading.Thread(target=self._run, name="mqi-server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Remove the socket, tell programs that ask to be told (2161), and disconnect those that do not leave by
        themselves; their units of work are backed out."""
        listener, self._listener = self._listener, None
        if listener is None or self._thread is None:
            return
        self.path.unlink(missing_ok=True)
        self._queue_manager.quiesce()
        self._stopping = True
        self._plan()
        self._thread.join()
        self._queue_manager.serve_through(None)
        listener.close()
        self._poll.close()
        os.close(self._wake)

    def _plan(self) -> None:
        """Have the rounds run soon. May be called in any thread."""
        if threading.get_ident() == self._ident:
            self._planned = True
            return
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the thread that serves. May be called in any thread."""
        self._rounds.soon(call)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if self._on_fatal is None:
                raise
            self._on_fatal(error)

    def _serve(self) -> None:
        self._ident = threading.get_ident()
        while not self._stopping:
            self._serve_once(None)
        self._serve_once(0)  # however little time is left, what was called before is answered
        until = time.monotonic() + QUIESCE_SECONDS
        while self._programs and time.monotonic() < until:
            self._serve_once(until - time.monotonic())
        for program in list(self._programs.values()):
            program.end()

    def _serve_once(self, longest: float | None) -> None:
        self._receive(self._poll.poll(0 if self._planned else longest))
        self._planned = False
        self._rounds.run()
        self._send()

    def _exchange(self) -> None:
        """Send what has been answered, and take in what has come meanwhile."""
        self._send()
        self._receive(self._poll.poll(0))

    def _receive(self, ready: list[tuple[int, int]]) -> None:
        if not ready:
            return
        arrived, rest = receive(ready, self._protocols)
        self._rounds.receive_each(arrived)
        for fd, events in rest:
            if fd == self._wake:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif fd in self._programs:
                self._programs[fd].ready(events)
            else:
                self._accept()

    def _send(self) -> None:
        if not self._answered:
            return
        usual: list[_Program] = []
        others: list[_Program] = []
        for program in self._answered:
            (usual if program.writable and len(program.unsent) == 1 else others).append(program)
        self._answered.clear()
        for program in others:
            program.send()
        if usual:
            datas = tuple([bytes(program.unsent.pop()) for program in usual])
            for at, sent in send_each(tuple([program.fd for program in usual]), datas):
                usual[at].unsent.append(memoryview(datas[at])[sent:])
                usual[at].send()

    def _accept(self) -> None:
        listener = self._listener
        with suppress(BlockingIOError, OSError):
            while listener is not None:
                peer, _ = listener.accept()
                if len(self._programs) >= self._max_connections:
                    peer.close()
                    continue
                program = _Program(
                    peer, self._queue_manager, self._rounds, self._poll, self._programs, self._protocols, self._answered
                )
                self._programs[program.fd], self._protocols[program.fd] = program, program.protocol


def _clear_stale(path: Path) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise MqgateError(f"{path} is served by another process: stop it, or choose another `socket:`")


def _peer(peer: socket.socket) -> tuple[str, int]:
    """Returns user and process at the other end."""
    pid, uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    try:
        return pwd.getpwuid(uid).pw_name, pid
    except KeyError:
        return str(uid), pid


class _Program:
    """One connected program: a chunk of its frames at a time, and its answers together."""

    def __init__(
        self, peer: socket.socket, queue_manager: QueueManager, rounds: Rounds, poll: select.epoll,
        programs: dict[int, _Program], protocols: dict[int, ServerProtocol], answered: dict[_Program, None],
    ) -> None:  # fmt: skip
        """`answered` holds the programs to which something has to be sent."""
        peer.settimeout(0)
        self.fd = peer.fileno()
        self.unsent: list[bytes | memoryview] = []
        """The rest of an answer, as a view of it, because a long one is sent in hundreds of pieces."""
        self.writable = True
        """Whether its answers can be written at once, with nothing to be done after them."""
        self._answered = answered
        self._peer = peer
        self._rounds = rounds
        self._poll = poll
        self._programs, self._protocols = programs, protocols
        self._closing = False
        self._watching = select.EPOLLIN
        user, process = _peer(peer)
        self.protocol = ServerProtocol(
            queue_manager, self._write, self._close, monotonic=time.monotonic, user=user, process=process
        )
        poll.register(self.fd, select.EPOLLIN)

    def _write(self, answer: bytes) -> None:
        self.unsent.append(answer)
        self._answered[self] = None

    def _close(self) -> None:
        self._closing, self.writable = True, False
        self._answered[self] = None

    def ready(self, events: int) -> None:
        """An event: the program takes data again, or is gone, or has sent something that was not read with the
        others."""
        if events != select.EPOLLIN:
            if events & select.EPOLLOUT:
                self.send()
            if not events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) or self.fd not in self._programs:
                return
        try:
            chunk = read(self.fd)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._rounds.receive(self.protocol, chunk)
        else:
            self.end()

    def send(self) -> None:
        """Send its answers. While it does not take them, nothing more is read from it."""
        data = self.unsent[0] if len(self.unsent) == 1 else b"".join(self.unsent)
        self.unsent.clear()
        try:
            sent = self._peer.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.end()
            return
        if sent < len(data):
            self.unsent.append(memoryview(data)[sent:])
        elif self._closing:
            self.end()
            return
        watching = select.EPOLLOUT if self.unsent else select.EPOLLIN
        if watching != self._watching:
            self._watching = watching
            self.writable = watching == select.EPOLLIN and not self._closing
            self._poll.modify(self.fd, watching)

    def end(self) -> None:
        """The program is gone: its unit of work is backed out."""
        if self._programs.pop(self.fd, None) is None:
            return
        self._protocols.pop(self.fd, None)
        self._poll.unregister(self.fd)
        self._rounds.lost(self.protocol)
        self._answered.pop(self, None)  # also what has just been answered: the next program gets this descriptor
        self._peer.close()


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.mqi.serve", description=__doc__)
    parser.add_argument("directory", help="where the queue manager keeps its messages, or :memory:")
    parser.add_argument("--name", default="MQGATE", help="the queue manager's name")
    parser.add_argument("--socket", type=Path, help="default: mqi.sock in the directory")
    parser.add_argument("--objects", type=Path, help="MQSC commands to run at start")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD", help="accepted users")
    parser.add_argument(
        "--administrator", action="append", default=[], metavar="NAME", help="needs no authority record"
    )
    parser.add_argument("--check-client", choices=("none", "optional", "required"), help="CHCKCLNT: passwords")
    return parser.parse_args(argv)


def _collect_seldom() -> None:
    """Let the garbage collector run seldom: messages and programs leave no reference cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(4_000, 0, 7_500)  # as in the gateway


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop."""
    given = _arguments(argv)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    directory = None if given.directory == ":memory:" else Path(given.directory)
    path: Path = given.socket or (directory or Path()) / "mqi.sock"
    objects = given.objects.read_text() if given.objects else ""
    users = dict(pair.split(":", 1) for pair in given.user)
    with ThreadScheduler() as scheduler:
        _collect_seldom()
        queue_manager = EmbeddedQueueManager.open(
            directory, given.name, scheduler, objects,
            users=users, administrators=given.administrator, check_client=given.check_client,
        )  # fmt: skip
        server = MqiServer(queue_manager, path)
        try:
            server.start()
            sys.stdout.write(f"{given.name} answers at {path}\n")
            sys.stdout.flush()
            stopped.wait()
        finally:
            server.stop()
            queue_manager.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
