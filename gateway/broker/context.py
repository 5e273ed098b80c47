"""What every part of the broker may use: the open batch, the clock, the limits, the sessions, and how a connection is
answered or ended. Pure.

A part takes a `Context` and, as further arguments, the parts it works with; the engine alone knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gateway.broker.batch import Batch
from gateway.broker.bounds import Bounds
from gateway.broker.limits import Limits, StoredCount
from gateway.broker.refused.set_aside import GuardedScheduler, SetAside
from gateway.broker.sessions.overruns import Overruns
from gateway.errors import MQError, ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, Disconnect
from gateway.ports.access import Access
from gateway.ports.asking import Asks, found_or_raised
from gateway.ports.batch import BatchQueueManager, Bounded, Clock, Done, Mixing, Scheduler, StorageFull, Token, Unit
from gateway.ports.counters import AuthReason, Counters, DisconnectReason
from gateway.ports.group_commit import GroupCommit
from gateway.ports.ownership import Owners
from gateway.ports.spread import Spread
from gateway.ports.state_queues import SESSIONS, TOGETHER
from gateway.session.connection import AUTHENTICATING, CLOSED, NEW, ONLINE, Connection
from gateway.session.registry import Registry
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.books import Hop
    from gateway.broker.marks import Released
    from gateway.broker.slices import Slices
    from gateway.ports.targets import Intake, Origin, Taker

_T = TypeVar("_T")
MOST_REPLACED = 500
"""State messages (sessions, retained messages) that one commit replaces, as long as commits succeed: each takes a
lookup of its own, and all of them are made ready in one turn of the reactor."""
MOST_SUBSCRIPTIONS = 20_000
"""Subscriptions in the records of sessions among them, whose length nothing else bounds: a few megabytes."""
MOST_COPIED = 32 << 20
"""Bytes of payload in copies for sessions that one commit makes, and one turn of the reactor: each copy is written
whole, so a large publication, or many, to hundreds of sessions would otherwise keep all others waiting, and take
gigabytes."""


class Context:
    """State that all parts share, and the few things that all of them do."""

    until: float = inf
    """The time, by the clock that never jumps, up to which packets are processed in this turn; the rest is put off."""
    until_strangers: float = inf
    """The same limit for connections that are not online yet. It comes earlier, so that they do not delay what
    connected clients have sent."""
    until_late: float = inf
    """The limit in this turn for connecting and disconnecting clients, and for what was put off before."""
    owed: bool = False
    """Whether the next packet is taken in even though the time is up."""

    on_slow: Callable[[Connection, float, int], None]
    """Called when handling received data took long, with the connection, the seconds it took and the number of
    bytes."""

    # Set by the engine when it joins the parts.
    slices: Slices
    """Work on many things at once, a little in each turn."""
    flush: Callable[[], None]
    """Submit the open batch unless a commit is running, and write what may be written."""
    close_batch: Callable[[], Batch]
    """Open another batch, and return the one that was open, with its sessions' records."""
    resubmit: Callable[[Batch], None]
    """Submit the batch whose commit failed once more, changed so that it can be committed."""
    abandon: Callable[[], None]
    """Park the batch whose commit failed, and continue with what has come after it."""
    write: Callable[[Connection], None]
    """Write what a connection is to be told, without waiting for the end of this round."""
    ended: Callable[[Connection, DisconnectReason], None]
    """Do for the session what follows from the end of its connection."""
    refuse_connect: Callable[[Connection, ProtocolError], None]
    """Answer a connection that is not online with a refusal, and close it."""

    storage_full: StorageFull | None = None
    """Why publications are not taken in, while the queue manager's own disk is full."""

    def __init__(  # noqa: PLR0915 -- its fields
        self,
        queue_manager: BatchQueueManager,
        scheduler: Scheduler,
        limits: Limits,
        access: Access,
        counters: Counters,
    ) -> None:
        self.queue_manager = queue_manager
        self.submit: Callable[[Unit, Done], None] = queue_manager.submit
        """Commits a unit of work; by way of the targets where there are some (`broker.targets`)."""
        self.target_names: frozenset[str] = frozenset()
        """Queue managers that messages are put to directly."""
        self.on_succession: Callable[[list[str]], None] = lambda _gateways: None
        """Told of gateways that have ended, before sessions that were theirs come here."""
        self.consume_at: Callable[[str, Origin, Taker], Intake | None] = lambda *_: None
        """Consumes a queue of a target. Returns None if the target has no queue with that name."""
        self.settle_others: Callable[[bytes, Callable[[], None]], None] = lambda _key, settled: settled()
        """Has a call made when all that other gateways have got so far of a queue of a target is dealt with, or they
        do not have it any more. The queue is named by the key of its markers."""
        self.on_doubt: Callable[[bytes], None] = lambda _key: None
        """Called when another gateway asks for that: what was received from that queue and has not been dealt with may
        belong to the other gateway by now."""
        self.name_in_markers: Callable[[Released], bytes] = lambda _released: b""
        """What markers on targets may call a staged message, which has to be kept if it is staged once more."""
        self.bounds = Bounds(queue_manager) if isinstance(queue_manager, Bounded) else None
        """Set if the queue manager commits only so much in one unit of work."""
        self.mixes = isinstance(queue_manager, Mixing)
        """Whether the queue manager takes puts that name a queue for each row."""
        self.remote_reads = queue_manager if isinstance(queue_manager, Asks) else None
        """Set if the queue manager is remote and may not answer: what is read from it while devices are served is then
        requested and arrives later."""
        self.instance = queue_manager.instance if isinstance(queue_manager, Owners) else ""
        """This gateway's name among those that share the state queues; empty if it is the only one."""
        self.now = scheduler.now()
        self.limits = limits
        self.access = access
        self.counters = counters
        self.overruns = Overruns()
        self.sessions = Registry(b"" if isinstance(queue_manager, Owners) else TOGETHER)
        self.connections: set[Connection] = set()
        self.departing: dict[Connection, float] = {}
        """Connections that have ended and whose sockets are closed by a commit, each with the time since which it waits
        for that."""
        self.strangers = 0
        """The number of bytes kept for connections that are not online."""
        self.behind_connacks = 0
        """The number of bytes kept for connections whose CONNACK waits for a commit."""
        self.stored = StoredCount()
        """What is stored for sessions."""
        self.most_copied = MOST_COPIED
        self.batch = Batch()
        """The open batch."""
        self.attempts: list[Batch] = []
        """Batches that go before the open one: those that were closed because they hold enough, and the next attempts
        of what was parked."""
        self.set_aside = SetAside(self, scheduler)
        """Runs each unit of work (records, messages, ends of connections, timers) so that its failure affects nothing
        else."""
        self.scheduler: Scheduler = GuardedScheduler(scheduler, self.set_aside)
        self.clock: Clock = scheduler
        """The scheduler's clock without the guard around it, as it is asked in every round."""
        self.running = self.batch
        """The batch whose unit of work is being committed, or the last one."""
        self.committing = False
        self.group_commit = GroupCommit[Connection]()
        """Knows the clients for which the open batch waits after a slow commit."""
        self.held_since = 0.0
        """The time since which nothing could be committed; 0 if commits succeed."""
        self.unwritten: set[Connection] = set()
        """Connections with something to be written."""
        self.refill: dict[Session, None] = {}
        """Sessions whose window has room again: filled once a batch."""
        self.dead_letter_queue = ""
        """Where undeliverable messages go: the queue manager's DEADQ."""
        self.problems: dict[str, str] = {}
        """What an operator should look at, by what it concerns; readiness and the admin page show it."""
        self.shortest_payload = limits.max_payload or limits.max_packet
        """The longest payload that all listeners with connections allow."""
        self.draining = self.paused = False
        """`paused`: true while the open batch is full and a commit runs: the network edge stops reading."""
        self.on_pause: Callable[[bool], None] = lambda _paused: None
        self.on_committed: Callable[[], None] = lambda: None
        self.on_fatal: Callable[[Exception], None] = lambda _error: None
        """Told of a defect after which nothing could be committed."""
        self.on_connected: Callable[[Connection], None] = lambda _connection: None
        self.on_end: Callable[[Connection, str], None] = lambda _connection, _why: None
        self.on_denied: Callable[[Connection, str, str], None] | None = None
        """Called for each publication and subscription that access control refuses, with the connection, the direction
        and the topic."""
        self.on_hop: Callable[[Hop], Callable[[], None]] | None = None
        """Called for messages of sampled traces. What it returns is called when their batch is committed."""
        self.traces: Callable[[str], bool] = lambda _client_id: False
        """Whether an operator traces what a client sends and gets. The answer for a connected client is kept in
        `Connection.traced`. The next three are called only while somebody does."""
        self.trace: Callable[[Connection, str, Any], None] | None = None
        """Told of packets that arrive, while a trace is on."""
        self.trace_out: Callable[[Connection, bytes], None] | None = None
        """Told of what is written, while a trace is on."""
        self.trace_commit: Callable[[Batch], None] | None = None
        """Told of every batch that was committed, while a trace is on."""

    # -- what a connection is told --

    def send(self, connection: Connection, data: bytes) -> None:
        """Queue a packet for a connection. `flush` writes all of a batch at once, and nothing before CONNACK
        [MQTT-3.2.0-1]."""
        self.counters.packets_out[data[0] >> 4] += 1
        if not connection.connack_sent and connection.state == ONLINE:
            size = getsizeof(data)
            connection.behind_connack.append(data)
            connection.behind_bytes += size
            self.behind_connacks += size
            return
        connection.out.append(data)
        self.unwritten.add(connection)

    def behind_connack(self, connection: Connection) -> list[bytes]:
        """Remove and return what was kept to follow a connection's CONNACK."""
        kept, connection.behind_connack = connection.behind_connack, []
        self.behind_connacks -= connection.behind_bytes
        connection.behind_bytes = 0
        return kept

    def is_overloaded(self, connection: Connection) -> bool:
        """Whether so much is kept for a client that it gets nothing more at QoS 0, because it does not read or because
        its CONNACK waits, perhaps for a queue manager that is unavailable. All clients that wait for CONNACK may
        together have a quarter of what may be kept for all clients."""
        link, most = connection.link, self.limits.max_outgoing_bytes // 2
        if not connection.connack_sent:
            all_of_them = self.limits.max_buffered_bytes // 4
            return connection.behind_bytes > most or 0 < all_of_them < self.behind_connacks
        waits = link.buffered()
        return waits > most and waits - link.largest() > most

    def piles_up(self, connection: Connection) -> bool:
        """Whether a client leaves more unread than may pile up. Not counted are the largest write that waits and one
        more of its size, as `is_overloaded` lets one pass behind another, and what the client has in flight: it cannot
        acknowledge that before it has read it, and its window is its bound. Before CONNECT is accepted there are only
        answers to what TLS, WebSocket and AUTH have of their own."""
        link = connection.link
        piled = link.buffered() - self.limits.max_outgoing_bytes
        if piled <= 0:
            return connection.state < ONLINE and link.buffered() > self.limits.max_connect
        piled -= 2 * link.largest()
        return piled > 0 and piled > connection.session.outflow.bytes_in_flight()

    def send_counted(self, connection: Connection, data: bytes) -> None:
        """Queue one or several packets that have been counted already."""
        connection.out.append(data)
        self.unwritten.add(connection)

    def send_all(self, connection: Connection, packets: list[bytes]) -> None:
        """Queue any number of packets."""
        if len(packets) < 2 or not connection.connack_sent:
            for data in packets:
                self.send(connection, data)
            return
        out = self.counters.packets_out
        for data in packets:
            out[data[0] >> 4] += 1
        self.send_counted(connection, b"".join(packets))

    # -- how a connection ends --

    def close(self, connection: Connection, why: DisconnectReason, text: str = "") -> None:
        """Write what is waiting, close, and end the connection's part of the session."""
        if connection.state == CLOSED:
            return
        connection.close_reason = text or why
        self.write(connection)
        connection.link.close()
        self.ended(connection, why)

    def refuse(self, connection: Connection, reason: int, why: DisconnectReason, text: str) -> None:
        """Close a connection after telling a 5.0 client the reason in a DISCONNECT. A 3.x server has no such packet.
        [MQTT-3.14.0-1] [MQTT-3.14.4-1] [MQTT-3.14.4-2] [MQTT-3.1.2-29]"""
        told = self._disconnect(connection, reason, text)
        if told:
            self.send(connection, told)
        self.close(connection, why, text)

    def _disconnect(self, connection: Connection, reason: int, text: str) -> bytes:
        """Return the DISCONNECT with a reason; empty if the client's version has none, or the connection is not
        online."""
        if connection.version != V5 or connection.state != ONLINE:
            return b""
        properties: dict[int, Any] = {0x1F: text} if text and connection.problem_information else {}
        if reason in {0x9C, 0x9D} and self.limits.server_reference:
            properties[0x1C] = self.limits.server_reference
        data = writer.encode_disconnect(V5, Disconnect(reason, properties))
        if len(data) > connection.session.outflow.max_packet:  # [MQTT-3.14.2-3]
            data = writer.encode_disconnect(V5, Disconnect(reason))
        return data

    def _refuse_behind_connack(self, connection: Connection, error: ProtocolError, why: DisconnectReason) -> None:
        """Refuse a client whose CONNACK is not committed yet: CONNACK, and the answers to what was correct, are sent
        first [MQTT-3.2.0-1]."""
        told = self._disconnect(connection, error.reason, str(error))
        self.behind_connack(connection)
        connection.close_reason, connection.leaving = str(error), True
        self.ended(connection, why)
        self.close_when_committed(connection, told)

    def close_when_committed(self, connection: Connection, told: bytes = b"") -> None:
        """Close the socket of a connection that has ended when the open batch is committed, and send `told` behind its
        CONNACK. The connection no longer counts as one; if the commit does not return, it waits no longer than a
        CONNECT would."""
        self.departing[connection] = self.scheduler.monotonic()
        self.batch.after.append(partial(self._close_now, connection, told))

    def _close_now(self, connection: Connection, told: bytes) -> None:
        if self.departing.pop(connection, None) is None:
            return
        if told and connection.connack_sent:
            self.counters.packets_out[told[0] >> 4] += 1
            connection.link.write(told)
        connection.link.close()

    def defect(self, connection: Connection, error: Exception) -> None:
        """End the one connection that ran into a defect of the gateway. Nothing its client sent was acknowledged unless
        it is committed. When the client comes back and sends it again, its packets are taken one at a time, and the one
        that meets the defect again is set aside."""
        self.set_aside.suspect(connection)
        self.set_aside.keep("connection", connection.publisher.client_id or connection.link.peer, error)
        try:
            self.refuse(connection, reasons.IMPLEMENTATION_SPECIFIC_ERROR, "defect", "a defect of the gateway")
        except Exception as worse:  # noqa: BLE001 -- whatever is wrong with it, it ends
            self.set_aside.keep("connection", connection.publisher.client_id or connection.link.peer, worse)
            connection.link.abort()
            self.ended(connection, "defect")

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        """Refuse or close a connection whose client has broken the protocol [MQTT-4.13.1-1] [MQTT-4.8.0-1]."""
        if connection.state in {NEW, AUTHENTICATING}:
            self.refuse_connect(connection, error)
            return
        why: DisconnectReason = "packet_too_large" if error.reason == reasons.PACKET_TOO_LARGE else "protocol_error"
        if connection.connack_sent or self.held_since:
            self.refuse(connection, error.reason, why, str(error))
        else:
            self._refuse_behind_connack(connection, error, why)

    def keep_of_stranger(self, connection: Connection, size: int) -> int:
        """Note how many bytes are kept for a connection that is not online. Returns the sum for all such
        connections."""
        self.strangers += size - connection.kept
        connection.kept = size
        return self.strangers

    # -- what is stored of sessions --

    def is_anothers(self, session: Session | None, user: str | None, listener: str) -> bool:
        """Whether a session belongs to a user other than this one, who connects through this listener."""
        if session is None or session.is_due(self.now):
            return False
        return not self.access.may_take(session.user, session.listener, user, listener)

    def owner_of(self, session: Session) -> dict[str, Any]:
        """What the records of a session and of its will say about the owner, where several gateways share the state
        queues."""
        if not self.instance:
            return {}
        came = {} if session.came is None else {"came": session.came}
        return {"owner": self.instance, "epoch": session.epoch, "after": session.came_after} | came

    def persist(self, session: Session) -> None:
        """Put the session's record, as it is now, with the open batch."""
        self.batch.replace(SESSIONS, session.key, session.to_record(self.now, self.owner_of(session)))
        self.batch.subscriptions += len(session.subscriptions)

    def persist_changed(self) -> None:
        """Put the records of changed sessions; done when the open batch is closed. A session whose record cannot be
        made loses its connection, with the answers it waits for."""
        for session in list(self.batch.changed.values()):
            try:
                self.persist(session)
            except Exception as error:  # noqa: BLE001 -- the others' are made
                del self.batch.changed[SESSIONS, session.key]
                self.set_aside.keep("session", session.client_id, error)
                if session.connection is not None:
                    self.defect(session.connection, error)

    def denied(self, connection: Connection, direction: Literal["publish", "subscribe"], topic: str) -> None:
        """Count a publication or subscription that access control has refused, and report it to `on_denied`."""
        listener, client_id, user, _ = connection.publisher
        series: tuple[str, AuthReason] = listener, "acl_publish" if direction == "publish" else "acl_subscribe"
        self.counters.mqtt_auth_failures[series] += 1
        peer = connection.link.peer
        self.counters.examples.note("mqtt_auth_failures", series, client_id, user=user, peer=peer, topic=topic)
        if self.on_denied is not None:
            self.on_denied(connection, direction, topic)

    def is_elsewhere(self, queue_manager: str) -> bool:
        """Whether an address's queue manager is a target, or a list of targets."""
        return queue_manager in self.target_names or isinstance(queue_manager, Spread)

    # -- what is under way --

    def or_end(self, call: Callable[..., _T], *args: object) -> _T:
        """Do what moves messages from batch to batch. If that meets a defect, nobody can tell which of them would be
        committed and which acknowledged, so the process ends: nobody was told of them, and they come again."""
        try:
            return call(*args)
        except Exception as error:
            self.on_fatal(error)
            raise

    @property
    def is_full(self) -> bool:
        """Whether the open batch replaces as many state records as one commit can replace in acceptable time, or holds
        copies of as many bytes. While nothing can be committed it takes more, so that pings and acknowledgements go
        on."""
        batch = self.batch
        full = len(batch.replaces) + len(batch.changed) >= MOST_REPLACED or batch.subscriptions >= MOST_SUBSCRIPTIONS
        full = full or (batch.copied >= self.most_copied and bool(batch.deliveries))  # not if they were taken back
        return full and not self.held_since

    @property
    def copies_left(self) -> int:
        """How many more bytes of copies the open batch may get."""
        return self.most_copied - self.batch.copied

    def is_time_up(self) -> bool:
        """Whether the time for this turn is up, so that the rest of the packets is put off."""
        return self.is_full or self._is_over(self.until)

    def is_time_of_strangers_up(self) -> bool:
        """Whether the time for packets of connections that are not online yet is up in this turn."""
        return self.is_full or self._is_over(self.until_strangers)

    def _is_over(self, until: float) -> bool:
        if self.owed:
            self.owed = False
            return False
        return self.clock.monotonic() > until

    @property
    def idle(self) -> bool:
        """Whether nothing but parked messages waits for a commit."""
        return not self.committing and not self.batch and not self.attempts

    def being_taken(self, queue: str, key: bytes) -> set[Token]:
        """Messages that an uncommitted batch takes: they can still be fetched, and must not be handed out twice."""
        batches = [*self.attempts, self.batch] + ([self.running] if self.committing else [])
        taken = [batch.takes[queue, key].tokens for batch in batches if (queue, key) in batch.takes]
        return {token for tokens in taken for token in tokens}

    @property
    def waiting(self) -> list[Batch]:
        """The open batch, behind those that are closed and wait for their commit."""
        return [*(one for one in self.attempts if one.parked is None), self.batch]

    def is_crowded(self, most_rows: int) -> bool:
        """Whether this many rows or answers, or twice the bytes of copies that one commit makes, wait for a commit."""
        waiting = self.waiting
        rows = max(sum(one.rows for one in waiting), sum(sum(one.answered) for one in waiting))
        return rows >= most_rows or sum(one.copied for one in waiting) >= 2 * self.most_copied

    def close_full(self) -> None:
        """Between two things that are handled: close the open batch if it holds as much as is committed at once."""
        if self.bounds is not None and self.bounds.is_enough(self.batch):
            self.attempts.append(self.close_batch())
            self.batch.opened = self.clock.monotonic()  # what follows has been read

    def stores_for(self, session: Session) -> bool:
        """Whether the running commit, which others may see already, stores something for a session."""
        return self.committing and any(one[0] is session for one in self.running.deliveries)

    def unexpected(self, name: str, error: Exception) -> MQError:
        """Record a defect that occurred while something was read. Returns the error to report to the caller, who tries
        again."""
        self.set_aside.keep("call", name, error)
        return MQError(2195, "a defect of the gateway")  # MQRC_UNEXPECTED_ERROR

    def ask(self, read: Callable[[], _T], answered: Callable[[_T | MQError], None]) -> None:
        """Call `answered` with what `read` finds at the queue manager: at once if the queue manager is part of this
        process, in a later turn of the reactor if it is remote and may not answer."""
        if self.remote_reads is None:
            answered(found_or_raised(read))
            return

        def arrived(found: Any) -> None:
            self.now = self.scheduler.now()
            if isinstance(found, Exception) and not isinstance(found, MQError):
                found = self.unexpected(name, found)
            self.set_aside.run("call", name, lambda: answered(found))
            self.flush()

        name = getattr(answered, "__qualname__", type(answered).__name__)

        self.remote_reads.ask(read, arrived)
