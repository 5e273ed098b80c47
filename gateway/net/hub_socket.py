"""The sockets of the hub: an accepted one, which is the broker's link, and a listening one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import select
import socket
import termios
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from gateway.broker.put_off import STRANGERS_SECONDS
from gateway.mqtt.packets import V5
from gateway.net.descriptors import most_for_connections
from gateway.net.rates import Buckets
from gateway.net.stops import Stop
from gateway.net.wrapping import Wrapping
from gateway.ports.link import peer_of
from gateway.session.connection import Connection

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
FIRST_CHUNK = 4096
"""How much is read at once in the beginning."""
JOINED = 4096
"""Pieces that wait to be sent are joined up to this length: short ones would take many times theirs."""
BUSY_SECONDS = 0.02
"""For how long nobody is accepted, instead of trying again and again."""
AGAIN = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})
GONE = frozenset({errno.EPIPE, errno.ECONNRESET})
"""Errors after which the peer has closed the connection, perhaps without reading everything."""


class SocketHub(Protocol):
    """What a socket needs of its hub."""

    def modify(self, fd: int, events: int) -> None:
        """Change which events a socket is watched for."""

    def forget(self, link: HubSocket) -> None:
        """The socket is closed."""

    def part(self, sock: socket.socket) -> None:
        """Close a socket in a while: its peer reads first why, though it still sends."""

    def lost(self, link: HubSocket) -> None:
        """The peer is gone."""

    def lost_later(self, link: HubSocket) -> None:
        """A write found the peer gone, perhaps in the middle of a batch."""

    def take_in(self, link: HubSocket, unwrap: Callable[[], bytes]) -> None:
        """Take in bytes that a wrapping has held back for a while, in the reactor's thread."""

    def malformed(self, link: HubSocket, why: str) -> None:
        """The first bytes of the peer are not what its listener accepts."""

    def answered(self, length: int) -> None:
        """A wrapping sends so many bytes by itself."""

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Set a timer."""

    def rest(self, acceptor: Acceptor, seconds: float) -> None:
        """Stop accepting for a while."""

    def exhausted(self, acceptor: Acceptor) -> None:
        """There are no descriptors left for connections."""


class HubSocket:
    """One accepted socket: the broker's `Link`."""

    __slots__ = ("_backlog", "_backlog_bytes", "_closing", "_largest", "_stops", "_told", "buckets", "certificate_ends",
                 "certificate_fingerprint", "certificate_user", "chunk",
                 "closed", "connection", "direct", "fd", "heard", "hub", "inward", "listener", "on_close", "outward",
                 "over", "peer", "rests", "sock", "watching", "wrapping")  # fmt: skip

    def __init__(self, hub: SocketHub, sock: socket.socket, peer: str, listener: str) -> None:
        self.hub = hub
        self.sock = sock
        self.fd = sock.fileno()
        self.direct = self.fd
        """The descriptor while nothing is kept that has to be sent first; otherwise -1."""
        self.peer = peer
        self.listener = listener
        self.certificate_user: str | None = None
        self.certificate_fingerprint = ""
        self.certificate_ends = 0.0
        self.connection: Connection | None = None
        self.wrapping: Wrapping | None = None
        """What MQTT's bytes are wrapped in; None: they are not wrapped."""
        self.inward: Callable[[bytes], bytes | None] | None = None
        """Unwraps ordinary bytes in one call; returns None for what it leaves to the wrapping."""
        self.outward: Callable[[bytes], bytes] | None = None
        """Wraps bytes in one call, where the wrapping need not do it itself."""
        self.over: str | None = None
        """Why the wrapping has ended, which is empty if the peer ended it properly; None: it has not ended."""
        self.on_close: Callable[[], None] | None = None
        self.closed = False
        self.heard = True
        """False: the peer is gone and nothing is sent any more, but what it had sent before is still read."""
        self.buckets: Buckets | None = None
        """The buckets for what it may send; None: they have not been asked for."""
        self.watching = READ
        self.chunk = FIRST_CHUNK
        self._backlog: deque[bytes | memoryview] | None = None
        """What the peer has not taken yet."""
        self._backlog_bytes = self._largest = 0
        self._closing = self._told = False
        self._stops = 0
        """Why nothing is read: the `Stop`s that apply."""
        self.rests = 0
        """How many delays for its rates are running."""

    def write(self, data: bytes) -> None:
        """Send MQTT's bytes at once, wrapped as the peer expects them; the rest is kept until the socket becomes
        writable."""
        self.send(data if self.wrapping is None else (self.outward or self.wrapping.wrap)(data))

    def answer(self, data: bytes) -> None:
        """Send what the wrapping answers by itself, such as pongs, which the broker does not count."""
        self.hub.answered(len(data))
        self.send(data)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self.closed or not self.heard or not data:
            return
        backlog = self._backlog
        if not backlog:
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in AGAIN:
                    self._unheard(error)
                    return
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
            backlog = self._backlog = deque()
        last = backlog[-1] if backlog else b""
        if last and isinstance(last, bytes) and len(last) < JOINED:
            backlog[-1] = last + data
        else:
            backlog.append(data)
        self._backlog_bytes += len(data)
        self._largest = max(self._largest, len(data))
        self.direct = -1
        self._watch(self.watching | WRITE)

    def malformed(self, why: str) -> None:
        """End the connection, because the peer has sent what its listener does not accept."""
        self.over = ""
        self.hub.malformed(self, why)

    def buffered(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._backlog_bytes

    def largest(self) -> int:
        """Bytes that the largest write since then has left to be sent."""
        return self._largest

    def unread(self) -> bool:
        """Whether bytes of the peer wait to be read, or are still with its wrapping."""
        if self.closed:
            return False
        if self._stops & Stop.WRAPPING:
            return True
        try:
            return any(fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)))
        except OSError:
            return False

    def drain(self) -> None:
        """The socket is writable again: send what is kept."""
        while self._backlog:
            data = self._backlog[0]
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in AGAIN:
                    self._unheard(error)
                return
            self._backlog_bytes -= sent
            if sent < len(data):
                self._backlog[0] = memoryview(data)[sent:]  # a copy of 64 MiB for each segment would hold up others
                return
            self._backlog.popleft()
        self._backlog, self._largest = None, 0
        self.direct = self.fd
        if self._closing:
            self._shut()
        else:
            self._watch(self.watching & ~WRITE)

    def _unheard(self, error: OSError) -> None:
        """A write has found the peer gone."""
        self.direct = -1
        self._backlog, self._backlog_bytes, self._largest = None, 0, 0
        self.heard = error.errno not in GONE
        self._watch(self.watching & ~WRITE)
        self.hub.lost_later(self)

    def close(self) -> None:
        """Close once everything is sent; a peer that does not read has a few seconds."""
        if self.closed or self._closing:
            return
        self.inward = self.outward = None
        if self.wrapping is not None:
            self.send(self.wrapping.goodbye())
        self._closing, self._told = True, self._is_told_why()
        if self._backlog:
            self._watch(WRITE)
            self.hub.later(5.0, self.abort)
        else:
            self._shut()

    def _is_told_why(self) -> bool:
        """Whether the peer is sent DISCONNECT, or CONNACK with a reason: not where it has said so itself. Its
        connection may have ended before, where what is wrong came behind a CONNECT that was not committed. Who has sent
        no CONNECT that can be read is told nothing, except in 5.0."""
        connection = self.connection
        if connection is None:
            return False
        if connection.rejected:
            return connection.rejected != "malformed" or (connection.version or connection.reader.version) == V5
        if not connection.connack_sent or connection.version != V5:
            return False
        return connection.close_reason != "normal"

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self._shut()

    def stop(self, why: int, *, stopped: bool) -> None:
        """Stop reading for a reason, or continue once no other reason is left."""
        self._stops = self._stops | why if stopped else self._stops & ~why
        if not self.closed and not self._closing:
            self._watch(self.watching & ~READ if self._stops else self.watching | READ)

    def rest(self, seconds: float) -> None:
        """Read again after a while, because the peer has sent more than its rates allow."""
        self.rests += 1
        self.stop(Stop.RATE, stopped=True)
        self.hub.later(seconds, self._rested)

    def _rested(self) -> None:
        self.rests -= 1
        self.stop(Stop.RATE, stopped=self.rests > 0)

    def _watch(self, events: int) -> None:
        if events != self.watching and not self.closed:
            self.watching = events
            self.hub.modify(self.fd, events)

    def _shut(self) -> None:
        self.closed = True
        self.direct = -1
        self._backlog, self._backlog_bytes, self._largest = None, 0, 0
        self.hub.forget(self)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        if self._told:
            self.hub.part(self.sock)
        else:
            self.sock.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        # they refer to the link, a cycle that only the garbage collector would free
        self.connection = self.wrapping = self.inward = self.outward = None


def _never() -> bool:
    return False


class Acceptor:
    """A listening socket in the hub."""

    def __init__(self, hub: SocketHub, sock: socket.socket, accepted: Callable[[HubSocket], None], name: str) -> None:
        self.hub = hub
        self.sock = sock
        self.accepted = accepted
        self.name = name
        self.most = most_for_connections()
        """Descriptors of the process that connections may take; the others are kept for other purposes."""
        self.busy: Callable[[], bool] = _never
        """Whether those who come now should wait in the kernel's queue."""

    def accept(self) -> None:
        """Accept those who wait, for a moment only, so that a flood of connections does not starve the open ones."""
        until = monotonic() + STRANGERS_SECONDS
        while monotonic() <= until:
            if self.busy():
                self.hub.rest(self, BUSY_SECONDS)
                return
            try:
                sock, address = self.sock.accept()
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    self.hub.exhausted(self)
                return
            if sock.fileno() >= self.most:
                sock.close()
                self.hub.exhausted(self)
                return
            sock.settimeout(0)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = peer_of(address[0], address[1]) if isinstance(address, tuple) else "unix"
            self.accepted(HubSocket(self.hub, sock, peer, self.name))
