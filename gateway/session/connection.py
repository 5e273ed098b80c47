"""One network connection of one client: what ends with the socket. Pure; times are arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.mqtt.reader import Reader
from gateway.ports.link import Link
from gateway.session.session import Session

NEW, AUTHENTICATING, ONLINE, CLOSED = range(4)
VOID, PUT_OFF = -1, -2
"""Generations that no routes have. VOID: routes are to be computed again; PUT_OFF: packets that came before are still
put off."""


class Publisher(NamedTuple):
    """Who publishes, as rules and access lists see it. It outlives the connection, for delayed wills."""

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
        "unfinished",
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
        """The connection ends after this many seconds of silence: one and a half keep-alive periods; 0: never."""
        self.last_read = now
        self.unfinished = (-1, 0.0, 0.0)
        """Of an incomplete packet: its number, how long it was waited for, and when that was looked at."""
        self.connected_at = now
        self.asked_at = self.accepted_at = 0.0
        """When its CONNECT came, and when the CONNECT was accepted; CONNACK follows the commit."""
        self.sent_early = False
        """Whether the client has sent more without waiting for CONNACK."""
        self.earlier: Any = None
        """The state of its session before this CONNECT."""
        self.resumed = False
        """Whether its session existed before this CONNECT."""
        self.last_retry = 0.0
        self.leaving = False
        """Whether the client has sent DISCONNECT: the socket closes once what was sent before it is committed."""
        self.limits: Any = None
        """The limits of its listener."""
        self.published = 0
        """Publications taken from the connection since its rate was last checked, if its rate is limited."""
        self.inbound_pending = 0
        """QoS 1 publications received and not acknowledged yet."""
        self.uncompleted = 0
        """QoS 2 publications of a 5.0 client that are released and whose PUBCOMP is not sent yet. Receive Maximum
        limits these together with those that are not released [MQTT-3.3.4-7]."""
        self.receive_maximum = 0xFFFF
        """The Receive Maximum that was announced to the client."""
        self.carried: set[int] | None = None
        """QoS 2 publications that its session had not released when it connected. Receive Maximum does not count them,
        as it begins anew with each connection (MQTT 5, 4.9). None: there were none."""
        self.unreleased = 0xFFFF
        """How many QoS 2 publications it may leave unreleased before their size is checked."""
        self.aliases: dict[int, bytes] = {}  # [MQTT-3.3.2-7]
        self.caches: tuple[dict[bytes, Any], ...] = ()
        """Routes by topic, one table for each value of the QoS and RETAIN bits; none before it publishes."""
        self.decisions: Any = {}
        """Cached decisions about the topics it may publish to; void together with its routes."""
        self.generation = VOID
        """The generation of its routes: the router's, or VOID or PUT_OFF."""
        self.out: list[bytes] = []
        self.connack_sent = False
        """Whether CONNACK has been written: nothing may be written before it."""
        self.behind_connack: list[bytes] = []
        """What is sent together with CONNACK, even if later batches are not committed yet."""
        self.behind_bytes = 0
        """How much memory `behind_connack` takes."""
        self.early_bytes = 0
        """How many bytes arrived while its CONNECT was being decided."""
        self.early = bytearray()
        """Those of them that are kept, as they came."""
        self.kept = 0
        """How many bytes are kept of it while it is not online."""
        self.auth: Any = None
        self.exchange: object = None
        """What access control needs when the client continues its authentication."""
        self.proving = False
        """Whether a re-authentication of the client is being decided."""
        self.proving_since = 0.0
        """When the client began to authenticate again; 0: it is not doing so."""
        self.proof_behind: bytes | None = None
        """What it has sent meanwhile to begin yet another re-authentication."""
        self.refusal: Any = None
        """A refusal that is held back for a while."""
        self.request: Any = None
        self.problem_information = True
        self.traced = False
        """Whether somebody traces what this client sends and gets; its packets are then taken one at a time."""
        self.close_reason = ""
        self.rejected = ""
        """The result as which its refused CONNECT is counted."""
        self.publisher = Publisher(link.listener, "", None, 0)


_NOBODY = Session("", 4)
"""Stands for the session of a connection that has none yet, so that the fast lane need not check."""
