"""One network connection of one client: what ends with the socket. Pure; times are arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.mqtt.reader import Reader
from gateway.ports.link import Link
from gateway.session.session import Session

NEW, AUTHENTICATING, ONLINE, CLOSED = range(4)
VOID, PUT_OFF = -1, -2
"""Generations of routes that nobody has: they are to be computed again, or packets that came before are put off."""


class Publisher(NamedTuple):
    """Who publishes, as rules and access lists see it; outlives the connection (delayed wills)."""

    listener: str
    client_id: str
    user: str | None
    version: int


class Connection:
    """The protocol state of a connection. `out` collects what is to be written; the engine writes it once a batch."""

    __slots__ = (
        "accepted_at",
        "aliases",
        "asked_at",
        "auth",
        "behind_bytes",
        "behind_connack",
        "caches",
        "carried",
        "close_reason",
        "connack_sent",
        "connected_at",
        "decisions",
        "earlier",
        "early",
        "early_bytes",
        "exchange",
        "generation",
        "inbound_pending",
        "keep_alive",
        "kept",
        "last_read",
        "last_retry",
        "leaving",
        "limits",
        "link",
        "out",
        "problem_information",
        "proof_behind",
        "proving",
        "proving_since",
        "published",
        "publisher",
        "reader",
        "receive_maximum",
        "refusal",
        "rejected",
        "request",
        "resumed",
        "sent_early",
        "session",
        "state",
        "traced",
        "uncompleted",
        "unreleased",
        "user",
        "version",
    )

    def __init__(self, link: Link, reader: Reader, now: float) -> None:  # noqa: PLR0915 -- its fields
        self.link = link
        self.reader = reader
        self.state = NEW
        self.session: Session = _NOBODY
        self.version = 0
        self.user: str | None = None
        self.keep_alive = 0.0
        """Seconds after which silence ends the connection: one and a half keep-alive periods; 0: never."""
        self.last_read = now
        self.connected_at = now
        self.asked_at = self.accepted_at = 0.0
        """When its CONNECT came, and when it was granted: CONNACK follows the commit."""
        self.sent_early = False
        """Whether the client sent more without waiting for CONNACK."""
        self.earlier: Any = None
        """What its session was before."""
        self.resumed = False
        """Whether its session was there before it."""
        self.last_retry = 0.0
        self.leaving = False
        """Whether the client sent DISCONNECT: the socket closes when what it sent before that is committed."""
        self.limits: Any = None
        """What its listener allows."""
        self.published = 0
        """Publications that were taken from it since its rate was looked at, if it has one."""
        self.inbound_pending = 0
        """QoS 1 publications received and not acknowledged yet."""
        self.uncompleted = 0
        """QoS 2 publications of a 5.0 client that are released and whose PUBCOMP is not sent yet: with those that are
        not released they are what Receive Maximum limits here [MQTT-3.3.4-7]."""
        self.receive_maximum = 0xFFFF
        """What was announced to it."""
        self.carried: set[int] | None = None
        """QoS 2 publications that its session had not released when it connected. They are no part of what Receive
        Maximum limits, which begins anew with each connection, MQTT 5 4.9. None: there were none."""
        self.unreleased = 0xFFFF
        """How many QoS 2 publications it may leave unreleased before their size is checked."""
        self.aliases: dict[int, bytes] = {}  # [MQTT-3.3.2-7]
        self.caches: tuple[dict[bytes, Any], ...] = ()
        """Routes by topic, one table for each value of the QoS and RETAIN bits; none before it publishes."""
        self.decisions: Any = {}
        """What is known of the topics it may publish to; void with its routes."""
        self.generation = VOID
        """Of its routes: the router's, or one of the two that are nobody's."""
        self.out: list[bytes] = []
        self.connack_sent = False
        """Whether CONNACK has been written: nothing may be written before it."""
        self.behind_connack: list[bytes] = []
        """What goes with it, whatever batches that come later wait for."""
        self.behind_bytes = 0
        """How much memory that takes."""
        self.early_bytes = 0
        """How much arrived while the CONNECT was being decided."""
        self.early = bytearray()
        """What of it is kept, as it came."""
        self.kept = 0
        """Bytes that are kept of it while it is not online."""
        self.auth: Any = None
        self.exchange: object = None
        """What access control has to know when the client goes on with its authentication."""
        self.proving = False
        """Whether it authenticates itself again, and that is being decided."""
        self.proving_since = 0.0
        """When it began to; 0: it does not."""
        self.proof_behind: bytes | None = None
        """What it has sent meanwhile to do so once more."""
        self.refusal: Any = None
        """A refusal that is held back."""
        self.request: Any = None
        self.problem_information = True
        self.traced = False
        """Whether somebody looks at what this client sends and gets: then its packets are taken one at a time."""
        self.close_reason = ""
        self.rejected = ""
        """As what its CONNECT was refused."""
        self.publisher = Publisher(link.listener, "", None, 0)


_NOBODY = Session("", 4)
"""Stands for the session of a connection that has none yet, so that the fast lane need not ask."""
