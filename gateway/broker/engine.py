"""The broker: bytes of all connections in, one unit of work a batch, acknowledgements out. No reactor, clock or I/O.

The way of a batch: `received` for every socket that is readable, then `flush`. If no commit is running the open turn is
submitted; if one is, the turn grows until it returns. Nothing of `Turn.replies` is written before that.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from gateway.broker import accounting
from gateway.broker.deliver import settling
from gateway.broker.deliver.delivery import Delivery
from gateway.broker.limits import Limits
from gateway.broker.pings import Pings
from gateway.broker.publish import runs, singles
from gateway.broker.publish.holding import Holding
from gateway.broker.publish.publishing import Publishing
from gateway.broker.publish.putting import Putting
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.router import Router
from gateway.broker.publish.staging import Staging
from gateway.broker.refused import shedding
from gateway.broker.refused.failures import Failures
from gateway.broker.refused.parking import Parking
from gateway.broker.sessions import early
from gateway.broker.sessions.connecting import Connecting
from gateway.broker.sessions.ownership import owning_of
from gateway.broker.sessions.subscribing import Subscribing
from gateway.broker.sessions.sys_topics import SysTopics
from gateway.broker.tracing import Hop
from gateway.broker.turn import Turn
from gateway.broker.writing import Writing
from gateway.errors import ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, Disconnect
from gateway.mqtt.reader import Reader
from gateway.ports.access import Access
from gateway.ports.asking import Asks
from gateway.ports.batch import BatchQueueManager, Outcome, Scheduler, Token, Unit
from gateway.ports.counters import Counters, DisconnectReason, PauseCause
from gateway.ports.link import Link
from gateway.session.connection import AUTHENTICATING, CLOSED, NEW, ONLINE, Connection
from gateway.session.registry import Registry
from gateway.session.session import Session


class Engine:
    """Everything of the broker in one place; the parts each know one group of packets."""

    on_hop: Callable[[Hop], Callable[[], None]] | None = None
    """Told of messages of sampled traces; what it answers is called when their turn is committed."""
    trace_out: Callable[[Connection, bytes], None] | None = None
    """Told of what is written, while somebody looks."""
    trace_commit: Callable[[Turn], None] | None = None
    """Told of every turn that was committed, while somebody looks."""

    def __init__(
        self,
        queue_manager: BatchQueueManager,
        scheduler: Scheduler,
        limits: Limits,
        router: Router,
        access: Access,
        counters: Counters,
    ) -> None:
        self.queue_manager = queue_manager
        self.far = queue_manager if isinstance(queue_manager, Asks) else None
        """Set where the queue manager may not answer: what is read of it while devices are served is asked for."""
        self.scheduler = scheduler
        self.limits = limits
        self.router = router
        self.access = access
        self.counters = counters
        self.turn = Turn()
        self.sessions = Registry()
        self.connections: set[Connection] = set()
        self.retained = Retained(self)
        self.delivery = Delivery(self)
        self.putting = Putting(self)
        self.publishing = Publishing(self)
        self.staging = Staging(self)
        self.subscribing = Subscribing(self)
        self.connecting = Connecting(self)
        self.failures = Failures(self)
        self.parking = Parking(self)
        self.holding = Holding(self)
        self.pings = Pings(self)
        self.writing = Writing(self)
        self.refill: dict[Session, None] = {}
        """Sessions whose window has room again: filled once a batch."""
        self.first: list[Turn] = []
        """Turns that go before the open one: attempts of what was parked."""
        self.sys_topics = SysTopics(self)
        self.owning = owning_of(self, queue_manager)
        """Set where other gateways keep their sessions on the same state queues."""
        self.draining = False
        self.dead_letter_queue = ""
        """Where undeliverable messages go: the queue manager's DEADQ."""
        router.engine = self
        self.now = scheduler.now()
        self.paused = False
        """True while the batch behind a running commit is full: the network edge stops reading."""
        self.on_pause: Callable[[bool], None] = lambda _paused: None
        self.problems: dict[str, str] = {}
        """What an operator should look at, by what it concerns; readiness and the admin page show it."""
        self.on_committed: Callable[[], None] = lambda: None
        self.on_end: Callable[[Connection, str], None] = lambda _connection, _why: None
        self.trace: Callable[[Connection, str, Any], None] | None = None
        self._busy = False
        self.running = self.turn  # its unit is being committed
        self._submitting = False
        self.handlers = self._handlers()

    def _handlers(self) -> list[Callable[[Connection, Any], None]]:
        """Who knows a packet type."""
        handlers: list[Callable[[Connection, Any], None]] = [self._server_only] * 16
        for kind, handler in {
            1: self.connecting.connect,
            3: self.publishing.publish,
            4: self.delivery.puback,
            5: self.delivery.pubrec,
            6: self.staging.pubrel,
            7: self.delivery.pubcomp,
            8: self.subscribing.subscribe,
            10: self.subscribing.unsubscribe,
            12: self.pings.pingreq,
            14: self.connecting.disconnect,
            15: self.connecting.auth,
        }.items():
            handlers[kind] = handler
        return handlers

    # -- connections --

    def connected(self, link: Link, listener: Any) -> Connection | None:
        """A socket was accepted. None: refused, because the gateway is full or stopping."""
        if self.draining or len(self.connections) >= self.limits.max_connections:
            return None
        limits = self.limits.at(link.listener)
        reader = Reader(min(limits.max_packet, limits.max_connect), max_user_properties=limits.max_user_properties)
        connection = Connection(link, reader, listener, self.scheduler.monotonic())
        connection.limits = limits
        self.connections.add(connection)
        return connection

    def received(self, connection: Connection, chunk: bytes) -> None:
        """Bytes of one connection. Call `flush` when all that was readable has been handed in."""
        if connection.state == CLOSED:
            return
        self.now = self.scheduler.now()
        connection.last_read = self.scheduler.monotonic()
        if not self.turn.opened:
            self.turn.opened = connection.last_read
        self.counters.bytes_in += len(chunk)
        if connection.state == AUTHENTICATING:
            connection.early_bytes += len(chunk)
            if connection.early_bytes > self.limits.max_connect:
                self.protocol_error(connection, ProtocolError("too much before CONNACK", reasons.QUOTA_EXCEEDED))
                return
        if connection.state == ONLINE:
            if chunk.startswith(settling.BEGINS) and connection.reader.held is None:
                chunk = settling.from_bytes(self, connection, chunk)
            rest = runs.take(self, connection, chunk) if chunk else b""
            if rest:
                self.publishing.packets(connection, connection.reader.feed(rest))
            else:
                self.publishing.check_in_flight(connection)
        else:
            packets = connection.reader.feed(chunk)
            if packets:
                early.packets(self, connection, packets)
        error = connection.reader.error
        if error is not None and connection.state != CLOSED:
            self.protocol_error(connection, error)

    def received_each(self, arrived: list[tuple[Connection, bytes]]) -> list[tuple[Connection, bytes]]:
        """A few bytes of several connections: plain publications are taken in together, the others returned."""
        return singles.publications(self, arrived)

    def closed(self, connection: Connection, why: DisconnectReason = "io_error") -> None:
        """The socket is gone."""
        connection.leaving = False
        self.now = self.scheduler.now()
        self.connecting.ended(connection, why)

    def send(self, connection: Connection, data: bytes) -> None:
        """A packet for a connection; all of a batch are written at once by `flush`, none before CONNACK
        [MQTT-3.2.0-1]."""
        if not connection.greeted and connection.state == ONLINE:
            self.turn.reply(connection, data)
            return
        self.counters.packets_out[data[0] >> 4] += 1
        self.send_counted(connection, data)

    def send_counted(self, connection: Connection, data: bytes) -> None:
        """One or several packets that are counted already."""
        self.writing.later(connection, data)

    def send_all(self, connection: Connection, packets: list[bytes]) -> None:
        """Several packets."""
        if len(packets) == 1 or not connection.greeted:
            for data in packets:
                self.send(connection, data)
            return
        out = self.counters.packets_out
        for data in packets:
            out[data[0] >> 4] += 1
        self.send_counted(connection, b"".join(packets))

    def close(self, connection: Connection, why: DisconnectReason, text: str = "") -> None:
        """Write what is waiting, close, and end the connection's part of the session."""
        if connection.state == CLOSED:
            return
        connection.close_reason = text or why
        self.writing.now(connection)
        connection.link.close()
        self.connecting.ended(connection, why)

    def leave_when_committed(self, connection: Connection) -> None:
        """The client said DISCONNECT: what that changes (no will, its session's expiry) is durable before the socket
        closes, so that a client that saw the end is never contradicted by a kill."""
        connection.close_reason = "normal"
        self.writing.now(connection)
        connection.leaving = not self.parking.withholds(connection)
        self.connecting.ended(connection, "normal")
        self.turn.after.append(connection.link.close)

    def refuse(self, connection: Connection, reason: int, why: DisconnectReason, text: str) -> None:
        """DISCONNECT with a reason (5.0), then close; 3.x has no such packet from a server. [MQTT-3.14.0-1]
        [MQTT-3.14.4-1] [MQTT-3.14.4-2] [MQTT-3.1.2-29]"""
        if connection.version == V5 and connection.state == ONLINE:
            properties: dict[int, Any] = {0x1F: text} if text and connection.problem_information else {}
            if reason in {0x9C, 0x9D} and self.limits.server_reference:
                properties[0x1C] = self.limits.server_reference
            data = writer.encode_disconnect(V5, Disconnect(reason, properties))
            if len(data) > connection.session.outflow.max_packet:  # [MQTT-3.14.2-3]
                data = writer.encode_disconnect(V5, Disconnect(reason))
            self.send(connection, data)
        self.close(connection, why, text)

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        """The peer broke the protocol [MQTT-4.13.1-1] [MQTT-4.8.0-1]."""
        if connection.state in {NEW, AUTHENTICATING}:
            self.connecting.refuse_connect(connection, error.reason, str(error), malformed=True)
            return
        why: DisconnectReason = "packet_too_large" if error.reason == reasons.PACKET_TOO_LARGE else "protocol_error"
        self.refuse(connection, error.reason, why, str(error))

    def leave(self, connection: Connection) -> None:
        """The gateway stops: 5.0 clients are told to come back elsewhere; what they published is still acknowledged."""
        reason = reasons.USE_ANOTHER_SERVER if self.limits.server_reference else reasons.SERVER_SHUTTING_DOWN
        if connection in self.turn.replies or connection in self.running.replies:
            self.turn.after.append(lambda: self.refuse(connection, reason, "draining", "the gateway is stopping"))
        else:
            self.refuse(connection, reason, "draining", "the gateway is stopping")

    def _server_only(self, connection: Connection, packet: Any) -> None:
        self.protocol_error(connection, ProtocolError(f"packet type {packet[0] >> 4} is not for a server"))

    # -- batches --

    def flush(self) -> None:
        """Submit the open turn unless a commit is running, and write what may be written."""
        if self.refill:
            refill, self.refill = self.refill, {}
            for session in refill:
                self.delivery.fill(session)
        self._submit()
        if self.writing.dirty:
            self.writing.all()

    def _submit(self) -> None:
        if self._submitting:
            return
        self._submitting = True
        try:
            while not self._busy and (self.first or self.turn):
                if self.first:
                    turn = self.first.pop(0)
                else:
                    turn, self.turn = self.turn, Turn()
                    if turn.held.moves and (self.parking.waiting or self.trace_commit is not None):
                        self.holding.write_all_out(turn)
                    if self.parking.waiting:
                        self.parking.join(turn)
                unit = turn.unit()
                if not unit:
                    if turn.parked is not None:
                        self.parking.over(turn.parked)
                    self.finish(turn)
                    continue
                turn.started = self.scheduler.monotonic()
                self._busy, self.running = True, turn
                self.queue_manager.submit(unit, self.done)
        finally:
            self._submitting = False
        if not self.turn:
            self.turn.opened = 0.0  # what was read asked for nothing: the next batch has not begun
        self._pressure()

    def _pressure(self) -> None:
        full = (self._busy and self.turn.rows >= 20_000) or self.parking.full
        if full != self.paused:
            self.paused = full
            if full:
                self.counters.backpressure_events[self._cause()] += 1
            self.on_pause(full)

    def _cause(self) -> PauseCause:
        if self.failures.held_since:
            return "mq_down"
        return "queue_full" if self.parking.full else "batch_full"

    def done(self, unit: Unit, outcome: Outcome) -> None:
        """The queue manager has committed the unit, or says why not (nothing of it was committed then)."""
        turn = self.running
        self.now = self.scheduler.now()
        if outcome.failures:
            self.failures.handle(turn, unit, outcome)
            return
        self._busy = False
        if turn.parked is not None:
            self.parking.over(turn.parked)
        self.failures.recovered()
        if self.trace_commit is not None:
            self.trace_commit(turn)
        committed = self.scheduler.monotonic()
        self.finish(turn)
        if self.writing.dirty:
            self.writing.all()  # before the books are kept: somebody waits for this
        accounting.finished(self, turn, committed)
        self.on_committed()
        if not self._submitting:
            self.flush()

    def abandon(self) -> None:
        """The turn that runs is put off: its messages are parked; what is behind it goes on."""
        self._busy = False
        if not self._submitting:
            self.flush()

    def being_taken(self, queue: str, key: bytes) -> set[Token]:
        """Messages that a turn which is not committed yet takes: they can still be fetched, and must not go twice."""
        turns = (self.turn, self.running) if self._busy else (self.turn,)
        taken = [turn.takes[queue, key].tokens for turn in turns if (queue, key) in turn.takes]
        return {token for tokens in taken for token in tokens}

    def stores_for(self, session: Session) -> bool:
        """Whether what is being committed, and may be seen already, stores something for a session."""
        return self._busy and any(one[0] is session for one in self.running.deliveries)

    def resubmit(self, turn: Turn) -> None:
        """The same turn again, after a failure was worked round; everything behind it has waited."""
        unit = turn.unit()
        if unit:
            self.queue_manager.submit(unit, self.done)
        else:
            self.done(unit, Outcome())

    def finish(self, turn: Turn) -> None:
        """The commit has returned: acknowledge, then deliver."""
        for connection, count in turn.pending.items():
            connection.inbound_pending -= count
            connection.session.received += count
        out, answered = self.counters.packets_out, turn.answered
        if answered[4] == sum(answered):
            out[4] += answered[4]  # nothing but PUBACKs
        else:
            out[:] = map(add, out, answered)
        greeted = self.writing.acknowledge(turn)
        for owner, (staged, ids) in turn.staged.items():
            runs.pair(owner.staged_tokens, ids, staged.tokens)
        if turn.held:
            self.holding.committed(turn)
        if turn.deliveries:
            self.delivery.deliver(turn.deliveries)
        for connection in greeted:
            self.connecting.welcome(connection)
        for call in turn.after:
            call()

    @property
    def idle(self) -> bool:
        """Whether nothing waits for a commit but what is parked."""
        return not self._busy and not self.turn and not self.first

    # -- time --

    def tick(self) -> None:
        """Once a second: keep-alives, connections without CONNECT, sessions and wills that are due, retries."""
        self.now = self.scheduler.now()
        self.connecting.tick(self.scheduler.monotonic())
        self.delivery.tick(self.scheduler.monotonic())
        self.pings.tick()
        self.retained.sweep(self.now)
        self.sys_topics.tick(self.now)
        shedding.relieve(self)
        self.flush()
