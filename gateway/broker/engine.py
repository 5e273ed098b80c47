"""The broker: bytes of all connections in, one unit of work a batch, acknowledgements out. No reactor, clock or I/O.

The way of a batch: `received_each` with what a round of sockets has brought, then `flush`. If no commit is running the
open batch is submitted; if one is, the batch grows until it returns. Nothing of `Batch.replies` is written before that:
`done` is called when the commit has returned, and `finish` acknowledges and delivers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import add
from typing import Any, TypeVar

from gateway.broker import books
from gateway.broker.answers import Answers
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry, Requests
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.deliver.handover import Handover
from gateway.broker.deliver.in_flight import InFlight
from gateway.broker.deliver.reports import Reports
from gateway.broker.deliver.wide import Wide
from gateway.broker.gateways.census import Census
from gateway.broker.limits import Limits
from gateway.broker.publish.answered import committed, keep_tokens
from gateway.broker.publish.fast import FastLane
from gateway.broker.publish.kept_routes import KeptRoutes
from gateway.broker.publish.plain import PlainLane
from gateway.broker.publish.publications import Publications
from gateway.broker.publish.qos2 import StagedRuns, Staging
from gateway.broker.publish.queue_rows import QueueRows
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.router import Router, policies_of
from gateway.broker.publish.taking import Arrived, Rest
from gateway.broker.put_off import PutOff
from gateway.broker.refused.exception_reports import ExceptionReports
from gateway.broker.refused.failures import Failures
from gateway.broker.refused.full_disk import FullDisk
from gateway.broker.refused.one_by_one import OneByOne
from gateway.broker.refused.parking import MAX_ROWS as MAX_PARKED_ROWS
from gateway.broker.refused.parking import Parking
from gateway.broker.sessions.connack import Connacks
from gateway.broker.sessions.connect import ConnectHandler
from gateway.broker.sessions.early import Early
from gateway.broker.sessions.endings import Endings
from gateway.broker.sessions.ownership import Ownership
from gateway.broker.sessions.recovery import Recovery
from gateway.broker.sessions.subscriptions import SubscribeHandler
from gateway.broker.sessions.sys_topics import SysTopics
from gateway.broker.sessions.wills import Wills
from gateway.broker.slices import TICK_SECONDS, Slices
from gateway.errors import ProtocolError
from gateway.mqtt import reasons
from gateway.mqtt.reader import MAX_FILTERS, Reader
from gateway.ports.access import Access
from gateway.ports.batch import BatchQueueManager, Outcome, Scheduler, Unit
from gateway.ports.counters import Counters, DisconnectReason, PauseCause
from gateway.ports.group_commit import SLOW_SECONDS as SLOW_COMMIT_SECONDS
from gateway.ports.link import Link
from gateway.ports.ownership import Owners
from gateway.ports.sources import KeepsOpen
from gateway.ports.state_queues import STAGED
from gateway.routing.table import Table
from gateway.session.connection import CLOSED, NEW, ONLINE, Connection

_T = TypeVar("_T")
SLOW_SECONDS = 0.02
MANY_STRANGERS = 16
"""If more connections than this that are not online yet send something at once, the batch of connected clients is
submitted before they are served."""
MAX_ROWS = 20_000
"""With this many rows or answers in the open batch, and those that wait before it, nothing more is read while a commit
runs."""


class Engine:
    """Creates the parts of the broker and connects them; each part handles one group of packets."""

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
        context.slices = Slices(context)
        self.retained = Retained(context)
        self.reports = Reports(context)
        self.expiry = Expiry(context, self.reports)
        self.requests = Requests(context)
        self.fan_out = FanOut(context, router, self.expiry)
        self.in_flight = InFlight(context, router, self.reports)
        self.handover = Handover(context, router, self.fan_out, self.reports, self.retained)
        self.parking = Parking(context, router)
        exception_reports = ExceptionReports(context)
        self.queue_rows = QueueRows(context, router, self.parking, exception_reports)
        self.publications = Publications(context, router, self.queue_rows, self.retained, self.fan_out, self.parking)
        self.kept_routes = KeptRoutes(context, router)
        self.staged_runs = StagedRuns(context, self.parking)
        self.staging = Staging(context, self.publications, self.staged_runs)
        self.put_off = PutOff(context)
        self.plain_lane = PlainLane(context, self.publications, self.staging)
        wide = Wide(context, router, self.fan_out, self.put_off)
        self.publications.wide = self.handover.wide = wide
        self.one_by_one = OneByOne(context, self.plain_lane, self.put_off)
        self.put_off.packets, self.put_off.received, wide.packet = (
            self.one_by_one.packets, self._received_late, self._packet_alone
        )  # fmt: skip
        self.full_disk = FullDisk(context, self.plain_lane, self.one_by_one.packets)
        self.fast_lane = FastLane(
            context, self.publications, self.staging, self.staged_runs, self.fan_out, self.in_flight, self.put_off
        )
        self.failures = Failures(context, router, self.parking, self.staged_runs, exception_reports)
        self.answers = Answers(context, self.parking)
        self.wills = Wills(context, self.publications)
        self.connacks = Connacks(context, self.wills)
        self.endings = Endings(
            context, router, self.fan_out, self.reports, self.staged_runs, self.parking, self.wills, self.connacks,
            self.put_off,
        )  # fmt: skip
        self.subscribe = SubscribeHandler(context, router, self.retained, self.fan_out)
        self.one_by_one.refuse_subscribe = self.subscribe.refuse
        self.recovery = Recovery(context, self.retained, self.expiry, self.subscribe, self.wills, wide)
        self.ownership = self._ownership()
        """Set where other gateways keep their sessions on the same state queues."""
        self.connect = ConnectHandler(
            context, router, self.in_flight, self.wills, self.connacks, self.endings, self.ownership
        )
        self.early = Early(context, self.connect)
        self.connect.on_online, self.connect.on_resumed = self._online, self.subscribe.send_retained_left
        census = Census() if self.ownership is None else self.ownership.census
        self.sys_topics = SysTopics(context, router, self.retained, self.fan_out, wide, self.endings, census)
        context.on_slow = lambda _connection, _spent, _length: None
        context.flush, context.resubmit, context.abandon, context.close_batch = (
            self.flush, self.resubmit, self.abandon, self._close_batch
        )  # fmt: skip
        context.write, context.ended, self.fast_lane.restage = self.answers.write, self._ended, self.failures.restage
        context.refuse_connect = self.connacks.refuse_malformed
        self.plain_lane.handlers = self._handlers()
        self._submitting = False
        # for users outside of the broker
        self.queue_manager, self.scheduler = queue_manager, scheduler
        self.limits, self.counters, self.census = limits, counters, census
        self.sessions, self.connections = context.sessions, context.connections

    def _ownership(self) -> Ownership | None:
        context, owners = self.context, self.context.queue_manager
        if not isinstance(owners, Owners) or not owners.instance:
            return None
        ownership = Ownership(
            context, owners, self.router, self.expiry, self.wills, self.connacks, self.endings, self.recovery
        )
        ownership.addressed.handover = self.handover
        ownership.moves.on_going, ownership.moves.on_coming = self.recovery.wide.goes, self.recovery.wide.came
        self.handover.pass_on = ownership.addressed.pass_on
        self.subscribe.when_current = ownership.retained.when_current
        self.subscribe.when_known = ownership.interests.when_known
        return ownership

    def _handlers(self) -> list[Callable[[Connection, Any], None]]:
        """The handler of each packet type."""
        handlers: list[Callable[[Connection, Any], None]] = [self._server_only] * 16
        for kind, handler in {
            1: self.connect.connect,
            3: self.full_disk.publish,
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

    def recover(self, on_read: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Restore what is stored, before anything is served. Returns how much was restored, for the log. `on_read` is
        called for each record."""
        self.recovery.on_read = on_read
        counts = self.recovery.recover(self.ownership)
        self.recovery.on_read = lambda: None  # sessions that move here later are no part of the start
        return counts

    # -- connections --

    def connected(self, link: Link) -> Connection | None:
        """Register an accepted socket. Returns None if the connection is refused, because the gateway is full or
        stopping."""
        context = self.context
        if context.draining or len(context.connections) >= context.limits.max_connections:
            return None
        limits = context.limits.at(link.listener)
        reader = Reader(
            min(limits.max_packet, limits.max_connect), max_user_properties=limits.max_user_properties,
            max_filters=max(MAX_FILTERS, 2 * limits.max_subscriptions),
        )  # fmt: skip
        connection = Connection(link, reader, context.clock.monotonic())
        connection.limits = limits
        context.shortest_payload = min(context.shortest_payload, limits.max_payload or limits.max_packet)
        context.connections.add(connection)
        return connection

    def closed(self, connection: Connection, why: DisconnectReason = "io_error") -> None:
        """End the connection whose socket has closed."""
        connection.leaving = False
        self.context.departing.pop(connection, None)
        self.context.behind_connack(connection)
        self.context.now = self.context.clock.now()
        self._ended(connection, why)

    def _ended(self, connection: Connection, why: DisconnectReason) -> None:
        """End a connection, as one unit: even if this runs into a defect, the connection is gone afterwards."""
        who = connection.publisher.client_id or connection.link.peer
        if not self.context.set_aside.run("connection", who, partial(self.endings.ended, connection, why)):
            self.endings.forget(connection)

    # -- the way of a batch: what was received, flush, the commit, done --

    def received_each(self, arrived: list[tuple[Connection, bytes]]) -> None:
        """Take the bytes of several connections, each of which is there once. Call `flush` when everything readable has
        been handed in. The fast lane takes ordinary packets; at the first other packet of a connection the plain lane
        takes that one, and the rest goes to the fast lane again."""
        context = self.context
        context.now = context.clock.now()
        if context.bounds is None:
            self._received(arrived)
            return
        for portion in context.bounds.portions(arrived, self._whole):
            self._received(portion)
            context.close_full()

    def _received(self, arrived: Arrived | Rest) -> None:
        context = self.context
        if not context.batch.opened:
            context.batch.opened = context.clock.monotonic()
        rest = self._take_ordinary(arrived)
        if not rest:  # as nearly always; nothing is behind then
            return
        behind, strangers = self._behind(), self._take_known(rest)
        while behind:  # others' publications, behind one that subscribes: in the order in which they came
            rest, behind = self._take_ordinary(behind), self._behind()
            strangers += self._take_known(rest)
        if len(strangers) > MANY_STRANGERS:
            self.flush()  # what clients have sent is committed while new ones are checked
        for one in strangers:  # one by one: a CONNECT may end a connection whose client had sent all before it
            self._take_rest([one])

    def _behind(self) -> Arrived:
        behind, self.fast_lane.behind = self.fast_lane.behind, []
        return behind

    def _take_known(self, rest: Rest) -> Rest:
        """Take the packets of connections that are online. Returns the data of the others."""
        strangers = [one for one in rest if one[0].state != ONLINE]
        self._take_rest([one for one in rest if one[0].state == ONLINE] if strangers else rest)
        return strangers

    def _received_late(self, connection: Connection, data: bytes) -> None:
        """Take bytes that were put off."""
        late, bounds = [(connection, data, 0)], self.context.bounds
        for portion in (late,) if bounds is None else bounds.portions(late, self._whole):
            self._take_rest(self._take_ordinary(portion))

    def _packet_alone(self, connection: Connection, data: bytes) -> None:
        """Handle one whole packet of a connection that is online."""
        packet, _ = connection.reader.packet(data, 0)
        if packet is not None:
            self.one_by_one.packet(connection, packet)

    def _take_rest(self, rest: Rest) -> None:
        """Take the first packet of each connection that is not ordinary, then what is ordinary behind it, until nothing
        is left."""
        context, monotonic = self.context, self.context.clock.monotonic
        while rest:
            context.close_full()
            going = []
            for connection, data, at in rest:
                begun = monotonic()
                try:
                    stop = self._take_one(connection, data, at)
                except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
                    context.defect(connection, error)
                    continue
                if monotonic() - begun > SLOW_SECONDS:
                    context.on_slow(connection, monotonic() - begun, len(data))
                context.close_full()
                if stop < len(data):
                    going.append((connection, data, stop))
            rest = self._take_ordinary(going) if going else going

    def _take_ordinary(self, arrived: Arrived | Rest) -> Rest:
        """Let the fast lane take ordinary packets. If it runs into a defect, nobody can tell whose packet it was, so
        all connections of this round end; those that met a defect lately are kept apart and go to the plain lane."""
        apart: Rest = []
        if self.context.set_aside.suspects:
            arrived, apart = self._suspects_apart(arrived)
        try:
            return apart + self.fast_lane.take(arrived) if apart else self.fast_lane.take(arrived)
        except Exception as error:  # noqa: BLE001 -- it costs the connections of this round, and no others
            for one in arrived:
                self.context.defect(one[0], error)
            return apart

    def _suspects_apart(self, arrived: Arrived | Rest) -> tuple[Arrived | Rest, Rest]:
        """Split what has arrived: what goes to the fast lane, and what comes from clients that met a defect lately."""
        context, others, apart = self.context, list[Any](), Rest()
        for one in arrived:
            connection, data = one[0], one[1]
            if connection.state != ONLINE or not context.set_aside.is_suspect(connection):
                others.append(one)
            elif len(one) == 3:
                apart.append(one)
            else:
                data = self._whole(connection, data)
                if data:
                    apart.append((connection, data, 0))
        return others, apart

    def _whole(self, connection: Connection, data: bytes) -> bytes:
        """Note that these bytes were read. Returns them behind what was held of an incomplete packet; nothing while it
        is incomplete."""
        connection.last_read = self.context.clock.monotonic()
        self.context.counters.bytes_in += len(data)
        return data if connection.reader.held is None else connection.reader.joined(data)

    def _take_one(self, connection: Connection, data: bytes, at: int) -> int:
        """Take the packet at `at`, of any kind. Returns where the rest of the data begins."""
        context, end = self.context, len(data)
        if connection.state == CLOSED:
            return end
        over = context.is_time_up() if connection.state == ONLINE else context.is_time_of_strangers_up()
        over = over or (connection.state == NEW and self.put_off.goes_before(connection))
        if over or connection in self.put_off:
            self.put_off.add_data(connection, data[at:], slow=at > 0)
            return end
        reader = connection.reader
        if connection.state == ONLINE:
            packet, stop = reader.packet(data, at)
            if packet is not None:
                self.one_by_one.packet(connection, packet)
        else:
            stop = end - len(self.early.take(connection, data[at:]))
        if reader.error is not None and connection.state != CLOSED and connection not in self.put_off:
            context.protocol_error(connection, reader.error)
        return stop

    def _online(self, connection: Connection) -> None:
        """Take what a client sent before it was let in, at once or when its turn comes."""
        data = self.early.taken(connection)
        if connection in self.put_off:
            self.put_off.add_first(connection, data)
        elif data:
            self._take_rest([(connection, data, 0)])

    def _server_only(self, connection: Connection, packet: Any) -> None:
        error = ProtocolError(f"packet type {packet[0] >> 4} is not for a server")
        self.context.protocol_error(connection, error)

    def use(self, table: Table) -> None:
        """Put new rules into force, between two batches."""
        self.router.use(table)
        self.parking.use(policies_of(table, self.parking.rules()))
        if isinstance(self.queue_manager, KeepsOpen):
            self.queue_manager.close_objects()  # a queue that no rule names any more can be deleted

    def flush(self) -> None:
        """Submit the open batch unless a commit is running, and write what may be written."""
        context, fills = self.context, self.full_disk.fills
        if fills is not None and (fills.storage_full is not None or context.storage_full is not None):
            self.full_disk.look()
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
        if context.committing:
            context.close_full()
        self._submitting = True
        try:
            while not context.committing and (context.attempts or context.batch):
                try:
                    batch = self._next_batch()
                    unit = batch.unit()
                except Exception as error:  # it is in nobody's hands
                    context.on_fatal(error)
                    raise
                if unit is None:
                    if batch.parked is not None:
                        self._step(batch, self.parking.over, batch.parked)
                    self.finish(batch)
                    continue
                batch.started = context.clock.monotonic()
                context.committing, context.running = True, batch
                self._hand_over(unit)
        finally:
            self._submitting = False
        if context.batch.opened and not context.batch:
            context.batch.opened = 0.0  # what was read needs no commit: the next batch has not begun
        self._check_pressure()

    def _hand_over(self, unit: Unit) -> None:
        """Have a unit committed. If this raises, nobody can tell whether the unit is committed, and nothing more could
        be committed, so the process ends whoever the caller is."""
        try:
            self.context.submit(unit, self.done)
        except Exception as error:
            self.context.on_fatal(error)
            raise

    def _next_batch(self) -> Batch:
        """Return what is committed next: the open batch, unless others go before it."""
        context = self.context
        batch = context.attempts.pop(0) if context.attempts else self._close_batch()
        if batch.parked is not None:
            return batch
        if batch.mixed and (self.parking.waiting or context.trace_commit is not None):
            batch.part()
        if batch.moves and self.parking.waiting:
            self.staged_runs.write_all_out(batch)
        if batch.moves and context.trace_commit is not None:
            self.staged_runs.write_traced_out(batch)
        if self.parking.waiting:
            self.parking.join(batch)
        return batch

    def _close_batch(self) -> Batch:
        context = self.context
        if context.batch.changed:
            context.persist_changed()
        batch, context.batch = context.batch, Batch()
        batch.close()
        return batch

    def _check_pressure(self) -> None:
        """Stop reading while the open batch is full and cannot be submitted, or too much is parked."""
        context = self.context
        full = self.parking.rows >= MAX_PARKED_ROWS
        if context.committing and not full:
            full = context.is_crowded(MAX_ROWS)
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
        """Handle the queue manager's answer: the unit is committed, or it is not, for the reason given, and then
        nothing of it is."""
        context = self.context
        batch = context.running
        context.now = context.clock.now()
        if outcome.failures and batch.mixed:
            context.or_end(batch.part)  # which of the queues it is is said then
            self.resubmit(batch)
            return
        if outcome.failures:
            try:
                self.failures.handle(batch, unit, outcome)
            except Exception as error:  # noqa: BLE001 -- nothing of it is committed or acknowledged: it comes again
                context.set_aside.keep("call", "a commit that was refused", error)
                context.scheduler.later(self.failures.hold(), lambda: self.resubmit(batch))
            return
        context.committing = False
        if batch.parked is not None:
            self._step(batch, self.parking.over, batch.parked)
        if context.held_since:
            self.failures.recovered()
        if context.trace_commit is not None:
            self._step(batch, context.trace_commit, batch)
        over = context.clock.monotonic()
        self.finish(batch)
        if context.unwritten:
            self._step(batch, self.answers.write_all)  # before the books are kept: clients wait for this
        if over - batch.started > SLOW_COMMIT_SECONDS:
            context.group_commit.committed(over - batch.started, batch.replies, context.clock.monotonic())
        self._step(batch, books.finished, context.counters, context.queue_manager.name, batch, over)
        self._step(batch, context.on_committed)
        if not (self._submitting or self.context.group_commit.gathering):
            self.flush()

    def finish(self, batch: Batch) -> None:
        """Acknowledge, then deliver, what a commit that has returned contained."""
        committed(batch.pending)
        for connection, count in batch.uncompleted.items():
            connection.uncompleted -= count
        out, answered = self.context.counters.packets_out, batch.answered
        if answered[4] == sum(answered):
            out[4] += answered[4]  # nothing but PUBACKs
        else:
            out[:] = map(add, out, answered)
        accepted = self._step(batch, self.answers.acknowledge, batch) or ()
        if batch.staged:
            self._keep_tokens(batch)
        if batch.deliveries:
            self._step(batch, self._deliver, batch)
        for connection in accepted:
            try:
                self.connect.connected(connection)
            except Exception as error:  # noqa: BLE001 -- as in `_take_rest`
                self.context.defect(connection, error)
        for call in batch.after:
            self.context.set_aside.call(call)

    def _keep_tokens(self, batch: Batch) -> None:
        """Note the tokens that staged publications have now; their release will name them."""
        batch.staged_rows, others = keep_tokens(batch.staged)
        for owner, staged, first, ids, run in others:
            tokens = staged.tokens[first : first + len(ids)]
            if owner.ended:  # it ended while this was being committed
                self.context.batch.taken(STAGED, owner.staged_key).extend(tokens)
            elif run is not None:
                run.tokens = tokens

    def _deliver(self, batch: Batch) -> None:
        try:
            self.in_flight.deliver(batch.deliveries)
        except Exception:
            for session, _, puts, *_ in batch.deliveries:  # what is stored is fetched
                if puts is not None:
                    session.outflow.unfetched = True
                    self.context.refill[session] = None
            raise

    def _step(self, batch: Batch, call: Callable[..., _T], *args: object) -> _T | None:
        """Do one thing that follows a commit. If this runs into a defect, nobody can tell who has not been told of the
        commit, so all who wait for an answer in the batch are disconnected: they reconnect, and their sessions tell
        them."""
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 -- the other steps are taken
            self.context.set_aside.keep("call", getattr(call, "__qualname__", "what follows a commit"), error)
            for connection in list(batch.replies):
                self.context.refuse(connection, reasons.IMPLEMENTATION_SPECIFIC_ERROR, "defect", "a defect here")
            return None

    # -- a commit that failed --

    def resubmit(self, batch: Batch) -> None:
        """Submit the batch that failed once more, changed so that it can be committed. What came after it has
        waited."""
        unit = self.context.or_end(batch.unit)
        if unit is not None:
            self._hand_over(unit)
        else:
            self.done(Unit([]), Outcome())

    def abandon(self) -> None:
        """Park the messages of the batch that failed, and continue with what came after it."""
        self.context.committing = False
        if not (self._submitting or self.context.group_commit.gathering):
            self.flush()

    # -- time --

    def tick(self) -> None:
        """Do what is due once a second: keep-alives, connections without CONNECT, expired sessions, wills, and
        retries."""
        context = self.context
        context.now = context.clock.now()
        now, seconds = context.now, context.clock.monotonic()
        slices = context.slices.run
        for call in (
            partial(slices, "connections", partial(self.connect.tick, seconds), TICK_SECONDS),
            partial(slices, "sessions", self.endings.tick, TICK_SECONDS),
            partial(context.stored.tick, context.limits),
            partial(slices, "expiry", partial(self.expiry.tick, now), TICK_SECONDS),
            partial(self.requests.tick, now),
            partial(slices, "retries", partial(self.in_flight.tick, seconds), TICK_SECONDS),
            self.answers.tick,
            partial(slices, "retained", partial(self.retained.sweep, now), TICK_SECONDS),
            partial(slices, "shared routes", partial(self.router.sweep_shared_routes, seconds), TICK_SECONDS),
            partial(slices, "$SYS", partial(self.sys_topics.tick, now, seconds)),
            self.parking.relieve,
            self.full_disk.tick,
        ):
            context.set_aside.call(call)
        self.flush()
