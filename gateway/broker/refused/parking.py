"""Messages that their queue refuses for now wait here, so that one queue does not hold up the others. Pure.

A destination that refuses is taken out of its batch, with the QoS 2 releases that belong to it and with the other
destinations of publications that have one in it: those are one unit of work. Everything else of the batch is committed.
Later messages for the same destination line up behind it, and so does what a connection with such a publication sends
to its other destinations, so that order is kept; what has several destinations waits in one unit for each connection,
whichever of them refuse. A connection with messages in it gets no further acknowledgement before theirs, because
acknowledgements come in the order of the publications [MQTT-4.6.0-2] [MQTT-4.6.0-3]: its own window fills, nobody
else's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from gateway.broker import books
from gateway.broker.answers import pubcomp
from gateway.broker.batch import Batch, Row
from gateway.broker.bounds import messages_of
from gateway.broker.context import Context
from gateway.broker.links import LinkedRows
from gateway.broker.refused import restaging
from gateway.broker.refused.parked import Parked
from gateway.broker.refused.parts import cut
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy
from gateway.session.connection import CLOSED, VOID, Connection

if TYPE_CHECKING:
    from gateway.broker.batch import Destination
    from gateway.broker.publish.router import Router
    from gateway.session.session import Session

MAX_ROWS = 20_000
"""The most waiting messages in all; beyond it nothing more is read."""
MAX_UNANSWERED = MAX_ROWS // 2
"""The most of them for which nobody waits (QoS 0); those beyond are dropped, and reading goes on."""
PATIENCE = 10.0
"""Seconds a commit may take while nothing is read, before what was read at QoS 0 meanwhile is given up."""


class Parking:
    """Parked destinations, and the acknowledgements that wait for them."""

    def __init__(self, context: Context, router: Router) -> None:
        self.context = context
        self.router = router
        self.waiting: dict[Address, Parked] = {}
        self._lined_up: dict[Parked, None] = {}
        """Those behind others, which few are: there may be a queue for each of ten thousand devices."""
        self.rows = 0
        self.unanswered = 0
        self.linked: dict[Connection, Address] = {}
        """Connections with parked publications of several destinations, and the address for which all of these wait."""
        self.deferred: dict[Connection, deque[tuple[list[Parked], bytes]]] = {}
        """Acknowledgements of each connection in order, with the parked destinations that each waits for."""

    def held(self) -> Counter[str]:
        """How many messages of each rule wait."""
        return Counter(
            books.rule_of(row)
            for parked in self._all()
            for destination in parked.batch.destinations.values()
            for row in books.messages((destination, number) for number in range(destination.rows))
        )

    def _all(self) -> Iterator[Parked]:
        for first in self.waiting.values():
            yield from _chain(first)

    def rules(self) -> set[str]:
        """Those of which something waits."""
        found = set[str]()
        for parked in self._all():
            found.add(parked.policy.rule)
            for one in parked.batch.destinations.values():
                found.update(policy.rule for _, policy in one.policies)
        return found

    def use(self, policies: Mapping[str, Policy]) -> None:
        """New rules: what waits is dealt with by what its rule says now, from the next attempt on. That of a rule that
        is gone stays as it was."""
        for parked in self._all():
            parked.policy = policies.get(parked.policy.rule, parked.policy)
            for one in parked.batch.destinations.values():
                one.policies = [(first, policies.get(policy.rule, policy)) for first, policy in one.policies]

    # -- coming --

    def park(self, batch: Batch, refused: Sequence[Destination]) -> None:
        """Take destinations that refused out of their batch; the rest of the batch goes on."""
        unanswered = self.unanswered
        for destination in refused:
            self._stay(batch, destination)
            if destination.unanswered and batch.has(destination):
                self.shed(batch, destination, max(0, MAX_UNANSWERED - unanswered))
                unanswered += sum(map(len, unanswered_rows(batch, destination).values()))
        for destination in refused:
            if batch.has(destination):
                several = [link for link in batch.links.at((destination,)) if len(link.rows) > 1]
                self._line_up(batch, several, destination.address)
            if batch.has(destination):  # else all of it has gone with others
                self._park(batch, destination)
        batch.end_moves()

    def _park(self, batch: Batch, destination: Destination) -> None:
        address, policy = destination.address, destination.policies[0][1]
        if address not in self.waiting:
            parked = self.waiting[address] = Parked(address, policy, self.context.scheduler.now())
            parked.tries = 1
            self._later(parked, policy.retry_first)
        self._move(batch, address, destination)

    def _stay(self, batch: Batch, destination: Destination) -> None:
        """Leave messages that came from a queue where they are: there is nothing to park."""
        rows = {row: mark.source for row, mark in destination.marks.items() if mark.source is not None}
        for source, token in rows.values():
            source.leave(batch, token)
            source.stay(self.context.scheduler, token)
        if rows:
            batch.without(destination, rows)

    def join(self, batch: Batch) -> None:
        """Move what a new batch has for parked destinations behind what they have already."""
        if self.linked:
            self._line_up(batch, [link for link in batch.links.all() if self._reaches(link)])
            batch.end_moves()
        refused = [one for one in batch.destinations.values() if one.address in self.waiting]
        if refused:
            self.park(batch, refused)

    def note(self, batch: Batch, connection: Connection | None, rows: list[Row]) -> None:
        """Note that rows are one publication's: it has several destinations, or might have had, or others of its
        connection wait for one of theirs."""
        links = batch.links.all()
        if batch.undo is not None:
            batch.undo.length(links)
        links.append(LinkedRows(rows, connection))

    def _reaches(self, link: LinkedRows) -> bool:
        """Whether a publication has a destination in common with those of its connection that wait."""
        address = None if link.connection is None else self.linked.get(link.connection)
        first = None if address is None else self.waiting.get(address)
        wanted = {one.address for one, _ in link.rows}
        return any(wanted & parked.batch.destinations.keys() for parked in _chain(first))

    def _line_up(self, batch: Batch, links: Iterable[LinkedRows], besides: Address | None = None) -> None:
        """Move publications of connections that wait already behind what these wait for, if it is not this address:
        what others have sent there is not to wait for that too."""
        behind: dict[Address, list[LinkedRows]] = {}
        for link in links:
            address = None if link.connection is None else self.linked.get(link.connection)
            if address not in self.waiting:  # it is over, and what was noted behind it is not yet
                address = None
            if address is None and besides is not None and link.connection is not None:
                address = next((one.address for one in self._before(besides, [link])), None)
            if address is not None and address != besides:
                behind.setdefault(address, []).append(link)
        for address, those in behind.items():
            self._move(batch, address, None, those)

    def _open(self, address: Address, after: list[Parked]) -> Parked:
        """Where more can be added: at the end, behind an attempt that is under way. What waits for something else, too,
        is newer than that: nothing waits for itself."""
        *_, parked = _chain(self.waiting[address])
        after = [one for one in after if one not in parked.after]
        if parked.inflight or (after and parked.batch):
            parked.successor = Parked(parked.address, parked.policy, self.context.scheduler.now())
            parked = parked.successor
        parked.after += after
        if after:
            self._lined_up[parked] = None
        return parked

    def _before(self, address: Address, links: Iterable[LinkedRows]) -> list[Parked]:
        """What waits for other addresses and has messages of the same connections for some of the same queues."""
        wanted: dict[Address, set[Connection | None]] = {}
        who = {link.connection for link in links if link.connection is not None}
        waiting = {
            parked: None
            for connection in who
            for waits_for, _ in self.deferred.get(connection, ())
            for parked in waits_for
            if parked.address != address and not parked.done
        }
        if not waiting:  # nothing of theirs waits for another address
            return []
        for link in links:
            for one, _ in link.rows:
                wanted.setdefault(one.address, set()).add(link.connection)
        return [
            parked
            for parked in waiting
            if any(
                one in parked.batch.destinations and parked.batch.destinations[one].contributors & connections
                for one, connections in wanted.items()
            )
        ]

    def _move(
        self, batch: Batch, address: Address, destination: Destination | None, links: Sequence[LinkedRows] = ()
    ) -> None:
        destinations = () if destination is None else (destination,)
        contributors = set() if destination is None else set(destination.contributors)
        links = batch.in_step(destinations, links)
        parked = self._open(address, self._before(address, links) if links else [])
        # What lines up with one destination waits as well: its acknowledgement must not go with what was before it.
        contributors |= {link.connection for link in links if link.connection is not None}
        linked = {link.connection for link in links if len(link.rows) > 1 and link.connection is not None}
        going = [(one, row) for one, rows in batch.with_linked(destinations, links).items() for row in sorted(rows)]
        unanswered = 0 if destination is None else sum(map(len, unanswered_rows(batch, destination).values()))
        marks = [one.marks[row] for one, row in going if row in one.marks]
        books.received(self.context.counters, batch, going)
        batch.move_to(parked.batch, destinations, links)
        self._count(parked, len(going), unanswered)
        for released in dict.fromkeys(mark.released for mark in marks if mark.released is not None):
            parked.released.append(released)
            released[0].begin_release(released[1])
            restaging.wait_for_queue(self.router, batch, released, parked)
        for connection in contributors:
            self._withhold(batch, parked, connection)
        for connection in linked:
            self.linked[connection] = parked.address
            connection.generation = VOID

    def _withhold(self, batch: Batch, parked: Parked, connection: Connection) -> None:
        parked.connections.add(connection)
        _move_counts(parked.batch, batch, (connection,))
        entries = self.deferred.setdefault(connection, deque())
        replies = batch.replies.pop(connection, None)
        if replies and not connection.connack_sent:  # its session is stored with what goes on
            batch.replies[connection] = [replies[0]]
            replies = replies[1:]
        if replies or not entries:
            entries.append(([parked], b"".join(replies or ())))
        else:  # what this batch has for it has been deferred; it waits for this destination too
            entries[-1][0].append(parked)

    # -- QoS 0 where there is no room --

    def shed(self, batch: Batch, destination: Destination, room: int) -> None:
        """Drop rows for which nobody waits, until so many are left: nobody waits for an answer to QoS 0, and no window
        of a client bounds how much of it comes. Without a limit of its own a storm of it to one queue that refuses
        would take all the room there is for what waits, and stop the reading of all."""
        rows = unanswered_rows(batch, destination)
        if len(rows) == 1:
            rows[destination] = set(range(room, destination.rows))
        elif sum(map(len, rows.values())) <= room:  # of publications with several destinations all or nothing
            return
        for one, going in rows.items():
            if going:
                books.dropped(self.context.counters, batch, ((one, row) for row in going), "qos0_overload")
                batch.without(one, going)

    def relieve(self) -> None:
        """Nothing has been read for long because nothing can be committed: what came at QoS 0 is dropped, so that
        reading goes on and pings are answered."""
        context = self.context
        if not context.paused or context.scheduler.monotonic() - context.running.started < PATIENCE:
            return
        for batch in context.waiting:
            for destination in list(batch.destinations.values()):
                if batch.destinations.get(destination.address) is destination:
                    self.shed(batch, destination, 0)

    # -- trying again --

    def _later(self, parked: Parked, wait: float) -> None:
        self.context.scheduler.later(wait, lambda: self.retry(parked))

    def retry(self, parked: Parked) -> None:
        """Make the next attempt, if nothing else goes before it."""
        self._follow(parked)
        self.context.flush()

    def _follow(self, parked: Parked) -> None:
        """It is submitted next, if nothing else goes before it."""
        parked.due = True
        if not all(one.done for one in parked.after):
            return
        parked.inflight, parked.due = True, False
        parked.after.clear()
        self._lined_up.pop(parked, None)
        self.context.or_end(self._keep_within_bounds, parked)
        self.context.attempts.append(parked.batch)

    def _keep_within_bounds(self, parked: Parked) -> None:
        """Cut off what is more than the queue manager commits in one unit of work."""
        bounds, destinations = self.context.bounds, parked.batch.destinations
        while bounds is not None and messages_of(parked.batch) > bounds.most:
            if not self.halve(parked, max(destinations.values(), key=attrgetter("rows"))):
                break
        parked.halved = False

    def placed(self, parked: Parked, rows: int) -> None:
        """Count messages of it that were put out of syncpoint, whatever becomes of the others."""
        self._count(parked, -rows, -rows)

    def _count(self, parked: Parked, rows: int, unanswered: int) -> None:
        parked.count += rows
        parked.unanswered += unanswered
        self.rows += rows
        self.unanswered += unanswered

    def refused(self, parked: Parked, wait: float) -> None:
        """Wait again after an attempt that was refused, together with what has come meanwhile."""
        parked.inflight = parked.halved = False
        parked.tries += 1
        successor = parked.successor
        # there is room for less: what was cut off stays so
        if successor is not None and not successor.part and all(one.done for one in successor.after):
            parked.successor = successor.successor
            self._append(parked, successor)
        self._later(parked, wait)

    def halve(self, parked: Parked, destination: Destination) -> bool:
        """Its queue has no room for all of it, which would never fit in one unit of work where more waits than
        MAXDEPTH: leave the first half for the next attempt, and let the rest follow. False: it is one publication.
        Acknowledgements wait for all parts."""
        batch = parked.batch
        behind = cut(batch, destination)
        if behind is None:
            return False
        rest = Parked(parked.address, parked.policy, parked.since, behind)
        rest.part, rest.tries, rest.why, rest.successor = True, parked.tries, parked.why, parked.successor
        rest.count, rest.unanswered = rest.batch.rows, min(parked.unanswered, rest.batch.rows)
        parked.count -= rest.count
        parked.unanswered -= rest.unanswered
        moved = {mark.released for one in rest.batch.destinations.values() for mark in one.marks.values()}
        rest.released = [one for one in parked.released if one in moved]
        parked.released = [one for one in parked.released if one not in moved]
        rest.batch.pending, batch.pending = batch.pending, {}
        rest.batch.uncompleted, batch.uncompleted = batch.uncompleted, {}
        rest.connections = set(parked.connections)
        for connection in parked.connections:
            for waits_for, _ in self.deferred.get(connection, ()):
                if parked in waits_for:
                    waits_for[:] = [*(one for one in waits_for if not one.done), rest]
        parked.successor, parked.halved = rest, True
        for one in self._lined_up:
            if parked in one.after:
                one.after.append(rest)
        return True

    def _append(self, parked: Parked, successor: Parked) -> None:
        successor.batch.move_to(parked.batch, tuple(successor.batch.destinations.values()))
        successor.batch.end_moves()
        parked.released += successor.released
        parked.count += successor.count
        parked.unanswered += successor.unanswered
        parked.connections |= successor.connections
        self._lined_up.pop(successor, None)
        for one in self._lined_up:
            one.after = [parked if other is successor else other for other in one.after]
        _move_counts(parked.batch, successor.batch, successor.connections)
        for connection in successor.connections:
            for waits_for, _ in self.deferred.get(connection, ()):
                waits_for[:] = [parked if one is successor else one for one in waits_for]
        del successor.batch  # see `over`

    # -- going --

    def _completed(self, session: Session, packet_id: int) -> None:
        """A client that is back and has released it again is told."""
        again = session.end_release(packet_id)
        if again is not None:
            self.context.send(again, pubcomp(packet_id))

    def over(self, parked: Parked) -> None:
        """Send the acknowledgements that waited for it: all of it is committed, dead-lettered or dropped. What waits
        behind it is submitted next. A defect costs the client that meets it, not all who wait."""
        self.context.or_end(self._advance, parked)
        successor = parked.successor
        for session, packet_id, _ in parked.released:
            self.context.set_aside.run("call", session.client_id, partial(self._completed, session, packet_id))
        for connection in parked.connections:
            try:
                if successor is None or connection not in successor.connections:
                    self._unlink(connection, parked.address)
                self._release(connection)
            except Exception as error:  # noqa: BLE001 -- it comes back, and is told by its session
                self.context.defect(connection, error)
        del parked.batch  # a cycle: the messages would stay in memory until the cycle collector runs

    def _advance(self, parked: Parked) -> None:
        """What waits behind it has its turn."""
        self._count(parked, -parked.count, -parked.unanswered)
        parked.done = True
        successor = parked.successor
        if successor is not None:
            self.waiting[parked.address] = successor
            if successor.part:  # the patience of a rule is for all parts together
                successor.tries = max(successor.tries, parked.tries)
            self._follow(successor)
        else:
            self.waiting.pop(parked.address, None)
        for one in [one for one in self._lined_up if one.due and parked in one.after]:
            if self.waiting.get(one.address) is one:
                self._follow(one)

    def _unlink(self, connection: Connection, address: Address) -> None:
        if self.linked.get(connection) != address:
            return
        if any(connection in parked.connections for parked in _chain(self.waiting.get(address))):
            return
        if any(link.connection is connection for batch in self.context.waiting for link in batch.links.all()):
            # these may have to wait, and with them what is noted: until then, what follows them is noted, too
            self.context.batch.after.append(partial(self._unlink, connection, address))
            return
        del self.linked[connection]
        connection.generation = VOID

    def _release(self, connection: Connection) -> None:
        entries = self.deferred.get(connection)
        if entries is None:
            return
        while entries and all(one.done for one in entries[0][0]):
            data = entries.popleft()[1]
            if data and connection.state != CLOSED:
                self.context.send(connection, data)
        if not entries:
            del self.deferred[connection]

    def defer(self, connection: Connection, replies: list[bytes]) -> bool:
        """Add acknowledgements behind those of the connection that wait; False: none wait."""
        entries = self.deferred.get(connection)
        if entries is None:
            return False
        entries.append(([], b"".join(replies)))
        return True

    def withholds(self, connection: Connection) -> bool:
        """Whether acknowledgements of a connection wait for something."""
        return connection in self.deferred

    def forget(self, connection: Connection) -> None:
        """Forget the acknowledgements of a connection that is closed; its messages are put all the same."""
        self.deferred.pop(connection, None)
        self.linked.pop(connection, None)


def _chain(first: Parked | None) -> Iterator[Parked]:
    """What waits for one address, one after another."""
    parked = first
    while parked is not None:
        yield parked
        parked = parked.successor


def _move_counts(into: Batch, batch: Batch, connections: Iterable[Connection]) -> None:
    """What is acknowledged to these when a batch is committed is so with another one."""
    for waiting, going in ((into.pending, batch.pending), (into.uncompleted, batch.uncompleted)):
        for connection in connections:
            if connection in going:
                waiting[connection] = waiting.get(connection, 0) + going.pop(connection)


def unanswered_rows(batch: Batch, destination: Destination) -> dict[Destination, set[int]]:
    """The rows of a destination and those linked to them, if nobody waits for any of them; else none."""
    if not destination.unanswered:
        return {}
    linked = batch.with_linked((destination,))
    answered = any(one.contributors for one in linked)
    kept = any(mark.released or mark.will or mark.source for one in linked for mark in one.marks.values())
    return {} if answered or kept else linked
