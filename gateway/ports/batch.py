"""The batch port: what the gateway's hot path asks of a queue manager.

A `Unit` is one unit of work: puts, takes, moves and replaced state messages, committed together or not at all.
All values are columns, so that a batch of a thousand messages is a handful of objects.

A message is `head + body`: `head` is the MQMD version 2 (364 bytes) followed by the first part of the message data
(usually everything of an MQRFH2 that repeats), `body` is the rest of the data. Messages that share a head share the
same `bytes` object: backends store it once a frame. A MsgId of NULs in the head asks the queue manager for a new one,
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
    """False: no part of the unit of work (MQPMO_NO_SYNCPOINT). What the backend has put stays put when the unit is
    refused, and is not put again when it is submitted once more."""
    placed: int = 0
    """Out of syncpoint: how many of the first rows are done with, whatever becomes of the unit."""
    lost: int = 0
    """How many of those the queue manager refused, which was heard too late to say which ones."""
    lost_reason: int = 0
    """The MQRC of the first of them."""
    too_long: Sequence[int] = ()
    """Rows of those that are not on their queue, because they are longer than it takes: they are not lost, their rule
    decides."""
    retain: bool = False
    """On an MQ topic: the publication is retained there (MQPMO_RETAIN)."""
    queues: list[str] | None = None
    """A queue for each row, and `queue` is empty: for `Mixing` queue managers alone, which tell no tokens then."""

    def by_queue(self) -> list[Puts]:
        """The same with puts for each queue."""
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
    """Where messages are put, and how: what all of some `Puts` to a queue of the application have in common."""

    queue: str
    queue_manager: str = ""
    priority: int = 0
    persistent: bool = True
    syncpoint: bool = True
    retain: bool = False

    @classmethod
    def of(cls, puts: Puts) -> Address:
        """Where these puts go."""
        return cls(puts.queue, puts.queue_manager, puts.priority, puts.persistent, puts.syncpoint, puts.retain)

    @property
    def name(self) -> str:
        """The queue, in words."""
        return f"{self.queue} at {in_words(self.queue_manager)}" if self.queue_manager else self.queue


@dataclass(slots=True)
class Takes:
    """Messages to be removed, by the tokens they were delivered with."""

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
    """New heads, where the move changes the descriptor; None keeps them."""
    to_priority: int | None = None
    """As that of `Puts`; such a move is refused where the messages would have to be written again. None keeps the
    priority of each."""
    longest: int = 0
    """No message is longer than this: the move is refused where the queue might not take it (0: nobody has looked)."""


class Replace(NamedTuple):
    """The one message with this key on a state queue becomes this one (None: goes)."""

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
    """Why part of a unit could not be committed: which puts (index into unit.puts), or the whole unit with -1."""

    puts: int
    reason: int
    """The MQRC."""
    text: str
    longest: int = -1
    """The longest message the queue takes, where one was too long and that was asked; else -1."""
    away: bool = False
    """Of a target (`ports.targets`): it is away or its answer is unknown. What is for it waits, however often it was
    tried."""
    elsewhere: bool = False
    """Another target takes it: it is submitted again at once."""
    queue_manager: str = ""
    """Which one has refused, where the address names several."""


@dataclass(slots=True)
class Outcome:
    """What became of a unit. Nothing was committed when `failures` is not empty."""

    failures: list[Failure] = field(default_factory=list)


Done = Callable[[Unit, Outcome], None]


class Stored(NamedTuple):
    """A message as it lies on a queue. `md` is 364 bytes with MsgId, PutDate, PutTime filled in."""

    token: Token
    md: bytes
    data: bytes


class BatchQueueManager(Protocol):
    """What the broker uses. All calls come from the reactor thread; `done` is called there too, in submission order."""

    name: str

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit the unit; `done` is called when it is durable (or refused), possibly before this returns."""

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """Every message of a state queue with its key, in order: how sessions and retained messages come back."""

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """The next messages in order without removing them (they leave by `Takes`)."""

    def depth(self, queue: str, key: bytes = b"") -> int:
        """How many messages are there."""

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """Ask to be told that `queue` may have something (called once per batch of arrivals)."""

    def max_length(self, queue: str) -> int:
        """The longest message data `queue` takes. It raises nothing: what is wrong with the queue the put says."""


class StorageFull(NamedTuple):
    """Why a queue manager's own disk takes no new messages."""

    since: float
    """Seconds since the epoch."""
    where: str
    """The directory."""
    why: str
    """As the system says it."""
    files_missing: bool = False
    """There is room, but somebody has removed or changed files of the store."""


@runtime_checkable
class Fills(Protocol):
    """A queue manager with a disk of its own, which may be full. What the broker puts then is bounded, and there is a
    reserve for it."""

    @property
    def storage_full(self) -> StorageFull | None:
        """Why no new messages should be put; None: they may be."""


@runtime_checkable
class Moving(Protocol):
    """A queue manager that carries out `Unit.moves` without writing the messages again. What was put in one `Puts` has
    tokens that are numbers counting up."""

    def movable(self, queue: str, queue_manager: str) -> bool:
        """Whether messages can be moved to this destination."""


@runtime_checkable
class Listing(Protocol):
    """A queue manager that knows what is on the queues of the gateway's state without reading it."""

    def tokens(self, queue: str, key: bytes) -> Sequence[Token]:
        """Those of all messages that `fetch` would return, in order."""


@runtime_checkable
class Mixing(Protocol):
    """A queue manager that takes puts with a queue for each row. If it refuses such a unit, it does so as a whole: what
    it says of one queue it says when that has puts of its own."""

    mixes: bool


class Clock(Protocol):
    """The time."""

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
        """From now on `call` is called in the reactor's thread whenever somebody has written to the answer, as to an
        eventfd; -1: there is none (yet)."""
