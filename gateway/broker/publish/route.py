"""What one publication topic of one client leads to, computed once and kept for the messages that follow. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gateway.bridge.inbound import Plan
    from gateway.broker.turn import Released, Run, WaitingWill
    from gateway.session.connection import Connection, Publisher
    from gateway.session.publication import Publication
    from gateway.session.session import Session


HOT, STAGING, RELAYED = 1, 2, 3
"""How hot a route is: straight to its queue, (QoS 2) staged, or to subscribers too; 0 is the long way."""


class Receiver(NamedTuple):
    """A local session that gets a copy: one, at the highest QoS of its matching subscriptions [MQTT-3.3.5-1]."""

    session: Session
    qos: int
    retain_as_published: bool
    sub_ids: tuple[int, ...]


class Shared(NamedTuple):
    """A shared subscription: one of its members gets each message."""

    name: str
    members: list[Receiver]


class Policy(NamedTuple):
    """What a rule says about failures, ready for use."""

    rule: str
    retry_times: int
    retry_first: float
    retry_longest: float
    then: str
    too_long: str


DEAD = Policy("_none", 1_000_000_000, 0.1, 10.0, "hold", "dead_letter")
"""The dead-letter queue as a destination: it is never given up."""
REPORT = Policy("_none", 0, 0.1, 10.0, "dead_letter", "dead_letter")
"""A reply queue as the destination of a report: what it refuses is dead-lettered, as the queue manager does."""


class Aim:
    """What is asked of a route for each message: these lie at its beginning, together in memory."""

    __slots__ = ("cell", "head", "hot", "run", "seen", "tails")

    cell: list[int]
    head: bytes
    hot: int
    run: Run
    seen: int
    tails: dict[int, bytes]


class Route(Aim):
    """The cached answer for (client, topic, QoS and RETAIN bits)."""

    __slots__ = (
        "error",
        "error_text",
        "first",
        "holdable",
        "later",
        "policies",
        "receivers",
        "rows",
        "rule",
        "shared",
        "staged_head",
        "stored",
        "topic",
        "whole_plan",
        "wire_topic",
    )

    def __init__(self, topic: str, wire_topic: bytes, first: int) -> None:
        self.topic = topic
        self.wire_topic = wire_topic
        self.first = first
        self.error = 0
        """A reason code when the publication is refused: 0x90 topic name, 0x87 not authorised."""
        self.error_text = ""
        self.whole_plan: Plan | None = None
        self.later: Callable[[Route], None] | None = None
        """Makes plan and rows of a route that was put together from parts: few publications ask for them."""
        self.policies: tuple[Policy, ...] = ()
        self.rows: tuple[tuple[Run, Policy, bytes, dict[int, bytes]], ...] | None = None
        """Where each message goes when nothing is to be evaluated per message: run, policy, head, tails. Ask for
        `plan` first."""
        self.stored: dict[tuple[int, bool, tuple[int, ...]], bytes] = {}
        """Heads of what durable sessions store of publications without properties."""
        self.run: Run = ("", "", 0, False, b"", True, False)
        self.head = b""
        self.tails: dict[int, bytes] = {}
        self.receivers: tuple[Receiver, ...] = ()
        self.shared: tuple[Shared, ...] = ()
        self.rule = ""
        self.hot = 0
        """One simple destination and nobody else: a message is two appends, `head` and `tails[id] + payload`."""
        self.staged_head = b""
        self.holdable = 0
        """Whether QoS 2 publications can be staged as the messages they will be: 1 yes, -1 no, 0 nobody has looked."""
        self.cell: list[int] = [0]
        """Counts changes to subscriptions that could concern this topic; `receivers` holds while `seen` equals it."""
        self.seen = -1

    @property
    def plan(self) -> Plan | None:
        """What the rules make of it; None: no rule, or refused before the rules were asked."""
        if self.later is not None:
            later, self.later = self.later, None
            later(self)
        return self.whole_plan

    @property
    def interested(self) -> bool:
        """Whether anybody gets the message [MQTT 5: 0x10 No matching subscribers]."""
        return bool((self.plan and self.plan.prepared) or self.receivers or self.shared)


class Inbound(NamedTuple):
    """A publication with what is needed to evaluate rules that look into the message."""

    route: Route
    publication: Publication
    packet_id: int
    publisher: Publisher
    connection: Connection | None = None
    """Who waits for the acknowledgement (nobody: a will)."""
    staged: Released | None = None
    """The staged message that this releases (QoS 2)."""
    will: WaitingWill | None = None
    """It is a will: what is kept of it if its queue has to be waited for."""
