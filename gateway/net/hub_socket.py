"""The sockets of the hub: an accepted one, which is the broker's link, and a listening one."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gateway.net.proxy import ProxyReader
from gateway.net.rates import Pair
from gateway.session.connection import Connection

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
FIRST_CHUNK = 4096
"""What is read at once to begin with."""
AGAIN = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})


def _stays() -> bool:
    return True


class SocketHub(Protocol):
    """What a socket asks of its hub."""

    def modify(self, fd: int, events: int) -> None:
        """Change what a socket is watched for."""

    def forget(self, link: HubSocket) -> None:
        """The socket is closed."""

    def lost(self, link: HubSocket) -> None:
        """The peer is gone."""

    def lost_later(self, link: HubSocket) -> None:
        """A write found the peer gone, perhaps in the middle of a batch."""

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """A timer."""

    def out_of_descriptors(self, acceptor: Acceptor) -> None:
        """The process may open no more files: stop accepting for a while."""


class HubSocket:
    """One accepted socket: the broker's `Link`."""

    __slots__ = ("_backlog", "_backlog_bytes", "_closing", "buckets", "certificate_user", "chunk", "closed",
                 "connection", "direct", "fd", "hub", "listener", "named", "on_close", "peer", "proxy",
                 "sock", "watching")  # fmt: skip

    def __init__(self, hub: SocketHub, sock: socket.socket, peer: str, listener: str) -> None:
        self.hub = hub
        self.sock = sock
        self.fd = sock.fileno()
        self.direct = self.fd
        """The descriptor while nothing is kept to be sent first; otherwise -1."""
        self.peer = peer
        self.listener = listener
        self.certificate_user: str | None = None
        self.connection: Connection | None = None
        self.proxy: ProxyReader | None = None
        self.on_close: Callable[[], None] | None = None
        self.named: Callable[[], bool] = _stays
        """Asked when a proxy has said who the client is: whether it may stay."""
        self.closed = False
        self.buckets: Pair | None = None
        self.watching = READ
        self.chunk = FIRST_CHUNK
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._closing = False

    def write(self, data: bytes) -> None:
        """Send at once; the rest is kept until the socket becomes writable."""
        if self.closed:
            return
        if not self._backlog:
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in AGAIN:
                    self.hub.lost_later(self)
                    return
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        self.direct = -1
        self._watch(self.watching | WRITE)

    def buffered(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._backlog_bytes

    def drain(self) -> None:
        """The socket is writable again: send what is kept."""
        while self._backlog:
            data = self._backlog[0]
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in AGAIN:
                    self.hub.lost(self)
                return
            self._backlog_bytes -= sent
            if sent < len(data):
                self._backlog[0] = data[sent:]
                return
            self._backlog.popleft()
        self.direct = self.fd
        if self._closing:
            self._shut()
        else:
            self._watch(self.watching & ~WRITE)

    def close(self) -> None:
        """Close when everything is sent; a peer that does not read is given a few seconds."""
        if self.closed or self._closing:
            return
        self._closing = True
        if self._backlog:
            self._watch(WRITE)
            self.hub.later(5.0, self.abort)
        else:
            self._shut()

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self._shut()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        if not self.closed and not self._closing:
            self._watch(self.watching & ~READ if paused else self.watching | READ)

    def _watch(self, events: int) -> None:
        if events != self.watching and not self.closed:
            self.watching = events
            self.hub.modify(self.fd, events)

    def _shut(self) -> None:
        self.closed = True
        self.direct = -1
        self._backlog.clear()
        self._backlog_bytes = 0
        self.hub.forget(self)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        self.connection, self.named = (
            None,
            _stays,
        )  # they refer to the link: a cycle, which only the collector would free


class Acceptor:
    """A listening socket in the hub."""

    def __init__(self, hub: SocketHub, sock: socket.socket, accepted: Callable[[HubSocket], None], name: str) -> None:
        self.hub = hub
        self.sock = sock
        self.accepted = accepted
        self.name = name

    def accept(self) -> None:
        """Accept what is waiting, up to a bound, so that a flood of connections does not starve the open ones."""
        for _ in range(256):
            try:
                sock, address = self.sock.accept()
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    self.hub.out_of_descriptors(self)
                return
            sock.settimeout(0)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
            self.accepted(HubSocket(self.hub, sock, peer, self.name))
