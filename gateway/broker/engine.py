"""The broker: bytes of all connections in, one unit of work a batch, acknowledgements out. No reactor, clock or I/O.

The way of a batch: `received` for every socket that is readable, then `flush`. If no commit is running the open batch
is submitted; if one is, the batch grows until it returns. Nothing of `Batch.replies` is written before that.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from gateway.broker import books
from gateway.broker.answers import Answers
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.deliver.acknowledged import PLAIN_PUBACK, InFlight
from gateway.broker.deliver.expiry import Expiry, Requests
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.deliver.handover import Handover
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


class Engine(Context):
    """Everything of the broker in one place; the parts each know one group of packets."""

    def __init__(
        self,
        queue_manager: BatchQueueManager,
        scheduler: Scheduler,
        limits: Limits,
        router: Router,
        access: Access,
        counters: Counters,
    ) -> None:
        super().__init__(queue_manager, scheduler, limits, access, counters)
        self.context: Context = self
        self.router = router
        self.retained = Retained(self.context)
        self.reports = Reports(self.context)
        self.expiry = Expiry(self.context, self.reports)
        self.requests = Requests(self.context)
        self.fan_out = FanOut(self.context, router, self.expiry)
        self.in_flight = InFlight(self.context, router, self.reports)
        self.handover = Handover(self.context, router, self.fan_out, self.reports, self.retained)
        self.parking = Parking(self.context, router)
        self.queue_rows = QueueRows(self.context, router, self.parking)
        self.publications = Publications(
            self.context, router, self.queue_rows, self.retained, self.fan_out, self.parking
        )
        self.staged_runs = StagedRuns(self.context, self.parking)
        self.failures = Failures(self.context, router, self.parking, self.staged_runs)
        self.staging = Staging(self.context, self.publications, self.staged_runs)
        self.plain_lane = PlainLane(self.context, self.publications, self.staging, self.fan_out, self.in_flight)
        self.fast_lane = FastLane(self.context, self.publications, self.staging, self.staged_runs)
        self.answers = Answers(self.context, self.parking)
        self.wills = Wills(self.context, self.publications)
        self.connacks = Connacks(self.context, self.wills)
        self.endings = Endings(
            self.context, router, self.fan_out, self.reports, self.staged_runs, self.parking, self.wills, self.connacks
        )
        self.subscribe = SubscribeHandler(self.context, router, self.retained, self.fan_out)
        self.recovery = Recovery(self.context, self.retained, self.expiry, self.subscribe, self.wills)
        self.ownership = self._ownership()
        """Set where other gateways keep their sessions on the same state queues."""
        self.connect = ConnectHandler(
            self.context, router, self.in_flight, self.plain_lane.packets, self.wills, self.connacks, self.endings,
            self.ownership,
        )  # fmt: skip
        self.sys_topics = SysTopics(self.context, router, self.retained, self.fan_out, self.endings)
        router.context = self.context
        self.write = self.answers.write
        self.ended = self.endings.ended
        self.refuse_connect = self.connacks.refuse_malformed
        self._submitting = False
        self.plain_lane.handlers = self._handlers()

    def _ownership(self) -> Ownership | None:
        owners = self.queue_manager
        if not isinstance(owners, Owners) or not owners.instance:
            return None
        return Ownership(
            self.context, owners, self.router, self.expiry, self.wills, self.connacks, self.endings, self.recovery
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
        if self.draining or len(self.connections) >= self.limits.max_connections:
            return None
        limits = self.limits.at(link.listener)
        reader = Reader(min(limits.max_packet, limits.max_connect), max_user_properties=limits.max_user_properties)
        connection = Connection(link, reader, listener, self.scheduler.monotonic())
        connection.limits = limits
        self.shortest_payload = min(self.shortest_payload, limits.max_payload or limits.max_packet)
        self.connections.add(connection)
        return connection

    def received(self, connection: Connection, chunk: bytes) -> None:
        """Bytes of one connection. Call `flush` when all that was readable has been handed in."""
        if connection.state == CLOSED:
            return
        self.now = self.scheduler.now()
        connection.last_read = self.scheduler.monotonic()
        if not self.batch.opened:
            self.batch.opened = connection.last_read
        self.counters.bytes_in += len(chunk)
        if connection.state == AUTHENTICATING:
            connection.early_bytes += len(chunk)
            if connection.early_bytes > self.limits.max_connect:
                self.protocol_error(connection, ProtocolError("too much before CONNACK", reasons.QUOTA_EXCEEDED))
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
            self.protocol_error(connection, error)

    def received_each(self, arrived: list[tuple[Connection, bytes]]) -> list[tuple[Connection, bytes]]:
        """A few bytes of several connections: plain publications are taken in together, the others returned."""
        return self.fast_lane.take_round(arrived)

    def closed(self, connection: Connection, why: DisconnectReason = "io_error") -> None:
        """The socket is gone."""
        connection.leaving = False
        self.now = self.scheduler.now()
        self.endings.ended(connection, why)

    def _server_only(self, connection: Connection, packet: Any) -> None:
        self.protocol_error(connection, ProtocolError(f"packet type {packet[0] >> 4} is not for a server"))

    # -- batches --

    def flush(self) -> None:
        """Submit the open batch unless a commit is running, and write what may be written."""
        if self.refill:
            refill, self.refill = self.refill, {}
            for session in refill:
                self.in_flight.fill(session)
        self._submit()
        if self.unwritten:
            self.answers.write_all()

    def _submit(self) -> None:
        if self._submitting:
            return
        self._submitting = True
        try:
            while not self.committing and (self.attempts or self.batch):
                if self.attempts:
                    batch = self.attempts.pop(0)
                else:
                    batch, self.batch = self.batch, Batch()
                    if batch.run_changes.moves and (self.parking.waiting or self.trace_commit is not None):
                        self.staged_runs.write_all_out(batch)
                    if self.parking.waiting:
                        self.parking.join(batch)
                unit = batch.unit()
                if not unit:
                    if batch.parked is not None:
                        self.parking.over(batch.parked)
                    self.finish(batch)
                    continue
                batch.started = self.scheduler.monotonic()
                self.committing, self.running = True, batch
                self.queue_manager.submit(unit, self.done)
        finally:
            self._submitting = False
        if not self.batch:
            self.batch.opened = 0.0  # what was read asked for nothing: the next batch has not begun
        self._pressure()

    def _pressure(self) -> None:
        full = (self.committing and self.batch.rows >= 20_000) or self.parking.full
        if full != self.paused:
            self.paused = full
            if full:
                self.counters.backpressure_events[self._cause()] += 1
            self.on_pause(full)

    def _cause(self) -> PauseCause:
        if self.held_since:
            return "mq_down"
        return "queue_full" if self.parking.full else "batch_full"

    def done(self, unit: Unit, outcome: Outcome) -> None:
        """The queue manager has committed the unit, or says why not (nothing of it was committed then)."""
        batch = self.running
        self.now = self.scheduler.now()
        if outcome.failures:
            self.failures.handle(batch, unit, outcome)
            return
        self.committing = False
        if batch.parked is not None:
            self.parking.over(batch.parked)
        if self.held_since:
            self.failures.recovered()
        if self.trace_commit is not None:
            self.trace_commit(batch)
        committed = self.scheduler.monotonic()
        self.finish(batch)
        if self.unwritten:
            self.answers.write_all()  # before the books are kept: somebody waits for this
        books.finished(self.counters, self.queue_manager.name, batch, committed)
        self.on_committed()
        if not self._submitting:
            self.flush()

    def abandon(self) -> None:
        """The batch that runs is put off: its messages are parked; what is behind it goes on."""
        self.committing = False
        if not self._submitting:
            self.flush()

    def resubmit(self, batch: Batch) -> None:
        """The same batch again, after a failure was worked round; everything behind it has waited."""
        unit = batch.unit()
        if unit:
            self.queue_manager.submit(unit, self.done)
        else:
            self.done(unit, Outcome())

    def finish(self, batch: Batch) -> None:
        """The commit has returned: acknowledge, then deliver."""
        for connection, count in batch.pending.items():
            connection.inbound_pending -= count
            connection.session.received += count
        out, answered = self.counters.packets_out, batch.answered
        if answered[4] == sum(answered):
            out[4] += answered[4]  # nothing but PUBACKs
        else:
            out[:] = map(add, out, answered)
        greeted = self.answers.acknowledge(batch)
        for owner, (staged, ids) in batch.staged.items():
            pair(owner.staged_tokens, ids, staged.tokens)
        if batch.run_changes:
            self.staged_runs.committed(batch)
        if batch.deliveries:
            self.in_flight.deliver(batch.deliveries)
        for connection in greeted:
            self.connect.connected(connection)
        for call in batch.after:
            call()

    # -- time --

    def tick(self) -> None:
        """Once a second: keep-alives, connections without CONNECT, sessions and wills that are due, retries."""
        self.now = self.scheduler.now()
        self.connect.tick(self.scheduler.monotonic())
        self.endings.tick()
        self.stored.tick(self.limits)
        self.expiry.tick(self.now)
        self.requests.tick(self.now)
        self.in_flight.tick(self.scheduler.monotonic())
        self.answers.tick()
        self.retained.sweep(self.now)
        self.sys_topics.tick(self.now)
        self.parking.relieve()
        self.flush()
