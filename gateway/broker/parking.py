"""Messages whose queue refuses for now wait here, so that one queue does not hold up the others. Pure.

A run of puts that was refused is taken out of its turn, with the QoS 2 releases that belong to it; everything else of
the turn is committed. Later messages for the same destination line up behind it, so that order is kept. A connection
with messages in it gets no further acknowledgement before theirs, because acknowledgements come in the order of the
publications [MQTT-4.6.0-2] [MQTT-4.6.0-3]: its own window fills, nobody else's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gateway.broker.turn import Run, Turn
from gateway.ports.batch import Puts
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.route import Policy
    from gateway.broker.turn import Released

STAGED = "MQGATE.STAGED"
MAX_ROWS = 20_000
"""So many waiting messages in all; beyond it nothing more is read."""


class Parked:
    """What waits for one destination."""

    __slots__ = ("connections", "count", "done", "inflight", "pending", "policy", "puts", "released", "run", "since",
                 "successor", "tries")  # fmt: skip

    def __init__(self, run: Run, policy: Policy, now: float) -> None:
        queue, queue_manager, priority, persistent, key = run
        self.run = run
        self.policy = policy
        self.puts = Puts(queue, queue_manager, key, priority, persistent)
        self.released: list[Released] = []
        self.connections: set[Connection] = set()
        self.pending: dict[Connection, int] = {}
        self.tries = 0
        self.count = 0
        """Messages that wait in it."""
        self.since = now
        self.inflight = False
        self.successor: Parked | None = None
        self.done = False

    def turn(self) -> Turn:
        """Its own unit of work."""
        turn = Turn()
        turn.runs[self.run] = self.puts
        turn.targets[self.run] = self.policy
        turn.rows = len(self.puts.heads)
        turn.pending = dict(self.pending)
        turn.parked = self
        for session, _, token in self.released:
            turn.take(STAGED, session.key, token)
        return turn


class Parking:
    """Everything that waits for a destination."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: dict[Run, Parked] = {}
        self.rows = 0
        self._deferred: dict[Connection, deque[tuple[Parked | None, bytes]]] = {}

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more may be read."""
        return self.rows >= MAX_ROWS

    def park(self, turn: Turn, run: Run, wait: float) -> None:
        """A run was refused: it waits, the rest of its turn goes on."""
        parked = Parked(run, turn.targets[run], self.engine.scheduler.now())
        self.waiting[run] = parked
        parked.tries = 1
        self._move(turn, run, parked)
        self._later(parked, wait)

    def join(self, turn: Turn) -> None:
        """New messages for destinations that are waited for line up behind those that wait."""
        for run in [run for run in turn.runs if run in self.waiting and run not in turn.joint]:
            parked = self.waiting[run]
            if parked.inflight:
                if parked.successor is None:
                    parked.successor = Parked(run, parked.policy, self.engine.scheduler.now())
                parked = parked.successor
            self._move(turn, run, parked)

    def _move(self, turn: Turn, run: Run, parked: Parked) -> None:
        puts = turn.runs.pop(run)
        rows = len(puts.heads)
        parked.puts.heads += puts.heads
        parked.puts.bodies += puts.bodies
        turn.rows -= rows
        self.rows += rows
        parked.count += rows
        for released in turn.released.pop(run, ()):
            session, packet_id, token = released
            turn.takes[STAGED, session.key].tokens.remove(token)
            session.releasing.add(packet_id)
            parked.released.append(released)
        for connection in turn.contributors.pop(run, ()):
            parked.connections.add(connection)
            count = turn.pending.pop(connection, 0)
            parked.pending[connection] = parked.pending.get(connection, 0) + count
            replies = turn.replies.pop(connection, [])
            self._deferred.setdefault(connection, deque()).append((parked, b"".join(replies)))

    def _later(self, parked: Parked, wait: float) -> None:
        self.engine.scheduler.later(wait, lambda: self.retry(parked))

    def retry(self, parked: Parked) -> None:
        """Its time has come."""
        parked.inflight = True
        self.engine.first.append(parked.turn())
        self.engine.flush()

    def refused(self, parked: Parked, wait: float) -> None:
        """Refused again: those that came meanwhile are behind it still."""
        parked.inflight = False
        parked.tries += 1
        successor, parked.successor = parked.successor, None
        if successor is not None:
            self._append(parked, successor)
        self._later(parked, wait)

    def _append(self, parked: Parked, successor: Parked) -> None:
        parked.puts.heads += successor.puts.heads
        parked.puts.bodies += successor.puts.bodies
        parked.released += successor.released
        parked.count += successor.count
        parked.connections |= successor.connections
        for connection, count in successor.pending.items():
            parked.pending[connection] = parked.pending.get(connection, 0) + count
        for connection in successor.connections:
            entries = self._deferred.get(connection)
            if entries is not None:
                self._deferred[connection] = deque((parked if one is successor else one, data) for one, data in entries)

    def over(self, parked: Parked) -> None:
        """Committed, dead-lettered or dropped: the acknowledgements that waited for it go out."""
        self.rows -= parked.count
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
            self._release(connection)

    def _release(self, connection: Connection) -> None:
        entries = self._deferred.get(connection)
        if entries is None:
            return
        while entries and (entries[0][0] is None or entries[0][0].done):
            data = entries.popleft()[1]
            if data and connection.state != CLOSED:
                self.engine.send_counted(connection, data)
        if not entries:
            del self._deferred[connection]

    def defer(self, connection: Connection, replies: list[bytes]) -> bool:
        """Acknowledgements of a connection that waits go behind those it waits for; False: it does not wait."""
        entries = self._deferred.get(connection)
        if entries is None:
            return False
        entries.append((None, b"".join(replies)))
        return True

    def forget(self, connection: Connection) -> None:
        """It is closed: nobody waits for its acknowledgements any more; its messages are put all the same."""
        self._deferred.pop(connection, None)
