"""`python -m gateway.mqi.serve DIR`: an embedded queue manager behind the MQI socket, without a gateway.

For developing and testing MQ programs, and for programs that are to run at full speed. DIR `:memory:` keeps nothing on
disk; the socket is then given with `--socket`. Prints one line when it is ready and ends on SIGTERM or SIGINT.

Each program has a blocking thread of its own, so that a call costs a thread switch less than through a reactor. The
socket's permissions are the access control; a program that gives no password runs as the user the operating system
names.
"""

from __future__ import annotations

import argparse
import os
import pwd
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.errors import MqgateError
from gateway.mqi.server_protocol import ServerProtocol
from gateway.ports.mqi import QueueManager
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

_CHUNK = 1 << 18
_PEER = struct.Struct("3i")


class MqiServer:
    """Listens on `path` from `start` to `stop`."""

    def __init__(
        self, queue_manager: QueueManager, path: Path, *, mode: int = 0o600, max_connections: int = 1000
    ) -> None:
        self.path = path
        self._queue_manager = queue_manager
        self._mode = mode
        self._max_connections = max_connections
        self._listener: socket.socket | None = None
        self._programs: set[_Program] = set()
        self._lock = threading.Lock()
        self._accepting: threading.Thread | None = None

    def start(self) -> None:
        """Bind and accept. A socket file that no process serves is replaced; one that is served is refused."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            _clear_stale(self.path)
            old = os.umask(0o777 & ~self._mode)  # the file must never be wider open than asked, not even for an instant
            try:
                listener.bind(str(self.path))
            finally:
                os.umask(old)
            listener.listen(64)
        except BaseException:
            listener.close()
            raise
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), name="mqi-accept", daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """Disconnect every program (its unit of work is backed out) and remove the socket."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.path.unlink(missing_ok=True)
        if self._accepting is not None:
            self._accepting.join()
        with self._lock:
            programs = list(self._programs)
        for program in programs:
            program.disconnect()
        for program in programs:
            program.thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            program = _Program(peer, self._queue_manager, self._forget)
            with self._lock:
                full = len(self._programs) >= self._max_connections
                if not full:
                    self._programs.add(program)
            if full:
                peer.close()
            else:
                program.thread.start()

    def _forget(self, program: _Program) -> None:
        with self._lock:
            self._programs.discard(program)


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


def _peer_user(peer: socket.socket) -> str:
    _pid, uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class _Program:
    """One connected program and the thread that answers it."""

    def __init__(self, peer: socket.socket, queue_manager: QueueManager, ended: Callable[[_Program], None]) -> None:
        self._peer = peer
        self._ended = ended
        self._later: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        self._protocol = ServerProtocol(
            queue_manager, peer.sendall, self._close, monotonic=time.monotonic, soon=self._soon, user=_peer_user(peer)
        )
        self.thread = threading.Thread(target=self._run, name="mqi-program", daemon=True)

    def disconnect(self) -> None:
        """From another thread: end the socket, so that the program's own thread ends."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        self._closing = True

    def _soon(self, call: Callable[[], None]) -> None:
        self._later.append(call)
        if threading.current_thread() is not self.thread:
            with suppress(OSError):
                os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            self._serve()
        except OSError:
            pass  # the program closed its end
        finally:
            self._protocol.connection_lost()
            self._ended(self)
            self._peer.close()
            os.close(self._wake)

    def _serve(self) -> None:
        protocol, peer = self._protocol, self._peer
        while not self._closing:
            while self._later:
                self._later.popleft()()
            if protocol.waiting and not self._readable():
                continue
            chunk = peer.recv(_CHUNK)
            if not chunk:
                return
            protocol.receive(chunk)

    def _readable(self) -> bool:
        """While a get waits: block until its answer or the program (which can only disconnect) is there."""
        poll = select.poll()
        poll.register(self._peer, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        ready = dict(poll.poll())
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        return self._peer.fileno() in ready


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
