"""The hub: all plain TCP and Unix sockets behind one descriptor of the reactor.

Twisted's own transport costs a pass through the reactor, a logging context and two system calls for each readable
socket and each write. The hub is an epoll instance that the reactor watches as one reader: one `doRead` polls it, reads
every socket that is ready, hands all of it to the broker, and lets it commit and answer in the same pass. Timers,
signals, TLS and HTTP stay the reactor's.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, cast

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from zope.interface import implementer

from gateway.broker.engine import Engine
from gateway.broker.publish.fast import SHORT
from gateway.net.hub_socket import AGAIN, READ, WRITE, Acceptor, HubSocket
from gateway.net.rates import Pair, SendRates
from gateway.net.reactor import HubReactor
from gateway.net.scheduler import ReactorScheduler, Waker
from gateway.net.wire import read_sockets, write_sockets
from gateway.ports.link import Link
from gateway.session.connection import Connection

GONE = select.EPOLLHUP | select.EPOLLERR
CHUNK = 1 << 16
LEAST_CHUNK, SLOW_SECONDS = 512, 0.02
"""How much is read at once grows while it is taken in fast, and shrinks otherwise: what one client sends may be
expensive to route, and the others wait meanwhile."""
MAX_EVENTS = 512


class Pausable(Protocol):
    """A link on a Twisted transport: the reactor reads it, and the hub stops and resumes that."""

    closed: bool
    listener: str
    buckets: Pair | None

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""


@implementer(IReadDescriptor)
class Hub:
    """One descriptor for the reactor, all sockets behind it."""

    def __init__(self, reactor: Any, engine: Engine) -> None:
        self.reactor = reactor
        self.engine = engine
        self._epoll = select.epoll()
        self._sockets: dict[int, HubSocket] = {}
        self._acceptors: dict[int, Acceptor | Waker] = {}
        self._lost: list[HubSocket] = []
        self.streams: set[Pausable] = set()
        """Links on Twisted's transports, to which the same pauses and rates apply."""
        self._paused = False
        self.rates = SendRates({}, reactor.seconds)
        """What clients may send in a second."""
        self.on_fatal: Callable[[Exception], None] = lambda _error: None
        self.on_defect: Callable[[Exception, str], None] = lambda _error, _peer: None
        self._reactor_fd = -1
        if isinstance(engine.scheduler, ReactorScheduler):
            waker = engine.scheduler.waker = Waker()
            self._acceptors[waker.fd] = waker
            self._epoll.register(waker.fd, READ)
        if isinstance(reactor, HubReactor):
            reactor.serve_first(self)
        else:
            IReactorFDSet(reactor).addReader(self)

    # -- what the reactor calls --

    def fileno(self) -> int:
        """The epoll descriptor is readable when any of its sockets is ready."""
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        """The name in Twisted's log."""
        return "hub"

    def connectionLost(self, reason: Any) -> None:
        """The reactor stops."""
        del reason

    def doRead(self) -> None:
        """Read all that is ready, hand it to the broker, commit, answer. A defect here cannot be attributed to one
        connection: the process ends, and after its restart everything that was acknowledged is there."""
        try:
            self._round(self._epoll.poll(0, MAX_EVENTS))
        except Exception as error:  # noqa: BLE001 -- logged, and then the process ends
            self.on_fatal(error)

    def wait(self, seconds: float) -> bool:
        """`doRead` for a reactor that serves the hub first: wait so long at most. True: the reactor has events too."""
        try:
            events = self._epoll.poll(seconds, MAX_EVENTS)
            return bool(events) and self._round(events)
        except Exception as error:  # noqa: BLE001 -- as in doRead
            self.on_fatal(error)
            return True

    def watch(self, fd: int) -> None:
        """The reactor's descriptor: `wait` says when it is readable."""
        self._reactor_fd = fd
        self._epoll.register(fd, READ)

    def _round(self, events: list[tuple[int, int]]) -> bool:
        """Serve what is ready. True: the reactor has events too."""
        others, ask = events, False
        small: list[tuple[Connection, bytes]] = []
        if not self.rates.limited:
            small, large, others = read_sockets(events, self._sockets, SHORT)
            for link, chunk in large:
                self._hand_in(link, chunk)
        for fd, event in others:
            if fd == self._reactor_fd:
                ask = True
            else:
                self._event(fd, event)
        for connection, chunk in self.engine.received_each(small) if small else ():
            self._hand_in(cast("HubSocket", connection.link), chunk)
        self.engine.flush()
        while self._lost:
            self.lost(self._lost.pop())
            self.engine.flush()
        return ask

    def _event(self, fd: int, event: int) -> None:
        """Serve one socket."""
        link = self._sockets.get(fd)
        if link is None:
            acceptor = self._acceptors.get(fd)
            if acceptor is not None:
                acceptor.accept()
            return
        if event & WRITE:
            link.drain()
        if event & READ and not link.closed:
            chunk = self._read(link)
            if chunk:
                self._hand_in(link, chunk)
        elif event & GONE and not link.closed:
            self.lost(link)

    def write_each(self, links: list[Link], datas: list[bytes]) -> list[int]:
        """Write to many links. Returned are the positions of those that have not taken all, or are not the hub's."""
        unfinished = write_sockets(HubSocket, links, datas)
        for at, sent in unfinished:
            links[at].write(datas[at][sent:])
        return [at for at, _ in unfinished]

    def _read(self, link: HubSocket) -> bytes:
        """What has arrived; empty if the peer is gone, or was not ready after all."""
        try:
            chunk = link.sock.recv(link.chunk)
        except OSError as error:
            if error.errno not in AGAIN:
                self.lost(link)
            return b""
        if not chunk:
            self.lost(link)
        return chunk

    def _hand_in(self, link: HubSocket, chunk: bytes) -> None:
        """Hand bytes of one connection to the broker; how long that takes decides how much is read at once."""
        begun = monotonic()
        try:
            if link.proxy is None and link.connection is not None:
                if self.rates.limited:
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
        """Hand bytes to the broker, and read a client that exceeds its rates later: only its own TCP window fills."""
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
        """Log a defect and end the connection that met it. Nothing of it was acknowledged without a commit."""
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
        """The process may open no more files: stop accepting for a second instead of spinning."""
        self._epoll.modify(acceptor.sock.fileno(), 0)

        def again() -> None:
            if acceptor.sock.fileno() in self._acceptors:
                self._epoll.modify(acceptor.sock.fileno(), READ)

        self.later(1.0, again)

    def pause(self, paused: bool) -> None:
        """Back-pressure: stop or go on reading from all clients."""
        self._paused = paused
        for link in (*self._sockets.values(), *self.streams):
            link.pause(paused)

    @property
    def paused(self) -> bool:
        """Whether reading is stopped for all clients."""
        return self._paused

    @property
    def count(self) -> int:
        """Sockets that are open."""
        return len(self._sockets)
