"""The fast lane: ordinary publications straight from the bytes that were read to the columns of the open batch.

Nearly all that devices send is a PUBLISH without properties on a route with a fast path, and the PUBREL of one. Two
shapes of it are taken in together: many packets from one connection (a chunk, compiled in `_chunks.c`) and one packet
from each of many connections (a round, compiled in `_rounds.c`). Whatever else is among them is returned and goes
through the plain lane (`plain.py`), packet by packet; so does every chunk where there was no compiler at installation.
Both lanes have the same result, which the tests compare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker import books
from gateway.broker.answers import PUBACKS
from gateway.broker.batch import Move
from gateway.broker.publish.qos2 import PUBREL
from gateway.broker.publish.route import FastPath, Route
from gateway.mqtt.packets import V5
from gateway.mqtt.reader import Reader
from gateway.ports.batch import Address
from gateway.ports.state_queues import STAGED
from gateway.session.connection import ONLINE, Connection
from gateway.session.session import STAGED_ID
from gateway.session.staged_run import LEAST, MOST, StagedRun

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, ReleasedRows
    from gateway.broker.context import Context
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.qos2 import StagedRuns, Staging

    _Columns = tuple[Address, list[bytes], list[bytes], list[ReleasedRows] | None]
    Arrived = list[tuple[Connection, bytes]]
    Opened = Callable[[Route], tuple[list[bytes], list[bytes], set[Connection]]]

try:
    import gateway.broker.publish._chunks as chunks
except ModuleNotFoundError:
    compiled_chunks = False
else:
    compiled_chunks = True
    chunks.configure(Route, FastPath.DIRECT, FastPath.STAGED, STAGED_ID)

QOS_0, QOS_1, QOS_2 = 0x30, 0x32, 0x34
"""First bytes of a PUBLISH with neither DUP nor RETAIN."""
MANY = 32
"""From so many topics on, a client's routes are kept in a `TopicCache`, which the compiled lane reads quickly."""
SHORT = 4096
"""The longest packet of a round: its remaining length is one byte or two, and it was read in one piece."""
_KINDS = {first: number for number, first in enumerate((QOS_0, QOS_1, QOS_2, PUBREL))}
"""What the fast lane takes from a chunk, by first byte."""


def compiled() -> bool:
    """Whether chunks and rounds are both taken by compiled code."""
    return compiled_chunks and take_each is not round_in_python


class FastLane:
    """Takes ordinary packets into the open batch, many at a time."""

    def __init__(self, context: Context, publications: Publications, staging: Staging, staged_runs: StagedRuns) -> None:
        self.context = context
        self.router = publications.router
        self.publications = publications
        self.staging = staging
        self.staged_runs = staged_runs

    def take_chunk(self, connection: Connection, chunk: bytes) -> bytes:
        """Take the ordinary packets at the beginning of a chunk; returns the rest of the chunk."""
        if not compiled_chunks:
            return chunk
        reader = connection.reader
        data = chunk if reader.held is None else reader.joined(chunk)
        if not data or data[0] not in _KINDS:
            return data
        if connection.generation != self.router.generation:
            self.publications.forget_routes(connection)
        taken = Chunk(self, connection, data)
        taken.take()
        return data[taken.offset :] if taken.offset else data

    def take_round(self, arrived: Arrived) -> Arrived:
        """Take in the ordinary publications among at most SHORT bytes of each connection; returns the others."""
        context = self.context
        batch, now = context.batch, context.scheduler.monotonic()
        longest = context.shortest_payload  # a longer one goes through the plain lane
        others, rows, size = take_each(
            arrived, partial(_opened, batch), batch.replies, batch.pending, PUBACKS, now, self.router.generation,
            longest,
        )  # fmt: skip
        if rows:
            context.now = context.scheduler.now()
            batch.opened = batch.opened or now
            batch.rows += rows
            batch.answered[4] += rows
            context.counters.packets_in[3] += rows
            context.counters.bytes_in += size
        return others


# -- many packets from one connection --


class Chunk:
    """What one connection has sent, on its way into the open batch."""

    __slots__ = ("batch", "connection", "data", "lane", "limits", "missing", "offset", "prepared", "replies", "rows")

    def __init__(self, lane: FastLane, connection: Connection, data: bytes) -> None:
        self.lane = lane
        self.batch = lane.context.batch
        self.connection = connection
        self.data = data
        self.offset = 0
        self.prepared: dict[Address, _Columns] = {}
        """Columns by address, for the addresses that packets of this chunk have led to."""
        self.replies: list[bytes] = []
        self.rows = [0, 0, 0, 0]
        """How many packets of each of `_KINDS` have been taken."""
        self.missing = partial(lane.publications.route, connection)
        longest = connection.limits.max_payload or connection.limits.max_packet
        self.limits = connection.version == V5, connection.reader.max_packet, longest

    def take(self) -> None:
        """Take packets until one is not ordinary."""
        data, end = self.data, len(self.data)
        while self.offset < end:
            first = data[self.offset]
            if first in {QOS_0, QOS_1}:
                more = self._publish(first)
            elif first == QOS_2:
                more = self._stage()
            else:
                more = first == PUBREL and self.release()
            if not more:
                break
        self._account()

    def _advance(self, first: int, taken: tuple[int, int]) -> bool:
        """Note up to where packets were taken, and how many; whether there were any."""
        stop, rows = taken
        self.rows[_KINDS[first]] += rows
        if stop == self.offset:
            return False
        self.offset = stop
        return True

    def _route(self, first: int) -> Route | None:
        """The route of the next packet, a PUBLISH."""
        topic = chunks.topic(self.data, self.offset, self.limits[1])
        if topic is None:
            return None
        route: Route | None = self.connection.caches[first & 7].get(topic)
        if route is None or route.version != route.changes[0]:
            return self.lane.publications.route(self.connection, first, topic)
        return route

    def _open(self, route: Route, *, releasing: bool = False) -> None:
        """Prepare the columns of a route's address."""
        destination = self.batch.destination(route.address, route.policies[0])
        destination.contribute(self.connection, route.first & 6)
        released = destination.released_rows if releasing else None
        self.prepared[route.address] = (route.address, destination.puts.heads, destination.puts.bodies, released)

    def _publish(self, first: int) -> bool:
        """PUBLISH of QoS 0 or 1. Like the next four: whether any packet was taken."""
        route = self._route(first)
        if route is None or route.fast_path is not FastPath.DIRECT:
            return False
        columns = self.prepared.get(route.address)
        if columns is None or columns[0] is not route.address:
            self._open(route)
        cache = self._cache(first & 7)
        return self._advance(
            first,
            chunks.take(self.data, self.offset, *self.limits, first, cache, self.missing, self.prepared, self.replies),
        )

    def _cache(self, kind: int) -> dict[bytes, Route]:
        """The client's routes for these QoS and RETAIN bits."""
        caches = self.connection.caches
        cache = caches[kind]
        if len(cache) >= MANY and type(cache) is dict:
            cache = chunks.TopicCache(cache)
            self.connection.caches = (*caches[:kind], cache, *caches[kind + 1 :])
        return cache

    def _stage(self) -> bool:
        """PUBLISH of QoS 2."""
        route, connection = self._route(QOS_2), self.connection
        if route is None or route.fast_path is not FastPath.STAGED:
            return False
        session = connection.session
        several = len(self.data) - self.offset >= LEAST * (6 + len(route.wire_topic))
        if several and self.lane.staged_runs.can_stage(route) and self._stage_run(route):
            return True
        self.lane.staging.head(route, session.client_id)
        puts, ids = self.batch.staging(session)
        taken = chunks.stage_records(
            self.data, self.offset, *self.limits, connection.caches[QOS_2 & 7], self.missing, session.inbound, ids,
            puts.heads, puts.bodies, self.replies,
        )  # fmt: skip
        return self._advance(QOS_2, taken)

    def _stage_run(self, route: Route) -> bool:
        """PUBLISH of QoS 2 as a staged run, if enough of one topic follow."""
        session = self.connection.session
        run = StagedRun(route.wire_topic, QOS_2, route.address, route.head, getattr(route.tails, "width", 0))
        stop, rows, run.size, run.longest = chunks.stage_run(
            self.data, self.offset, *self.limits, LEAST, MOST, route.tails, session.inbound, run, run.ids,
            run.bodies, self.replies,
        )  # fmt: skip
        if rows:
            self.lane.staged_runs.add(session, run)
        return self._advance(QOS_2, (stop, rows))

    def _release_run(self, run: StagedRun) -> bool:
        """PUBREL of a staged run, as long as its publications would become the same messages today."""
        connection = self.connection
        route: Route | None = connection.caches[run.first & 7].get(run.topic)
        if route is None or route.version != route.changes[0]:
            route = self.lane.publications.route(connection, run.first, run.topic)
        if (
            not run.tokens
            or route.fast_path is not FastPath.STAGED
            or route.address != run.address
            or route.head != run.head
        ):
            return False
        session = connection.session
        stop, rows, first = chunks.release_run(self.data, self.offset, session.inbound, run, run.ids, self.replies)
        if rows:
            self.lane.staged_runs.move(session, Move(run, first, rows, route.policies[0], connection))
        return self._advance(PUBREL, (stop, rows))

    def release(self) -> bool:
        """PUBREL."""
        context, connection, batch = self.lane.context, self.connection, self.batch
        session = connection.session
        staged = session.inbound.get(int.from_bytes(self.data[self.offset + 2 : self.offset + 4], "big"))
        if context.trace is None and type(staged) is StagedRun:
            return self._release_run(staged)
        if context.trace is not None or type(staged) is not tuple:
            return False
        if session in batch.run_changes.moves:  # in the order in which they were released
            self.lane.staged_runs.write_out(batch, session)
        topic, _, first = staged
        route = connection.caches[first & 7].get(topic)
        if route is None or route.version != route.changes[0] or not route.fast_path:
            return False
        columns = self.prepared.get(route.address)
        if columns is None or columns[0] is not route.address or columns[3] is None:
            self._open(route, releasing=True)
        tokens = batch.taken(STAGED, session.key)
        taken = chunks.release_records(
            self.data, self.offset, connection.caches, session.inbound, session.staged_tokens, self.prepared, session,
            tokens, self.replies,
        )  # fmt: skip
        return self._advance(PUBREL, taken)

    def _account(self) -> None:
        """Count what was taken, and have it acknowledged."""
        connection = self.connection
        batch, (unanswered, acknowledged, received, completed) = self.batch, self.rows
        if self.replies:
            batch.replies.setdefault(connection, []).extend(self.replies)
        counters, published = self.lane.context.counters, unanswered + acknowledged + received
        books.took(counters, batch, connection, published, acknowledged)
        batch.answered[5] += received
        batch.answered[7] += completed
        counters.packets_in[6] += completed
        batch.rows += published + completed


# -- one packet from each of many connections --


def round_in_python(  # noqa: PLR0915 -- the hot loop
    arrived: Arrived,
    opened: Opened,
    replies: dict[Connection, list[bytes]],
    pending: dict[Connection, int],
    pubacks: list[bytes],
    now: float,
    generation: int,
    longest: int,
    /,
) -> tuple[Arrived, int, int]:
    """Append the ordinary publications to columns, which `opened` returns for a route, and answer and count them.
    Returns the others, and of those taken how many there were and their bytes."""
    others: Arrived = []
    heads: list[bytes] = []
    bodies: list[bytes] = []
    owners: set[Connection] = set()
    address, direct = None, FastPath.DIRECT
    rows = size = 0
    for one in arrived:
        connection, chunk = one
        length = len(chunk)
        reader = connection.reader
        if length < 6 or chunk[0] != QOS_1:
            others.append(one)
            continue
        at = 2
        remaining = chunk[1]
        if remaining > 127:
            at, remaining = 3, (remaining & 127) | chunk[2] << 7
            if not 127 < remaining < 16_384:  # more bytes than it needs, or a third one
                others.append(one)
                continue
        if (
            remaining != length - at
            or connection.state != ONLINE
            or connection.generation != generation
            or reader.held is not None
            or length > reader.max_packet
        ):
            others.append(one)
            continue
        first = at + 2
        mark = first + (chunk[at] << 8 | chunk[at + 1])
        body = mark + 2
        route = connection.caches[2].get(chunk[first:mark])
        if route is None or route.fast_path is not direct or route.version != route.changes[0] or body > length:
            others.append(one)
            continue
        if connection.version == V5:
            pending_too = connection.inbound_pending + len(connection.session.inbound)
            if (
                body == length or chunk[body] or pending_too >= connection.limits.receive_maximum
            ):  # it has properties, or there is no room
                others.append(one)
                continue
            body += 1
        packet_id = chunk[mark] << 8 | chunk[mark + 1]
        if not packet_id or length - body > longest:
            others.append(one)
            continue
        if route.address is not address:
            address = route.address
            heads, bodies, owners = opened(route)
        heads.append(route.head)
        bodies.append(route.tails[packet_id] + chunk[body:])
        owners.add(connection)
        answers = replies.get(connection)
        if answers is None:
            replies[connection] = [pubacks[packet_id]]
        else:
            answers.append(pubacks[packet_id])
        pending[connection] = pending.get(connection, 0) + 1
        connection.inbound_pending += 1
        connection.last_read = now
        rows += 1
        size += length
    return others, rows, size


take_each = round_in_python
try:
    import gateway.broker.publish._rounds as rounds
except ModuleNotFoundError:
    pass
else:
    rounds.configure(Connection, Reader, Route, FastPath.DIRECT, ONLINE, V5)
    take_each = rounds.take


def _opened(batch: Batch, route: Route) -> tuple[list[bytes], list[bytes], set[Connection]]:
    """The columns of a route's address, and the connections that have publications there."""
    destination = batch.destination(route.address, route.policies[0])
    return destination.puts.heads, destination.puts.bodies, destination.contributors
