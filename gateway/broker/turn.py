"""The open batch: everything that arrived since the last commit was started, as columns of one unit of work.

While a commit runs the next turn fills by itself; there is no timer and no tuned delay. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.broker.moving import InRuns
from gateway.ports.batch import Moves, Puts, Replace, Takes, Token, Unit
from gateway.ports.counters import DeadLetterReason
from gateway.ports.state_queues import STAGED, WILLS

if TYPE_CHECKING:
    Released = tuple["Session", int, Token]
    """A staged QoS 2 message that is released: whose, its packet id, its token on the queue of staged messages."""
    Stretch = tuple[int, "Session", list[int], list[Token]]
    """Several of one session in rows one behind the other: the first row, whose, their packet ids, their tokens."""
    from gateway.broker.deliver.handover import Source
    from gateway.broker.publish.route import Policy
    from gateway.broker.refused.parking import Parked
    from gateway.session.connection import Connection
    from gateway.session.outflow import Item
    from gateway.session.publication import Publication
    from gateway.session.session import Session

Run = tuple[str, str, int, bool, bytes, bool, bool]
"""Destination of a run of puts: queue, queue manager, priority, persistent, key, under syncpoint, retained."""
_first = itemgetter(0)
Row = tuple[Run, int]
"""A run and the number of a row in it."""


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


class Turn:
    """One batch on its way to a commit."""

    __slots__ = (
        "_released", "after", "aims", "answered", "behind", "causes", "contributors", "deliveries", "fanned", "held",
        "joint", "moves", "opened", "parked", "pending", "replaces", "replies", "rows", "runs", "segmented",
        "sources", "staged", "started", "stretches", "takes", "targets", "unanswered", "wills",
    )  # fmt: skip

    def __init__(self) -> None:
        self.runs: dict[Run, Puts] = {}
        self.targets: dict[Run, Policy] = {}
        """The rule a run came from first, for what to do when its queue refuses."""
        self.aims: dict[Run, list[tuple[int, Policy]]] = {}
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
        self.held = InRuns()
        """Those of them that are staged in runs, and what is released of such."""
        self.fanned: dict[Released, Publication | None] = {}
        """Releases that reach local subscribers with this turn, even if their queue has to be waited for."""
        self.contributors: dict[Run, set[Connection]] = {}
        """Whose publications of QoS 1 and 2 are in a run: who waits for it if its queue refuses."""
        self.unanswered: dict[Run, set[Connection]] = {}
        """Whose publications of QoS 0 are in a run: nobody waits for these."""
        self.stretches: dict[Run, list[Stretch]] = {}
        """The staged QoS 2 messages whose release is in a run, as long as nobody has asked for a row."""
        self._released: dict[Run, dict[int, Released]] = {}
        self.causes: dict[Run, dict[int, Cause]] = {}
        """Why rows are dead-lettered: they are counted when that is committed."""
        self.sources: dict[Run, dict[int, tuple[Source, Token]]] = {}
        """Rows that came from a queue: if they cannot be put, the message stays there."""
        self.wills: dict[Run, dict[int, WaitingWill]] = {}
        """Rows that are wills: what is kept of them if their queue has to be waited for."""
        self.segmented: set[Run] = set()
        """Runs with messages that were cut into segments: not every row is a message there."""
        self.joint: list[Joint] = []
        """Publications with several destinations."""
        self.behind: dict[Run, list[Joint]] = {}
        """Publications that line up behind what waits for a run, though it is not (only) theirs."""
        self.parked: Parked | None = None
        """Set when this turn is the next attempt of what was parked."""
        self.rows = 0
        self.opened = 0.0
        """When the first bytes for this turn were read."""
        self.started = 0.0
        """When it was submitted."""

    def __bool__(self) -> bool:
        return bool(
            self.replies
            or self.runs
            or self.deliveries
            or self.after
            or self.takes
            or self.replaces
            or self.moves
            or self.held
        )

    def run(self, run: Run) -> Puts:
        """The open run for a destination."""
        puts = self.runs.get(run)
        if puts is None:
            queue, queue_manager, priority, persistent, key, syncpoint, retain = run
            puts = Puts(queue, queue_manager, key, priority, persistent, syncpoint=syncpoint, retain=retain)
            self.runs[run] = puts
        return puts

    def aim(self, run: Run, policy: Policy) -> None:
        """What is put to a run from now on is this rule's."""
        first = self.targets.setdefault(run, policy)
        changes = self.aims.get(run)
        known = changes[-1][1] if changes else first
        if known is not policy and known != policy:
            self.aims.setdefault(run, []).append((len(self.run(run).heads), policy))

    def policy(self, row: Row) -> Policy:
        """The rule a row came from."""
        run, number = row
        changes = self.aims.get(run)
        before = bisect_right(changes, number, key=_first) if changes else 0
        return changes[before - 1][1] if changes and before else self.targets[run]

    def policies(self, run: Run) -> list[tuple[Policy, int]]:
        """The rules a run came from, in order, each with the number of its rows there."""
        if run not in self.aims:
            return [(self.targets[run], len(self.runs[run].heads))]
        changes = [(0, self.targets[run]), *self.aims[run]]
        ends = [first for first, _ in changes[1:]] + [len(self.runs[run].heads)]
        return [(policy, end - first) for (first, policy), end in zip(changes, ends, strict=True)]

    def staging(self, session: Session) -> tuple[Puts, list[int]]:
        """The open run of what a session stages, and the packet ids of its rows."""
        found = self.staged.get(session)
        if found is None:
            found = self.staged[session] = (self.run((STAGED, "", 0, True, session.key, True, False)), [])
        return found

    @property
    def released(self) -> dict[Run, dict[int, Released]]:
        """The staged QoS 2 messages whose release is in a run, by row. Only failures ask for that."""
        for run, stretches in self.stretches.items():
            rows = self._released.setdefault(run, {}) if stretches else {}
            for first, session, ids, tokens in stretches:
                rows.update(enumerate(zip(repeat(session), ids, tokens), first))
            stretches.clear()
        return self._released

    def releasing(self, run: Run) -> list[Stretch]:
        """The stretches of a run, to be added to."""
        return self.stretches.setdefault(run, [])

    def releases(self, run: Run) -> int:
        """How many staged messages a run releases."""
        if not (self.stretches or self._released):
            return 0
        stretches = self.stretches.get(run, ())
        return len(self._released.get(run, ())) + sum(len(ids) for _, _, ids, _ in stretches)

    def contribute(self, run: Run, connection: Connection, qos: int = 1) -> None:
        """A connection has a publication in a run."""
        column = self.contributors if qos else self.unanswered
        owners = column.get(run)
        if owners is None:
            column[run] = {connection}
        else:
            owners.add(connection)

    def put(self, run: Run, head: bytes, body: bytes) -> Row:
        """One message (the hot path appends to the columns itself)."""
        puts = self.run(run)
        puts.heads.append(head)
        puts.bodies.append(body)
        self.rows += 1
        return run, len(puts.heads) - 1

    def rewrite(self, run: Run, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row] | None = None) -> int:
        """Row `i` of a run becomes `parts[i]`: itself, nothing, or several; those in `elsewhere` are another row now.
        What is known of the rows goes with them. How many rows fewer there are in the run."""
        puts = self.runs[run]
        firsts = list(accumulate(map(len, parts), initial=0))
        # new lists: a backend may keep those of rows that it has placed
        puts.heads = [head for part in parts for head, _ in part]
        puts.bodies = [body for part in parts for _, body in part]
        fewer = len(parts) - firsts[-1]
        self.rows -= fewer
        places = {row: [(run, at) for at in range(firsts[row], firsts[row + 1])] for row in range(len(parts))}
        for row, place in (elsewhere or {}).items():
            places[row] = [place]
        if run in self.aims:
            self.aims[run] = [(firsts[first], policy) for first, policy in self.aims[run]]
        for joint in self.joint:
            joint.rows[:] = [place for row in joint.rows for place in (places[row[1]] if row[0] == run else (row,))]
        known: Iterable[dict[Run, dict[int, Any]]] = (self.released, self.causes, self.sources, self.wills)
        for column in known:
            for row, mark in column.pop(run, {}).items():
                for where, at in places[row][:1]:
                    column.setdefault(where, {})[at] = mark
        if not puts.heads:
            del self.runs[run]
        return fewer

    def without(self, run: Run, rows: Collection[int], elsewhere: dict[int, Row] | None = None) -> None:
        """Take rows out of a run."""
        columns = enumerate(zip(self.runs[run].heads, self.runs[run].bodies, strict=True))
        self.rewrite(run, [[] if row in rows else [message] for row, message in columns], elsewhere)

    def tied(self, runs: Collection[Run], joints: Iterable[Joint] = ()) -> dict[Run, set[int]]:
        """The rows that go with some runs: all of theirs, and the others of publications that have a row in them."""
        rows = {run: set(range(len(self.runs[run].heads))) for run in runs}
        for joint in (*self._joint_with(runs), *joints):
            for run, row in joint.rows:
                rows.setdefault(run, set()).add(row)
        return rows

    def _joint_with(self, runs: Collection[Run]) -> list[Joint]:
        return [joint for joint in self.joint if any(run in runs for run, _ in joint.rows)]

    def split(self, into: Turn, runs: Collection[Run], joints: Sequence[Joint] = ()) -> None:
        """Runs and publications go into another turn, with the rows that are tied to them and the staged messages
        they release."""
        going = self.tied(runs, joints)
        places: dict[Row, Row] = {}
        into.segmented |= self.segmented.intersection(going)
        for run, rows in going.items():
            puts = self.runs[run]
            for row in sorted(rows):
                into.aim(run, self.policy((run, row)))
                places[run, row] = into.put(run, puts.heads[row], puts.bodies[row])
        for joint in {id(joint): joint for joint in (*self._joint_with(runs), *joints)}.values():
            into.joint.append(Joint([places[row] for row in joint.rows], joint.connection))
            joint.rows.clear()
            if joint.connection is not None:
                for run, _ in into.joint[-1].rows:
                    into.contribute(run, joint.connection)
        self.joint = [joint for joint in self.joint if joint.rows]
        for run in runs:
            for connection in self.contributors.pop(run, ()):
                into.contribute(run, connection)
            for connection in self.unanswered.pop(run, ()):
                into.contribute(run, connection, 0)
        self._carry_marks(places, into)
        for run, rows in going.items():
            self.without(run, rows)

    def _carry_marks(self, places: dict[Row, Row], into: Turn) -> None:
        for (run, row), (where, at) in places.items():
            released = self.released.get(run, {}).pop(row, None)
            if released is not None:
                into.released.setdefault(where, {})[at] = released
                self._hand_over(released, into)
            cause = self.causes.get(run, {}).pop(row, None)
            if cause is not None:
                into.causes.setdefault(where, {})[at] = cause
            will = self.wills.get(run, {}).pop(row, None)
            if will is not None:
                into.wills.setdefault(where, {})[at] = will
                self.replace(WILLS, will.key, will.record)
                into.replace(WILLS, will.key, None)

    def _hand_over(self, released: Released, into: Turn) -> None:
        """The staged message leaves its queue with the other turn."""
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
        """One state message; the last word within a turn counts."""
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
            [puts for puts in self.runs.values() if puts.heads],
            [takes for takes in self.takes.values() if takes.tokens] if self.takes else [],
            list(self.moves),
            list(self.replaces.values()),
        )
        if self.held:
            self.held.ask_for(unit, STAGED)
        return unit
