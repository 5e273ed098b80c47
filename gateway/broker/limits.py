"""The limits the broker keeps, as plain numbers (the settings say them with units), and what is stored for sessions,
counted against them. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.session.session import Session

LEAST_SECONDS = 5.0
"""What a commit may take in any case: a short `connect_timeout` is meant for clients that are slow, not for disks."""


@dataclass(slots=True)
class Limits:
    """Every bound of the MQTT side. Defaults as documented in the settings reference."""

    versions: frozenset[int] = frozenset({3, 4, 5})
    strict_client_ids: bool = True
    max_packet: int = 1 << 20
    max_connect: int = 128 << 10
    """Largest packet before CONNACK, and all that is held until then: the client is not authenticated yet."""
    max_payload: int = 0
    max_qos: int = 2
    retain: bool = True
    max_inflight: int = 100
    receive_maximum: int = 1000
    """What a client may have unacknowledged towards us; announced to 5.0 clients."""
    topic_aliases: int = 10
    max_connections: int = 20_000
    max_sessions: int = 100_000
    max_listener_sessions: int = 0
    """Sessions of clients that last connected through one listener; 0: no limit."""
    connect_timeout: float = 10.0
    max_queued: int = 1000
    max_queued_bytes: int = 64 << 20
    refuse_when_full: bool = False
    """When a session is full, publications for it are refused to their publishers, instead of the session going without
    them."""
    max_total_queued: int = 0
    max_total_queued_bytes: int = 0
    """For all sessions together; 0: no limit."""
    retry_interval: float = 20.0
    retry_versions: frozenset[int] = frozenset({3})
    session_expiry_max: int = 7 * 86_400
    keep_alive_max: int = 600
    max_subscriptions: int = 1000
    max_total_subscriptions: int = 0
    """0: no limit."""
    max_topic_levels: int = 200
    max_topic_length: int = 65_535
    max_retained: int = 1_000_000
    max_retained_bytes: int = 1 << 30
    max_outgoing_bytes: int = 8 << 20
    """Bytes that pile up for a slow reader before its connection is closed; see `Context.piles_up`."""
    max_buffered_bytes: int = 0
    """Bytes of incomplete packets and bytes that clients have not read yet, over all connections; 0: no limit."""
    max_user_properties: int = 1000
    shared_subscriptions: bool = True
    server_reference: str = ""
    response_prefix: str = "reply/"
    """Where Response Information tells a client to have its answers sent."""
    listeners: dict[str, Limits] = field(default_factory=dict)
    """The limits of listeners that have their own, by name."""

    @property
    def patience(self) -> float:
        """Seconds within which the commit for a client that comes or goes must return."""
        return max(self.connect_timeout, LEAST_SECONDS)

    @property
    def any_refuses(self) -> bool:
        """Whether sessions that are full may have publications refused."""
        return self.refuse_when_full or any(one.refuse_when_full for one in self.listeners.values())

    def at(self, listener: str) -> Limits:
        """The limits that hold for clients of a listener."""
        return self.listeners.get(listener, self)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Copies that sessions had no room for, and the last of them."""

    count: int
    client_id: str
    time: float


class StoredCount:
    """How much is stored for each session and for all together; the sum is kept, not computed."""

    __slots__ = ("_told", "bytes", "messages", "on_full", "skipped")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.on_full: Callable[[Session], None] = lambda _session: None
        """Told, once, of a session that has no room for what it would get; told again only after it has had room."""
        self._told: set[Session] = set()
        self.skipped: Skipped | None = None
        """What was skipped since the start."""

    def full(self, limits: Limits, session: Session, size: int, count: int = 1) -> bool:
        """Whether `count` more messages of `size` bytes in all are too much for the session, or for all sessions
        together."""
        if session.stored + count > limits.max_queued or session.stored_bytes + size > limits.max_queued_bytes:
            return True
        return not self.room(limits, size, count)

    def full_from(self, limits: Limits, session: Session, size: int) -> int | None:
        """For a session that has no room for a message of this size, the size from which on it takes none until less is
        stored for it; None: that does not depend on the session alone."""
        if session.stored >= limits.max_queued:
            return 0
        return size if session.stored_bytes + size > limits.max_queued_bytes else None

    def room(self, limits: Limits, size: int, count: int) -> bool:
        """Whether all sessions together have room for this much more."""
        most, most_bytes = limits.max_total_queued, limits.max_total_queued_bytes
        return not ((most and self.messages + count > most) or (most_bytes and self.bytes + size > most_bytes))

    def left(self, limits: Limits) -> tuple[int, int]:
        """How many more messages and bytes all sessions together have room for."""
        most, most_bytes = limits.max_total_queued or sys.maxsize, limits.max_total_queued_bytes or sys.maxsize
        return most - self.messages, most_bytes - self.bytes

    def added(self, session: Session, size: int, messages: int = 1) -> None:
        """Count this much more as stored for a session; negative numbers count less."""
        session.stored += messages
        session.stored_bytes += size
        self.messages += messages
        self.bytes += size
        if messages < 0 and session.passed_over is not None:
            session.be_in_turn()  # it may have room again

    def taken(self, session: Session, size: int) -> None:
        """Count a message as no longer stored: it was acknowledged, or is given up."""
        self.added(session, -size, -1)

    def emptied(self, session: Session) -> None:
        """Count nothing as stored for a session any more."""
        self.added(session, -session.stored_bytes, -session.stored)

    def no_room(self, session: Session) -> None:
        """Report, once, that something was not stored for a session."""
        if session not in self._told:
            self._told.add(session)
            self.on_full(session)

    def skip(self, session: Session, now: float) -> None:
        """Count a copy that a session does not get for want of room."""
        count = 1 if self.skipped is None else self.skipped.count + 1
        self.skipped = Skipped(count, session.client_id, now)
        self.no_room(session)

    def tick(self, limits: Limits) -> None:
        """Forget which sessions were reported full if they have room again, so that they are reported anew next
        time."""
        if self._told:
            self._told = {one for one in self._told if not one.ended and self.full(limits.at(one.listener), one, 1)}
