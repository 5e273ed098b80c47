"""Messages whose queue refuses for now wait here, so that one queue does not hold up the others. Pure.

A run of puts that was refused is taken out of its batch, with the QoS 2 releases that belong to it and with the other
destinations of publications that have one in it: those are one unit of work. Everything else of the batch is committed.
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
from gateway.broker.batch import Batch, Joint, Row
from gateway.broker.refused import restaging, shedding
from gateway.ports.batch import Address
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.batch import Released
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Policy

MAX_ROWS = 20_000
"""So many waiting messages in all; beyond it nothing more is read."""
MAX_UNANSWERED = MAX_ROWS // 2
"""So many of them for which nobody waits (QoS 0); those beyond are dropped, and reading goes on."""


class Parked:
    """What waits for one destination: a unit of work of its own, tried again and again."""

    __slots__ = (
        "address",
        "batch",
        "connections",
        "count",
        "done",
        "inflight",
        "released",
        "since",
        "successor",
        "tries",
        "unanswered",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy, now: float) -> None:
        self.address = address
        self.batch = Batch()
        self.batch.targets[address] = policy
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


class Parking:
    """Everything that waits for a destination."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: dict[Address, Parked] = {}
        self.rows = 0
        self.unanswered = 0
        self.tied: dict[Connection, set[Address]] = {}
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
            accounting.rule_of(parked.batch, row)
            for parked in self._all()
            for address, puts in parked.batch.puts.items()
            for row in accounting.messages(parked.batch, ((address, number) for number in range(len(puts.heads))))
        )

    def _all(self) -> Iterator[Parked]:
        for first in self.waiting.values():
            parked: Parked | None = first
            while parked is not None:
                yield parked
                parked = parked.successor

    # -- coming --

    def park(self, batch: Batch, address: Address) -> None:
        """A run was refused: it waits, the rest of its batch goes on."""
        policy, parked = batch.targets[address], self.waiting.get(address)
        self._stay(batch, address)
        if address in batch.unanswered:
            shedding.shed(self.engine, batch, address, max(0, MAX_UNANSWERED - self.unanswered))
        if address not in batch.puts:
            return
        if parked is None:
            parked = self.waiting[address] = Parked(address, policy, self.engine.scheduler.now())
            parked.tries = 1
            self._later(parked, policy.retry_first)
        self._move(batch, self._open(parked), address)

    def _stay(self, batch: Batch, address: Address) -> None:
        """What came from a queue and cannot be put stays where it is: there is nothing to hold."""
        rows = batch.sources.pop(address, {})
        for row, (source, token) in rows.items():
            batch.takes[source.queue, source.key].tokens.remove(token)
            batch.causes.get(address, {}).pop(row, None)
            source.stay(self.engine, token)
        if rows:
            batch.without(address, rows)

    def join(self, batch: Batch) -> None:
        """New messages for destinations that are waited for line up behind those that wait."""
        for address, joints in batch.behind.items():
            if address in self.waiting:
                self._move(batch, self._open(self.waiting[address]), None, [joint for joint in joints if joint.rows])
        for address in [address for address in batch.puts if address in self.waiting]:
            if address in batch.puts:  # it may have gone with another one
                self.park(batch, address)

    def line_up(self, batch: Batch, connection: Connection | None, rows: list[Row]) -> None:
        """Rows of one publication. Those of several destinations belong together; where the connection has such a
        publication waiting for one of them, they go behind it."""
        addresses = self.tied.get(connection, ()) if connection is not None else ()
        waiting = {address: self.waiting[address].batch.puts for address in addresses if address in self.waiting}
        behind = next((address for address, those in waiting.items() if any(one in those for one, _ in rows)), None)
        if len(rows) > 1 or behind is not None:
            joint = Joint(rows, connection)
            batch.joint.append(joint)
            if behind is not None:
                batch.behind.setdefault(behind, []).append(joint)

    def _open(self, parked: Parked) -> Parked:
        """Where more can be added: what is under way has a successor."""
        if not parked.inflight:
            return parked
        if parked.successor is None:
            policy = parked.batch.targets[parked.address]
            parked.successor = Parked(parked.address, policy, self.engine.scheduler.now())
        return parked.successor

    def _move(self, batch: Batch, parked: Parked, address: Address | None, joints: Sequence[Joint] = ()) -> None:
        addresses = () if address is None else (address,)
        contributors = set(batch.contributors.get(address, ())) if address is not None else set()
        going = [(one, row) for one, rows in batch.tied(addresses, joints).items() for row in sorted(rows)]
        unanswered = 0 if address is None else sum(map(len, shedding.loose(batch, address).values()))
        releases = [batch.released[one][row] for one, row in going if row in batch.released.get(one, ())]
        accounting.received(self.engine.counters, batch, going)
        before = len(parked.batch.joint)
        batch.split(parked.batch, addresses, joints)
        self._count(parked, len(going), unanswered)
        for released in dict.fromkeys(releases):
            parked.released.append(released)
            released[0].releasing.add(released[1])
            restaging.wait_for_queue(self.engine.router, batch, released, parked)
        joint = {one.connection for one in parked.batch.joint[before:] if one.connection is not None}
        for connection in contributors | joint:
            self._withhold(batch, parked, connection)
        for connection in joint:
            self.tied.setdefault(connection, set()).add(parked.address)
            connection.generation = -1  # its routes are computed again

    def _withhold(self, batch: Batch, parked: Parked, connection: Connection) -> None:
        parked.connections.add(connection)
        pending = parked.batch.pending
        pending[connection] = pending.get(connection, 0) + batch.pending.pop(connection, 0)
        entries = self.deferred.setdefault(connection, deque())
        replies = batch.replies.pop(connection, None)
        if replies and not connection.greeted:  # its session is stored with what goes on
            batch.replies[connection] = [replies[0]]
            replies = replies[1:]
        if replies or not entries:
            entries.append(([parked], b"".join(replies or ())))
        else:  # what this batch has for it is there already, and waits for another destination too
            entries[-1][0].append(parked)

    # -- trying again --

    def _later(self, parked: Parked, wait: float) -> None:
        self.engine.scheduler.later(wait, lambda: self.retry(parked))

    def retry(self, parked: Parked) -> None:
        """Its time has come."""
        parked.inflight = True
        self.engine.first.append(parked.batch)
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
        successor.batch.split(parked.batch, tuple(successor.batch.puts))
        parked.released += successor.released
        parked.count += successor.count
        parked.unanswered += successor.unanswered
        parked.connections |= successor.connections
        for connection, count in successor.batch.pending.items():
            parked.batch.pending[connection] = parked.batch.pending.get(connection, 0) + count
        for connection in successor.connections:
            for waits_for, _ in self.deferred.get(connection, ()):
                waits_for[:] = [parked if one is successor else one for one in waits_for]
        del successor.batch  # see `over`

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
            self.waiting[parked.address] = successor
            self.retry(successor)
        else:
            self.waiting.pop(parked.address, None)
        for connection in parked.connections:
            if successor is None or connection not in successor.connections:
                self._untie(connection, parked.address)
            self._release(connection)
        del parked.batch  # it names what is parked in turn: its messages would wait for a run of the cycle collector

    def _untie(self, connection: Connection, address: Address) -> None:
        addresses = self.tied.get(connection)
        if addresses is None:
            return
        addresses.discard(address)
        if not addresses:
            del self.tied[connection]
            connection.generation = -1  # its routes are computed again

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
