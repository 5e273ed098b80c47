"""Copies of several publications for one session at once: room for them, rows that store them, QoS 0 to the wire. The
same as `Delivery.copy` does one by one. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.publish.route import Receiver
from gateway.mqtt.packets import V5
from gateway.ports.state_queues import OUT
from gateway.session.connection import ONLINE
from gateway.session.outflow import Item
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

Prefixes = dict[tuple[int, bool, tuple[int, ...]], bytes]


def room(engine: Engine, session: Session, size: int, count: int) -> bool:
    """Whether a session has room for so many copies of so many bytes together, none of which may be lost."""
    limits = engine.limits.at(session.listener)
    if session.durable:
        return not engine.delivery.waiting.full(limits, session, size, count)
    return session.connection is not None and len(session.outflow.pending) + count <= limits.max_queued


def prefix(engine: Engine, prefixes: Prefixes, item: Item) -> bytes:
    """The head of what a durable session stores of such a copy, remembered; not retained, not through a share."""
    variant = (item.qos, False, item.sub_ids)
    found = prefixes.get(variant)
    if found is None:
        found = prefixes[variant] = engine.router.state_head(engine.delivery.prefix(item))
    return found


def store(engine: Engine, session: Session, items: list[Item], heads: list[bytes], size: int) -> None:
    """Rows on a durable session's stored queue, and what follows when they are committed; there is room for them."""
    turn = engine.turn
    puts = turn.run((OUT, "", 0, True, session.key, True, False))
    turn.deliveries.append((session, items, puts, len(puts.heads)))
    allot = session.outflow.allot
    for item in items:
        item.packet_id = allot()
    puts.heads += heads
    puts.bodies += [item.packet_id.to_bytes(2, "little") + item.publication.payload for item in items]
    turn.rows += len(items)
    engine.delivery.waiting.added(session, size, len(items))


def send(engine: Engine, receiver: Receiver, publications: list[Publication]) -> None:
    """QoS 0: to the wire at once, as one piece where nothing is special."""
    session = receiver.session
    connection = session.connection
    if connection is None or connection.state != ONLINE:
        return
    outflow, version = session.outflow, session.outflow.version
    usual = connection.greeted and not (version == V5 and (outflow.takes_aliases or receiver.sub_ids))
    pieces = [b"".join(one.wire(version, 0x30, engine.now, ())) for one in publications] if usual else []
    if (
        not usual
        or connection.link.buffered() > engine.limits.max_outgoing_bytes // 2
        or max(map(len, pieces)) > outflow.max_packet
    ):
        for publication in publications:
            engine.delivery.send_at_once(session, Item(publication, 0, False, receiver.sub_ids))  # noqa: FBT003
        return
    engine.counters.packets_out[3] += len(pieces)
    engine.send_counted(connection, b"".join(pieces))
