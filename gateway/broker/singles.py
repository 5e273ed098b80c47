"""One small PUBLISH from each of many connections, which is what devices with one message in flight send.

`Publishing.packets` shares its preparations between the packets of one chunk. Here there is one packet a chunk, so the
frame is read where it lies, and what can be prepared is prepared for all connections together. Whatever is not a plain
PUBLISH of QoS 1 on a hot route goes the usual way (`Engine.received`), with which the tests compare this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.publishing import PUBACKS
from gateway.broker.route import HOT
from gateway.mqtt.packets import V5
from gateway.session.connection import ONLINE, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

SHORT = 4096
"""The longest packet that is looked at here: its remaining length is one byte or two, and it was read in one piece."""
_QOS_1 = 0x32
"""The first byte of a PUBLISH with QoS 1, neither DUP nor RETAIN."""


def publications(engine: Engine, arrived: list[tuple[Connection, bytes]]) -> list[tuple[Connection, bytes]]:  # noqa: C901, PLR0915 -- the hot loop
    """Take in the plain publications among at most SHORT bytes of each connection; the others are returned."""
    turn, pubacks = engine.turn, PUBACKS
    now, generation = engine.scheduler.monotonic(), engine.router.generation
    longest = engine.limits.shortest_payload  # whatever the listener: who has more room goes the usual way
    replies, pending = turn.replies, turn.pending
    others: list[tuple[Connection, bytes]] = []
    run = heads = bodies = owners = None
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
            puts = turn.run(run)
            turn.aim(run, route.policies[0])
            heads, bodies = puts.heads.append, puts.bodies.append
            owners = turn.contributors.setdefault(run, set()).add
        heads(route.head)  # type: ignore[misc]
        bodies(route.tails[packet_id] + chunk[body:])  # type: ignore[misc]
        owners(connection)  # type: ignore[misc]
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
    if rows:
        engine.now = engine.scheduler.now()
        turn.opened = turn.opened or now
        turn.rows += rows
        turn.answered[4] += rows
        engine.counters.packets_in[3] += rows
        engine.counters.bytes_in += size
    return others
