"""What every part of the broker may use: the open batch, the clock, the limits, the sessions, and how a connection is
answered or ended. Pure.

A part takes a `Context` and, as further arguments, the parts it works with; the engine alone knows all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.broker.batch import Batch
from gateway.broker.limits import Limits, StoredCount
from gateway.errors import MQError, ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, Disconnect
from gateway.ports.access import Access
from gateway.ports.asking import Asks, found_or_raised
from gateway.ports.batch import BatchQueueManager, Scheduler, Token
from gateway.ports.counters import Counters, DisconnectReason
from gateway.ports.ownership import Owners
from gateway.ports.state_queues import SESSIONS
from gateway.session.connection import AUTHENTICATING, CLOSED, NEW, ONLINE, Connection
from gateway.session.record import encode_json
from gateway.session.registry import Registry
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.books import Hop

_T = TypeVar("_T")


class Context:
    """State that all parts share, and the few things they all do."""

    # Set by the engine when it joins the parts.
    flush: Callable[[], None]
    """Submit the open batch unless a commit is running, and write what may be written."""
    resubmit: Callable[[Batch], None]
    """Submit the batch whose commit failed once more, changed so that it can be committed."""
    abandon: Callable[[], None]
    """The batch whose commit failed is parked; what has come after it goes on."""
    write: Callable[[Connection], None]
    """Write what a connection is to be told, without waiting for the end of this round."""
    ended: Callable[[Connection, DisconnectReason], None]
    """The connection has ended: what that means for its session."""
    refuse_connect: Callable[[Connection, ProtocolError], None]
    """Answer a connection that is not online with a refusal, and close it."""

    def __init__(
        self,
        queue_manager: BatchQueueManager,
        scheduler: Scheduler,
        limits: Limits,
        access: Access,
        counters: Counters,
    ) -> None:
        self.queue_manager = queue_manager
        self.remote_reads = queue_manager if isinstance(queue_manager, Asks) else None
        """Set where the queue manager may not answer: what is read of it while devices are served is asked for."""
        self.instance = queue_manager.instance if isinstance(queue_manager, Owners) else ""
        """This gateway's name among those that share the state queues; empty: it is alone."""
        self.scheduler = scheduler
        self.now = scheduler.now()
        self.limits = limits
        self.access = access
        self.counters = counters
        self.sessions = Registry()
        self.connections: set[Connection] = set()
        self.stored = StoredCount()
        """What is stored for sessions."""
        self.batch = Batch()
        """The open one."""
        self.attempts: list[Batch] = []
        """Batches that go before the open one: the next attempts of what was parked."""
        self.running = self.batch
        """The batch whose unit of work is being committed, or the last one."""
        self.committing = False
        self.held_since = 0.0
        """Since when nothing could be committed (0: all is well)."""
        self.unwritten: set[Connection] = set()
        """Connections with something to be written."""
        self.refill: dict[Session, None] = {}
        """Sessions whose window has room again: filled once a batch."""
        self.dead_letter_queue = ""
        """Where undeliverable messages go: the queue manager's DEADQ."""
        self.problems: dict[str, str] = {}
        """What an operator should look at, by what it concerns; readiness and the admin page show it."""
        self.shortest_payload = limits.max_payload or limits.max_packet
        """The longest payload that the listener of every connection allows."""
        self.draining = False
        self.paused = False
        """True while the open batch is full and a commit runs: the network edge stops reading."""
        self.on_pause: Callable[[bool], None] = lambda _paused: None
        self.on_committed: Callable[[], None] = lambda: None
        self.on_end: Callable[[Connection, str], None] = lambda _connection, _why: None
        self.on_hop: Callable[[Hop], Callable[[], None]] | None = None
        """Told of messages of sampled traces; what it answers is called when their batch is committed."""
        self.trace: Callable[[Connection, str, Any], None] | None = None
        """Told of packets that arrive, while a trace is on."""
        self.trace_out: Callable[[Connection, bytes], None] | None = None
        """Told of what is written, while a trace is on."""
        self.trace_commit: Callable[[Batch], None] | None = None
        """Told of every batch that was committed, while a trace is on."""

    # -- what a connection is told --

    def send(self, connection: Connection, data: bytes) -> None:
        """A packet for a connection; all of a batch are written at once by `flush`, none before CONNACK
        [MQTT-3.2.0-1]."""
        if not connection.connack_sent and connection.state == ONLINE:
            self.batch.reply(connection, data)
            return
        self.counters.packets_out[data[0] >> 4] += 1
        connection.out.append(data)
        self.unwritten.add(connection)

    def send_counted(self, connection: Connection, data: bytes) -> None:
        """One or several packets that are counted already."""
        connection.out.append(data)
        self.unwritten.add(connection)

    def send_all(self, connection: Connection, packets: list[bytes]) -> None:
        """Several packets."""
        if len(packets) == 1 or not connection.connack_sent:
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
            self.refuse_connect(connection, error)
            return
        why: DisconnectReason = "packet_too_large" if error.reason == reasons.PACKET_TOO_LARGE else "protocol_error"
        self.refuse(connection, error.reason, why, str(error))

    # -- what is stored of sessions --

    def owner_of(self, session: Session) -> dict[str, Any]:
        """What the records of a session and its will say of its owner, where several gateways share the state
        queues."""
        return {"owner": self.instance, "epoch": session.epoch} if self.instance else {}

    def persist(self, session: Session) -> None:
        """The session's record, as it is now, with the open batch."""
        record = session.to_record(self.now) | self.owner_of(session)
        self.batch.replace(SESSIONS, session.key, encode_json(record))

    # -- what is under way --

    @property
    def idle(self) -> bool:
        """Whether nothing waits for a commit but what is parked."""
        return not self.committing and not self.batch and not self.attempts

    def being_taken(self, queue: str, key: bytes) -> set[Token]:
        """Messages that a batch which is not committed yet takes: they can still be fetched, and must not go twice."""
        batches = (self.batch, self.running) if self.committing else (self.batch,)
        taken = [batch.takes[queue, key].tokens for batch in batches if (queue, key) in batch.takes]
        return {token for tokens in taken for token in tokens}

    def stores_for(self, session: Session) -> bool:
        """Whether what is being committed, and may be seen already, stores something for a session."""
        return self.committing and any(one[0] is session for one in self.running.deliveries)

    def ask(self, read: Callable[[], _T], answered: Callable[[_T | MQError], None]) -> None:
        """Have `answered` called with what `read` finds at the queue manager: at once where that is part of this
        process, in a later turn of the reactor where it is remote and may not answer."""
        if self.remote_reads is None:
            answered(found_or_raised(read))
            return

        def arrived(found: Any) -> None:
            self.now = self.scheduler.now()
            if isinstance(found, Exception) and not isinstance(found, MQError):
                raise found
            answered(found)
            self.flush()

        self.remote_reads.ask(read, arrived)
