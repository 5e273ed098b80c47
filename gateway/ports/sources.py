"""What rules that take messages from a queue manager need besides the batch port: the back-out settings of a queue, and
durable subscriptions to MQ topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from gateway.ports.batch import Stored, Token


class Backout(NamedTuple):
    """BOTHRESH and BOQNAME of a queue; 0 and empty if it has none."""

    threshold: int = 0
    queue: str = ""

    def unless(self, threshold: int | None, queue: str | None) -> Backout:
        """The same, with what a rule sets in place of the queue's own."""
        return Backout(self.threshold if threshold is None else threshold, self.queue if queue is None else queue)


class Subscribed(NamedTuple):
    """Where the publications of a subscription arrive, as `fetch`, `consume` and `Takes` need it."""

    queue: str
    key: bytes = b""


MAX_GROUP, MAX_GROUP_BYTES = 1000, 64 << 20
"""The most messages, and bytes of their data, of a group that is delivered as a whole: they are in one unit of work,
and in memory together. A larger group stays on its queue."""


class Incomplete(NamedTuple):
    """Incomplete messages and groups on a queue, whose segments or other messages have not arrived."""

    number: int = 0
    since: float = 0.0
    """Since when the oldest of them is known, in seconds since the epoch."""
    group_id: bytes = b""
    """Its GroupId."""
    whole_group: bool = False
    """Whether it is a group that is wanted as a whole, not a message in segments."""
    messages: int = 0
    """How many messages on the queue are parts of them; all are looked through again each time that the queue is."""


@runtime_checkable
class LetsGo(Protocol):
    """Implemented by queue managers on which a consumed queue is in use until it is no longer consumed."""

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """Tell nobody any more that `queue` may have something; with a key, only no more of that key, until it is asked
        for again."""


@runtime_checkable
class TellsDefined(Protocol):
    """Implemented by queue managers that tell when queues are defined or altered; others have to be asked
    repeatedly."""

    def tell_defined(self, told: Callable[[Collection[str]], None]) -> None:
        """Have `told` called with the names of these queues, and of aliases that lead to them."""


@runtime_checkable
class KeepsOpen(Protocol):
    """Implemented by queue managers that keep queues open after they were put to or taken from, so that nobody can
    delete them."""

    def close_objects(self) -> None:
        """Close these queues soon, after what is under way; a queue that is used again is opened again."""


@runtime_checkable
class Gathers(Protocol):
    """Implemented by queue managers on which consumed queues deliver a message in segments as one, and groups as a
    whole."""

    def gather(self, queue: str, *, groups: bool) -> None:
        """Say what the rules of a consumed queue want from now on: messages of a group only when all of it is there, in
        logical order, or (without `groups`) as they come."""

    def incomplete(self, queue: str) -> Incomplete:
        """What stays on the queue because the rest of it is missing, as far as the last look saw."""


@runtime_checkable
class Claims(Protocol):
    """Implemented by queue managers whose queues several gateways may consume."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """Like `fetch`, for a queue that is consumed: messages that for a while are given to no other gateway. This
        settles what the last call for the same queue and key returned: it has been taken, or comes again."""


class Page(Protocol):
    """The next messages of a queue, as columns. None of them was backed out, expires, asks for a report, or is part of
    a group or a segment."""

    @property
    def tokens(self) -> Sequence[Token]:
        """The tokens by which the messages are taken."""

    @property
    def heads(self) -> Sequence[bytes]:
        """Descriptors and first parts of the data, as they were put: identifier, date and time may be blank. Messages
        that were put with one head share one object here."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The rest of the data."""

    def stored(self, first: int, last: int) -> list[Stored]:
        """Some of the messages, with everything filled in."""


@runtime_checkable
class Pages(Protocol):
    """Implemented by queue managers that hold messages in columns."""

    def fetch_page(self, queue: str, key: bytes, limit: int) -> Page | None:
        """Like `fetch`, for a queue that is consumed. None: there are no messages, or one of the next is not plain
        enough for a page; `fetch` returns those."""


@runtime_checkable
class Sources(Protocol):
    """Implemented by queue managers on which applications put messages."""

    def backout(self, queue: str) -> Backout:
        """When a message of this queue is taken for poison, and where it goes. Raises MQError."""

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Make the durable subscription with this name, or resume it; if it is to another topic it is replaced. Raises
        MQError."""
