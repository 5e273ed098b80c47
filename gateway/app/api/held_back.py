"""Why a device gets no acknowledgement: its waiting publications, the topic of each, the queue for which it waits, and
why that queue refuses it.

A waiting acknowledgement has a packet identifier and nothing else; the topic is in the headers of the message that
waits with it. A rule without the folders `mqtt` and `mqps` (`headers: []`) writes none, and then the topic is not
known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.message import read_message
from gateway.config.counting import counted
from gateway.errors import Refused
from gateway.mq import mqmd

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.engine import Engine
    from gateway.session.connection import Connection

QOS_OF = {0x40: 1, 0x50: 2, 0x70: 2}
"""The QoS by the first byte of the waiting acknowledgement: PUBACK, PUBREC, PUBCOMP."""
MAX_ROWS = 200
_SLOWED = "it sends more than its rates allow (`limits`), so that it is read later"


class HeldBack(NamedTuple):
    """A publication whose acknowledgement waits."""

    packet_id: int
    qos: int
    topic: str | None
    queue: str


def waiting_for(engine: Engine, connection: Connection | None) -> list[HeldBack]:
    """Returns the publications whose acknowledgements wait, in order."""
    entries = engine.parking.deferred.get(connection, ()) if connection is not None else ()
    found: list[tuple[int, int, str]] = []
    for parked, replies in entries:
        queue = parked[0].address.queue if parked else ""
        for kind, packet_id in _acknowledgements(replies):
            if kind in QOS_OF and len(found) < MAX_ROWS:
                found.append((packet_id, QOS_OF[kind], queue))
    if connection is None or not found:
        return []
    batches = dict.fromkeys(one.batch for parked, _ in entries for one in parked if not one.done)
    topics = _topics(batches, connection, {packet_id for packet_id, _, _ in found})
    return [HeldBack(packet_id, qos, topics.get(packet_id), queue) for packet_id, qos, queue in found]


def _topics(batches: Iterable[Batch], connection: Connection, wanted: set[int]) -> dict[int, str]:
    """Returns the topics of these packet identifiers, from the messages that wait."""
    client = connection.session.client_id
    hint = client.encode()
    topics: dict[int, str] = {}
    for destination in (one for batch in batches for one in batch.destinations.values()):
        if connection not in destination.contributors:
            continue
        for head, body in zip(destination.puts.heads, destination.puts.bodies, strict=True):
            if len(topics) == len(wanted):
                return topics
            if hint in head:  # thousands of other devices may wait for the same queue
                packet_id, topic = _origin(client, head, body)
                if topic is not None and packet_id in wanted:
                    topics[packet_id] = topic
    return topics


def _origin(client: str, head: bytes, body: bytes) -> tuple[int, str | None]:
    """Returns packet identifier and topic of a message, if this client published it and its headers say so."""
    try:
        message = read_message(head[: mqmd.LENGTH], head[mqmd.LENGTH :] + body)
    except Refused:
        return 0, None
    topic, packet_id = message.property("mqps", "Top"), message.property("mqtt", "msgId")
    if topic is None or packet_id is None or message.property("mqtt", "clientId") != client:
        return 0, None
    return int(packet_id), str(topic)


def _acknowledgements(replies: bytes) -> Iterator[tuple[int, int]]:
    """Yields first byte without flags and packet identifier of each packet."""
    at = 0
    while at + 4 <= len(replies):
        size, shift, length = 0, 0, at + 1
        while True:
            size |= (replies[length] & 0x7F) << shift
            length += 1
            if not replies[length - 1] & 0x80:
                break
            shift += 7
        yield replies[at] & 0xF0, int.from_bytes(replies[length : length + 2], "big")
        at = length + size


def is_held_back(engine: Engine, connection: Connection | None) -> bool:
    """Whether anything of this connection waits: its acknowledgements, or what it sends beyond its rates."""
    return connection is not None and (_is_slowed(connection) or engine.parking.withholds(connection))


def count_held_back(engine: Engine) -> int:
    """Returns how many connections are held back. It is asked every second or two, and there may be a hundred
    thousand."""
    slowed = {one for one in engine.connections if getattr(one.link, "rests", 0)}
    return len(slowed | (engine.parking.deferred.keys() & engine.connections))


def _is_slowed(connection: Connection) -> bool:
    return bool(getattr(connection.link, "rests", 0))  # only a socket of the hub has this


def explained(engine: Engine, connection: Connection | None, why: Callable[[str], str]) -> str | None:
    """Returns a sentence saying that the connection is read later because of its rates, and one for each queue; None if
    nothing of this connection waits."""
    if connection is None:
        return None
    slowed = [_SLOWED] if _is_slowed(connection) else []
    waiting = _for_queues(engine, connection, why) if engine.parking.withholds(connection) else []
    return "; ".join((*slowed, *waiting)) or None


def _for_queues(engine: Engine, connection: Connection, why: Callable[[str], str]) -> list[str]:
    counts: dict[str, int] = {}
    topics: dict[str, str | None] = {}
    for one in waiting_for(engine, connection):
        counts[one.queue] = counts.get(one.queue, 0) + 1
        topics[one.queue] = topics.get(one.queue) or one.topic
    for parked in (one for some, _ in engine.parking.deferred[connection] for one in some):
        counts.setdefault(parked.address.queue, 0)
    return [
        f"{counted(count, 'publication waits', 'publications wait') if count else 'what it published waits'} for "
        f"queue {queue}{_example(count, topics.get(queue))}: {why(queue)}"
        for queue, count in counts.items()
    ]


def _example(count: int, topic: str | None) -> str:
    if topic is None:
        return ""
    return f" (topic {topic})" if count == 1 else f" (the first has topic {topic})"
