"""The open batch: everything that arrived since the last commit was started, as columns of one unit of work.

While a commit runs the next batch fills by itself; there is no timer and no tuned delay. What is put to one address is
a `Destination`: its messages, and all that has to be remembered of them in case its queue refuses. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gateway.broker.links import LinkedRows, Links
from gateway.broker.marks import Mark
from gateway.broker.moves import add_moves
from gateway.ports.batch import Address, Puts, Replace, Takes, Token, Unit
from gateway.ports.state_queues import STAGED, WILLS

if TYPE_CHECKING:
    from gateway.broker.columns import Columns, Mixed
    from gateway.broker.consumed import Consumed
    from gateway.broker.marks import Released
    from gateway.broker.moves import Move
    from gateway.broker.refused.parked import Parked
    from gateway.broker.undo import Undo
    from gateway.ports.failure_policy import Policy
    from gateway.session.connection import Connection
    from gateway.session.copies import Copies
    from gateway.session.outflow import Item
    from gateway.session.publication import Publication
    from gateway.session.session import Session
    from gateway.session.staged_run import StagedRun

    ReleasedRows = tuple[int, Session, list[int], list[Token]]
    """Consecutive rows released by one session: the first row, the session, packet identifiers, tokens. A plain tuple:
    the compiled fast lane makes it."""
    StagedRows = tuple[Session, Puts, int, list[int], StagedRun | None]
    """Consecutive rows that stage what one session has published: the session, the puts, the first row, the packet
    identifiers, and the run they are in."""
    Delivery = tuple[Session, list[Item] | Copies | None, Puts | None, int, int]
    """What a session gets (None: it is stored, and its client away); for a durable session the puts that store it, the
    first of their rows, and how many they are."""

_first, _ids = itemgetter(0), itemgetter(2)


class Destination:
    """What a batch puts to one address."""

    __slots__ = (
        "_contributors", "_marks", "_noted", "_noted_unanswered", "_open", "_unanswered", "address", "policies", "puts",
        "released_rows", "segmented", "taker",
    )  # fmt: skip

    def __init__(self, address: Address, policy: Policy) -> None:
        self.address = address
        queue, queue_manager, priority, persistent, syncpoint, retain = address
        # by position, which is faster: there may be one of these for each message
        self.puts = Puts(queue, queue_manager, b"", priority, persistent, [], [], (), syncpoint, 0, 0, 0, (), retain)
        """The fast and the plain lane append to its columns directly."""
        self.policies = [(0, policy)]
        """The policies of the rules that put here, each with its first row."""
        self._contributors: set[Connection] = set()
        self._unanswered: set[Connection] = set()
        self._noted: list[Connection] = []
        """Contributors and unanswered connections as the fast lane notes them, some of them perhaps twice."""
        self._noted_unanswered: list[Connection] = []
        self.released_rows: list[ReleasedRows] = []
        """Rows that release staged messages, as they were noted; `marks` has them one by one."""
        self._marks: dict[int, Mark] = {}
        self.taker = ""
        """The target that takes the messages; empty if the gateway's own queue manager does."""
        self.segmented = False
        """Whether messages were cut into segments here: not every row is a message then."""
        self._open: list[Columns] = []
        """Columns that rows are appended to directly."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.puts.heads)

    # -- rules --

    def aim(self, policy: Policy) -> None:
        """Note that the rows appended from now on are put by the rule with this policy."""
        last = self.policies[-1][1]
        if last is not policy and last != policy:
            self.policies.append((len(self.puts.heads), policy))
            self.close()  # whoever appends must call `open` again

    def policy(self, row: int) -> Policy:
        """The policy of the rule that put a row."""
        policies = self.policies
        return policies[bisect_right(policies, row, key=_first) - 1 if len(policies) > 1 else 0][1]

    def rows_by_policy(self) -> list[tuple[Policy, int]]:
        """The policies of the rules that put here, in order, each with the number of its rows."""
        ends = [first for first, _ in self.policies[1:]] + [self.rows]
        return [(policy, end - first) for (first, policy), end in zip(self.policies, ends, strict=True)]

    def rows_of(self, policies: Collection[Policy]) -> set[int]:
        """The rows that rules with one of these policies put here."""
        rows, first = set[int](), 0
        for policy, count in self.rows_by_policy():
            if policy in policies:
                rows.update(range(first, first + count))
            first += count
        return rows

    def open(self, columns: Columns) -> None:
        """Let the rows of the current rule be appended to these columns directly, until another rule puts here."""
        columns.heads, columns.bodies, columns.released = self.puts.heads, self.puts.bodies, self.released_rows
        columns.owners = self._noted if columns.answered else self._noted_unanswered
        columns.destination = self
        self._open.append(columns)

    def close(self) -> None:
        """End direct appending: from now on whoever appends rows has to call `open` first."""
        for columns in self._open:
            columns.heads = columns.bodies = columns.owners = columns.released = columns.destination = None
        self._open.clear()

    def cut(self, rows: int, policies: int, releases: int) -> None:
        """Take back rows that were appended, so that this many rows, policies and releases are left."""
        del self.puts.heads[rows:], self.puts.bodies[rows:], self.policies[policies:], self.released_rows[releases:]
        for row in [row for row in self._marks if row >= rows]:
            del self._marks[row]

    # -- who waits: asked for only when something fails --

    @property
    def contributors(self) -> set[Connection]:
        """The connections with a publication of QoS 1 or 2 here, which wait if the queue refuses."""
        self._contributors.update(self._noted)
        self._noted.clear()
        return self._contributors

    @property
    def unanswered(self) -> set[Connection]:
        """The connections with a publication of QoS 0 here, which wait for nothing."""
        self._unanswered.update(self._noted_unanswered)
        self._noted_unanswered.clear()
        return self._unanswered

    def contribute_like(self, other: Destination) -> None:
        """Note that whoever has publications at another destination has some here too."""
        self._contributors |= other.contributors
        self._unanswered |= other.unanswered

    def contribute(self, connection: Connection, qos: int = 1) -> None:
        """Note that a connection has a publication here."""
        (self._contributors if qos else self._unanswered).add(connection)

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
    def released(self) -> dict[int, Released]:
        """The staged messages that rows release, by row."""
        return {row: mark.released for row, mark in self.marks.items() if mark.released is not None}

    @property
    def dead_letters(self) -> list[int]:
        """The rows that are dead letters. Unlike `marks`, this makes no mark for each row that releases a staged
        message."""
        return [row for row, mark in self._marks.items() if mark.cause is not None]

    @property
    def has_wills(self) -> bool:
        """Whether a will is among the rows."""
        return any(mark.will is not None for mark in self._marks.values())

    @property
    def releases(self) -> int:
        """How many staged messages are released here."""
        count = sum(map(len, map(_ids, self.released_rows)))
        return count + sum(mark.released is not None for mark in self._marks.values()) if self._marks else count

    def rewrite(self, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row]) -> list[int]:
        """Replace row `i` by `parts[i]`: itself, nothing, or several rows. Rows in `elsewhere` have become a row of
        another destination. What is remembered about rows moves with them. Returns the new number of each row."""
        self.close()
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


class Batch:
    """One batch on its way to a commit."""

    __slots__ = (
        "_links", "_moved", "after", "answered", "changed", "consumed", "copied", "deliveries", "destinations",
        "fanned", "mixed", "moves", "opened", "parked", "pending", "replaces", "replies", "rows", "staged",
        "staged_rows", "started", "state", "subscriptions", "takes", "uncompleted", "undo",
    )  # fmt: skip

    def __init__(self) -> None:
        self.destinations: dict[Address, Destination] = {}
        self.mixed: list[Mixed] = []
        """What is put to many queues, a queue for each row. Its rows come after those of `destinations`."""
        self.state: dict[tuple[str, bytes, int], Puts] = {}
        """What is put to the gateway's own state, by queue, key and priority. It is never parked."""
        self.takes: dict[tuple[str, bytes], Takes] = {}
        self.consumed: dict[object, Consumed] = {}
        """The messages consumed from queues of targets, by queue."""
        self.replaces: dict[tuple[str, bytes], Replace] = {}
        self.changed: dict[tuple[str, bytes], Session] = {}
        """Sessions by the name of their records, which are made when the batch is closed: once, however often they have
        changed until then."""
        self.subscriptions = 0
        """How many subscriptions the session records in this batch have in all, which says how long they are."""
        self.replies: dict[Connection, list[bytes]] = {}
        """What is sent when the commit has returned, by connection, in order."""
        self.answered = [0] * 16
        """The number of packets among the replies, by type."""
        self.pending: dict[Connection, int] = {}
        """The number of QoS 1 publications of each connection that are acknowledged when the commit has returned."""
        self.uncompleted: dict[Connection, int] = {}
        """The number of QoS 2 publications of each 5.0 client that count against its Receive Maximum until PUBCOMP is
        sent, MQTT 5 4.9."""
        self.after: list[Callable[[], object]] = []
        """What else is done when the commit has returned."""
        self.deliveries: list[Delivery] = []
        """What local sessions get when the commit has returned, in order."""
        self.staged: list[StagedRows] = []
        """QoS 2 publications: the rows that store them until their PUBREL."""
        self.staged_rows = 0
        """The number of these rows, once they are committed."""
        self.moves: dict[Session, list[Move]] = {}
        """Releases of publications that are staged in runs, in order."""
        self.fanned: dict[Released, Publication | None] = {}
        """Releases that reach local subscribers with this batch, even if their queue has to be waited for."""
        self._links: Links | None = None
        self._moved: dict[Destination, set[int]] = {}
        """Rows that are in another batch already, and remain here until `end_moves`."""
        self.parked: Parked | None = None
        """Set when this batch is the next attempt of what was parked."""
        self.rows = 0
        self.copied = 0
        """Bytes of payload in copies for sessions, those of QoS 0 not counted."""
        self.opened = 0.0
        """When the first bytes for this batch were read."""
        self.started = 0.0
        """When it was submitted."""
        self.undo: Undo | None = None
        """Reverts the unit that is being handled if it fails. Whoever changes columns of the batch notes the change
        here first."""

    def __bool__(self) -> bool:
        return bool(
            self.replies
            or self.destinations
            or self.mixed
            or self.state
            or self.deliveries
            or self.after
            or self.takes
            or self.consumed
            or self.replaces
            or self.changed
            or self.moves
        )

    @property
    def links(self) -> Links:
        """Publications with several destinations. Few batches have some."""
        if self._links is None:
            self._links = Links()
        return self._links

    # -- what is put --

    def destination(self, address: Address, policy: Policy) -> Destination:
        """The destination with an address, for messages of the rule with this policy."""
        if self.mixed:
            self.part(address)
        destination = self.destinations.get(address)
        if destination is None:
            if self.undo is not None:
                self.undo.key(self.destinations, address)
            destination = self.destinations[address] = Destination(address, policy)
        else:
            if self.undo is not None:
                self.undo.destination(destination)
            destination.aim(policy)
        return destination

    def part(self, address: Address | None = None) -> None:
        """Turn `mixed` rows into one destination for each queue: the rows that may go to this address, or all rows."""
        like = None if address is None else address._replace(queue="")
        for mixed in [one for one in self.mixed if like is None or one.address == like]:
            self.mixed.remove(mixed)
            undo, self.undo = self.undo, None  # these rows are not the unit's that is being handled
            mixed.move_into(self)
            self.undo = undo

    def noting(self, table: dict[Any, Any], key: object) -> None:
        """Tell `undo` that a key of a table is about to change: a table of the batch, or of a session whose state goes
        with it."""
        if self.undo is not None:
            self.undo.key(table, key)

    def undone_by(self, call: Callable[..., object], *args: object) -> None:
        """Have a call made that reverts a change outside the batch's own columns, if the unit that is being handled
        fails."""
        if self.undo is not None:
            self.undo.step(call, *args)

    def state_puts(self, queue: str, key: bytes, priority: int = 0) -> Puts:
        """The puts to a queue of the gateway's own state, to be added to."""
        puts = self.state.get((queue, key, priority))
        if puts is None:
            self.noting(self.state, (queue, key, priority))
            puts = self.state[queue, key, priority] = Puts(queue, "", key, priority)
        elif self.undo is not None:
            self.undo.length(puts.heads)
            self.undo.length(puts.bodies)
        return puts

    def put(self, address: Address, policy: Policy, head: bytes, body: bytes) -> Row:
        """Put one message of a rule. The fast and the plain lane append to the columns themselves."""
        return self.append(self.destination(address, policy), head, body)

    def append(self, destination: Destination, head: bytes, body: bytes) -> Row:
        """Append one more message to a destination that the caller has just asked for."""
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

    def staging(self, session: Session, run: StagedRun | None = None) -> tuple[Puts, list[int]]:
        """The puts that store what a session stages now, perhaps a run, and the packet identifiers of their rows."""
        puts = self.state_puts(STAGED, session.staged_key)
        if self.undo is not None:
            self.undo.length(self.staged)
        ids: list[int] = run.ids if run is not None else []
        self.staged.append((session, puts, len(puts.heads), ids, run))
        return puts, ids

    def close(self) -> None:
        """End direct appending: from now on whoever appends rows asks for the destination first."""
        for destination in self.destinations.values():
            destination.close()
        for mixed in self.mixed:
            mixed.close()

    # -- failures --

    def rewrite(
        self, destination: Destination, parts: list[list[tuple[bytes, bytes]]], elsewhere: dict[int, Row] | None = None
    ) -> int:
        """Rewrite a destination, and what refers to its rows. Returns by how many rows it is shorter."""
        places = elsewhere or {}
        firsts = destination.rewrite(parts, places)
        if self._links is not None:
            self._links.renumber(destination, firsts, places)
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
        """Return all rows of some destinations, and the other rows of publications that have a row there or are among
        `links`."""
        rows = {destination: self._rows_left(destination) for destination in destinations}
        for link in (*self.links.at(destinations), *links):
            for destination, row in link.rows:
                rows.setdefault(destination, set()).add(row)
        return rows

    def _rows_left(self, destination: Destination) -> set[int]:
        rows = set(range(destination.rows))
        return rows - self._moved[destination] if destination in self._moved else rows

    def has(self, destination: Destination) -> bool:
        """Whether rows of a destination are left here."""
        moved = self._moved.get(destination, ())
        return self.destinations.get(destination.address) is destination and destination.rows > len(moved)

    def in_step(self, destinations: Collection[Destination], links: Iterable[LinkedRows] = ()) -> list[LinkedRows]:
        """Return the publications that have a row in some destinations or are among `links`. With each of them that has
        several destinations come all publications of the same connection that share a destination with it, so that no
        queue gets them in another order than they were sent in. QoS 0, for which nobody waits, keeps no order."""
        found = {id(link): link for link in (*self.links.at(destinations), *links)}
        more = list(found.values())
        while more:
            several = [link for link in more if len(link.rows) > 1 and link.connection is not None]
            reached = {(link.connection, one): None for link in several for one, _ in link.rows}
            every = (link for connection, one in reached for link in self.links.of(connection, one))
            more = list({id(link): link for link in every if id(link) not in found}.values())
            found |= {id(link): link for link in more}
        return list(found.values())

    def move_to(
        self, into: Batch, destinations: Collection[Destination], links: Sequence[LinkedRows] = (),
        single: Mapping[Destination, set[int]] | None = None,
    ) -> None:  # fmt: skip
        """Move destinations, publications and single rows into another batch, with the rows that are linked to
        destinations and the takes of the staged messages they release. `end_moves` follows, after the last one:
        hundreds may move at once."""
        going = self.with_linked(destinations, links)
        for destination, rows in (single or {}).items():
            going.setdefault(destination, set()).update(rows)
        links = list({id(link): link for link in (*self.links.at(destinations), *links)}.values())
        places: dict[Row, Row] = {}
        for destination, rows in going.items():
            whole = destination in destinations and destination not in self._moved
            if whole and destination.address not in into.destinations:
                self._move_whole(into, destination)
                continue
            places |= self._copy_rows(into, destination, sorted(rows))
            self._moved.setdefault(destination, set()).update(rows)
            if destination in destinations:
                into.destinations[destination.address].contribute_like(destination)
        for link in links:
            moved = LinkedRows([places.get(row, row) for row in link.rows], link.connection)
            if len(moved.rows) > 1:
                into.links.all().append(moved)
            link.rows.clear()
            if link.connection is not None:
                for destination, _ in moved.rows:
                    destination.contribute(link.connection)

    def end_moves(self) -> None:
        """Remove what has moved into other batches."""
        moved, self._moved = self._moved, {}
        self.links.forget_empty()
        for destination, rows in moved.items():
            if self.destinations.get(destination.address) is destination:
                self.without(destination, rows)

    def _move_whole(self, into: Batch, destination: Destination) -> None:
        into.destinations[destination.address] = self.destinations.pop(destination.address)
        into.rows += destination.rows
        self.rows -= destination.rows
        self._hand_over(destination.marks.values(), into)

    def _copy_rows(self, into: Batch, source: Destination, rows: list[int]) -> dict[Row, Row]:
        """Append rows to the other batch's destination with the same address. Returns the new row for each."""
        places: dict[Row, Row] = {}
        marks: list[Mark] = []
        for row in rows:
            head, body = source.puts.heads[row], source.puts.bodies[row]
            target, at = places[source, row] = into.put(source.address, source.policy(row), head, body)
            mark = source.marks.pop(row, None)
            if mark is not None:
                target.mark(at, mark._replace(source=None))
                marks.append(mark)
        self._hand_over(marks, into)
        into.destinations[source.address].segmented |= source.segmented
        return places

    def _hand_over(self, marks: Iterable[Mark], into: Batch) -> None:
        """Have the other batch remove the staged messages that rows release from their queues. A will is kept until
        then."""
        released: dict[bytes, set[Token]] = {}
        for mark in marks:
            if mark.released is not None:
                session, _, token = mark.released
                released.setdefault(session.staged_key, set()).add(token)
            if mark.will is not None:
                self.replace(WILLS, mark.will.key, mark.will.record)
                into.replace(WILLS, mark.will.key, None)
        for key, tokens in released.items():
            takes = self.takes.get((STAGED, key))
            if takes is not None:  # one look at all: removing each by itself would be a square
                into.taken(STAGED, key).extend([token for token in takes.tokens if token in tokens])
                takes.tokens[:] = [token for token in takes.tokens if token not in tokens]

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
            self.noting(self.takes, (queue, key))
            takes = self.takes[queue, key] = Takes(queue, key, [])
        elif self.undo is not None:
            self.undo.length(takes.tokens)
        return takes.tokens

    def replace(self, queue: str, key: bytes, body: bytes | None) -> None:
        """Replace one state message; the last replacement in a batch counts."""
        name = queue, key
        if name in self.changed:
            self.noting(self.changed, name)
            del self.changed[name]
        self.noting(self.replaces, name)
        self.replaces[name] = Replace(queue, key, body)

    def change(self, queue: str, session: Session) -> None:
        """Replace the record of a session by what it is when the batch is closed."""
        name = queue, session.key
        if self.changed.get(name) is not session:
            self.noting(self.changed, name)
            self.changed[name] = session
            self.subscriptions += len(session.subscriptions)

    def reply(self, connection: Connection, data: bytes) -> None:
        """Add a packet that may exist only when the commit has returned (design decision 1)."""
        self.answered[data[0] >> 4] += 1
        replies = self.replies.get(connection)
        if replies is None:
            self.noting(self.replies, connection)
            self.replies[connection] = [data]
        else:
            if self.undo is not None:
                self.undo.length(replies)
            replies.append(data)

    def release(self, connection: Connection, count: int) -> None:
        """Note that this many QoS 2 publications of a 5.0 client are released: they count until their PUBCOMPs are
        sent."""
        self.uncompleted[connection] = self.uncompleted.get(connection, 0) + count
        connection.uncompleted += count

    def unit(self) -> Unit | None:
        """Return what the queue manager is asked to commit, or None if there is nothing."""
        puts = [destination.puts for destination in self.destinations.values() if destination.puts.heads]
        if self.state:
            puts += [puts for puts in self.state.values() if puts.heads]
        if self.consumed:
            puts += [one.put() for one in self.consumed.values() if one.names]
        if self.mixed:
            puts += [mixed.puts for mixed in self.mixed if mixed.puts.heads]
        takes = [takes for takes in self.takes.values() if takes.tokens] if self.takes else []
        if not (puts or takes or self.replaces or self.moves):
            return None
        unit = Unit(puts, takes, [], list(self.replaces.values()))
        for session, moves in self.moves.items():
            add_moves(moves, session, unit)
        return unit if not self.moves or unit else None
