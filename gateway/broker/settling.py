"""PUBACK in runs: what a client has been sent and acknowledges in one go. Anything but a plain PUBACK for something of
QoS 1 in flight that nobody wants reports of is left to `Delivery.puback`, one at a time and with the same result. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

OUT = "MQGATE.OUT"
PUBACK = 0x40
"""Its first byte."""


def plain(engine: Engine, connection: Connection, packets: list[Any], start: int) -> int:
    """Settle what the packets from `start` on acknowledge; returns the number of the first that is left."""
    if engine.trace is not None:
        return start
    session = connection.session
    inflight = session.outflow.inflight
    taken: list[Any] = []
    size, number = 0, start
    for number in range(start, len(packets)):
        packet = packets[number]
        item = inflight.get(packet[1]) if packet[0] == PUBACK else None
        if item is None or item.qos != 1 or item.publication.report:
            break
        del inflight[packet[1]]
        if item.token is not None:
            taken.append(item.token)
            size += len(item.publication.payload)
    else:
        number = len(packets)
    if number == start:
        return start
    if taken:
        engine.turn.taken(OUT, session.key).extend(taken)
        engine.delivery.waiting.added(session, -size, -len(taken))
    session.delivered += number - start
    engine.counters.packets_in[4] += number - start
    engine.refill[session] = None
    return number
