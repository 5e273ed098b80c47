"""The broker: bytes of all connections in, one unit of work a batch, acknowledgements out. No reactor, clock or I/O.

The way of a batch: `received` for every socket that is readable, then `flush`. If no commit is running the open batch
is submitted; if one is, the batch grows until it returns. Nothing of `Batch.replies` is written before that: `done` is
called when the commit has returned, and `finish` acknowledges and delivers.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from gateway.broker import books
from gateway.broker.answers import Answers
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry, Requests
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.deliver.handover import Handover
from gateway.broker.deliver.in_flight import PLAIN_PUBACK, InFlight
from gateway.broker.deliver.reports import Reports
from gateway.broker.limits import Limits
from gateway.broker.publish.columns import pair
from gateway.broker.publish.fast import FastLane
from gateway.broker.publish.plain import PlainLane
from gateway.broker.publish.publications import Publications
from gateway.broker.publish.qos2 import StagedRuns, Staging
from gateway.broker.publish.queue_rows import QueueRows
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.router import Router
from gateway.broker.refused.failures import Failures
from gateway.broker.refused.parking import MAX_ROWS as MAX_PARKED_ROWS
from gateway.broker.refused.parking import Parking
from gateway.broker.sessions.connack import Connacks
from gateway.broker.sessions.connect import ConnectHandler
from gateway.broker.sessions.endings import Endings
from gateway.broker.sessions.ownership import Ownership
from gateway.broker.sessions.recovery import Recovery
from gateway.broker.sessions.subscriptions import SubscribeHandler
from gateway.broker.sessions.sys_topics import SysTopics
from gateway.broker.sessions.wills import Wills
from gateway.errors import ProtocolError
from gateway.mqtt import reasons
from gateway.mqtt.reader import Reader
from gateway.ports.access import Access
from gateway.ports.batch import BatchQueueManager, Outcome, Scheduler, Unit
from gateway.ports.counters import Counters, DisconnectReason, PauseCause
from gateway.ports.link import Link
from gateway.ports.ownership import Owners
from gateway.session.connection import AUTHENTICATING, CLOSED, ONLINE, Connection

MAX_ROWS = 20_000
"""With so many rows in the open batch while a commit runs nothing more is read."""


class Engine:
    """Makes the parts of the broker and joins them; each part knows one group of packets."""

    def __init__(
        self,
        queue_manager: BatchQueueManager,
        scheduler: Scheduler,
        limits: Limits,
        router: Router,
        access: Access,
        counters: Counters,
    ) -> None:
        context = self.context = Context(queue_manager, scheduler, limits, access, counters)
        self.router = router
        router.context = context
        self.retained = Retained(context)
        self.reports = Reports(context)
        self.expiry = Expiry(context, self.reports)
        self.requests = Requests(context)
        self.fan_out = FanOut(context, router, self.expiry)
        self.in_flight = InFlight(context, router, self.reports)
        self.handover = Handover(context, router, self.fan_out, self.reports, self.retained)
        self.parking = Parking(context, router)
        self.queue_rows = QueueRows(context, router, self.parking)
        self.publications = Publications(context, router, self.queue_rows, self.retained, self.fan_out, self.parking)
        self.staged_runs = StagedRuns(context, self.parking)
        self.staging = Staging(context, self.publications, self.staged_runs)
        self.plain_lane = PlainLane(context, self.publications, self.staging, self.fan_out, self.in_flight)
        self.fast_lane = FastLane(context, self.publications, self.staging, self.staged_runs)
        self.failures = Failures(context, router, self.parking, self.staged_runs)
        self.answers = Answers(context, self.parking)
        self.wills = Wills(context, self.publications)
        self.connacks = Connacks(context, self.wills)
        self.endings = Endings(
            context, router, self.fan_out, self.reports, self.staged_runs, self.parking, self.wills, self.connacks
        )
        self.subscribe = SubscribeHandler(context, router, self.retained, self.fan_out)
        self.recovery = Recovery(context, self.retained, self.expiry, self.subscribe, self.wills)
        self.ownership = self._ownership()
        """Set where other gateways keep their sessions on the same state queues."""
        self.connect = ConnectHandler(
            context, router, self.in_flight, self.plain_lane.packets, self.wills, self.connacks, self.endings,
            self.ownership,
        )  # fmt: skip
        self.sys_topics = SysTopics(context, router, self.retained, self.fan_out, self.endings)
        context.flush, context.resubmit, context.abandon = self.flush, self.resubmit, self.abandon
        context.write, context.ended = self.answers.write, self.endings.ended
        context.refuse_connect = self.connacks.refuse_malformed
        self.plain_lane.handlers = self._handlers()
        self._submitting = False
        # for those who are no part of the broker
        self.queue_manager, self.scheduler = queue_manager, scheduler
        self.limits, self.counters = limits, counters
        self.sessions, self.connections = context.sessions, context.connections

    def _ownership(self) -> Ownership | None:
        context, owners = self.context, self.context.queue_manager
        if not isinstance(owners, Owners) or not owners.instance:
            return None
        return Ownership(
            context, owners, self.router, self.expiry, self.wills, self.connacks, self.endings, self.recovery
        )

    def _handlers(self) -> list[Callable[[Connection, Any], None]]:
        """Who knows a packet type."""
        handlers: list[Callable[[Connection, Any], None]] = [self._server_only] * 16
        for kind, handler in {
            1: self.connect.connect,
            3: self.plain_lane.publish,
            4: self.in_flight.puback,
            5: self.in_flight.pubrec,
            6: self.staging.pubrel,
            7: self.in_flight.pubcomp,
            8: self.subscribe.subscribe,
            10: self.subscribe.unsubscribe,
            12: self.answers.pingreq,
            14: self.endings.disconnect,
            15: self.connect.auth,
        }.items():
            handlers[kind] = handler
        return handlers

    def recover(self) -> dict[str, int]:
        """Before anything is served: bring back what is stored; how much there was, for the log."""
        return self.recovery.recover(self.ownership)

    # -- connections --

    def connected(self, link: Link, listener: Any) -> Connection | None:
        """A socket was accepted. None: refused, because the gateway is full or stopping."""
        context = self.context
        if context.draining or len(context.connections) >= context.limits.max_connections:
            return None
        limits = context.limits.at(link.listener)
        reader = Reader(min(limits.max_packet, limits.max_connect), max_user_properties=limits.max_user_properties)
        connection = Connection(link, reader, listener, context.scheduler.monotonic())
        connection.limits = limits
        context.shortest_payload = min(context.shortest_payload, limits.max_payload or limits.max_packet)
        context.connections.add(connection)
        return connection

    def closed(self, connection: Connection, why: DisconnectReason = "io_error") -> None:
        """The socket is closed."""
        connection.leaving = False
        self.context.now = self.context.scheduler.now()
        self.endings.ended(connection, why)

    # -- the way of a batch: what was received, flush, the commit, done --

    def received_each(self, arrived: list[tuple[Connection, bytes]]) -> list[tuple[Connection, bytes]]:
        """A few bytes of several connections: plain publications are taken in together, the others returned."""
        return self.fast_lane.take_round(arrived)

    def received(self, connection: Connection, chunk: bytes) -> None:
        """Bytes of one connection. Call `flush` when all that was readable has been handed in."""
        if connection.state == CLOSED:
            return
        context = self.context
        context.now = context.scheduler.now()
        connection.last_read = context.scheduler.monotonic()
        if not context.batch.opened:
            context.batch.opened = connection.last_read
        context.counters.bytes_in += len(chunk)
        if connection.state == AUTHENTICATING:
            connection.early_bytes += len(chunk)
            if connection.early_bytes > context.limits.max_connect:
                context.protocol_error(connection, ProtocolError("too much before CONNACK", reasons.QUOTA_EXCEEDED))
                return
        if connection.state == ONLINE:
            if chunk.startswith(PLAIN_PUBACK) and connection.reader.held is None:
                chunk = self.in_flight.settle_chunk(connection, chunk)
            rest = self.fast_lane.take_chunk(connection, chunk) if chunk else b""
            if rest:
                self.plain_lane.packets(connection, connection.reader.feed(rest))
            else:
                self.plain_lane.check_in_flight(connection)
        else:
            packets = connection.reader.feed(chunk)
            if packets:
                self.connect.early_packets(connection, packets)
        error = connection.reader.error
        if error is not None and connection.state != CLOSED:
            context.protocol_error(connection, error)

    def _server_only(self, connection: Connection, packet: Any) -> None:
        error = ProtocolError(f"packet type {packet[0] >> 4} is not for a server")
        self.context.protocol_error(connection, error)

    def flush(self) -> None:
        """Submit the open batch unless a commit is running, and write what may be written."""
        context = self.context
        if context.refill:
            refill, context.refill = context.refill, {}
            for session in refill:
                self.in_flight.fill(session)
        self._submit()
        if context.unwritten:
            self.answers.write_all()

    def _submit(self) -> None:
        if self._submitting:
            return
        context = self.context
        self._submitting = True
        try:
            while not context.committing and (context.attempts or context.batch):
                batch = context.attempts.pop(0) if context.attempts else self._next_batch()
                unit = batch.unit()
                if not unit:
                    if batch.parked is not None:
                        self.parking.over(batch.parked)
                    self.finish(batch)
                    continue
                batch.started = context.scheduler.monotonic()
                context.committing, context.running = True, batch
                context.queue_manager.submit(unit, self.done)
        finally:
            self._submitting = False
        if not context.batch:
            context.batch.opened = 0.0  # what was read asked for nothing: the next batch has not begun
        self._check_pressure()

    def _next_batch(self) -> Batch:
        """The open batch; another one is open from now on."""
        context = self.context
        batch, context.batch = context.batch, Batch()
        if batch.run_changes.moves and (self.parking.waiting or context.trace_commit is not None):
            self.staged_runs.write_all_out(batch)
        if self.parking.waiting:
            self.parking.join(batch)
        return batch

    def _check_pressure(self) -> None:
        """Stop reading while the open batch is full and cannot be submitted, or too much is parked."""
        context = self.context
        full = (context.committing and context.batch.rows >= MAX_ROWS) or self.parking.rows >= MAX_PARKED_ROWS
        if full != context.paused:
            context.paused = full
            if full:
                context.counters.backpressure_events[self._cause_of_pressure()] += 1
            context.on_pause(full)

    def _cause_of_pressure(self) -> PauseCause:
        if self.context.held_since:
            return "mq_down"
        return "queue_full" if self.parking.rows >= MAX_PARKED_ROWS else "batch_full"

    def done(self, unit: Unit, outcome: Outcome) -> None:
        """The queue manager has committed the unit, or says why not (nothing of it was committed then)."""
        context = self.context
        batch = context.running
        context.now = context.scheduler.now()
        if outcome.failures:
            self.failures.handle(batch, unit, outcome)
            return
        context.committing = False
        if batch.parked is not None:
            self.parking.over(batch.parked)
        if context.held_since:
            self.failures.recovered()
        if context.trace_commit is not None:
            context.trace_commit(batch)
        committed = context.scheduler.monotonic()
        self.finish(batch)
        if context.unwritten:
            self.answers.write_all()  # before the books are kept: clients wait for this
        books.finished(context.counters, context.queue_manager.name, batch, committed)
        context.on_committed()
        if not self._submitting:
            self.flush()

    def finish(self, batch: Batch) -> None:
        """The commit has returned: acknowledge, then deliver."""
        for connection, count in batch.pending.items():
            connection.inbound_pending -= count
            connection.session.received += count
        out, answered = self.context.counters.packets_out, batch.answered
        if answered[4] == sum(answered):
            out[4] += answered[4]  # nothing but PUBACKs
        else:
            out[:] = map(add, out, answered)
        accepted = self.answers.acknowledge(batch)
        for owner, (staged, ids) in batch.staged.items():
            pair(owner.staged_tokens, ids, staged.tokens)
        if batch.run_changes:
            self.staged_runs.committed(batch)
        if batch.deliveries:
            self.in_flight.deliver(batch.deliveries)
        for connection in accepted:
            self.connect.connected(connection)
        for call in batch.after:
            call()

    # -- a commit that failed --

    def resubmit(self, batch: Batch) -> None:
        """Submit the batch that failed once more, changed so that it can be committed; what came after it has
        waited."""
        unit = batch.unit()
        if unit:
            self.context.queue_manager.submit(unit, self.done)
        else:
            self.done(unit, Outcome())

    def abandon(self) -> None:
        """The batch that failed waits: its messages are parked; what has come after it goes on."""
        self.context.committing = False
        if not self._submitting:
            self.flush()

    # -- time --

    def tick(self) -> None:
        """Once a second: keep-alives, connections without CONNECT, sessions and wills that are due, retries."""
        context = self.context
        context.now = context.scheduler.now()
        self.connect.tick(context.scheduler.monotonic())
        self.endings.tick()
        context.stored.tick(context.limits)
        self.expiry.tick(context.now)
        self.requests.tick(context.now)
        self.in_flight.tick(context.scheduler.monotonic())
        self.answers.tick()
        self.retained.sweep(context.now)
        self.sys_topics.tick(context.now)
        self.parking.relieve()
        self.flush()
