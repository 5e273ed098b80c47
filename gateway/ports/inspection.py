"""An operator's view of a queue manager: what the administration API and the command line ask of every backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from gateway.ports.batch import Outcome, Unit


class Seen(NamedTuple):
    """A message as it is on its queue."""

    token: Any
    """Names the message: a number, or on IBM MQ its MsgId in hexadecimal digits."""
    md: bytes
    data: bytes
    put_time: float
    backout: int
    expiry: float
    """When it expires; 0: never."""
    locked: bool
    """Nobody else can get it now."""
    damaged: str = ""
    """Why it cannot be read, and what to do about it; nothing else is then known of it."""


PAGE_BYTES = 8 << 20
"""A page of messages ends at this many bytes, however few messages that are."""


def is_last(page: list[Seen], limit: int) -> bool:
    """Whether nothing follows a page that was asked for with `limit`."""
    return len(page) < limit and sum(len(seen.data) for seen in page) < PAGE_BYTES


class QueueRow(NamedTuple):
    """A queue in one line."""

    name: str
    kind: str
    depth: int | None
    max_depth: int | None
    oldest: float | None
    """When its oldest message was put."""
    attributes: dict[str, str]


class DepthLimits(NamedTuple):
    """How many messages a queue takes, and at how many it is nearly full."""

    most: int
    high: int

    @classmethod
    def of(cls, most: int, per_cent: int) -> DepthLimits:
        """The limits for MAXDEPTH and QDEPTHHI."""
        return cls(most, most * per_cent // 100)


class Inspects(Protocol):
    """Looks at queues without getting anything from them, and does the few things an operator needs. Every call may
    raise MQError."""

    def close(self) -> None:
        """Release what this has of its own."""

    def token(self, text: str) -> Any:
        """The token that a listing showed as this text. Raises ValueError if it is not one."""

    def queues(self, pattern: str = "*") -> Iterable[QueueRow]:
        """The queues whose names match `pattern`, in order of name, with at least the attributes that a list shows."""

    def queue(self, name: str) -> QueueRow:
        """One queue."""

    def browse(self, name: str, limit: int = 50, after: Any = None) -> list[Seen]:
        """The next messages, in the order of delivery."""

    def message(self, name: str, token: Any) -> Seen:
        """One message."""

    def prepare_find(self, name: str) -> bool:
        """Do part of what the first `find` by MsgId needs on a deep queue, for some milliseconds. Returns whether all
        of it is done."""

    def find(self, name: str, *, msg_id: bytes | None = None, correl_id: bytes | None = None) -> list[Seen]:
        """The messages with an identifier."""

    def remove(self, name: str, tokens: list[Any]) -> int:
        """Remove messages for good; returns how many."""

    def clear(self, name: str) -> Iterator[int]:
        """Remove every message that is in no unit of work, some at a time; yields how many each time."""

    def commit(self, unit: Unit) -> Outcome:
        """Commit puts and takes in one unit of work and wait for it."""

    def msg_id_of(self, token: object, head: bytes) -> str:
        """The MsgId of a message that was put with `head` and got this token."""
