"""The hub: all plain TCP and Unix sockets behind one descriptor of the reactor.

Twisted's own transport costs a pass through the reactor, a logging context and two system calls for each readable
socket and each write. The hub is an epoll instance that the reactor watches as one reader: one `doRead` polls it, reads
every socket that is ready, hands all of it to the broker, and lets it commit and answer in the same pass. Timers,
signals, TLS and HTTP stay the reactor's.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, cast

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from zope.interface import implementer

from gateway.broker.engine import Engine
from gateway.broker.singles import SHORT
from gateway.net.proxy import ProxyReader
from gateway.net.rates import Pair, SendRates
from gateway.session.connection import Connection

READ, WRITE, GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR
CHUNK = 1 << 16
FIRST_CHUNK, LEAST_CHUNK, SLOW_SECONDS = 4096, 512, 0.02
"""How much is read at once grows while it is worked off fast, and shrinks when it is not: what one client sends may be
dear to route, and the others wait meanwhile."""
MAX_EVENTS = 512
_AGAIN = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})


class Pausable(Protocol):
    """A link on a Twisted transport: the reactor reads it, and the hub says when not to."""

    closed: bool
    listener: str
    buckets: Pair | None

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""


class HubSocket:
    """One accepted socket: the broker's `Link`."""

    __slots__ = ("_backlog", "_backlog_bytes", "_closing", "buckets", "certificate_user", "chunk", "closed",
                 "connection", "fd", "hub", "listener", "named", "on_close", "peer", "proxy",
                 "sock", "watching")  # fmt: skip

    def __init__(self, hub: Hub, sock: socket.socket, peer: str, listener: str) -> None:
        self.hub = hub
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.listener = listener
        self.certificate_user: str | None = None
        self.connection: Connection | None = None
        self.proxy: ProxyReader | None = None
        self.on_close: Callable[[], None] | None = None
        self.named: Callable[[], bool] = lambda: True
        """Asked when a proxy has said who the client is: whether it may stay."""
        self.closed = False
        self.buckets: Pair | None = None
        self.watching = READ
        self.chunk = FIRST_CHUNK
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._closing = False

    def write(self, data: bytes) -> None:
        """Straight to the socket; what it does not take waits for it to become writable."""
        if self.closed:
            return
        if not self._backlog:
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in _AGAIN:
                    self.hub.lost_later(self)
                    return
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        self._backlog.append(data)
        self._backlog_bytes += len(data)
        self._watch(self.watching | WRITE)

    def buffered(self) -> int:
        """What the peer has not taken."""
        return self._backlog_bytes

    def drain(self) -> None:
        """The socket takes data again."""
        while self._backlog:
            data = self._backlog[0]
            try:
                sent = self.sock.send(data)
            except OSError as error:
                if error.errno not in _AGAIN:
                    self.hub.lost(self)
                return
            self._backlog_bytes -= sent
            if sent < len(data):
                self._backlog[0] = data[sent:]
                return
            self._backlog.popleft()
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
        self._backlog.clear()
        self._backlog_bytes = 0
        self.hub.forget(self)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.close()
        if self.on_close is not None:
            self.on_close()


class Acceptor:
    """A listening socket in the hub."""

    def __init__(self, hub: Hub, sock: socket.socket, accepted: Callable[[HubSocket], None], name: str) -> None:
        self.hub = hub
        self.sock = sock
        self.accepted = accepted
        self.name = name

    def accept(self) -> None:
        """Everything that waits, up to a bound, so that a flood of connections does not starve the others."""
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


@implementer(IReadDescriptor)
class Hub:
    """One descriptor for the reactor, all sockets behind it."""

    def __init__(self, reactor: Any, engine: Engine) -> None:
        self.reactor = reactor
        self.engine = engine
        self._epoll = select.epoll()
        self._sockets: dict[int, HubSocket] = {}
        self._acceptors: dict[int, Acceptor] = {}
        self._lost: list[HubSocket] = []
        self.streams: set[Pausable] = set()
        """Links that are not behind the epoll and have to keep the same pauses and rates."""
        self._paused = False
        self.rates = SendRates({}, reactor.seconds)
        """What clients may send in a second."""
        self.on_fatal: Callable[[Exception], None] = lambda _error: None
        self.on_defect: Callable[[Exception, str], None] = lambda _error, _peer: None
        IReactorFDSet(reactor).addReader(self)

    # -- what the reactor calls --

    def fileno(self) -> int:
        """The epoll descriptor is readable when any of its sockets is ready."""
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        """For Twisted's log."""
        return "hub"

    def connectionLost(self, reason: Any) -> None:
        """The reactor stops."""
        del reason

    def doRead(self) -> None:
        """Read all that is ready, hand it to the broker, commit, answer. A defect in here cannot be pinned on one
        connection: the process ends, and what starts it again finds everything that was acknowledged."""
        try:
            self._round()
        except Exception as error:  # noqa: BLE001 -- said, and then the end
            self.on_fatal(error)

    def _round(self) -> None:
        sockets, limited = self._sockets, bool(self.rates)
        small: list[tuple[Connection, bytes]] = []
        for fd, event in self._epoll.poll(0, MAX_EVENTS):
            link = sockets.get(fd)
            if link is None:
                acceptor = self._acceptors.get(fd)
                if acceptor is not None:
                    acceptor.accept()
                continue
            if event & WRITE:
                link.drain()
            if event & READ and not link.closed:
                chunk = self._read(link)
                if not chunk:
                    continue
                if len(chunk) <= SHORT and link.connection is not None and link.proxy is None and not limited:
                    small.append((link.connection, chunk))
                else:
                    self._hand_in(link, chunk)
            elif event & GONE and not link.closed:
                self.lost(link)
        for connection, chunk in self.engine.received_each(small) if small else ():
            self._hand_in(cast("HubSocket", connection.link), chunk)
        self.engine.flush()
        while self._lost:
            self.lost(self._lost.pop())
            self.engine.flush()

    def _read(self, link: HubSocket) -> bytes:
        """What has arrived; nothing: the peer is gone or was not ready after all."""
        try:
            chunk = link.sock.recv(link.chunk)
        except OSError as error:
            if error.errno not in _AGAIN:
                self.lost(link)
            return b""
        if not chunk:
            self.lost(link)
        return chunk

    def _hand_in(self, link: HubSocket, chunk: bytes) -> None:
        """Bytes of one connection to the broker, which says by the time it takes how much to read at once."""
        begun = monotonic()
        try:
            if link.proxy is None and link.connection is not None:
                if self.rates:
                    self.receive_slowly(link, link.connection, chunk)
                else:
                    self.engine.received(link.connection, chunk)
            else:
                self._before(link, chunk)
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            self.defect(link, error)
        if monotonic() - begun > SLOW_SECONDS:
            link.chunk = max(LEAST_CHUNK, link.chunk // 4)
        elif len(chunk) == link.chunk < CHUNK:
            link.chunk *= 2

    def receive_slowly(self, link: HubSocket | Pausable, connection: Connection, chunk: bytes) -> None:
        """A client that sends more than it may is read later: its own window fills, nobody else's."""
        if link.listener not in self.rates:
            self.engine.received(connection, chunk)
            return
        publishes = self.engine.counters.packets_in
        before = publishes[3]
        self.engine.received(connection, chunk)
        if link.buckets is None:
            link.buckets = self.rates.own(link.listener)
        early = self.rates.early(link.listener, link.buckets, (len(chunk), publishes[3] - before))
        if early and not link.closed:
            self.engine.counters.backpressure_events["client_rate"] += 1
            link.pause(True)  # noqa: FBT003 -- the port's only argument
            self.later(early, lambda: link.pause(self._paused))

    def defect(self, link: HubSocket, error: Exception) -> None:
        """What should not happen: say so, and end this connection. Nothing of it was acknowledged without a commit."""
        self.on_defect(error, link.peer)
        self.lost(link)

    def _before(self, link: HubSocket, chunk: bytes) -> None:
        """Bytes before the MQTT protocol begins: the PROXY header."""
        if link.proxy is None or link.connection is None:
            return
        try:
            rest = link.proxy.feed(chunk)
        except ValueError:
            self.lost(link)
            return
        if rest is not None:
            link.peer = link.proxy.peer or link.peer
            link.proxy = None
            if not link.named():
                self.lost(link)
            elif rest:
                self.engine.received(link.connection, rest)

    # -- sockets --

    def listen(self, sock: socket.socket, accepted: Callable[[HubSocket], None], name: str) -> Acceptor:
        """Accept connections of a bound and listening socket."""
        sock.settimeout(0)
        acceptor = Acceptor(self, sock, accepted, name)
        self._acceptors[sock.fileno()] = acceptor
        self._epoll.register(sock.fileno(), READ)
        return acceptor

    def unlisten(self, acceptor: Acceptor) -> None:
        """Stop accepting."""
        if self._acceptors.pop(acceptor.sock.fileno(), None) is not None:
            self._epoll.unregister(acceptor.sock.fileno())
            acceptor.sock.close()

    def add(self, link: HubSocket) -> None:
        """Watch an accepted socket."""
        self._sockets[link.fd] = link
        if self._paused:
            link.watching = 0
        self._epoll.register(link.fd, link.watching)

    def modify(self, fd: int, events: int) -> None:
        """Change what a socket is watched for."""
        if fd in self._sockets:
            self._epoll.modify(fd, events)

    def forget(self, link: HubSocket) -> None:
        """The socket is closed."""
        if self._sockets.pop(link.fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(link.fd)

    def lost(self, link: HubSocket) -> None:
        """The peer is gone."""
        connection = link.connection
        link.abort()
        if connection is not None:
            self.engine.closed(connection)

    def lost_later(self, link: HubSocket) -> None:
        """A write found the peer gone: end the connection when the broker is not in the middle of a batch."""
        self._lost.append(link)
        self.reactor.callLater(0, self._lose)

    def _lose(self) -> None:
        while self._lost:
            self.lost(self._lost.pop())
        self.engine.flush()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """A timer."""
        self.reactor.callLater(seconds, call)

    def out_of_descriptors(self, acceptor: Acceptor) -> None:
        """No descriptor is left: stop accepting for a second instead of spinning."""
        self._epoll.modify(acceptor.sock.fileno(), 0)

        def again() -> None:
            if acceptor.sock.fileno() in self._acceptors:
                self._epoll.modify(acceptor.sock.fileno(), READ)

        self.later(1.0, again)

    def pause(self, paused: bool) -> None:
        """Back-pressure: stop or go on reading from everybody."""
        self._paused = paused
        for link in (*self._sockets.values(), *self.streams):
            link.pause(paused)

    @property
    def paused(self) -> bool:
        """Whether nobody is read for now."""
        return self._paused

    @property
    def count(self) -> int:
        """Sockets that are open."""
        return len(self._sockets)
