"""A destination that refused, and what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.batch import Batch

if TYPE_CHECKING:
    from gateway.broker.marks import Released
    from gateway.ports.batch import Address
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection


class Parked:
    """A parked destination with the rows that are linked to it: a unit of work of its own, tried again and again."""

    __slots__ = (
        "address", "after", "away", "batch", "connections", "count", "done", "due", "halved", "inflight", "part",
        "policy", "released", "since", "successor", "tries", "unanswered", "why",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy, now: float) -> None:
        self.address = address
        self.policy = policy
        """Of the rule whose message was refused first: when to try again."""
        self.batch = Batch()
        self.batch.parked = self
        self.released: list[Released] = []
        self.connections: set[Connection] = set()
        self.tries = 0
        self.count = 0
        """Messages that wait in it."""
        self.unanswered = 0
        """Those of them for which nobody waits."""
        self.since = now
        self.inflight = False
        self.away = False
        """Its queue manager was away at the last attempt."""
        self.due = False
        """Its pause is over."""
        self.successor: Parked | None = None
        self.after: list[Parked] = []
        """What else goes before it: it has earlier messages of the same connections for some of the same queues."""
        self.part = False
        """What was cut off what goes before it, as its queue had no room for both."""
        self.halved = False
        """The rest was cut off since the last pause: this is tried at once."""
        self.why = ""
        """What its queue said last."""
        self.done = False
