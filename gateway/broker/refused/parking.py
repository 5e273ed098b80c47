"""Messages whose queue refuses for now wait here, so that one queue does not hold up the others. Pure.

A run of puts that was refused is taken out of its turn, with the QoS 2 releases that belong to it and with the other
destinations of publications that have one in it: those are one unit of work. Everything else of the turn is committed.
Later messages for the same destination line up behind it, and so does what a connection with such a publication sends
to its other destinations, so that order is kept. A connection with messages in it gets no further acknowledgement
before theirs, because acknowledgements come in the order of the publications [MQTT-4.6.0-2] [MQTT-4.6.0-3]: its own
window fills, nobody else's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gateway.broker import accounting
from gateway.broker.publish import qos2
from gateway.broker.refused import shedding
from gateway.broker.turn import Joint, Row, Run, Turn
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Policy
    from gateway.broker.turn import Released

MAX_ROWS = 20_000
"""So many waiting messages in all; beyond it nothing more is read."""
MAX_UNANSWERED = MAX_ROWS // 2
"""So many of them for which nobody waits (QoS 0); those beyond are dropped, and reading goes on."""


class Parked:
    """What waits for one destination: a unit of work of its own, tried again and again."""

    __slots__ = ("connections", "count", "done", "inflight", "released", "run", "since", "successor", "tries",
                 "turn", "unanswered")  # fmt: skip

    def __init__(self, run: Run, policy: Policy, now: float) -> None:
        self.run = run
        self.turn = Turn()
        self.turn.targets[run] = policy
        self.turn.parked = self
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


class Parking:
    """Everything that waits for a destination."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: dict[Run, Parked] = {}
        self.rows = 0
        self.unanswered = 0
        self.tied: dict[Connection, set[Run]] = {}
        """Connections with a publication of several destinations that waits, and for what."""
        self.deferred: dict[Connection, deque[tuple[list[Parked], bytes]]] = {}
        """What a connection is told when all that it waits for is committed, in order."""

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more may be read."""
        return self.rows >= MAX_ROWS

    def held(self) -> Counter[str]:
        """How many messages of each rule wait."""
        return Counter(
            accounting.rule_of(parked.turn, row)
            for parked in self._all()
            for run, puts in parked.turn.runs.items()
            for row in accounting.messages(parked.turn, ((run, number) for number in range(len(puts.heads))))
        )

    def _all(self) -> Iterator[Parked]:
        for first in self.waiting.values():
            parked: Parked | None = first
            while parked is not None:
                yield parked
                parked = parked.successor

    # -- coming --

    def park(self, turn: Turn, run: Run) -> None:
        """A run was refused: it waits, the rest of its turn goes on."""
        policy, parked = turn.targets[run], self.waiting.get(run)
        self._stay(turn, run)
        if run in turn.unanswered:
            shedding.shed(self.engine, turn, run, max(0, MAX_UNANSWERED - self.unanswered))
        if run not in turn.runs:
            return
        if parked is None:
            parked = self.waiting[run] = Parked(run, policy, self.engine.scheduler.now())
            parked.tries = 1
            self._later(parked, policy.retry_first)
        self._move(turn, self._open(parked), run)

    def _stay(self, turn: Turn, run: Run) -> None:
        """What came from a queue and cannot be put stays where it is: there is nothing to hold."""
        rows = turn.sources.pop(run, {})
        for row, (source, token) in rows.items():
            turn.takes[source.queue, source.key].tokens.remove(token)
            turn.causes.get(run, {}).pop(row, None)
            source.stay(self.engine, token)
        if rows:
            turn.without(run, rows)

    def join(self, turn: Turn) -> None:
        """New messages for destinations that are waited for line up behind those that wait."""
        for run, joints in turn.behind.items():
            if run in self.waiting:
                self._move(turn, self._open(self.waiting[run]), None, [joint for joint in joints if joint.rows])
        for run in [run for run in turn.runs if run in self.waiting]:
            if run in turn.runs:  # it may have gone with another one
                self.park(turn, run)

    def line_up(self, turn: Turn, connection: Connection | None, rows: list[Row]) -> None:
        """Rows of one publication. Those of several destinations belong together; where the connection has such a
        publication waiting for one of them, they go behind it."""
        runs = self.tied.get(connection, ()) if connection is not None else ()
        waiting = {run: self.waiting[run].turn.runs for run in runs if run in self.waiting}
        behind = next((run for run, those in waiting.items() if any(one in those for one, _ in rows)), None)
        if len(rows) > 1 or behind is not None:
            joint = Joint(rows, connection)
            turn.joint.append(joint)
            if behind is not None:
                turn.behind.setdefault(behind, []).append(joint)

    def _open(self, parked: Parked) -> Parked:
        """Where more can be added: what is under way has a successor."""
        if not parked.inflight:
            return parked
        if parked.successor is None:
            policy = parked.turn.targets[parked.run]
            parked.successor = Parked(parked.run, policy, self.engine.scheduler.now())
        return parked.successor

    def _move(self, turn: Turn, parked: Parked, run: Run | None, joints: Sequence[Joint] = ()) -> None:
        runs = () if run is None else (run,)
        contributors = set(turn.contributors.get(run, ())) if run is not None else set()
        going = [(one, row) for one, rows in turn.tied(runs, joints).items() for row in sorted(rows)]
        unanswered = 0 if run is None else sum(map(len, shedding.loose(turn, run).values()))
        releases = [turn.released[one][row] for one, row in going if row in turn.released.get(one, ())]
        accounting.received(self.engine.counters, turn, going)
        before = len(parked.turn.joint)
        turn.split(parked.turn, runs, joints)
        self._count(parked, len(going), unanswered)
        for released in dict.fromkeys(releases):
            parked.released.append(released)
            released[0].releasing.add(released[1])
            qos2.wait_for_queue(self.engine, turn, released, parked)
        joint = {one.connection for one in parked.turn.joint[before:] if one.connection is not None}
        for connection in contributors | joint:
            self._withhold(turn, parked, connection)
        for connection in joint:
            self.tied.setdefault(connection, set()).add(parked.run)
            self.engine.publishing.forget_routes(connection)

    def _withhold(self, turn: Turn, parked: Parked, connection: Connection) -> None:
        parked.connections.add(connection)
        pending = parked.turn.pending
        pending[connection] = pending.get(connection, 0) + turn.pending.pop(connection, 0)
        entries = self.deferred.setdefault(connection, deque())
        replies = turn.replies.pop(connection, None)
        if replies and not connection.greeted:  # its session is stored with what goes on
            turn.replies[connection] = [replies[0]]
            replies = replies[1:]
        if replies or not entries:
            entries.append(([parked], b"".join(replies or ())))
        else:  # what this turn has for it is there already, and waits for another destination too
            entries[-1][0].append(parked)

    # -- trying again --

    def _later(self, parked: Parked, wait: float) -> None:
        self.engine.scheduler.later(wait, lambda: self.retry(parked))

    def retry(self, parked: Parked) -> None:
        """Its time has come."""
        parked.inflight = True
        self.engine.first.append(parked.turn)
        self.engine.flush()

    def placed(self, parked: Parked, rows: int) -> None:
        """So many of its messages were put out of syncpoint, whatever becomes of the others."""
        self._count(parked, -rows, -rows)

    def _count(self, parked: Parked, rows: int, unanswered: int) -> None:
        parked.count += rows
        parked.unanswered += unanswered
        self.rows += rows
        self.unanswered += unanswered

    def refused(self, parked: Parked, wait: float) -> None:
        """Refused again: those that came meanwhile are behind it still."""
        parked.inflight = False
        parked.tries += 1
        successor, parked.successor = parked.successor, None
        if successor is not None:
            self._append(parked, successor)
        self._later(parked, wait)

    def _append(self, parked: Parked, successor: Parked) -> None:
        successor.turn.split(parked.turn, tuple(successor.turn.runs))
        parked.released += successor.released
        parked.count += successor.count
        parked.unanswered += successor.unanswered
        parked.connections |= successor.connections
        for connection, count in successor.turn.pending.items():
            parked.turn.pending[connection] = parked.turn.pending.get(connection, 0) + count
        for connection in successor.connections:
            for waits_for, _ in self.deferred.get(connection, ()):
                waits_for[:] = [parked if one is successor else one for one in waits_for]
        del successor.turn  # see `over`

    # -- going --

    def over(self, parked: Parked) -> None:
        """Committed, dead-lettered or dropped: the acknowledgements that waited for it go out."""
        self._count(parked, -parked.count, -parked.unanswered)
        parked.done = True
        for session, packet_id, _ in parked.released:
            session.releasing.discard(packet_id)
            connection = session.connection
            if connection is not None and connection not in parked.connections:  # it came back meanwhile
                self.engine.send(connection, b"\x70\x02" + packet_id.to_bytes(2, "big"))
        successor = parked.successor
        if successor is not None:
            self.waiting[parked.run] = successor
            self.retry(successor)
        else:
            self.waiting.pop(parked.run, None)
        for connection in parked.connections:
            if successor is None or connection not in successor.connections:
                self._untie(connection, parked.run)
            self._release(connection)
        del parked.turn  # it names what is parked in turn: its messages would wait for a run of the cycle collector

    def _untie(self, connection: Connection, run: Run) -> None:
        runs = self.tied.get(connection)
        if runs is None:
            return
        runs.discard(run)
        if not runs:
            del self.tied[connection]
            self.engine.publishing.forget_routes(connection)

    def _release(self, connection: Connection) -> None:
        entries = self.deferred.get(connection)
        if entries is None:
            return
        while entries and all(one.done for one in entries[0][0]):
            data = entries.popleft()[1]
            if data and connection.state != CLOSED:
                self.engine.send(connection, data)
        if not entries:
            del self.deferred[connection]

    def defer(self, connection: Connection, replies: list[bytes]) -> bool:
        """Acknowledgements of a connection that waits go behind those it waits for; False: it does not wait."""
        entries = self.deferred.get(connection)
        if entries is None:
            return False
        entries.append(([], b"".join(replies)))
        return True

    def withholds(self, connection: Connection) -> bool:
        """Whether acknowledgements of a connection wait for something."""
        return connection in self.deferred

    def forget(self, connection: Connection) -> None:
        """It is closed: nobody waits for its acknowledgements any more; its messages are put all the same."""
        self.deferred.pop(connection, None)
        self.tied.pop(connection, None)
