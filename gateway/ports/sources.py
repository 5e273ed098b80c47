"""What rules that take messages from a queue manager need beyond the batch port: the back-out settings of a queue, and
durable subscriptions to MQ topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from gateway.ports.batch import Stored, Token


class Backout(NamedTuple):
    """BOTHRESH and BOQNAME of a queue; 0 and blank where it has none."""

    threshold: int = 0
    queue: str = ""

    def unless(self, threshold: int | None, queue: str | None) -> Backout:
        """This, unless a rule says something else."""
        return Backout(self.threshold if threshold is None else threshold, self.queue if queue is None else queue)


class Subscribed(NamedTuple):
    """Where the publications of a subscription arrive, as `fetch`, `consume` and `Takes` want it."""

    queue: str
    key: bytes = b""


MAX_GROUP, MAX_GROUP_BYTES = 1000, 64 << 20
"""Messages of a group that is wanted whole, and their data: they are one unit of work, and in memory together. A larger
group stays on its queue."""


class Incomplete(NamedTuple):
    """What waits on a queue for segments, or messages of its group, that have not come."""

    number: int = 0
    since: float = 0.0
    """Since when the oldest of them is known (seconds since the epoch)."""
    group_id: bytes = b""
    """Its GroupId."""
    whole_group: bool = False
    """It is a group that is wanted whole, not a message in segments."""
    messages: int = 0
    """How many messages on the queue are parts of them: all are looked at again when the queue is."""


@runtime_checkable
class LetsGo(Protocol):
    """Implemented by queue managers on which a consumed queue is in use until it is consumed no more."""

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """Nobody is to be told any more that `queue` may have something; with a key, only of that, until it is asked
        for again."""


@runtime_checkable
class TellsDefined(Protocol):
    """Implemented by queue managers that say when queues are defined or altered: others are asked again and again."""

    def tell_defined(self, told: Callable[[Collection[str]], None]) -> None:
        """Have `told` called with their names, and those of aliases that lead to them."""


@runtime_checkable
class KeepsOpen(Protocol):
    """Implemented by queue managers where queues that were put to, or taken from, are kept open: nobody can delete
    them."""

    def close_objects(self) -> None:
        """Close them soon, behind what is under way; what is used again is opened again."""


@runtime_checkable
class Gathers(Protocol):
    """Implemented by queue managers whose consumed queues give messages in segments as one, and groups whole."""

    def gather(self, queue: str, *, groups: bool) -> None:
        """What the rules of a consumed queue want from now on: messages of a group only when all of it is there, in
        logical order, or (without `groups`) as they come."""

    def incomplete(self, queue: str) -> Incomplete:
        """What stays on it for lack of the rest, as far as the last look saw."""


@runtime_checkable
class Claims(Protocol):
    """Implemented by queue managers whose queues several gateways may consume."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """As `fetch`, of a queue that is consumed: messages that no other gateway is given for a while, at once. What
        the last call for the same queue and key gave is dealt with: taken, or to come again."""


class Page(Protocol):
    """The next messages of a queue, as columns. None of them was backed out, expires, asks for a report, or is one of a
    group or a segment."""

    @property
    def tokens(self) -> Sequence[Token]:
        """What they are taken by."""

    @property
    def heads(self) -> Sequence[bytes]:
        """Descriptor and first part of the data, as they were put: identifier, date and time may be blank. Messages
        that were put with one head have the same object here."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The rest of the data."""

    def stored(self, first: int, last: int) -> list[Stored]:
        """Some of them with everything filled in."""


@runtime_checkable
class Pages(Protocol):
    """Implemented by queue managers that have messages in columns."""

    def fetch_page(self, queue: str, key: bytes, limit: int) -> Page | None:
        """As `fetch`, of a queue that is consumed. None: one of the next messages is not as plain as that, or there is
        none; `fetch` gives them."""


@runtime_checkable
class Sources(Protocol):
    """Implemented by queue managers that applications put to."""

    def backout(self, queue: str) -> Backout:
        """When a message of this queue is poison, and where it goes. MQError."""

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Make the durable subscription of this name, or take it up; one to another topic is replaced. MQError."""
