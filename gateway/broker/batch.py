"""The open batch: everything that arrived since the last commit was started, as columns of one unit of work.

While a commit runs the next batch fills by itself; there is no timer and no tuned delay. What is put to one address is
a `Destination`: its messages, and all that has to be remembered of them in case its queue refuses. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.ports.batch import Address, Moves, Puts, Replace, Scheduler, Takes, Token, Unit
from gateway.ports.counters import DeadLetterReason
from gateway.ports.state_queues import STAGED, WILLS

if TYPE_CHECKING:
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection
    from gateway.session.outflow import Item
    from gateway.session.publication import Publication
    from gateway.session.session import Session
    from gateway.session.staged_run import StagedRun

    Released = tuple[Session, int, Token]
    """A staged QoS 2 message that is released: its session, packet identifier, and token on the queue of staged
    messages."""
    ReleasedRows = tuple[int, Session, list[int], list[Token]]
    """Consecutive rows released by one session: the first row, the session, packet identifiers, tokens. A plain tuple:
    the compiled fast lane makes it."""

_first = itemgetter(0)


class Cause(NamedTuple):
    """Why a row is on the dead-letter queue."""

    rule: str
    reason: DeadLetterReason
    qos: int


class WaitingWill(NamedTuple):
    """What the state queue says of a will whose message has to wait for its queue."""

    key: bytes
    record: bytes


class SourceQueue(Protocol):
    """A queue that messages for devices come from."""

    queue: str
    key: bytes

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """A message can neither be delivered nor dead-lettered: it stays, and the queue is not read for a moment."""


class Mark(NamedTuple):
    """What is remembered about one row."""

    released: Released | None = None
    """The staged QoS 2 message that it releases."""
    cause: Cause | None = None
    """Why it is dead-lettered: counted when that is committed."""
    source: tuple[SourceQueue, Token] | None = None
    """The queue that it came from: if it cannot be put, the message stays there."""
    will: WaitingWill | None = None
    """What is kept of it if its queue has to be waited for, as it is a will."""

    def updated(self, other: Mark) -> Mark:
        """This mark, with what the other says where it says something."""
        return Mark(
            other.released or self.released, other.cause or self.cause, other.source or self.source,
            other.will or self.will,
        )  # fmt: skip


class Destination:
    """What a batch puts to one address."""

    __slots__ = (
        "_marks", "address", "contributors", "policies", "puts", "released_rows", "segmented", "unanswered",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy) -> None:
        self.address = address
        queue, queue_manager, priority, persistent, syncpoint, retain = address
        self.puts = Puts(queue, queue_manager, b"", priority, persistent, syncpoint=syncpoint, retain=retain)
        """The fast and the plain lane append to its columns directly."""
        self.policies = [(0, policy)]
        """The policies of the rules that put here, each with its first row."""
        self.contributors: set[Connection] = set()
        """Who has a publication of QoS 1 or 2 here, and waits if the queue refuses."""
        self.unanswered: set[Connection] = set()
        """Who has a publication of QoS 0 here, and waits for nothing."""
        self.released_rows: list[ReleasedRows] = []
        """Rows that release staged messages, as they were noted; `marks` has them one by one."""
        self._marks: dict[int, Mark] = {}
        self.segmented = False
        """Whether messages were cut into segments here: not every row is a message then."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.puts.heads)

    # -- rules --

    def aim(self, policy: Policy) -> None:
        """Note that what is appended from now on is put by the rule with this policy."""
        last = self.policies[-1][1]
        if last is not policy and last != policy:
            self.policies.append((len(self.puts.heads), policy))

    def policy(self, row: int) -> Policy:
        """The policy of the rule that put a row."""
        policies = self.policies
        return policies[bisect_right(policies, row, key=_first) - 1 if len(policies) > 1 else 0][1]

    def rows_by_policy(self) -> list[tuple[Policy, int]]:
        """The policies of the rules that put here, in order, each with the number of its rows."""
        ends = [first for first, _ in self.policies[1:]] + [self.rows]
        return [(policy, end - first) for (first, policy), end in zip(self.policies, ends, strict=True)]

    # -- who waits --

    def contribute(self, connection: Connection, qos: int = 1) -> None:
        """Note that a connection has a publication here."""
        (self.contributors if qos else self.unanswered).add(connection)

    # -- rows --

    @property
    def plain(self) -> bool:
        """Whether all rows are whole messages of one rule, and nothing is remembered about any."""
        return not (self.released_rows or self._marks or self.segmented) and len(self.policies) == 1

    @property
    def marks(self) -> dict[int, Mark]:
        """What is remembered about rows, by row. Nothing asks for it unless something fails."""
        if self.released_rows:
            for first, session, ids, tokens in self.released_rows:
                for row, released in enumerate(zip(repeat(session), ids, tokens), first):
                    self.mark(row, Mark(released))
            self.released_rows.clear()
        return self._marks

    def mark(self, row: int, mark: Mark) -> None:
        """Add to what is remembered about a row."""
        known = self._marks.get(row)
        self._marks[row] = mark if known is None else known.updated(mark)

    @property
    def dead_letters(self) -> list[int]:
        """The rows that are dead letters; found without a mark for each row that releases a staged message."""
        return [row for row, mark in self._marks.items() if mark.cause is not None]

    @property
    def releases(self) -> int:
        """How many staged messages are released here."""
        count = sum(len(ids) for _, _, ids, _ in self.released_rows)
        return count + sum(mark.released is not None for mark in self._marks.values()) if self._marks else count

    def rewrite(self, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row]) -> list[int]:
        """Replace row `i` by `parts[i]`: itself, nothing, or several rows. Those in `elsewhere` have become a row of
        another destination. What is remembered about rows goes with them. Returns the new number of each row."""
        puts, marks = self.puts, self.marks
        firsts = list(accumulate(map(len, parts), initial=0))
        # new lists: a backend may keep those of rows that it has placed
        puts.heads = [head for part in parts for head, _ in part]
        puts.bodies = [body for part in parts for _, body in part]
        self.policies = [(firsts[first], policy) for first, policy in self.policies]
        self._marks = {}
        for row, mark in marks.items():
            if row in elsewhere:
                destination, at = elsewhere[row]
                destination.mark(at, mark)
            elif parts[row]:
                self._marks[firsts[row]] = mark
        return firsts


Row = tuple[Destination, int]
"""A destination and the number of a row there."""


class LinkedRows(NamedTuple):
    """A publication with several destinations: all of its rows are committed together, or none."""

    rows: list[Row]
    connection: Connection | None


class Move(NamedTuple):
    """Consecutive messages of a staged run that are moved to their queue."""

    run: StagedRun
    first: int
    rows: int
    policy: Policy
    connection: Connection

    @property
    def tokens(self) -> Sequence[Token]:
        """Of these messages."""
        return self.run.tokens[self.first : self.first + self.rows]

    @property
    def bodies(self) -> list[bytes]:
        """Of these messages."""
        return self.run.bodies[self.first : self.first + self.rows]

    @property
    def size(self) -> int:
        """Bytes of these messages."""
        run = self.run
        bodies = run.size if self.rows == len(run.ids) else sum(map(len, self.bodies))
        return bodies + self.rows * len(run.head)


class RunChanges:
    """Runs of QoS 2 publications that a batch stages, and those of staged runs that it moves to their queues."""

    __slots__ = ("moves", "staged")

    def __init__(self) -> None:
        self.staged: dict[Session, tuple[Puts, list[StagedRun]]] = {}
        self.moves: dict[Session, list[Move]] = {}
        """In order."""

    def __bool__(self) -> bool:
        return bool(self.staged or self.moves)

    def add_to(self, unit: Unit) -> None:
        """Add them to a unit of work."""
        unit.puts += [puts for puts, _ in self.staged.values()]
        for session, moves in self.moves.items():
            for move in moves:
                to_queue, manager, priority = move.run.address[:3]
                longest = len(move.run.head) + move.run.longest
                tokens = move.tokens
                moved = Moves(
                    STAGED, session.key, tokens, to_queue, manager, to_priority=priority, longest=longest
                )  # fmt: skip
                unit.moves.append(moved)


class Batch:
    """One batch on its way to a commit."""

    __slots__ = (
        "after", "answered", "deliveries", "destinations", "fanned", "linked", "opened", "parked", "pending",
        "queued_after", "replaces", "replies", "rows", "run_changes", "staged", "started", "state", "takes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.destinations: dict[Address, Destination] = {}
        self.state: dict[tuple[str, bytes, int], Puts] = {}
        """What is put to the gateway's own state, by queue, key and priority. It is never parked."""
        self.takes: dict[tuple[str, bytes], Takes] = {}
        self.replaces: dict[tuple[str, bytes], Replace] = {}
        self.replies: dict[Connection, list[bytes]] = {}
        """What is sent when the commit has returned, by connection, in order."""
        self.answered = [0] * 16
        """The packets among them, by type."""
        self.pending: dict[Connection, int] = {}
        """QoS 1 publications that take room of the connection's Receive Maximum until then."""
        self.after: list[Callable[[], None]] = []
        """What else is done when the commit has returned."""
        self.deliveries: list[tuple[Session, list[Item], Puts | None, int]] = []
        """What local sessions get then, in order; for a durable session with the first of the rows that store it."""
        self.staged: dict[Session, tuple[Puts, list[int]]] = {}
        """QoS 2 publications: the rows that store them until their PUBREL, and the packet identifier of each."""
        self.run_changes = RunChanges()
        """QoS 2 publications that are staged in runs, and what is released of such."""
        self.fanned: dict[Released, Publication | None] = {}
        """Releases that reach local subscribers with this batch, even if their queue has to be waited for."""
        self.linked: list[LinkedRows] = []
        """Publications with several destinations."""
        self.queued_after: dict[Address, list[LinkedRows]] = {}
        """Publications that queue up after what waits for an address, though it is not (only) theirs."""
        self.parked: Parked | None = None
        """Set when this batch is the next attempt of what was parked."""
        self.rows = 0
        self.opened = 0.0
        """When the first bytes for this batch were read."""
        self.started = 0.0
        """When it was submitted."""

    def __bool__(self) -> bool:
        return bool(
            self.replies
            or self.destinations
            or self.state
            or self.deliveries
            or self.after
            or self.takes
            or self.replaces
            or self.run_changes
        )

    # -- what is put --

    def destination(self, address: Address, policy: Policy) -> Destination:
        """The destination with an address, for messages of the rule with this policy."""
        destination = self.destinations.get(address)
        if destination is None:
            destination = self.destinations[address] = Destination(address, policy)
        else:
            destination.aim(policy)
        return destination

    def state_puts(self, queue: str, key: bytes, priority: int = 0) -> Puts:
        """The puts to a queue of the gateway's own state, to be added to."""
        puts = self.state.get((queue, key, priority))
        if puts is None:
            puts = self.state[queue, key, priority] = Puts(queue, "", key, priority)
        return puts

    def put(self, address: Address, policy: Policy, head: bytes, body: bytes) -> Row:
        """Put one message of a rule. The fast and the plain lane append to the columns themselves."""
        destination = self.destination(address, policy)
        destination.puts.heads.append(head)
        destination.puts.bodies.append(body)
        self.rows += 1
        return destination, destination.rows - 1

    def put_state(self, queue: str, key: bytes, head: bytes, body: bytes) -> None:
        """Put one message on a queue of the gateway's own state."""
        puts = self.state_puts(queue, key)
        puts.heads.append(head)
        puts.bodies.append(body)
        self.rows += 1

    def staging(self, session: Session) -> tuple[Puts, list[int]]:
        """The puts that store what a session stages, and the packet identifiers of their rows."""
        found = self.staged.get(session)
        if found is None:
            found = self.staged[session] = (self.state_puts(STAGED, session.key), [])
        return found

    # -- failures --

    def rewrite(
        self, destination: Destination, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row] | None = None
    ) -> int:
        """Rewrite a destination, and what refers to its rows; returns how many rows fewer there are."""
        places = elsewhere or {}
        firsts = destination.rewrite(parts, places)

        def now(row: Row) -> Iterable[Row]:
            number = row[1]
            if row[0] is not destination:
                return (row,)
            if number in places:
                return (places[number],)
            return ((destination, at) for at in range(firsts[number], firsts[number + 1]))

        for link in self.linked:
            link.rows[:] = [place for row in link.rows for place in now(row)]
        if not destination.rows:
            del self.destinations[destination.address]
        fewer = len(parts) - firsts[-1]
        self.rows -= fewer
        return fewer

    def without(self, destination: Destination, rows: Collection[int], elsewhere: dict[int, Row] | None = None) -> None:
        """Remove rows from a destination."""
        columns = enumerate(zip(destination.puts.heads, destination.puts.bodies, strict=True))
        self.rewrite(destination, [[] if row in rows else [message] for row, message in columns], elsewhere)

    def with_linked(
        self, destinations: Collection[Destination], links: Iterable[LinkedRows] = ()
    ) -> dict[Destination, set[int]]:
        """All rows of some destinations, and the others of publications that have a row there, or are among `links`."""
        rows = {destination: set(range(destination.rows)) for destination in destinations}
        for link in (*self._links(destinations), *links):
            for destination, row in link.rows:
                rows.setdefault(destination, set()).add(row)
        return rows

    def _links(self, destinations: Collection[Destination]) -> Iterator[LinkedRows]:
        return (link for link in self.linked if any(destination in destinations for destination, _ in link.rows))

    def move_to(self, into: Batch, destinations: Collection[Destination], links: Sequence[LinkedRows] = ()) -> None:
        """Move destinations and publications into another batch, with the rows that are linked to them and the takes of
        the staged messages they release."""
        going = self.with_linked(destinations, links)
        links = list({id(link): link for link in (*self._links(destinations), *links)}.values())
        places: dict[Row, Row] = {}
        for destination, rows in going.items():
            if destination in destinations and destination.address not in into.destinations:
                self._move_whole(into, destination)
            else:
                places |= self._copy_rows(into, destination, sorted(rows))
                if destination in destinations:
                    target = into.destinations[destination.address]
                    target.contributors |= destination.contributors
                    target.unanswered |= destination.unanswered
        for link in links:
            moved = LinkedRows([places.get(row, row) for row in link.rows], link.connection)
            into.linked.append(moved)
            link.rows.clear()
            if link.connection is not None:
                for destination, _ in moved.rows:
                    destination.contribute(link.connection)
        self.linked = [link for link in self.linked if link.rows]
        for destination, rows in going.items():
            if self.destinations.get(destination.address) is destination:
                self.without(destination, rows)

    def _move_whole(self, into: Batch, destination: Destination) -> None:
        into.destinations[destination.address] = self.destinations.pop(destination.address)
        into.rows += destination.rows
        self.rows -= destination.rows
        for mark in destination.marks.values():
            self._hand_over(mark, into)

    def _copy_rows(self, into: Batch, source: Destination, rows: list[int]) -> dict[Row, Row]:
        """Append rows to the other batch's destination with the same address; which has become which."""
        places: dict[Row, Row] = {}
        for row in rows:
            head, body = source.puts.heads[row], source.puts.bodies[row]
            target, at = places[source, row] = into.put(source.address, source.policy(row), head, body)
            mark = source.marks.pop(row, None)
            if mark is not None:
                target.mark(at, mark._replace(source=None))
                self._hand_over(mark, into)
        into.destinations[source.address].segmented |= source.segmented
        return places

    def _hand_over(self, mark: Mark, into: Batch) -> None:
        """Have the other batch take the staged message that a row releases off its queue; a will is kept until then."""
        if mark.released is not None:
            session, _, token = mark.released
            takes = self.takes.get((STAGED, session.key))
            if takes is not None and token in takes.tokens:
                takes.tokens.remove(token)
                into.take(STAGED, session.key, token)
        if mark.will is not None:
            self.replace(WILLS, mark.will.key, mark.will.record)
            into.replace(WILLS, mark.will.key, None)

    def rename_released(self, released: Released, anew: Released) -> None:
        """Note that a staged message has been stored again, under another token."""
        for destination in self.destinations.values():
            for row, mark in destination.marks.items():
                if mark.released == released:
                    destination.mark(row, Mark(anew))

    # -- what else is part of the unit of work --

    def take(self, queue: str, key: bytes, token: Token) -> None:
        """Remove one message from a queue."""
        self.taken(queue, key).append(token)

    def taken(self, queue: str, key: bytes) -> list[Token]:
        """The messages to be removed from a queue, to be added to."""
        takes = self.takes.get((queue, key))
        if takes is None:
            takes = self.takes[queue, key] = Takes(queue, key, [])
        return takes.tokens

    def replace(self, queue: str, key: bytes, body: bytes | None) -> None:
        """Replace one state message; the last replacement in a batch counts."""
        self.replaces[queue, key] = Replace(queue, key, body)

    def reply(self, connection: Connection, data: bytes) -> None:
        """Add a packet that may exist only when the commit has returned (design decision 1)."""
        self.answered[data[0] >> 4] += 1
        replies = self.replies.get(connection)
        if replies is None:
            self.replies[connection] = [data]
        else:
            replies.append(data)

    def unit(self) -> Unit:
        """What the queue manager is asked to commit."""
        puts = [destination.puts for destination in self.destinations.values() if destination.puts.heads]
        puts += [puts for puts in self.state.values() if puts.heads]
        unit = Unit(
            puts,
            [takes for takes in self.takes.values() if takes.tokens] if self.takes else [],
            [],
            list(self.replaces.values()),
        )
        if self.run_changes:
            self.run_changes.add_to(unit)
        return unit


class Parked:
    """A parked destination with the rows that are linked to it: a unit of work of its own, tried again and again."""

    __slots__ = (
        "address", "batch", "connections", "count", "done", "inflight", "policy", "released", "since", "successor",
        "tries", "unanswered",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy, now: float) -> None:
        self.address = address
        self.policy = policy
        """Of the rule whose message was refused first: when to try again."""
        self.batch = Batch()
        self.batch.parked = self
        self.released: list[Released] = []
        self.connections: set[Connection] = set()
        self.tries = 0
        self.count = 0
        """Messages that wait in it."""
        self.unanswered = 0
        """Those of them for which nobody waits."""
        self.since = now
        self.inflight = False
        self.successor: Parked | None = None
        self.done = False
