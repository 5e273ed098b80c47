"""Why a device gets no acknowledgement: the publications of it that wait, the queue each waits for, and what that queue
refuses for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.config.counting import counted

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.session.connection import Connection

QOS_OF = {0x40: 1, 0x50: 2, 0x70: 2}
"""By the acknowledgement that waits: PUBACK, PUBREC, PUBCOMP."""
MAX_ROWS = 200


def waiting_for(engine: Engine, connection: Connection | None) -> list[tuple[int, int, str]]:
    """(packet identifier, QoS, queue) of the publications whose acknowledgements wait, in their order."""
    found: list[tuple[int, int, str]] = []
    for parked, replies in engine.parking.deferred.get(connection, ()) if connection is not None else ():
        queue = parked[0].address.queue if parked else ""
        for kind, packet_id in _acknowledgements(replies):
            if kind in QOS_OF and len(found) < MAX_ROWS:
                found.append((packet_id, QOS_OF[kind], queue))
    return found


def _acknowledgements(replies: bytes) -> Iterator[tuple[int, int]]:
    """(first byte without flags, packet identifier) of each packet."""
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


def explained(engine: Engine, connection: Connection | None, why: Callable[[str], str]) -> str | None:
    """One sentence for each queue; None: nothing of this connection waits."""
    if connection is None or not engine.parking.withholds(connection):
        return None
    counts: dict[str, int] = {}
    for _, _, queue in waiting_for(engine, connection):
        counts[queue] = counts.get(queue, 0) + 1
    for parked in (one for some, _ in engine.parking.deferred[connection] for one in some):
        counts.setdefault(parked.address.queue, 0)
    return "; ".join(
        f"{counted(count, 'publication waits', 'publications wait') if count else 'what it published waits'} for "
        f"queue {queue}: {why(queue)}"
        for queue, count in counts.items()
    )
