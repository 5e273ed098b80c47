"""PUBREL in runs: staged publications of QoS 2 whose route is hot go to their queue, in the open unit of work.

What a client has in flight it releases in one go. Anything but a plain PUBREL for a publication that is staged, durable
and leads straight to one destination is left to `Staging.pubrel`, which does one at a time and with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.answers import PUBCOMPS
from gateway.ports.state_queues import STAGED
from gateway.session.session import STAGED_ID

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.session.connection import Connection

PUBREL = 0x62
"""Its first byte."""


def plain(engine: Engine, connection: Connection, packets: list[Any], start: int) -> int:
    """Release what the packets from `start` on release; returns the number of the first that is not a plain PUBREL."""
    session = connection.session
    inbound, tokens = session.inbound, session.staged_tokens
    if engine.trace is not None or connection.generation != engine.router.generation:
        return start
    if session in engine.turn.held.moves and packets[start][1] in tokens:  # in the order in which they were released
        engine.holding.write_out(engine.turn, session)
    last: bytes | None = None
    turn, last_first, head = engine.turn, 0, b""
    tails: dict[int, bytes] = {}
    columns: Any = None
    ids: list[int] = []
    tokens_of: list[Any] = []
    taken: list[Any] = []
    replies: list[bytes] = []
    for packet in packets[start:]:
        packet_id = packet[1]
        staged = inbound.get(packet_id) if packet[0] == PUBREL else None
        if type(staged) is not tuple or packet_id not in tokens:
            break
        topic, body, first = staged
        if topic != last or first != last_first:
            route = connection.caches[first & 7].get(topic)
            if route is None or route.seen != route.cell[0] or not route.hot:
                break
            last, last_first, head, tails = topic, first, route.head, route.tails
            columns = turn.run(route.run)
            turn.aim(route.run, route.policies[0])
            turn.contribute(route.run, connection)
            ids, tokens_of = [], []
            turn.releasing(route.run).append((len(columns.heads), session, ids, tokens_of))
        del inbound[packet_id]
        token = tokens.pop(packet_id)
        taken.append(token)
        ids.append(packet_id)
        tokens_of.append(token)
        columns.heads.append(head)
        columns.bodies.append(tails[packet_id] + body[STAGED_ID:])
        replies.append(PUBCOMPS[packet_id])
    if taken:
        turn.taken(STAGED, session.key).extend(taken)
        turn.replies.setdefault(connection, []).extend(replies)
        turn.rows += len(taken)
        turn.answered[7] += len(taken)
        engine.counters.packets_in[6] += len(taken)
    return start + len(taken)
