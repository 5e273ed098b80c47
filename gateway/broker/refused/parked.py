"""A destination that refused, and what waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.broker.batch import Batch

if TYPE_CHECKING:
    from gateway.broker.marks import Released
    from gateway.ports.batch import Address
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection


@dataclass(slots=True, eq=False)
class Parked:
    """A parked destination with the rows that are linked to it: a unit of work of its own, tried again and again."""

    address: Address
    policy: Policy
    """Of the rule whose message was refused first: when to try again."""
    since: float
    batch: Batch = field(default_factory=Batch)
    released: list[Released] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    tries: int = 0
    count: int = 0
    """Messages that wait in it."""
    unanswered: int = 0
    """Those of them for which nobody waits."""
    inflight: bool = False
    away: bool = False
    """Its queue manager was away at the last attempt."""
    due: bool = False
    """Its pause is over."""
    successor: Parked | None = None
    after: list[Parked] = field(default_factory=list)
    """What else goes before it: it has earlier messages of the same connections for some of the same queues."""
    part: bool = False
    """What was cut off what goes before it, as its queue had no room for both."""
    halved: bool = False
    """The rest was cut off since the last pause: this is tried at once."""
    why: str = ""
    """What its queue said last."""
    done: bool = False

    def __post_init__(self) -> None:
        self.batch.parked = self
