"""What is committed together: columns of puts, takes, moves, backout counts and state records. Values only.

Times are microseconds since the epoch; 0 means "none". Tokens are those of `place.py`: plain ints in delivery order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LaneName = tuple[str, bytes, int]
"""Queue, key, rank (9 - priority)."""
ID_LENGTH = 24
NO_ID = bytes(ID_LENGTH)
_LOOKED_BACK = 16
"""So many of the last puts of a unit may still get rows: copies and reports come between those of one queue."""


class TokenRun(NamedTuple):
    """Messages with consecutive numbers in one lane."""

    lane: LaneName
    first: int
    length: int


@dataclass(slots=True)
class LanePuts:
    """Messages for one lane (queue, key, priority), in order. Columns are parallel and not changed afterwards."""

    queue: str
    key: bytes = b""
    priority: int = 0
    persistent: bool = True
    heads: list[bytes] = field(default_factory=list)
    """364 bytes of MQMD and the repeated first part of the data. Rows with the same head share one object."""
    bodies: list[bytes] = field(default_factory=list)
    """The rest of the data. One body for many lanes is the same object everywhere: it is written once."""
    msg_ids: Sequence[bytes] | None = None
    """MsgIds of 24 bytes that replace those of the heads, so that heads can be shared although the ids differ."""
    correl_ids: Sequence[bytes] | None = None
    """The same for CorrelIds."""
    expiries: Sequence[int] | None = None
    """When each message expires (microseconds since the epoch, 0: never)."""
    put_times: Sequence[int] | None = None
    """When each was put, where that is not the time of the commit."""
    tokens: Sequence[int] = ()
    """Filled by `Store.prepare`; they name messages only once `apply` has returned. Not of puts with groups."""
    groups: Sequence[tuple[LaneName, int]] | None = None
    """Lanes with how many consecutive rows each has of these, instead of queue, key and priority. Such puts are
    plain."""

    def extents(self) -> Sequence[tuple[LaneName, int]]:
        """The lanes, each with how many rows it has of these."""
        return self.groups or [((self.queue, self.key, 9 - self.priority), len(self.heads))]

    def by_lane(self) -> Iterator[LanePuts]:
        """The same for puts to several lanes, with one `LanePuts` for each."""
        if self.groups is None:
            yield self
            return
        at = 0
        for (queue, key, rank), rows in self.groups:
            heads, bodies = self.heads[at : at + rows], self.bodies[at : at + rows]
            yield LanePuts(queue, key, 9 - rank, self.persistent, heads, bodies)
            at += rows

    @property
    def plain(self) -> bool:
        """Whether heads and bodies are all that these puts have."""
        return self.msg_ids is None and self.correl_ids is None and self.expiries is None and self.put_times is None


@dataclass(slots=True)
class LaneTakes:
    """Messages that leave a queue (destructive get, expiry, clearing), of any priority."""

    queue: str
    key: bytes = b""
    tokens: Sequence[int] = ()


@dataclass(slots=True)
class LaneMoves:
    """Messages that become the last ones of another lane without being written again (unless `heads` are given)."""

    queue: str
    key: bytes
    tokens: Sequence[int]
    to_queue: str
    to_key: bytes = b""
    to_priority: int | None = None
    """None keeps the priority of each."""
    heads: Sequence[bytes] | None = None
    """New heads: such messages are written again, in the same frame."""
    new_tokens: Sequence[int] = ()
    """Filled by `Store.prepare`, parallel to `tokens` (without those that were missing)."""


@dataclass(slots=True)
class Replaced:
    """State records of one queue that are replaced: the one persistent message of each key leaves, and another comes.
    Columns are parallel and not changed afterwards."""

    queue: str
    rank: int
    head: bytes
    keys: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Of the messages that leave."""
    bodies: list[bytes] = field(default_factory=list)
    """Of those that come."""

    @property
    def puts(self) -> LanePuts:
        """What comes, like anything else that is put."""
        groups = [((self.queue, key, self.rank), 1) for key in self.keys]
        return LanePuts("", b"", 0, True, [self.head] * len(groups), self.bodies, groups=groups)  # noqa: FBT003

    @property
    def takes(self) -> list[TokenRun]:
        """What leaves, like anything else that is taken."""
        numbers = zip(self.keys, self.numbers, strict=True)
        return [TokenRun((self.queue, key, self.rank), number, 1) for key, number in numbers]


class Backout(NamedTuple):
    """The backout count of one message becomes `times`."""

    queue: str
    key: bytes
    token: int
    times: int


class Mark(NamedTuple):
    """How far a unit had been filled."""

    puts: int
    rows: list[int]
    """Of the last of these, which may have got more."""
    takes: int
    moves: int
    state: dict[bytes, bytes | None]
    committed: int


EMPTY = Mark(0, [], 0, 0, {}, 0)


class _Counted:
    """How many messages the first puts and moves of a unit bring, by queue; these puts get no more rows."""

    __slots__ = ("found", "moved", "moves", "puts", "seen")

    def __init__(self, puts: list[LanePuts], moves: list[LaneMoves]) -> None:
        self.puts, self.moves = puts, moves
        self.found = Counter[str]()
        self.seen = self.moved = 0
        """So many of the puts and moves are counted."""

    def go_on(self) -> None:
        """Count what has been added since."""
        last = max(len(self.puts) - _LOOKED_BACK, self.seen)
        self._add(self.puts[self.seen : last], self.moves[self.moved :], 1)
        self.seen, self.moved = last, len(self.moves)

    def go_back(self, puts: int, moves: int) -> None:
        """Called before the unit is cut back to this many puts and moves, the last of which may have got rows since."""
        puts, moves = min(max(puts - _LOOKED_BACK, 0), self.seen), min(moves, self.moved)
        self._add(self.puts[puts : self.seen], self.moves[moves : self.moved], -1)
        self.seen, self.moved = puts, moves

    def _add(self, puts: list[LanePuts], moves: list[LaneMoves], sign: int) -> None:
        for one in puts:
            for (queue, _, _), rows in one.extents():
                self.found[queue] += sign * rows
        for move in moves:
            self.found[move.to_queue] += sign * len(move.tokens)


@dataclass(slots=True)
class StoreUnit:
    """One frame: everything in it is committed, or nothing."""

    puts: list[LanePuts] = field(default_factory=list)
    takes: list[LaneTakes] = field(default_factory=list)
    moves: list[LaneMoves] = field(default_factory=list)
    backouts: list[Backout] = field(default_factory=list)
    state: dict[bytes, bytes | None] = field(default_factory=dict)
    """Small records by key; None removes one."""
    replaced: list[Replaced] = field(default_factory=list)
    own: bool = False
    """The gateway's: it knows when the disk is full and puts only what it has to, which has a reserve of its own."""
    on_commit: list[Callable[[], None]] | None = None
    """What is said once it has been committed; of one that is backed out there is nothing to say."""
    _counted: _Counted | None = field(default=None, init=False, repr=False, compare=False)

    def puts_to(self, queue: str) -> Iterator[LanePuts]:
        """The puts to a queue."""
        for puts in self.puts:  # for each message that is placed: no generator for each of these
            if puts.groups is not None:
                yield from (lane for lane in puts.by_lane() if lane.queue == queue)
            elif puts.queue == queue:
                yield puts
        for one in self.replaced:
            if one.queue == queue:
                yield from one.puts.by_lane()

    def messages_for(self, queue: str) -> int:
        """How many messages the unit brings to a queue. It is asked for each message that is placed."""
        counted = self._counted
        if counted is None or counted.puts is not self.puts:
            counted = self._counted = _Counted(self.puts, self.moves)
        counted.go_on()
        last = self.puts[counted.seen :]
        rest = [rows for puts in last for (name, _, _), rows in puts.extents() if name == queue]
        replaced = [len(one.keys) for one in self.replaced if one.queue == queue]
        return counted.found[queue] + sum(rest) + sum(replaced)

    def add_row(self, row: LanePuts, expiry: int) -> None:
        """Add a message behind all others of its queue. Messages of one lane share columns."""
        for puts in reversed(self.puts[-_LOOKED_BACK:]):
            if not isinstance(puts.expiries, list):
                break
            if puts.queue == row.queue:
                if (puts.key, puts.priority, puts.persistent) != (row.key, row.priority, row.persistent):
                    break
                puts.heads += row.heads
                puts.bodies += row.bodies
                puts.expiries.append(expiry)
                return
        row.expiries = [expiry]
        self.puts.append(row)

    def mark(self) -> Mark:
        """How far the unit has been filled."""
        rows = [len(puts.heads) for puts in self.puts[-_LOOKED_BACK:]]
        return Mark(len(self.puts), rows, len(self.takes), len(self.moves), dict(self.state), len(self.on_commit or ()))

    def cut_back(self, to: Mark) -> None:
        """Take back what was added since a mark. Backout counts and replaced records are added only to units that
        stay."""
        if self._counted is not None:
            self._counted.go_back(to.puts, to.moves)
        del self.puts[to.puts :], self.takes[to.takes :], self.moves[to.moves :]
        for puts, rows in zip(self.puts[-_LOOKED_BACK:], to.rows, strict=True):
            if len(puts.heads) > rows and isinstance(puts.expiries, list):
                del puts.heads[rows:], puts.bodies[rows:], puts.expiries[rows:]
        self.state = dict(to.state)
        if self.on_commit:
            del self.on_commit[to.committed :]

    @property
    def adds(self) -> bool:
        """Whether the unit adds messages."""
        return bool(self.puts or self.replaced)

    def __bool__(self) -> bool:
        return bool(self.puts or self.takes or self.moves or self.backouts or self.state or self.replaced)

    def add(self, other: StoreUnit) -> None:
        """Commit everything in another unit together with this one."""
        self.puts += other.puts
        self.takes += other.takes
        self.moves += other.moves
        self.backouts += other.backouts
        self.state.update(other.state)
        self.replaced += other.replaced
        if other.on_commit:
            self.say(*other.on_commit)

    def say(self, *calls: Callable[[], None]) -> None:
        """Have these called once the unit is committed."""
        if self.on_commit is None:
            self.on_commit = []
        self.on_commit += calls

    def committed(self) -> None:
        """Call what is to be called after the commit."""
        for said in self.on_commit or ():
            said()


class Message(NamedTuple):
    """A message read back. `head` may still have a MsgId of NULs and blank times: see `descriptor.complete`."""

    token: int
    head: bytes
    body: bytes
    put_time: int
    backout: int
    expiry: int
