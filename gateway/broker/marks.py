"""Marks: what is remembered about rows of the open batch in case their queue refuses them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.ports.batch import Scheduler, Token
from gateway.ports.counters import DeadLetterReason

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.session.session import Session

    Released = tuple[Session, int, Token]
    """A staged QoS 2 message that is released: its session, packet identifier, and token on the queue of staged
    messages."""


class Cause(NamedTuple):
    """Why a row is on the dead-letter queue."""

    rule: str
    reason: DeadLetterReason
    qos: int


class WaitingWill(NamedTuple):
    """The record of a will on the state queue, kept because its message may have to wait for its queue."""

    key: bytes
    record: bytes


class SourceQueue(Protocol):
    """A queue that messages for devices come from."""

    queue: str
    key: bytes

    def leave(self, batch: Batch, token: Token) -> None:
        """Leave a message out of the batch, which was refused: the batch does not take it any more."""

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """Leave a message on the queue, as it can neither be delivered nor dead-lettered; the queue is not read for a
        moment."""


class Mark(NamedTuple):
    """What is remembered about one row."""

    released: Released | None = None
    """The staged QoS 2 message that it releases."""
    cause: Cause | None = None
    """Why it is dead-lettered; counted when that is committed."""
    source: tuple[SourceQueue, Token] | None = None
    """The queue that the message came from, where it stays if it cannot be put."""
    will: WaitingWill | None = None
    """For a will: what is kept of it if its queue has to be waited for."""

    def updated(self, other: Mark) -> Mark:
        """This mark with the fields that are set in the other one replaced."""
        return Mark(
            other.released or self.released, other.cause or self.cause, other.source or self.source,
            other.will or self.will,
        )  # fmt: skip
