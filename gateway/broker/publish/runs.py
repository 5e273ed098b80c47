"""Runs of plain publications straight from the bytes of a chunk, where the compiled kernel is there.

The kernel does in C what `Reader` and `Publishing.packets` do for a PUBLISH without properties on a hot route, and for
the PUBREL of one, which is nearly all that devices send. Whatever else is in the chunk is returned and goes the usual
way; so does everything where there is no kernel, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from gateway.broker.moving import Move
from gateway.broker.publish.holding import LEAST, MOST
from gateway.broker.publish.route import HOT, STAGING, Route
from gateway.broker.turn import Run
from gateway.mqtt.packets import V5
from gateway.ports.state_queues import STAGED
from gateway.session.connection import Connection
from gateway.session.held import Held

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.turn import Stretch
    from gateway.ports.batch import Token

    _Columns = tuple[Run, list[bytes], list[bytes], list[Stretch] | None]

kernel: ModuleType | None
"""The compiled module; None where there was no compiler when the gateway was installed."""
try:
    from gateway.broker.publish import _kernel

    kernel = _kernel
    kernel.routes(Route)
    kernel.pair({}, [], ())
    kernel.let_go(b"", 0, {}, None, [], [])
    kernel.Topics()
except (ImportError, AttributeError):  # AttributeError: it was built from older sources
    kernel = None

QOS_0, QOS_1, QOS_2 = 0x30, 0x32, 0x34
"""First bytes of a PUBLISH with neither DUP nor RETAIN."""
PUBREL = 0x62
MANY = 32
"""With so many topics a client's routes are kept where the kernel finds them quickly."""
_MARKS = {first: number for number, first in enumerate((QOS_0, QOS_1, QOS_2, PUBREL))}


def compiled() -> bool:
    """Whether the kernel is there."""
    return kernel is not None


def length_of(column: list[bytes]) -> int:
    """The bytes of a column's values together."""
    return sum(map(len, column)) if kernel is None else int(kernel.length(column))


def pair(into: dict[int, Token], ids: list[int], tokens: Sequence[Token]) -> None:
    """The token of each packet id, now that they are stored."""
    if kernel is None:
        into.update(zip(ids, tokens, strict=True))
    else:
        kernel.pair(into, ids, tokens)


def take(engine: Engine, connection: Connection, chunk: bytes) -> bytes:
    """Take the publications at the beginning of what the connection has sent into the open turn; returns the rest."""
    if kernel is None:
        return chunk
    reader = connection.reader
    data = chunk if reader.held is None else reader.joined(chunk)
    if not data or data[0] not in _MARKS:
        return data
    if connection.generation != engine.router.generation:
        engine.publishing.forget_routes(connection)
    taking = Taking(engine, connection, data)
    taking.run()
    return data[taking.offset :] if taking.offset else data


class Taking:
    """One chunk on its way into the open turn."""

    __slots__ = ("connection", "data", "engine", "limits", "missing", "offset", "prepared", "replies", "rows")

    def __init__(self, engine: Engine, connection: Connection, data: bytes) -> None:
        self.engine = engine
        self.connection = connection
        self.data = data
        self.offset = 0
        self.prepared: dict[Run, _Columns] = {}
        """The columns of the runs that have been met, as the kernel wants them."""
        self.replies: list[bytes] = []
        self.rows = [0, 0, 0, 0]
        """How many of what is in `_MARKS`."""
        self.missing = partial(engine.publishing.route, connection)
        longest = connection.limits.max_payload or connection.limits.max_packet
        self.limits = connection.version == V5, connection.reader.max_packet, longest

    def run(self) -> None:
        """As far as the kernel goes."""
        data, end = self.data, len(self.data)
        while self.offset < end:
            first = data[self.offset]
            if first in {QOS_0, QOS_1}:
                more = self._take(first)
            elif first == QOS_2:
                more = self._stage()
            else:
                more = first == PUBREL and self.release()
            if not more:
                break
        self._account()

    def _went(self, first: int, went: tuple[int, int]) -> bool:
        """Whether the kernel got anywhere."""
        stop, rows = went
        self.rows[_MARKS[first]] += rows
        if stop == self.offset:
            return False
        self.offset = stop
        return True

    def _route(self, first: int) -> Route | None:
        """The route of the PUBLISH that is next."""
        topic = kernel.topic(self.data, self.offset, self.limits[1])  # type: ignore[union-attr]
        if topic is None:
            return None
        route: Route | None = self.connection.caches[first & 7].get(topic)
        if route is None or route.seen != route.cell[0]:
            return self.engine.publishing.route(self.connection, first, topic)
        return route

    def _open(self, route: Route, released: list[Stretch] | None = None) -> None:
        """Prepare the columns of a route's run."""
        turn, run = self.engine.turn, route.run
        puts = turn.run(run)
        turn.aim(run, route.policies[0])
        turn.contribute(run, self.connection, route.first & 6)
        self.prepared[run] = (run, puts.heads, puts.bodies, released)

    def _take(self, first: int) -> bool:
        route = self._route(first)
        if route is None or route.hot != HOT:
            return False
        known = self.prepared.get(route.run)
        if known is None or known[0] is not route.run:
            self._open(route)
        cache = self._cache(first & 7)
        return self._went(
            first,
            kernel.take(self.data, self.offset, *self.limits, first, cache, self.missing, self.prepared, self.replies),  # type: ignore[union-attr]
        )

    def _cache(self, kind: int) -> dict[bytes, Route]:
        """The client's routes for these QoS and RETAIN bits."""
        caches = self.connection.caches
        cache = caches[kind]
        if len(cache) >= MANY and type(cache) is dict:
            cache = kernel.Topics(cache)  # type: ignore[union-attr]
            self.connection.caches = (*caches[:kind], cache, *caches[kind + 1 :])
        return cache

    def _stage(self) -> bool:
        route, connection = self._route(QOS_2), self.connection
        if route is None or route.hot != STAGING:
            return False
        session = connection.session
        several = len(self.data) - self.offset >= LEAST * (6 + len(route.wire_topic))
        if several and self.engine.holding.takes(route) and self._hold(route):
            return True
        self.engine.staging.head(route, session.client_id)
        puts, ids = self.engine.turn.staging(session)
        went = kernel.stage(  # type: ignore[union-attr]
            self.data, self.offset, *self.limits, connection.caches[QOS_2 & 7], self.missing, session.inbound, ids,
            puts.heads, puts.bodies, self.replies,
        )  # fmt: skip
        return self._went(QOS_2, went)

    def _hold(self, route: Route) -> bool:
        """Publications of one topic, if enough of them follow."""
        session = self.connection.session
        held = Held(route.wire_topic, QOS_2, route.run, route.head, getattr(route.tails, "width", 0))
        stop, rows, held.size, held.longest = kernel.hold(  # type: ignore[union-attr]
            self.data, self.offset, *self.limits, LEAST, MOST, route.tails, session.inbound, held, held.ids,
            held.bodies, self.replies,
        )  # fmt: skip
        if rows:
            self.engine.holding.add(session, held)
        return self._went(QOS_2, (stop, rows))

    def _let_go(self, held: Held) -> bool:
        """PUBRELs of what is staged in a run, as long as it would be the same messages today."""
        engine, connection = self.engine, self.connection
        route: Route | None = connection.caches[held.first & 7].get(held.topic)
        if route is None or route.seen != route.cell[0]:
            route = engine.publishing.route(connection, held.first, held.topic)
        if not held.tokens or route.hot != STAGING or route.run != held.run or route.head != held.head:
            return False
        session = connection.session
        stop, rows, first = kernel.let_go(  # type: ignore[union-attr]
            self.data, self.offset, session.inbound, held, held.ids, self.replies
        )
        if rows:
            engine.holding.move(session, Move(held, first, rows, route.policies[0], connection))
        return self._went(PUBREL, (stop, rows))

    def release(self) -> bool:
        """PUBRELs."""
        engine, connection, turn = self.engine, self.connection, self.engine.turn
        session = connection.session
        staged = session.inbound.get(int.from_bytes(self.data[self.offset + 2 : self.offset + 4], "big"))
        if engine.trace is None and type(staged) is Held:
            return self._let_go(staged)
        if engine.trace is not None or type(staged) is not tuple:
            return False
        if session in turn.held.moves:  # in the order in which they were released
            engine.holding.write_out(turn, session)
        topic, _, first = staged
        route = connection.caches[first & 7].get(topic)
        if route is None or route.seen != route.cell[0] or not route.hot:
            return False
        known = self.prepared.get(route.run)
        if known is None or known[0] is not route.run or known[3] is None:
            self._open(route, turn.releasing(route.run))
        taken = turn.taken(STAGED, session.key)
        went = kernel.release(  # type: ignore[union-attr]
            self.data, self.offset, connection.caches, session.inbound, session.staged_tokens, self.prepared, session,
            taken, self.replies,
        )  # fmt: skip
        return self._went(PUBREL, went)

    def _account(self) -> None:
        """What the packets of a run change."""
        engine, connection = self.engine, self.connection
        turn, (unanswered, acknowledged, received, completed) = engine.turn, self.rows
        if self.replies:
            turn.replies.setdefault(connection, []).extend(self.replies)
        if acknowledged:
            connection.inbound_pending += acknowledged
            turn.pending[connection] = turn.pending.get(connection, 0) + acknowledged
        answered, packets_in = turn.answered, engine.counters.packets_in
        answered[4] += acknowledged
        answered[5] += received
        answered[7] += completed
        connection.session.received += unanswered + received
        published = unanswered + acknowledged + received
        packets_in[3] += published
        packets_in[6] += completed
        turn.rows += published + completed
