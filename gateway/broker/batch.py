"""The open batch: everything that arrived since the last commit was started, as columns of one unit of work.

While a commit runs the next batch fills by itself; there is no timer and no tuned delay. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.ports.batch import Address, Moves, Puts, Replace, Takes, Token, Unit
from gateway.ports.counters import DeadLetterReason
from gateway.ports.state_queues import STAGED, WILLS

if TYPE_CHECKING:
    from gateway.broker.deliver.handover import Source
    from gateway.broker.publish.route import Policy
    from gateway.broker.refused.parking import Parked
    from gateway.session.connection import Connection
    from gateway.session.outflow import Item
    from gateway.session.publication import Publication
    from gateway.session.session import Session
    from gateway.session.staged_run import StagedRun

    Released = tuple[Session, int, Token]
    """A staged QoS 2 message that is released: whose, its packet id, its token on the queue of staged messages."""
    ReleasedRows = tuple[int, Session, list[int], list[Token]]
    """Consecutive rows released by one session: the first row, the session, packet identifiers, tokens. A plain tuple:
    the compiled fast lane makes it."""

_first = itemgetter(0)

Row = tuple[Address, int]
"""An address and the number of a row put there."""


class Cause(NamedTuple):
    """Why a row is on the dead-letter queue."""

    rule: str
    reason: DeadLetterReason
    qos: int


class WaitingWill(NamedTuple):
    """What the state queue says of a will whose message has to wait for its queue."""

    key: bytes
    record: bytes


class Joint(NamedTuple):
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
        """Add it to a unit of work."""
        unit.puts += [puts for puts, _ in self.staged.values()]
        for session, several in self.moves.items():
            for one in several:
                to_queue, manager, priority = one.run.address[:3]
                longest = len(one.run.head) + one.run.longest
                moves = Moves(
                    STAGED, session.key, one.tokens, to_queue, manager, to_priority=priority, longest=longest
                )  # fmt: skip
                unit.moves.append(moves)


class Batch:
    """One batch on its way to a commit."""

    __slots__ = (
        "_released", "after", "aims", "answered", "behind", "causes", "contributors", "deliveries", "fanned",
        "joint", "moves", "opened", "parked", "pending", "puts", "released_rows", "replaces", "replies", "rows",
        "run_changes", "segmented", "sources", "staged", "started", "takes", "targets", "unanswered", "wills",
    )  # fmt: skip

    def __init__(self) -> None:
        self.puts: dict[Address, Puts] = {}
        self.targets: dict[Address, Policy] = {}
        """The rule a run came from first, for what to do when its queue refuses."""
        self.aims: dict[Address, list[tuple[int, Policy]]] = {}
        """Where several rules put to one run: from which row on it is another one's."""
        self.takes: dict[tuple[str, bytes], Takes] = {}
        self.moves: list[Moves] = []
        self.replaces: dict[tuple[str, bytes], Replace] = {}
        self.replies: dict[Connection, list[bytes]] = {}
        """What is sent when the commit has returned, by connection, in order."""
        self.answered = [0] * 16
        """The packets among them, by type."""
        self.pending: dict[Connection, int] = {}
        """QoS 1 publications to be taken off the connection's Receive Maximum by then."""
        self.after: list[Callable[[], None]] = []
        """What else is done when the commit has returned."""
        self.deliveries: list[tuple[Session, list[Item], Puts | None, int]] = []
        """What local sessions get then, in order; for a durable session with the first of the rows that store it."""
        self.staged: dict[Session, tuple[Puts, list[int]]] = {}
        """QoS 2 publications: the run of rows that hold them until their PUBREL, and the packet id of each row."""
        self.run_changes = RunChanges()
        """Those of them that are staged in runs, and what is released of such."""
        self.fanned: dict[Released, Publication | None] = {}
        """Releases that reach local subscribers with this batch, even if their queue has to be waited for."""
        self.contributors: dict[Address, set[Connection]] = {}
        """Whose publications of QoS 1 and 2 are in a run: who waits for it if its queue refuses."""
        self.unanswered: dict[Address, set[Connection]] = {}
        """Whose publications of QoS 0 are in a run: nobody waits for these."""
        self.released_rows: dict[Address, list[ReleasedRows]] = {}
        """The staged QoS 2 messages whose release is in a run, as long as nobody has asked for a row."""
        self._released: dict[Address, dict[int, Released]] = {}
        self.causes: dict[Address, dict[int, Cause]] = {}
        """Why rows are dead-lettered: they are counted when that is committed."""
        self.sources: dict[Address, dict[int, tuple[Source, Token]]] = {}
        """Rows that came from a queue: if they cannot be put, the message stays there."""
        self.wills: dict[Address, dict[int, WaitingWill]] = {}
        """Rows that are wills: what is kept of them if their queue has to be waited for."""
        self.segmented: set[Address] = set()
        """Runs with messages that were cut into segments: not every row is a message there."""
        self.joint: list[Joint] = []
        """Publications with several destinations."""
        self.behind: dict[Address, list[Joint]] = {}
        """Publications that line up behind what waits for a run, though it is not (only) theirs."""
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
            or self.puts
            or self.deliveries
            or self.after
            or self.takes
            or self.replaces
            or self.moves
            or self.run_changes
        )

    def puts_to(self, address: Address) -> Puts:
        """The puts to a destination, to be added to."""
        puts = self.puts.get(address)
        if puts is None:
            queue, queue_manager, priority, persistent, key, syncpoint, retain = address
            puts = Puts(queue, queue_manager, key, priority, persistent, syncpoint=syncpoint, retain=retain)
            self.puts[address] = puts
        return puts

    def state_puts(self, queue: str, key: bytes, priority: int = 0) -> Puts:
        """The puts to a queue of the gateway's own state. An address is only made for the first of them."""
        found = self.puts.get((queue, "", priority, True, key, True, False))  # type: ignore[call-overload]
        return self.puts_to(Address.state(queue, key, priority)) if found is None else found

    def aim(self, address: Address, policy: Policy) -> None:
        """What is put to a run from now on is this rule's."""
        first = self.targets.setdefault(address, policy)
        changes = self.aims.get(address)
        known = changes[-1][1] if changes else first
        if known is not policy and known != policy:
            self.aims.setdefault(address, []).append((len(self.puts_to(address).heads), policy))

    def policy(self, row: Row) -> Policy:
        """The rule a row came from."""
        address, number = row
        changes = self.aims.get(address)
        before = bisect_right(changes, number, key=_first) if changes else 0
        return changes[before - 1][1] if changes and before else self.targets[address]

    def policies(self, address: Address) -> list[tuple[Policy, int]]:
        """The rules a run came from, in order, each with the number of its rows there."""
        if address not in self.aims:
            return [(self.targets[address], len(self.puts[address].heads))]
        changes = [(0, self.targets[address]), *self.aims[address]]
        ends = [first for first, _ in changes[1:]] + [len(self.puts[address].heads)]
        return [(policy, end - first) for (first, policy), end in zip(changes, ends, strict=True)]

    def staging(self, session: Session) -> tuple[Puts, list[int]]:
        """The open run of what a session stages, and the packet ids of its rows."""
        found = self.staged.get(session)
        if found is None:
            found = self.staged[session] = (self.state_puts(STAGED, session.key), [])
        return found

    @property
    def released(self) -> dict[Address, dict[int, Released]]:
        """The staged QoS 2 messages whose release is in a run, by row. Only failures ask for that."""
        for address, released in self.released_rows.items():
            rows = self._released.setdefault(address, {}) if released else {}
            for first, session, ids, tokens in released:
                rows.update(enumerate(zip(repeat(session), ids, tokens), first))
            released.clear()
        return self._released

    def releasing(self, address: Address) -> list[ReleasedRows]:
        """The released rows at an address, to be added to."""
        return self.released_rows.setdefault(address, [])

    def releases(self, address: Address) -> int:
        """How many staged messages a run releases."""
        if not (self.released_rows or self._released):
            return 0
        released = self.released_rows.get(address, ())
        return len(self._released.get(address, ())) + sum(len(ids) for _, _, ids, _ in released)

    def contribute(self, address: Address, connection: Connection, qos: int = 1) -> None:
        """A connection has a publication in a run."""
        column = self.contributors if qos else self.unanswered
        owners = column.get(address)
        if owners is None:
            column[address] = {connection}
        else:
            owners.add(connection)

    def put(self, address: Address, head: bytes, body: bytes) -> Row:
        """One message (the hot path appends to the columns itself)."""
        puts = self.puts_to(address)
        puts.heads.append(head)
        puts.bodies.append(body)
        self.rows += 1
        return address, len(puts.heads) - 1

    def rewrite(
        self, address: Address, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row] | None = None
    ) -> int:
        """Row `i` of a run becomes `parts[i]`: itself, nothing, or several; those in `elsewhere` are another row now.
        What is known of the rows goes with them. How many rows fewer there are in the run."""
        puts = self.puts[address]
        firsts = list(accumulate(map(len, parts), initial=0))
        # new lists: a backend may keep those of rows that it has placed
        puts.heads = [head for part in parts for head, _ in part]
        puts.bodies = [body for part in parts for _, body in part]
        fewer = len(parts) - firsts[-1]
        self.rows -= fewer
        places = {row: [(address, at) for at in range(firsts[row], firsts[row + 1])] for row in range(len(parts))}
        for row, place in (elsewhere or {}).items():
            places[row] = [place]
        if address in self.aims:
            self.aims[address] = [(firsts[first], policy) for first, policy in self.aims[address]]
        for joint in self.joint:
            joint.rows[:] = [place for row in joint.rows for place in (places[row[1]] if row[0] == address else (row,))]
        known: Iterable[dict[Address, dict[int, Any]]] = (self.released, self.causes, self.sources, self.wills)
        for column in known:
            for row, mark in column.pop(address, {}).items():
                for where, at in places[row][:1]:
                    column.setdefault(where, {})[at] = mark
        if not puts.heads:
            del self.puts[address]
        return fewer

    def without(self, address: Address, rows: Collection[int], elsewhere: dict[int, Row] | None = None) -> None:
        """Take rows out of a run."""
        columns = enumerate(zip(self.puts[address].heads, self.puts[address].bodies, strict=True))
        self.rewrite(address, [[] if row in rows else [message] for row, message in columns], elsewhere)

    def tied(self, addresses: Collection[Address], joints: Iterable[Joint] = ()) -> dict[Address, set[int]]:
        """The rows that go with some runs: all of theirs, and the others of publications that have a row in them."""
        rows = {address: set(range(len(self.puts[address].heads))) for address in addresses}
        for joint in (*self._joint_with(addresses), *joints):
            for address, row in joint.rows:
                rows.setdefault(address, set()).add(row)
        return rows

    def _joint_with(self, addresses: Collection[Address]) -> list[Joint]:
        return [joint for joint in self.joint if any(address in addresses for address, _ in joint.rows)]

    def split(self, into: Batch, addresses: Collection[Address], joints: Sequence[Joint] = ()) -> None:
        """Runs and publications go into another batch, with the rows that are tied to them and the staged messages
        they release."""
        going = self.tied(addresses, joints)
        places: dict[Row, Row] = {}
        into.segmented |= self.segmented.intersection(going)
        for address, rows in going.items():
            puts = self.puts[address]
            for row in sorted(rows):
                into.aim(address, self.policy((address, row)))
                places[address, row] = into.put(address, puts.heads[row], puts.bodies[row])
        for joint in {id(joint): joint for joint in (*self._joint_with(addresses), *joints)}.values():
            into.joint.append(Joint([places[row] for row in joint.rows], joint.connection))
            joint.rows.clear()
            if joint.connection is not None:
                for address, _ in into.joint[-1].rows:
                    into.contribute(address, joint.connection)
        self.joint = [joint for joint in self.joint if joint.rows]
        for address in addresses:
            for connection in self.contributors.pop(address, ()):
                into.contribute(address, connection)
            for connection in self.unanswered.pop(address, ()):
                into.contribute(address, connection, 0)
        self._carry_marks(places, into)
        for address, rows in going.items():
            self.without(address, rows)

    def _carry_marks(self, places: dict[Row, Row], into: Batch) -> None:
        for (address, row), (where, at) in places.items():
            released = self.released.get(address, {}).pop(row, None)
            if released is not None:
                into.released.setdefault(where, {})[at] = released
                self._hand_over(released, into)
            cause = self.causes.get(address, {}).pop(row, None)
            if cause is not None:
                into.causes.setdefault(where, {})[at] = cause
            will = self.wills.get(address, {}).pop(row, None)
            if will is not None:
                into.wills.setdefault(where, {})[at] = will
                self.replace(WILLS, will.key, will.record)
                into.replace(WILLS, will.key, None)

    def _hand_over(self, released: Released, into: Batch) -> None:
        """The staged message leaves its queue with the other batch."""
        session, _, token = released
        takes = self.takes.get((STAGED, session.key))
        if takes is not None and token in takes.tokens:
            takes.tokens.remove(token)
            into.take(STAGED, session.key, token)

    def take(self, queue: str, key: bytes, token: Token) -> None:
        """One message to be removed."""
        self.taken(queue, key).append(token)

    def taken(self, queue: str, key: bytes) -> list[Token]:
        """The messages to be removed from a queue, to be added to."""
        takes = self.takes.get((queue, key))
        if takes is None:
            takes = self.takes[queue, key] = Takes(queue, key, [])
        return takes.tokens

    def replace(self, queue: str, key: bytes, body: bytes | None) -> None:
        """One state message; the last word within a batch counts."""
        self.replaces[queue, key] = Replace(queue, key, body)

    def reply(self, connection: Connection, data: bytes) -> None:
        """A packet that may exist only when the commit has returned (design decision 1)."""
        self.answered[data[0] >> 4] += 1
        replies = self.replies.get(connection)
        if replies is None:
            self.replies[connection] = [data]
        else:
            replies.append(data)

    def unit(self) -> Unit:
        """What the queue manager is asked to commit."""
        unit = Unit(
            [puts for puts in self.puts.values() if puts.heads],
            [takes for takes in self.takes.values() if takes.tokens] if self.takes else [],
            list(self.moves),
            list(self.replaces.values()),
        )
        if self.run_changes:
            self.run_changes.add_to(unit)
        return unit
