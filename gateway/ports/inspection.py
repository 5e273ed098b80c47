"""An operator's view of a queue manager: what the administration API and the command line ask of any backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from gateway.ports.batch import Outcome, Unit


class Seen(NamedTuple):
    """A message as it lies on its queue."""

    token: Any
    """Names it: a number, or on IBM MQ its MsgId in hexadecimal digits."""
    md: bytes
    data: bytes
    put_time: float
    backout: int
    expiry: float
    """When it expires; 0: never."""
    locked: bool
    """Nobody else gets it now."""
    damaged: str = ""
    """Why it cannot be read, and what to do: then nothing else is known of it."""


PAGE_BYTES = 8 << 20
"""A page of messages ends when it has so many bytes, however few they are."""


def is_last(page: list[Seen], limit: int) -> bool:
    """Whether nothing follows a page of at most `limit` messages."""
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
        """From MAXDEPTH and QDEPTHHI."""
        return cls(most, most * per_cent // 100)


class Inspects(Protocol):
    """Looking at queues without getting anything from them, and the few acts an operator needs. Every call may raise
    MQError."""

    def close(self) -> None:
        """Give back what it has of its own."""

    def token(self, text: str) -> Any:
        """A token as a listing showed it; ValueError when it is none."""

    def queues(self, pattern: str = "*") -> Iterable[QueueRow]:
        """The queues whose name is like `pattern`, by name, with the attributes that a list shows at least."""

    def queue(self, name: str) -> QueueRow:
        """One queue."""

    def browse(self, name: str, limit: int = 50, after: Any = None) -> list[Seen]:
        """The next messages in the order of delivery."""

    def message(self, name: str, token: Any) -> Seen:
        """One message."""

    def prepare_find(self, name: str) -> bool:
        """Do a part of what the first `find` by MsgId needs on a deep queue: some milliseconds. Whether all of it is
        done."""

    def find(self, name: str, *, msg_id: bytes | None = None, correl_id: bytes | None = None) -> list[Seen]:
        """Messages by identifier."""

    def remove(self, name: str, tokens: list[Any]) -> int:
        """Take messages away for good; how many."""

    def clear(self, name: str) -> Iterator[int]:
        """Remove every message that is in no unit of work, some at a time; how many each time."""

    def commit(self, unit: Unit) -> Outcome:
        """Commit puts and takes in one unit of work and wait for it."""

    def msg_id_of(self, token: object, head: bytes) -> str:
        """The MsgId of a message that was put with `head` and got this token."""
