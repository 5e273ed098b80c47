"""What the buffer needs from its queue manager: attempts to commit, one at a time, and reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gateway.ports.batch import Failure, Stored, Token, Unit
from gateway.ports.sources import Backout, Incomplete, Subscribed


class Found(NamedTuple):
    """What a connection found when it was made."""

    name: str
    dead_letter_queue: str
    progress: bytes | None
    """The buffer's message there; None: it cannot be seen (never written, or held by a dying unit of work)."""
    most_rows: int = 5000
    """The most messages of a unit of work: half of what the queue manager allows (MAXUMSGS)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one attempt."""

    failures: list[Failure] = field(default_factory=list)
    """Why it was refused: nothing of it was committed."""
    lost: bool = False
    """Whether the connection broke: the attempt is in doubt, and the progress will settle it."""

    @property
    def committed(self) -> bool:
        """Whether the attempt was committed."""
        return not self.failures and not self.lost


class Link(Protocol):
    """A connection that is made again as often as it breaks. All callbacks come in the reactor's thread, in order."""

    put_to: set[str]
    """Queues to which messages were put since the start."""

    def start(self, key: bytes, up: Callable[[Found], None], down: Callable[[str], None]) -> None:
        """Begin to connect; `key` names the buffer's progress."""

    def rename(self, key: bytes) -> None:
        """Give the progress another name from now on."""

    def look(self) -> None:
        """Read the progress again: `up` is called again."""

    def close_objects(self) -> None:
        """See `KeepsOpen`."""

    def commit(self, unit: Unit, progress: bytes, told: Callable[[Verdict], None]) -> None:
        """Attempt once to commit the unit together with the progress."""

    def stop(self) -> None:
        """Disconnect."""


class Reads(Protocol):
    """The reading half of the batch port, for IBM MQ."""

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """See `BatchQueueManager`."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """See `ports.sources.Claims`."""

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """See `BatchQueueManager`."""

    def depth(self, queue: str, key: bytes = b"") -> int:
        """See `BatchQueueManager`."""

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """See `BatchQueueManager`."""

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """See `LetsGo`."""

    def max_length(self, queue: str) -> int:
        """See `BatchQueueManager`."""

    def knows_length(self, queue: str) -> bool:
        """Whether the last answer of `max_length` was the queue manager's own."""

    def gather(self, queue: str, *, groups: bool) -> None:
        """See `Gathers`."""

    def incomplete(self, queue: str) -> Incomplete:
        """See `Gathers`."""

    def backout(self, queue: str) -> Backout:
        """See `Sources`."""

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """See `Sources`."""

    def close(self) -> None:
        """Close its connections."""
