"""Where a session is and was of late, which tells the gateway from which it gets, or has got, a publication. Pure.

Numbers tell how far: the publications of one gateway's clients have ascending numbers, and every other gateway hands
them over in that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from gateway.broker.gateways.forwarded import Forwarded

MOST_STAYS = 8
NEVER = 1 << 62
"""Higher than any number of a publication."""


class Has(Enum):
    """Whether a session gets a publication from a gateway where it was."""

    NO = auto()
    YES = auto()
    UNKNOWN = auto()


class Stay(NamedTuple):
    """A gateway where a session was."""

    gateway: str
    last: dict[str, int] | None
    """The number of the last publication of each gateway that comes from there; None: not known yet, or all of them
    do."""

    def has(self, forwarded: Forwarded) -> bool:
        """Whether a publication is known to have come from there."""
        put = self.gateway in forwarded.to or forwarded.origin == self.gateway
        return put and self.last is not None and forwarded.number <= self.last.get(forwarded.origin, 0)


class Place(NamedTuple):
    """A gateway that is no more, where a session was until its end: the session gets what lies there."""

    gateway: str
    own: int = NEVER
    """The number of the last publication of that gateway's own clients before the session came there."""
    read: dict[str, int] | None = None
    """The number of the last publication of each gateway that had been handed over there before; None: an earlier
    release has not recorded it."""
    arrived: bool = True
    """Whether the session had been read there; else it gets there only what was sent on to it."""

    def has(self, forwarded: Forwarded) -> bool:
        """Whether the session gets a publication from there, or has got it there."""
        if not self.arrived:
            return False
        if forwarded.origin == self.gateway:
            return self.read is None or forwarded.number > self.own
        known = {} if self.read is None else self.read
        return self.gateway in forwarded.to and forwarded.number > known.get(forwarded.origin, 0)

    def has_unread(self, forwarded: Forwarded) -> bool:
        """Whether the session gets a publication from there because nobody had read it when that was published."""
        return self.arrived and self.gateway in forwarded.unread_at


@dataclass(slots=True, eq=False)
class Came:
    """A session that has come here."""

    move: int
    epoch: int
    own: int
    """The number of the last publication of this gateway's own clients before it came."""
    read: dict[str, int]
    """The number of the last publication of each gateway that had been handed over here before it came."""
    stays: list[Stay]
    """The gateways where it was; the last one comes first."""
    at: float
    former: str = ""
    """The gateway that gave it: to this one or, for an inherited session, to the one that is no more."""
    given_after: int = NEVER
    """The number of the last publication of the former gateway's own clients before the session came there."""
    given_at: int = 0
    """The number of the last publication of the former gateway's own clients before it gave the session away, which has
    got that one there, if it wanted it."""
    settled: bool = False
    """Whether all that the former gateway had to say is known."""
    dead: bool = False
    """Whether the former gateway ended before it had told the last number."""
    lefts: list[Place] = field(default_factory=list)
    """The gateway that is no more and had the session last, and earlier ones that ended likewise: what lies there is
    handed over by their successor."""
    assumed: str = ""
    """The gateway from which it had come there, and which may still be sending on, as the record says."""
    unclear: bool = False
    """Whether others have still to say what they have sent on to that gateway."""
    sent_on: dict[str, int] = field(default_factory=dict)
    """The number of the last publication of each gateway that the former one has sent on."""


def record_of(came: Came, gateway: str) -> dict[str, Any]:
    """What the record of a session at this gateway says of its moves, for whoever takes over from this gateway."""
    pending = came.stays[0].gateway if came.stays and came.stays[0].last is None else ""
    return {
        "at": gateway,
        "from": pending,
        "former": came.former,
        "given_after": came.given_after,
        "given_at": came.given_at,
        "read": came.read,
        "sent_on": came.sent_on,
        "stays": [stay for stay in came.stays if stay.last is not None],
        "lefts": came.lefts,
    }


def came_of(record: dict[str, Any], owner: str) -> dict[str, Any]:
    """What a record says of the moves of a session that was the owner's. Nothing if an earlier release has written the
    record since: that keeps what it does not know."""
    came: dict[str, Any] = record.get("came") or {}
    is_read = came.get("arrived", True) or "after" not in record
    return came if came.get("at") == owner and is_read else {}


def stays_from(message: dict[str, Any]) -> list[Stay]:
    """The stays that another gateway's message tells."""
    return [Stay(gateway, last) for gateway, last in message.get("stays", ())]
