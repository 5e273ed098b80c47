"""Runs of plain publications that local subscribers want, besides at most one queue: what is the same for all of a run
is done once, for each subscriber too. Whatever is not plain is left to `Publishing.publish`, one at a time and with the
same result, which the tests compare. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.answers import PUBACKS
from gateway.broker.deliver import copying
from gateway.broker.publish.route import Receiver, Route
from gateway.session.connection import Connection
from gateway.session.outflow import Item
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


def plain(engine: Engine, connection: Connection, route: Route, packets: list[Any], start: int) -> int:
    """Take in the publications from `start` on that are like the first of them; returns the number of the first that
    is not. Nothing is taken in when somebody has no room for all of them, or may have them refused."""
    if engine.limits.any_refuses or engine.trace is not None:
        return start
    first, topic = packets[start][0], packets[start][1]
    longest = connection.limits.max_payload or connection.limits.max_packet
    taken: list[Any] = []
    for number in range(start, len(packets)):
        packet = packets[number]
        if packet[0] != first or packet[1] != topic or packet[3] or len(packet[4]) > longest:
            break
        taken.append(packet)
    qos = first >> 1 & 3
    size = sum([len(packet[4]) for packet in taken])
    if not taken or not all(_room(engine, one, qos, len(taken), size) for one in route.receivers):
        return start
    _account(engine, connection, taken, qos)
    if route.head:
        _put(engine, connection, route, taken)
    elif not route.topic.startswith("$"):
        engine.counters.messages_unrouted += len(taken)
    engine.counters.mqtt_publish_sent["_none", qos] += len(taken) * len(route.receivers)
    client_id = connection.session.client_id
    publications = [Publication(topic, packet[4], qos, False, client_id=client_id) for packet in taken]  # noqa: FBT003
    for receiver in route.receivers:
        _copies(engine, route, receiver, publications, min(qos, receiver.qos), size)
    return start + len(taken)


def _room(engine: Engine, receiver: Receiver, qos: int, count: int, size: int) -> bool:
    """Whether a session has room for a copy of each."""
    return not min(qos, receiver.qos) or copying.room(engine, receiver.session, size, count)


def _account(engine: Engine, connection: Connection, taken: list[Any], qos: int) -> None:
    """What they count as, and the acknowledgements, which may exist when the turn is committed."""
    turn, count = engine.turn, len(taken)
    engine.counters.packets_in[3] += count
    if not qos:
        connection.session.received += count
        return
    replies = turn.replies.get(connection)
    if replies is None:
        replies = turn.replies[connection] = []
    replies += [PUBACKS[packet[2]] for packet in taken]
    turn.answered[4] += count
    connection.inbound_pending += count
    turn.pending[connection] = turn.pending.get(connection, 0) + count


def _put(engine: Engine, connection: Connection, route: Route, taken: list[Any]) -> None:
    """Their rows on the queue of their rule."""
    turn, tails = engine.turn, route.tails
    puts = turn.run(route.run)
    turn.aim(route.run, route.policies[0])
    turn.contribute(route.run, connection, route.first & 6)
    puts.heads += [route.head] * len(taken)
    puts.bodies += [tails[packet[2]] + packet[4] for packet in taken]
    turn.rows += len(taken)


def _copies(
    engine: Engine, route: Route, receiver: Receiver, publications: list[Publication], qos: int, size: int
) -> None:
    session, sub_ids = receiver.session, receiver.sub_ids
    if qos == 0:
        copying.send(engine, receiver, publications)
        return
    items = [Item(publication, qos, False, sub_ids) for publication in publications]  # noqa: FBT003
    if session.durable:
        copying.store(engine, session, items, [copying.prefix(engine, route.stored, items[0])] * len(items), size)
    else:
        engine.turn.deliveries.append((session, items, None, 0))
