"""One small PUBLISH from each of many connections, which is what devices with one message in flight send.

`Publishing.packets` shares its preparations between the packets of one chunk. Here there is one packet a chunk, so the
frame is read where it lies, and what can be prepared is prepared for all connections together; in C (`_singles.c`)
where there was a compiler at installation. Whatever is not a plain PUBLISH of QoS 1 on a hot route goes the usual way
(`Engine.received`), with which the tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.answers import PUBACKS
from gateway.broker.publish.route import HOT, Route
from gateway.mqtt.packets import V5
from gateway.mqtt.reader import Reader
from gateway.session.connection import ONLINE, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.turn import Turn

    Arrived = list[tuple[Connection, bytes]]
    Opened = Callable[[Route], tuple[list[bytes], list[bytes], set[Connection]]]

SHORT = 4096
"""The longest packet that is looked at here: its remaining length is one byte or two, and it was read in one piece."""
_QOS_1 = 0x32
"""The first byte of a PUBLISH with QoS 1, neither DUP nor RETAIN."""


def take(  # noqa: PLR0915 -- the hot loop
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
    """The plain publications go into columns, `opened` for each run, and are answered and counted; the others are
    returned, with the number of those taken and their bytes."""
    others: Arrived = []
    heads: list[bytes] = []
    bodies: list[bytes] = []
    owners: set[Connection] = set()
    run = None
    rows = size = 0
    for one in arrived:
        connection, chunk = one
        length = len(chunk)
        reader = connection.reader
        if length < 6 or chunk[0] != _QOS_1:
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
        if route is None or route.hot != HOT or route.seen != route.cell[0] or body > length:
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
        if route.run is not run:
            run = route.run
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


take_each = take
try:
    from gateway.broker.publish import _singles

    _singles.classes(Connection, Reader, Route)
    take_each = _singles.take
except (ImportError, AttributeError):  # AttributeError: it was built from older sources
    pass


def compiled() -> bool:
    """Whether the compiled function is used."""
    return take_each is not take


def publications(engine: Engine, arrived: Arrived) -> Arrived:
    """Take in the plain publications among at most SHORT bytes of each connection; the others are returned."""
    turn, now = engine.turn, engine.scheduler.monotonic()
    longest = engine.limits.shortest_payload  # whatever the listener: who has more room goes the usual way
    others, rows, size = take_each(
        arrived, partial(_opened, turn), turn.replies, turn.pending, PUBACKS, now, engine.router.generation, longest
    )
    if rows:
        engine.now = engine.scheduler.now()
        turn.opened = turn.opened or now
        turn.rows += rows
        turn.answered[4] += rows
        engine.counters.packets_in[3] += rows
        engine.counters.bytes_in += size
    return others


def _opened(turn: Turn, route: Route) -> tuple[list[bytes], list[bytes], set[Connection]]:
    """The columns of a route's run, and whose publications are in it."""
    puts = turn.run(route.run)
    turn.aim(route.run, route.policies[0])
    return puts.heads, puts.bodies, turn.contributors.setdefault(route.run, set())
