"""Runs of plain publications straight from the bytes of a chunk, where the compiled kernel is there.

The kernel does in C what `Reader` and `Publishing.packets` do for a PUBLISH of QoS 0 or 1 without properties on a hot
route, which is nearly all that devices send. Whatever else is in the chunk is returned and goes the usual way; so does
everything where there is no kernel, with the same result.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from gateway.broker.publishing import PUBACKS
from gateway.broker.route import HOT
from gateway.mqtt.packets import V5
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

kernel: ModuleType | None
"""The compiled module; None where there was no compiler when the gateway was installed."""
try:
    from gateway.broker import _kernel

    kernel = _kernel
except ImportError:
    kernel = None

QOS_0, QOS_1 = 0x30, 0x32
"""First bytes of a PUBLISH with neither DUP nor RETAIN."""


def compiled() -> bool:
    """Whether the kernel is there."""
    return kernel is not None


def take(engine: Engine, connection: Connection, chunk: bytes) -> bytes:
    """Take the publications at the beginning of what the connection has sent into the open turn; returns the rest."""
    if kernel is None:
        return chunk
    reader = connection.reader
    data = chunk if reader.held is None else reader.joined(chunk)
    if not data or (data[0] != QOS_1 and data[0] != QOS_0):
        return data
    first, publishing, turn, limits = data[0], engine.publishing, engine.turn, connection.limits
    if connection.generation != engine.router.generation:
        publishing.forget_routes(connection)
    cache, v5 = connection.caches[first & 7], connection.version == V5
    longest = limits.max_payload or limits.max_packet
    known = turn.replies.get(connection)
    replies = [] if known is None else known
    offset, rows = 0, 0
    while True:
        topic = kernel.topic(data, offset, reader.max_packet)
        if topic is None:
            break
        route = cache.get(topic)
        if route is None or route.seen != route.cell[0]:
            route = publishing.route(connection, first, topic)
        if route.hot != HOT:
            break
        run = route.run
        puts = turn.run(run)
        turn.aim(run, route.policies[0])
        turn.contribute(run, connection)
        heads = puts.heads
        before = len(heads)
        stop = kernel.take(
            data, offset, first, v5, reader.max_packet, longest, cache, run, heads, puts.bodies, PUBACKS, replies
        )
        rows += len(heads) - before
        if stop == offset:
            break
        offset = stop
        if offset == len(data) or data[offset] != first:
            break
    if rows:
        _account(engine, connection, replies, rows if first == QOS_1 else 0)
        connection.session.received += 0 if first == QOS_1 else rows
        turn.rows += rows
        engine.counters.packets_in[3] += rows
    return data[offset:] if offset else data


def _account(engine: Engine, connection: Connection, replies: list[bytes], acknowledged: int) -> None:
    """What the acknowledgements of a run change."""
    if not acknowledged:
        return
    turn = engine.turn
    turn.replies[connection] = replies
    turn.answered[4] += acknowledged
    connection.inbound_pending += acknowledged
    turn.pending[connection] = turn.pending.get(connection, 0) + acknowledged
