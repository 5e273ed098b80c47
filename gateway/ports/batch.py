"""The batch port: what the gateway's hot path asks of a queue manager.

A `Unit` is one unit of work: puts, takes, moves and replaced state messages, committed together or not at all. All
values are columns, so that a batch of a thousand messages is a handful of objects.

A message is `head + body`: `head` is the MQMD version 2 (364 bytes) followed by the first part of the message data
(usually the part of an MQRFH2 that repeats), `body` is the rest of the data. Messages that share a head share the same
`bytes` object, which backends store once per frame. A MsgId of NULs in the head asks the queue manager for a new one,
and blank PutDate/PutTime for the time of the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from gateway.ports.spread import in_words

MQMD_LENGTH = 364

Token = Hashable
"""Names one stored message to the backend that handed it out (embedded: lane and sequence; IBM MQ: the MsgId)."""


@dataclass(slots=True)
class Puts:
    """Messages for one destination, in order. `heads` and `bodies` are parallel columns."""

    queue: str
    """A queue name as MQOPEN takes it (local, alias or remote definition), or `topic://STRING` for an MQ topic."""
    queue_manager: str = ""
    key: bytes = b""
    """A sub-queue within `queue`: messages of one key are found, counted and ordered without touching the others.
    On IBM MQ its first 24 bytes are the CorrelId. State queues use it; application queues do not."""
    priority: int = 0
    persistent: bool = True
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    tokens: Sequence[Token] = ()
    """Filled by the backend when the unit is committed."""
    syncpoint: bool = True
    """False: not part of the unit of work (MQPMO_NO_SYNCPOINT). What the backend has put stays put if the unit is
    refused, and is not put again when the unit is submitted again."""
    placed: int = 0
    """Out of syncpoint: how many rows, counted from the first, are done with, whatever becomes of the unit."""
    lost: int = 0
    """How many of those the queue manager has refused, where that was learnt too late to tell which ones."""
    lost_reason: int = 0
    """The MQRC of the first of these."""
    too_long: Sequence[int] = ()
    """The rows among those that are not on their queue because they are longer than it takes. They are not lost: their
    rule decides about them."""
    retain: bool = False
    """On an MQ topic: the publication is retained there (MQPMO_RETAIN)."""
    queues: list[str] | None = None
    """A queue for each row, while `queue` is empty. For `Mixing` queue managers only, which then return no tokens."""

    def by_queue(self) -> list[Puts]:
        """The same, as puts for one queue each."""
        found: dict[str, Puts] = {}
        like = self.queue_manager, self.key, self.priority, self.persistent
        for queue, head, body in zip(self.queues or (), self.heads, self.bodies, strict=True):
            puts = found.get(queue)
            if puts is None:
                puts = found[queue] = Puts(queue, *like, [], [], syncpoint=self.syncpoint, retain=self.retain)
            puts.heads.append(head)
            puts.bodies.append(body)
        return list(found.values())


class Address(NamedTuple):
    """Where messages are put, and how: what several `Puts` to one queue of the application have in common."""

    queue: str
    queue_manager: str = ""
    priority: int = 0
    persistent: bool = True
    syncpoint: bool = True
    retain: bool = False

    @classmethod
    def of(cls, puts: Puts) -> Address:
        """The address of these puts."""
        return cls(puts.queue, puts.queue_manager, puts.priority, puts.persistent, puts.syncpoint, puts.retain)

    @property
    def name(self) -> str:
        """The queue and its queue manager as text."""
        return f"{self.queue} at {in_words(self.queue_manager)}" if self.queue_manager else self.queue


@dataclass(slots=True)
class Takes:
    """Messages to be removed, named by the tokens they were delivered with."""

    queue: str
    key: bytes
    tokens: list[Token]


@dataclass(slots=True)
class Moves:
    """Staged messages that become visible on another queue without being written again (design decision 3)."""

    queue: str
    key: bytes
    tokens: Sequence[Token]
    to_queue: str
    to_queue_manager: str = ""
    to_key: bytes = b""
    heads: list[bytes] | None = None
    """New heads, if the move changes the descriptors; None keeps them."""
    to_priority: int | None = None
    """As in `Puts`; such a move is refused if the messages would have to be written again. None keeps the priority of
    each."""
    longest: int = 0
    """The length of the longest message: the move is refused if the queue might not take it (0: not determined)."""


class Replace(NamedTuple):
    """The one message with this key on a state queue is replaced by this one (None: removed)."""

    queue: str
    key: bytes
    body: bytes | None


@dataclass(slots=True)
class Unit:
    """One unit of work."""

    puts: list[Puts] = field(default_factory=list)
    takes: list[Takes] = field(default_factory=list)
    moves: list[Moves] = field(default_factory=list)
    replaces: list[Replace] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.puts or self.takes or self.moves or self.replaces)


class Failure(NamedTuple):
    """Why a part of a unit could not be committed: the puts with this index in unit.puts, or with -1 the whole unit."""

    puts: int
    reason: int
    """The MQRC."""
    text: str
    longest: int = -1
    """The longest message that the queue takes, if one was too long and the queue was asked; else -1."""
    away: bool = False
    """A target (`ports.targets`) is away, or its answer is unknown. What is for it waits, however often it was
    tried."""
    elsewhere: bool = False
    """Another target takes the messages: they are submitted again at once."""
    queue_manager: str = ""
    """Which queue manager has refused, if the address names several."""


@dataclass(slots=True)
class Outcome:
    """What became of a unit. If `failures` is not empty, nothing was committed."""

    failures: list[Failure] = field(default_factory=list)


Done = Callable[[Unit, Outcome], None]


class Stored(NamedTuple):
    """A message as it is on a queue. `md` is 364 bytes with MsgId, PutDate and PutTime filled in."""

    token: Token
    md: bytes
    data: bytes


class BatchQueueManager(Protocol):
    """What the broker uses. All calls come from the reactor thread, and `done` is called there too, in the order of
    submission."""

    name: str

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit the unit; `done` is called when it is durable or refused, possibly before this returns."""

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """Every message of a state queue with its key, in order; this is how sessions and retained messages come
        back."""

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """The next messages in order without removing them (they leave by `Takes`)."""

    def depth(self, queue: str, key: bytes = b"") -> int:
        """How many messages the queue has, under this key if one is given."""

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """Have `arrived` called when `queue` may have something; once for a batch of arrivals."""

    def max_length(self, queue: str) -> int:
        """The longest message data that `queue` takes. Raises nothing: if something is wrong with the queue, the put
        says so."""


class StorageFull(NamedTuple):
    """Why the disk of a queue manager takes no new messages."""

    since: float
    """Seconds since the epoch."""
    where: str
    """The directory."""
    why: str
    """The problem as the operating system describes it."""
    files_missing: bool = False
    """There is room, but somebody has removed or changed files of the store."""


@runtime_checkable
class Fills(Protocol):
    """A queue manager with a disk of its own, which may be full. What the broker still puts then is bounded, and there
    is a reserve for it."""

    @property
    def storage_full(self) -> StorageFull | None:
        """Why no new messages should be put; None: they may be put."""


@runtime_checkable
class Moving(Protocol):
    """A queue manager that carries out `Unit.moves` without writing the messages again. The tokens of messages put in
    one `Puts` are consecutive numbers."""

    def movable(self, queue: str, queue_manager: str) -> bool:
        """Whether messages can be moved to this destination."""


@runtime_checkable
class Listing(Protocol):
    """A queue manager that knows without reading it what is on the queues of the gateway's state."""

    def tokens(self, queue: str, key: bytes) -> Sequence[Token]:
        """The tokens of all messages that `fetch` would return, in order."""


@runtime_checkable
class Mixing(Protocol):
    """A queue manager that takes puts with a queue for each row. If it refuses such a unit, it refuses it as a whole;
    what is wrong with one queue it says when that queue is put to separately."""

    mixes: bool


@runtime_checkable
class Bounded(Protocol):
    """A queue manager that commits a unit in parts if it is larger than one unit of work may be. What comes in smaller
    ones is committed together or not at all, as everything is elsewhere."""

    most_rows: int
    """The most messages that one unit of work puts and takes."""


class Clock(Protocol):
    """A clock."""

    def now(self) -> float:
        """Seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Seconds that never jump."""


class Scheduler(Clock, Protocol):
    """The clock and the reactor, as far as the core may know them."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run `call` in the reactor thread after `seconds`; returns a function that cancels it."""

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the reactor thread, from any thread."""


@runtime_checkable
class Collecting(Protocol):
    """A scheduler that a thread can wake without Python: by writing to a descriptor."""

    def collect(self, call: Callable[[], None]) -> int:
        """From now on have `call` called in the reactor's thread whenever a thread writes to the returned descriptor,
        as to an eventfd; -1: there is none (yet)."""
