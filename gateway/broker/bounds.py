"""Batches that are closed before they hold more than the queue manager commits in one unit of work. Pure.

A queue manager may allow a unit of work only so many messages (`ports.batch.Bounded`). What is more than that it
commits in parts, and if the gateway ends between two of them, what must come once comes twice. So the open batch is
closed, and another one opened, as soon as it holds half as many; what is taken in between two looks at it (a portion of
what clients have sent, a packet, a message of a queue, a slice of a wide publication) adds no more than the other half,
unless it is one thing that cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.errors import MalformedPacket
from gateway.mqtt.primitives import decode_varint
from gateway.session.connection import ONLINE

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.ports.batch import Bounded
    from gateway.session.connection import Connection

_SHORTEST = 4
"""Bytes of the shortest packet that makes any, PUBACK or PUBREL."""
_OF_PACKET = 4
"""Few packets make more messages than that by themselves, copies for subscribers not counted."""
_OF_UNIT = 8
"""Few things that are handled alone make more; so long an open batch need not be looked at."""


class Bounds:
    """Says when the open batch holds enough."""

    def __init__(self, queue_manager: Bounded) -> None:
        self._queue_manager = queue_manager
        self._looked_at: Batch | None = None
        self._looks = 0
        """How many more units of handling may come before that batch is looked at again."""
        self.relayed = 0
        """Copies of what the fast lane has relayed and not handed on yet."""

    @property
    def most(self) -> int:
        """The most messages of a unit of work."""
        return self._queue_manager.most_rows

    @property
    def enough(self) -> int:
        """With so many messages a batch is closed; and no more than so many are added at once."""
        return max(1, self.most // 2)

    def is_enough(self, batch: Batch) -> bool:
        """Whether a batch holds enough. To count costs something for each queue, so it is counted only when that may
        be."""
        self._looks -= 1
        if batch is self._looked_at and self._looks > 0 and batch.rows < self.enough:
            return False
        left = self.enough - messages_of(batch)
        self._looked_at, self._looks = batch, left // _OF_UNIT
        return left <= 0

    def may_relay(self, copies: int) -> bool:
        """Whether the fast lane may relay so many copies before what it has relayed is handed on: at least once."""
        may = not self.relayed or self.relayed + copies <= self.enough
        self.relayed += copies
        return may

    def portions(self, arrived: list[Any], whole: Callable[[Connection, bytes], bytes]) -> Iterator[list[Any]]:
        """Yield what has arrived (`Arrived` or `Rest` of the fast lane) in portions that add no more than may be added
        at once, even if all of it are the shortest packets. What one client has sent may be cut, between two packets,
        after `whole` has joined it with what was held of the client."""
        most, portion, count = max(1, self.enough // _OF_PACKET), list[Any](), 0
        for one in arrived:
            packets = len(one[1]) // _SHORTEST + 1
            if portion and count + packets > most:
                yield portion
                portion, count = [], 0
            if packets <= most or one[0].state != ONLINE:
                portion.append(one)
                count += packets
                continue
            connection, data = one[0], one[1]
            data, at = (data, one[2]) if len(one) == 3 else (whole(connection, data), 0)
            for begin, end in _cuts(data, at, most):
                yield [(connection, data[begin:end], 0)]
        if portion:
            yield portion


def _cuts(data: bytes, at: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield where some packets begin and end, so many at a time; with the last of them what is no whole packet."""
    begin, count, size = at, 0, len(data)
    with suppress(MalformedPacket):  # as whoever reads it will find
        while at < size:
            length, start = decode_varint(data, at + 1)
            if start + length > size:
                break
            at, count = start + length, count + 1
            if count == most and at < size:
                yield begin, at
                begin, count = at, 0
    if begin < size:
        yield begin, size


def messages_of(batch: Batch) -> int:
    """How many messages a batch puts and takes in its unit of work."""
    puts = [*(one.puts for one in batch.destinations.values()), *(one.puts for one in batch.mixed)]
    rows = sum(len(one.heads) for one in (*puts, *batch.state.values()) if one.syncpoint)
    moved = sum(move.rows for moves in batch.moves.values() for move in moves)
    taken = sum(len(one.tokens) for one in batch.takes.values())
    return rows + taken + len(batch.consumed) + 2 * (moved + len(batch.replaces) + len(batch.changed))
