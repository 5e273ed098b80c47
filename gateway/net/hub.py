"""The hub: all sockets of devices behind one descriptor of the reactor, whatever MQTT is wrapped in on them.

Twisted's own transport costs a pass through the reactor, a logging context and two system calls for each readable
socket and each write. The hub is an epoll instance that the reactor watches as one reader: one `doRead` polls it, reads
every socket that is ready, has TLS and WebSocket taken off (`wrapping.py`), hands all of it to the broker, and lets it
commit and answer in the same pass. Timers, signals and HTTP stay the reactor's.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from zope.interface import implementer

from gateway.broker.engine import Engine
from gateway.broker.put_off import LATER_SECONDS, SLICE_SECONDS, STRANGERS_SECONDS, TURN_SECONDS
from gateway.net.buffers import Buffers
from gateway.net.hub_socket import AGAIN, READ, WRITE, Acceptor, HubSocket
from gateway.net.rates import SendRates, take
from gateway.net.reactor import HubReactor
from gateway.net.scheduler import ReactorScheduler, Waker
from gateway.net.stops import Stop
from gateway.net.turns import Turns
from gateway.net.wire import poll_sockets, read_sockets, write_sockets
from gateway.ports.link import Link
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.net.wire import Ready

GONE = select.EPOLLHUP | select.EPOLLERR
CHUNK = 1 << 16
LEAST_CHUNK, SLOW_SECONDS = 512, 0.02
"""How much is read at once grows while it is taken in fast, and shrinks otherwise: what one client sends may be
expensive to route, and the others wait meanwhile."""
NO_DESCRIPTORS_SECONDS = 1.0
PARTING_SECONDS, MOST_PARTING = 1.0, 100
"""How long the socket of a refused client stays open so that it can read why, and how many stay open at most."""
SEVERAL, ALONG_SECONDS = 4, 0.002
"""While so many clients at once have sent something, what they send meanwhile comes into the same batch, as a commit
costs as much as dozens of messages; and for how long at most, since those who were first wait for it."""
STEP_SECONDS = 0.0001
"""Between two looks whether those come for whom a batch waits."""
_connection = itemgetter(0)


@implementer(IReadDescriptor)
class Hub:
    """One descriptor for the reactor, with all sockets behind it."""

    def __init__(self, reactor: Any, engine: Engine) -> None:
        self.reactor = reactor
        self.engine = engine
        self._epoll = select.epoll()
        self._sockets: dict[int, HubSocket] = {}
        self._acceptors: dict[int, Acceptor] = {}
        self._apart: set[int] = set()
        """Descriptors of peers that are gone, and of which nothing is read for the moment."""
        self._waker: Waker | None = None
        self._lost: list[HubSocket] = []
        self._over: list[HubSocket] = []
        """Links whose wrapping has ended in this round."""
        self._losing = self._paused = False
        self._in_hand: tuple[list[tuple[Connection, bytes]], list[tuple[HubSocket, bytes]]] = ([], [])
        """What was read in this round and is not with the broker, while calls of other threads are made: one of them
        may let in a client that has sent it."""
        engine.endings.is_in_hand = self._is_in_hand
        self._buffers = Buffers(engine.context, self._sockets.values)
        engine.put_off.on_busy = self._busy
        engine.early.on_let_in = self._let_in
        engine.context.on_slow = self._slow
        self._parting: deque[socket.socket] = deque()
        """Sockets to be closed in a while, or closed already."""
        self._late: dict[int, None] = {}
        """Descriptors whose events the last turn had no time for: in the next they come before others of their kind."""
        self.rates = SendRates({}, reactor.seconds)
        """What clients may send in a second."""
        self.on_fatal: Callable[[Exception], None] = lambda _error: None
        self.on_defect: Callable[[Exception, str], None] = lambda _error, _peer: None
        self.turns = Turns()
        """Told when a turn begins and ends, where the process waits in the hub."""
        self.on_malformed: Callable[[str, str, str], None] = lambda _listener, _peer, _why: None
        """Told of a connection whose first bytes are not what its listener takes: listener, peer, what is wrong."""
        self.on_exhausted: Callable[[str], None] = lambda _listener: None
        """Told of a listener that has turned somebody away for want of descriptors."""
        self._reactor_fd = -1
        if isinstance(engine.scheduler, ReactorScheduler):
            self._waker = engine.scheduler.waker = Waker()
            self._epoll.register(self._waker.fd, READ)
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
        """Called when the reactor stops."""
        del reason

    def doRead(self) -> None:
        """Read all that is ready, hand it to the broker, commit, answer. A defect here cannot be attributed to one
        connection: the process ends, and after its restart everything that was acknowledged is there."""
        try:
            self._round(poll_sockets(self._epoll, 0))
        except Exception as error:  # noqa: BLE001 -- logged, and then the process ends
            self.on_fatal(error)

    def wait(self, seconds: float) -> bool:
        """`doRead` for a reactor that serves the hub first: wait at most this long. Returns True if the reactor has
        events too."""
        try:
            self.turns.end()
            events = poll_sockets(self._epoll, seconds)
            self.turns.begin()
            return bool(events) and self._round(events)
        except Exception as error:  # noqa: BLE001 -- as in doRead
            self.on_fatal(error)
            return True

    def watch(self, fd: int) -> None:
        """Watch the reactor's own descriptor, so that `wait` can say when it is readable."""
        self._reactor_fd = fd
        self._epoll.register(fd, READ)

    def _round(self, events: Ready) -> bool:
        """Serve what is ready: finished commits, then what clients have sent, then connections that come and go.
        Returns True if the reactor has events too."""
        begun, context = monotonic(), self.engine.context
        context.until = begun + TURN_SECONDS
        context.until_strangers, context.until_late = begun + STRANGERS_SECONDS, begun + LATER_SECONDS
        arrived, wrapped, others, full = read_sockets(events, self._sockets)
        if self._late:
            others = self._late_first(others)
        group = context.group_commit
        group.gathering = True
        ask = False
        if others:
            self._in_hand = arrived, wrapped
            ask, others = self._woken(others)
            self._in_hand = [], []
        count = self._take(arrived, wrapped, full)
        if others:
            self._serve(others)
        if count >= SEVERAL:
            self._take_along(begun + ALONG_SECONDS)
        if group.missing:
            self._wait_for_answered()
        group.gathering = False
        self.engine.flush()
        self._end_lost(context.until_late)
        self.engine.kept_routes.look()
        if self._buffers.look():
            self.engine.flush()
        return ask

    def _is_in_hand(self, connection: Connection) -> bool:
        arrived, wrapped = self._in_hand
        read = any(one is connection for one, _ in arrived)
        return read or any(link.connection is connection for link, _ in wrapped)

    def _take(
        self, arrived: list[tuple[Connection, bytes]], wrapped: list[tuple[HubSocket, bytes]], full: list[HubSocket]
    ) -> int:
        """Hand what was read to the broker; returns of how many connections it was."""
        for link, chunk in wrapped:
            data = self._unwrapped(link, chunk)
            if data and link.connection is not None:
                arrived.append((link.connection, data))
        if arrived:
            self._hand_in_all(arrived, full)
        else:
            for link in full:  # the beginning of something long
                self._read_more(link, link.chunk)
        return len(arrived)

    def _take_along(self, until: float) -> None:
        """Read into the open batch what several clients have sent meanwhile, unless it waits for a commit anyway. The
        next poll reports again whatever else is ready."""
        context, count = self.engine.context, SEVERAL
        while count >= SEVERAL and not (context.committing or self._lost or self._over) and monotonic() < until:
            arrived, wrapped, _, full = read_sockets(poll_sockets(self._epoll, 0), self._sockets)
            count = self._take(arrived, wrapped, full)

    def _wait_for_answered(self) -> None:
        """Wait for what the clients that a slow commit has just answered send at once, so that it joins the next
        commit."""
        context, group = self.engine.context, self.engine.context.group_commit
        while group.missing and context.batch and not (context.committing or self._lost or self._over):
            now = monotonic()
            if now >= group.until and group.over(now):
                return
            sleep(STEP_SECONDS)
            arrived, wrapped, _, full = read_sockets(poll_sockets(self._epoll, 0), self._sockets)
            self._take(arrived, wrapped, full)

    def _late_first(self, others: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Serve first the sockets that the last turn had no time for."""
        late, self._late = self._late, {}
        ready = dict(others)
        return [(fd, ready.pop(fd)) for fd in late if fd in ready] + list(ready.items())

    def _woken(self, others: list[tuple[int, int]]) -> tuple[bool, list[tuple[int, int]]]:
        """Make the calls of other threads. Returns whether the reactor has events too, and what else is ready."""
        ask, left = False, []
        for fd, event in others:
            if fd == self._reactor_fd:
                ask = True
            elif self._waker is not None and fd == self._waker.fd:
                self._waker.accept()
            else:
                left.append((fd, event))
        return ask, left

    def _serve(self, others: list[tuple[int, int]]) -> None:
        """Serve, as time allows, sockets to be written to, ends of connections and new connections."""
        until = max(self.engine.context.until_late, monotonic() + SLICE_SECONDS)
        for fd, event in others:
            if monotonic() > until and fd in self._sockets:
                self._late[fd] = None  # the next poll says so again
            else:
                self._event(fd, event)

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
        if link.closed:
            return
        if link.watching & READ and event & (READ | GONE):  # as it is watched now: this turn may have changed that
            chunk = self._read(link)
            if chunk and link.wrapping is not None:
                chunk = self._unwrapped(link, chunk)
            if chunk:
                self._hand_in(link, chunk)
        elif event & GONE:
            self._gone(link)

    def _gone(self, link: HubSocket) -> None:
        """The peer is gone while nothing is read from it: what it had sent before comes as soon as it is read again."""
        if not self._has_sent(link):
            self.lost(link)
        else:
            self._apart.add(link.fd)
            self._epoll.unregister(link.fd)  # it would say so again and again

    def _has_sent(self, link: HubSocket) -> bool:
        """Whether the peer has sent something that was not taken yet; the last of it may be an orderly end."""
        if link.connection is None or link.connection.state == CLOSED:  # nothing of it is taken any more
            return False
        return link.unread() or self._waits(link.connection)

    def _waits(self, connection: Connection | None) -> bool:
        """Whether something that was read from a client is to be taken later."""
        return connection is not None and (bool(connection.early) or connection in self.engine.put_off)

    def write_each(self, links: list[Link], datas: list[bytes]) -> list[int]:
        """Write to many links. Returns the positions of those that have not taken everything."""
        sockets = cast("list[HubSocket]", links)
        unfinished = write_sockets(HubSocket, links, datas)
        for at, left in unfinished:
            sockets[at].send(left)
        return [at for at, _ in unfinished]

    def _read(self, link: HubSocket) -> bytes:
        """What has arrived; empty if the peer is gone, or was not ready after all."""
        try:
            chunk = link.sock.recv(link.chunk)
        except OSError as error:
            if error.errno not in AGAIN:
                self._ended(link)
            return b""
        if not chunk:
            self._ended(link)
        return chunk

    def _ended(self, link: HubSocket) -> None:
        """The peer sends nothing more. What it sent that is put off comes first; then its end is read once more. As
        clients need not wait for CONNACK, what one has sent behind its CONNECT is taken when it is let in."""
        if link.connection is not None and link.connection.early:
            link.stop(Stop.UNDECIDED, stopped=True)
        elif not self._waits(link.connection):
            self.lost(link)

    def _unwrapped(self, link: HubSocket, chunk: bytes) -> bytes:
        """What a chunk holds for the broker once TLS and WebSocket are taken off."""
        begun = monotonic()
        data = b"" if link.wrapping is None else self._of_wrapping(link, partial(link.wrapping.unwrap, chunk))
        connection = link.connection
        if connection is not None and self.engine.context.piles_up(connection) and link.over is None:
            self.lost(link)  # it asks, and does not read the answers
        spent = monotonic() - begun
        if spent > SLOW_SECONDS:
            self._slower(link, spent, len(chunk))
        else:
            self._read_more(link, len(chunk))
        return data

    def take_in(self, link: HubSocket, unwrap: Callable[[], bytes]) -> None:
        """Take in bytes that a wrapping has held back for a while."""
        data = self._of_wrapping(link, unwrap)
        if data:
            self._hand_in(link, data)

    def _of_wrapping(self, link: HubSocket, unwrap: Callable[[], bytes]) -> bytes:
        data = b""
        try:
            data = unwrap()
        except Exception as error:  # noqa: BLE001 -- as in _hand_in
            self.defect(link, error)
        if link.over is not None:
            self._over.append(link)
        return data

    def _hand_in_all(self, arrived: list[tuple[Connection, bytes]], full: list[HubSocket]) -> None:
        """Hand what a round has brought to the broker; `full`: the links that had as much as is read at once, and may
        have more."""
        read, missing = [link.chunk for link in full], self.engine.context.group_commit.missing
        if missing:
            missing.difference_update(map(_connection, arrived))
        self.engine.received_each(arrived)
        for link, length in zip(full, read, strict=True):
            self._read_more(link, length)
        if self.rates.limited:
            self._charge(arrived)

    def _hand_in(self, link: HubSocket, chunk: bytes) -> None:
        """Hand bytes of one connection to the broker."""
        if link.connection is not None:
            self._hand_in_all([(link.connection, chunk)], [link] if len(chunk) == link.chunk else [])

    def _read_more(self, link: HubSocket, length: int) -> None:
        """How much is read at once grows while it is all there is to read."""
        if length == link.chunk < CHUNK:
            link.chunk *= 2

    def _slow(self, connection: Connection, spent: float, length: int) -> None:
        """A packet among this many bytes took long: read less at once, so that others wait less."""
        self._slower(cast("HubSocket", connection.link), spent, length)

    def _slower(self, link: HubSocket, spent: float, length: int) -> None:
        link.chunk = max(LEAST_CHUNK, link.chunk // 4)
        self.turns.took(spent, f"{length} bytes received", who_of(link.connection, link.peer))

    def _charge(self, arrived: list[tuple[Connection, bytes]]) -> None:
        """Let clients that exceed their rates be read later: only their own TCP windows fill."""
        now = self.rates.now()
        for connection, chunk in arrived:
            published, connection.published = connection.published, 0
            link: Any = connection.link
            buckets = link.buckets
            if buckets is None:
                buckets = link.buckets = self.rates.of_client(link.listener)
            early = take(buckets, len(chunk), published, now) if buckets else 0.0
            if early and not link.closed:
                self.engine.counters.backpressure_events["client_rate"] += 1
                link.rest(early)

    def _busy(self, connection: Connection, busy: bool) -> None:
        """Packets of a connection are put off, or no longer are: do not read from it meanwhile."""
        link = cast("HubSocket", connection.link)
        link.stop(Stop.PUT_OFF, stopped=busy)
        if link.over is not None and not busy:
            self._over.append(link)
            self._lose_later()

    def _let_in(self, connection: Connection) -> None:
        """A client has been let in: what it sent meanwhile is being taken."""
        link = cast("HubSocket", connection.link)
        link.stop(Stop.UNDECIDED, stopped=False)
        if link.over is not None:
            self._over.append(link)
            self._lose_later()

    def defect(self, link: HubSocket, error: Exception) -> None:
        """Log a defect and end the connection that met it. Nothing of it was acknowledged without a commit."""
        self.on_defect(error, link.peer)
        self.lost(link)

    def malformed(self, link: HubSocket, why: str) -> None:
        """The first bytes of the peer are not what its listener takes."""
        self.on_malformed(link.listener, link.peer, why)

    def answered(self, length: int) -> None:
        """A wrapping sends so many bytes by itself."""
        self._buffers.answered += length

    def _end(self, link: HubSocket) -> None:
        """A wrapping has ended: send what has to be said, then close the connection."""
        connection = link.connection
        if self._waits(connection):
            return  # what came before the end first: `_busy` or `_let_in` is told when it is done
        try:
            if link.over and connection is not None:
                self.engine.context.close(connection, "protocol_error", link.over)
            link.close()
            if connection is not None:
                self.engine.closed(connection)
        except Exception as error:  # noqa: BLE001 -- as in lost
            self.on_defect(error, link.peer)

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
        self._epoll.register(link.fd, link.watching)
        if self._paused:
            link.stop(Stop.ALL, stopped=True)

    def modify(self, fd: int, events: int) -> None:
        """Change which events a socket is watched for."""
        if fd in self._apart:
            if events & READ:
                self._apart.discard(fd)
                self._epoll.register(fd, events)
        elif fd in self._sockets:
            self._epoll.modify(fd, events)

    def forget(self, link: HubSocket) -> None:
        """The socket is closed."""
        if self._sockets.pop(link.fd, None) is not None:
            self._apart.discard(link.fd)
            with contextlib.suppress(OSError):
                self._epoll.unregister(link.fd)

    def part(self, sock: socket.socket) -> None:
        """Close a socket in a while. A peer that still sends when it is closed is answered with a reset, and many then
        never read the DISCONNECT before it. Only some are kept: an open socket is a descriptor."""
        if len(self._parting) >= MOST_PARTING:
            self._parting.popleft().close()
        self._parting.append(sock)
        self.later(PARTING_SECONDS, sock.close)

    def lost(self, link: HubSocket) -> None:
        """The peer is gone. What that leads to, its will first of all, may run into a defect; the others go on."""
        connection, begun = link.connection, monotonic()
        try:
            if link.wrapping is not None:
                link.wrapping.lost()
            link.abort()
            if connection is not None:
                self.engine.closed(connection)
        except Exception as error:  # noqa: BLE001 -- as in _hand_in
            self.on_defect(error, link.peer)
        if connection is not None and monotonic() - begun > SLOW_SECONDS:
            self.turns.took(monotonic() - begun, "the end of a connection", who_of(connection, link.peer))

    def lost_later(self, link: HubSocket) -> None:
        """A write found the peer gone: end the connection when the broker is not in the middle of a batch, and not
        before what the peer had sent is taken."""
        self._lost.append(link)
        self._lose_later()

    def _end_lost(self, until: float) -> None:
        """End the connections whose peers are gone or have said so, as far as there is time."""
        while (self._lost or self._over) and monotonic() <= until:
            if self._lost:
                link = self._lost.pop()
                if link.heard or not self._has_sent(link):  # else its end is read behind that
                    self.lost(link)
            else:
                self._end(self._over.pop())
            self.engine.flush()
        if self._lost or self._over:
            self._lose_later()

    def _lose_later(self) -> None:
        if not self._losing:
            self._losing = True
            self.reactor.callLater(0, self._lose)

    def _lose(self) -> None:
        """End some of the connections that are lost, as many may be gone at once; a few in each turn."""
        self._losing = False
        self._end_lost(monotonic() + LATER_SECONDS)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Set a timer."""
        self.reactor.callLater(seconds, call)

    def rest(self, acceptor: Acceptor, seconds: float) -> None:
        """Stop accepting for a while."""
        self._epoll.modify(acceptor.sock.fileno(), 0)

        def again() -> None:
            if acceptor.sock.fileno() in self._acceptors:
                self._epoll.modify(acceptor.sock.fileno(), READ)

        self.later(seconds, again)

    def exhausted(self, acceptor: Acceptor) -> None:
        """There are no descriptors left for connections: accept nobody for a while, instead of trying again and
        again."""
        self.rest(acceptor, NO_DESCRIPTORS_SECONDS)
        self.on_exhausted(acceptor.name)

    def pause(self, paused: bool) -> None:
        """Back-pressure: stop or go on reading from all clients."""
        self._paused = paused
        for link in list(self._sockets.values()):
            link.stop(Stop.ALL, stopped=paused)

    @property
    def paused(self) -> bool:
        """Whether reading is stopped for all clients."""
        return self._paused

    @property
    def count(self) -> int:
        """How many sockets are open."""
        return len(self._sockets)


def who_of(connection: Connection | None, peer: str) -> str:
    """The name of a client for the log."""
    client_id = connection.publisher.client_id if connection is not None else ""
    return f"{client_id} at {peer}" if client_id else peer
