"""PUBACK in runs: what a client has been sent and acknowledges in one go. Anything but a plain PUBACK for something of
QoS 1 in flight that nobody wants reports of is left to `Delivery.puback`, one at a time and with the same result. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from struct import unpack
from typing import TYPE_CHECKING, Any

from gateway.ports.batch import Token
from gateway.ports.state_queues import OUT
from gateway.session.connection import Connection
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

PUBACK, BEGINS = 0x40, b"\x40\x02"
"""Its first byte, and what it begins with when it is plain."""


def from_bytes(engine: Engine, connection: Connection, chunk: bytes) -> bytes:
    """Settle what the PUBACKs a chunk begins with acknowledge, if it is of plain ones alone; returns what is left."""
    number = len(chunk) >> 2
    end = number << 2
    if engine.trace is not None or chunk[:end:4] != b"\x40" * number or chunk[1:end:4] != b"\x02" * number:
        return chunk
    settled = _settle(engine, connection.session, unpack(f">{2 * number}H", chunk[:end])[1::2])
    return chunk[4 * settled :]


def plain(engine: Engine, connection: Connection, packets: list[Any], start: int) -> int:
    """Settle what the packets from `start` on acknowledge; returns the number of the first that is left."""
    if engine.trace is not None:
        return start
    of_a_kind = takewhile(_is_puback, packets[start:])
    return start + _settle(engine, connection.session, [packet[1] for packet in of_a_kind])


def _is_puback(packet: Any) -> bool:
    return bool(packet[0] == PUBACK)


def _settle(engine: Engine, session: Session, packet_ids: Sequence[int]) -> int:
    """As far as it is plain; how many that were."""
    inflight = session.outflow.inflight
    tokens: list[Token] = []
    size = settled = 0
    for packet_id in packet_ids:
        item = inflight.get(packet_id)
        if item is None or item.qos != 1 or item.publication.report:
            break
        del inflight[packet_id]
        settled += 1
        if item.token is not None:
            tokens.append(item.token)
            size += len(item.publication.payload)
    if tokens:
        engine.turn.taken(OUT, session.key).extend(tokens)
        engine.delivery.waiting.added(session, -size, -len(tokens))
    if settled:
        session.delivered += settled
        engine.counters.packets_in[4] += settled
        engine.refill[session] = None
    return settled
