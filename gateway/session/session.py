"""A client's session: what outlives its connections. Pure; times are arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.mqtt import properties as prop
from gateway.mqtt.packets import V5, Properties, Subscription, Will
from gateway.ports.batch import Token
from gateway.session.outflow import Outflow
from gateway.session.publication import Publication
from gateway.session.record import encode_json, key_of
from gateway.session.staged_run import StagedRun
from gateway.session.subscribed import Subscribed, Subscriptions

if TYPE_CHECKING:
    from gateway.routing.filters import Sharers
    from gateway.session.connection import Connection

_NO_IDS: frozenset[int] = frozenset()
"""Shared by most sessions, which have no ids there: an empty set of its own would take 216 bytes for each."""
NEVER = 0xFFFFFFFF
"""Session Expiry Interval that means: does not expire [MQTT-3.1.2.11.2]."""


Plain = tuple[bytes, bytes, int] | tuple[bytes, bytes, int, bytes]
"""A publication without properties, or with user properties alone: topic, what is stored after its prefix (packet
identifier and payload), the first byte of its packet, and the properties if there are any."""
STAGED_ID = 2
"""Bytes of that packet identifier."""


class Session:
    """The state of one client identifier."""

    __slots__ = (
        "came",
        "came_after",
        "client_id",
        "connection",
        "delivered",
        "durable",
        "ended",
        "ends_at",
        "epoch",
        "expiry",
        "inbound",
        "key",
        "listener",
        "outflow",
        "passed_over",
        "read_back",
        "received",
        "releasing",
        "reports",
        "restored",
        "staged_key",
        "staged_tokens",
        "stored",
        "stored_bytes",
        "subscriptions",
        "unconfirmed",
        "user",
        "version",
        "will",
        "will_at",
    )

    def __init__(self, client_id: str, version: int) -> None:
        self.client_id = client_id
        self.key = key_of(client_id)
        self.restored: dict[Token, bytes] | None = None
        """Staged messages of the session that were staged by an earlier process, by another gateway, or more than once,
        each with the name that markers on targets have for it, where their token does not give it."""
        self.staged_key = self.key
        """The key under which the QoS 2 publications of its client are staged."""
        self.version = version
        self.user: str | None = None
        self.listener = ""
        """The listener through which its client last connected; access lists may need it while the client is away."""
        self.durable = False
        """Whether its state is on the state queues, so that it outlives its connection."""
        self.expiry = 0
        """For how many seconds it is kept after its connection has ended."""
        self.ends_at = 0.0
        """When it ends if it has no connection (0: at no set time)."""
        self.subscriptions = Subscriptions()
        self.inbound: dict[int, Publication | Plain | StagedRun] = {}
        """QoS 2 publications received and not released, by packet id."""
        self.staged_tokens: dict[int, Token] = {}
        """Tokens of those that are staged as records and committed, by packet id."""
        self.releasing: dict[int, Connection | None] | None = None
        """QoS 2 publications whose release waits because their destination is parked, by packet id, each with the
        connection on which the client has released it again since."""
        self.read_back = _NO_IDS
        """Those whose release was undone and that are not back in `inbound` yet; they are read from the staged ones."""
        self.outflow = Outflow()
        self.unconfirmed = False
        """Whether it was made by a CONNECT that has not been answered yet."""
        self.ended = False
        """Whether it has ended: what still arrives for it is dropped."""
        self.stored = 0
        """Messages on its stored queue (delivered or not, unacknowledged)."""
        self.stored_bytes = 0
        """How many payload bytes these have."""
        self.reports = False
        """Whether any of them has asked for a report, which is due when they are removed because the session ends."""
        self.delivered = self.received = 0
        """How many messages its client has acknowledged, and how many it has published, since the process began."""
        self.passed_over: list[Sharers[Session]] | None = None
        """The shared subscriptions that pass over the session until it can take messages again."""
        self.epoch = 0
        """How often it has changed its owner, if several gateways share the state queues."""
        self.came_after = 0
        """The number that the last publication of this gateway's clients wanted by other gateways had when the session
        came."""
        self.came: dict[str, Any] | None = None
        """What its record says of the gateways that had it lately: see `broker.gateways.session_moves`."""
        self.connection: Connection | None = None
        self.will: Will | None = None
        self.will_at = 0.0
        """When a delayed will is due (0: none waits)."""

    def begin_release(self, packet_id: int) -> None:
        """Note that a publication whose destination is parked is being released."""
        self.releasing = self.releasing or {}
        self.releasing[packet_id] = None

    def release_again(self, packet_id: int) -> bool:
        """Whether the publication is being released already; if so, this connection is told when that is done."""
        if not self.releasing or packet_id not in self.releasing:
            return False
        self.releasing[packet_id] = self.connection
        return True

    def end_release(self, packet_id: int) -> Connection | None:
        """Note that the release is committed or undone. Returns the connection on which it was released again, if that
        still exists."""
        again = self.releasing.pop(packet_id, None) if self.releasing else None
        return again if again is self.connection else None

    @property
    def can_take(self) -> bool:
        """Whether a message would go out to the client at once."""
        return self.connection is not None and len(self.outflow.inflight) < self.outflow.window

    def be_passed_over(self, sharers: Sharers[Session]) -> None:
        """Take the session out of its turn for a shared subscription, because it can take no message now."""
        self._note(sharers)
        sharers.pass_over(self)

    def be_full(self, sharers: Sharers[Session], size: int) -> None:
        """Take the session out of its turn for payloads of this size too, for which it has no room."""
        if self in sharers.rings.turns:
            self._note(sharers)
        sharers.fill_up(self, size)

    def _note(self, sharers: Sharers[Session]) -> None:
        noted = self.passed_over or []
        if len(noted) > len(self.subscriptions):  # a client may subscribe and unsubscribe again and again
            noted = [one for one in noted if self in one.rings.passed or self in one.rings.full]
        noted.append(sharers)
        self.passed_over = noted

    def be_in_turn(self) -> None:
        """Put the session back in its turns: its client has connected or acknowledged something, or less is stored for
        it."""
        noted, self.passed_over = self.passed_over, None
        for sharers in noted or ():
            sharers.put_back(self)

    @property
    def takes_soon(self) -> bool:
        """Whether its client is connected and no more waits for it than it can take at once."""
        outflow = self.outflow
        waits = max(outflow.queued, self.stored - len(outflow.inflight))
        return self.connection is not None and waits < outflow.window

    def is_due(self, now: float) -> bool:
        """Whether it has no connection and has expired."""
        return self.connection is None and 0 < self.ends_at <= now

    def to_record(self, now: float, owner: dict[str, Any]) -> bytes:
        """The session's record on the state queue, with what it says of its owner."""
        connected = self.connection is not None
        owed = [*self.outflow.noted(), *(name for each in self.outflow.retained or () for name in each.filters)]
        record = {
            "client": self.client_id,
            "version": self.version,
            "user": self.user,
            "listener": self.listener,
            "expiry": self.expiry,
            "connected": connected,
            "since": self.ends_at - self.expiry if self.ends_at else now,
            "sent": self.outflow.sent,
        } | ({"retained": owed} if owed else {}) | owner  # fmt: skip
        return b'%s,"subscriptions":[%s]}' % (encode_json(record)[:-1], b",".join(self.subscriptions.texts()))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Session:
        """Make a session from its record, at start-up, when no client is connected."""
        session = cls(record["client"], record["version"])
        session.user = record["user"]
        session.listener = record.get("listener", "")
        session.durable = True
        session.epoch = record.get("epoch", 0)
        session.expiry = record["expiry"]
        if session.expiry != NEVER:
            session.ends_at = record["since"] + session.expiry
        for name, qos, no_local, as_published, handling, identifier in record["subscriptions"]:
            options = Subscription(name, qos, no_local, as_published, handling)
            session.subscriptions[name] = Subscribed(options, identifier)
        return session


def will_record(session: Session, will: Will, delay: float) -> dict[str, Any]:
    """The record of a will, stored while its connection lives, so that it is published even after this process is
    killed."""
    return {
        "client": session.client_id,
        "topic": will.topic,
        "payload": will.payload.hex(),
        "qos": will.qos,
        "retain": will.retain,
        "properties": will.raw_properties.hex(),
        "delay": delay,
        "version": session.version,
        "user": session.user,
        "listener": session.listener,
    }


def will_from_record(record: dict[str, Any]) -> Will:
    """A will from its stored record."""
    return Will(
        record["topic"],
        bytes.fromhex(record["payload"]),
        record["qos"],
        record["retain"],
        raw_properties=bytes.fromhex(record["properties"]),
    )


def session_expiry(version: int, clean: bool, properties: Properties, maximum: int) -> int:
    """For how many seconds a session is kept. In 3.x not at all or for ever; in 5.0 as its property says (absent: 0)
    [MQTT5-3.1.2-23]."""
    if version != V5:
        return 0 if clean else maximum
    return min(prop.number(properties, prop.SESSION_EXPIRY_INTERVAL), maximum)
