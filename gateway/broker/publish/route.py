"""Routes: where publications of one client to one topic go, computed once and kept for those that follow. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy

if TYPE_CHECKING:
    from gateway.bridge.inbound import Plan
    from gateway.session.session import Session

NOWHERE = Address("", persistent=False)
"""The address of a route that leads to no queue, or to several."""


class FastPath(IntEnum):
    """The kind of a route whose publications need no decision for each message."""

    NONE = 0
    """Each publication is looked at: its route has several destinations, rules that look into the message, or none."""
    DIRECT = 1
    """Straight to one queue."""
    STAGED = 2
    """QoS 2, to one queue: staged at PUBLISH."""
    FAN_OUT = 3
    """To local subscribers, and at most one queue."""


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


DEAD_LETTER_POLICY = Policy("_none", 1_000_000_000, 0.1, 10.0, "hold", "dead_letter")
"""The dead-letter queue as a destination: putting to it is never given up."""
REPORT_POLICY = Policy("_none", 0, 0.1, 10.0, "dead_letter", "dead_letter")
"""A reply queue as the destination of a report: what it refuses is dead-lettered, as the queue manager does."""


class FastSlots:
    """What the lanes read of a route for each message: these slots lie at its beginning, together in memory."""

    __slots__ = ("address", "changes", "fast_path", "head", "tails", "version")

    fast_path: FastPath
    head: bytes
    address: Address
    changes: list[int]
    version: int
    tails: dict[int, bytes]


class Route(FastSlots):
    """Where publications of one client to one topic go, with these QoS and RETAIN bits."""

    __slots__ = (
        "error",
        "error_text",
        "first",
        "make_plan",
        "movable",
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
        self.make_plan: Callable[[Route], None] | None = None
        """Makes plan and rows of a route that was taken from a shared route: few publications ask for them."""
        self.policies: tuple[Policy, ...] = ()
        self.rows: tuple[tuple[Address, Policy, bytes, dict[int, bytes]], ...] | None = None
        """What is put of each publication when nothing is evaluated for each message: address, policy, head, tails.
        Ask for `plan` first."""
        self.stored: dict[tuple[int, bool, tuple[int, ...]], bytes] = {}
        """Heads of what durable sessions store of publications without properties."""
        self.address = NOWHERE
        self.head = b""
        self.tails: dict[int, bytes] = {}
        self.receivers: tuple[Receiver, ...] = ()
        self.shared: tuple[Shared, ...] = ()
        self.rule = ""
        self.fast_path = FastPath.NONE
        """On a fast path a message is two appends: `head`, and `tails[packet_id] + payload`."""
        self.staged_head = b""
        self.movable = 0
        """Whether QoS 2 publications can be staged as the messages they will be: 1 yes, -1 no, 0 not known yet."""
        self.changes: list[int] = [0]
        """The number of changes to subscriptions that could concern this topic; one list for all topics with the same
        first level. `receivers` and `fast_path` are valid while it is `version`."""
        self.version = -1

    @property
    def plan(self) -> Plan | None:
        """What the rules make of it; None: no rule matches, or it was refused before the rules were asked."""
        if self.make_plan is not None:
            make_plan, self.make_plan = self.make_plan, None
            make_plan(self)
        return self.whole_plan

    @property
    def interested(self) -> bool:
        """Whether a queue or a subscriber gets the message [MQTT 5: 0x10 No matching subscribers]."""
        return bool((self.plan and self.plan.prepared) or self.receivers or self.shared)
