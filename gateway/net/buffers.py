"""What is kept in memory for all connections together: packets that have not arrived completely, data that is not read,
the topics of aliases, and what goes with a CONNACK that waits for a commit.

Each connection has bounds of its own, `mqtt.max_packet`, 8 MiB and its window; twenty thousand of them could still fill
a machine. The sum is not kept up to date, which would cost each packet something. As it grows by no more than what is
received and sent, it is computed again once that amounts to as much as there was room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.mqtt.reasons import QUOTA_EXCEEDED
from gateway.net.hub_socket import HubSocket
from gateway.session.connection import CLOSED, ONLINE, Connection

LEFT = 3 / 4
"""The share of what is allowed that remains when too much was kept; with more, the next packet would have somebody
closed again."""
OFTEN = 1 / 16
"""The share of what is allowed that may arrive before the sum is computed again, however little room there is."""


class _Kept(NamedTuple):
    bytes: int
    link: HubSocket
    connection: Connection


class Buffers:
    """Limits what is kept for the sockets of a hub."""

    def __init__(self, context: Context, sockets: Callable[[], Iterable[HubSocket]]) -> None:
        self._context = context
        self._sockets = sockets
        self.answered = 0
        """Bytes that wrappings have sent by themselves: whoever reads none of them can have any number."""
        self._looked_for = 0
        self._next = 0
        """How much will have been read and written when the sum is computed again."""

    def look(self) -> bool:
        """Close the connections that keep most if all together keep too much; returns whether any was closed."""
        most, counters = self._context.limits.max_buffered_bytes, self._context.counters
        moved = counters.bytes_in + counters.bytes_out + self.answered
        if not most or (moved < self._next and most == self._looked_for):
            return False
        kept = [one for one in map(_kept, self._sockets()) if one is not None]
        before = left = sum(one.bytes for one in kept) + self._context.behind_connacks
        if before > most:
            left = self._close(kept, before, int(most * LEFT))
        self._looked_for, self._next = most, moved + max(most - left, int(most * OFTEN))
        return left < before

    def _close(self, kept: list[_Kept], total: int, most: int) -> int:
        """Close connections, those that keep most first, until no more than `most` is kept; returns what is still
        kept."""
        for one in sorted(kept, key=lambda one: one.bytes, reverse=True):
            if total <= most:
                break
            if one.connection.state in {ONLINE, CLOSED}:  # what is kept of the others has a bound of its own
                self._end(one)
                total -= one.bytes
        return total

    def _end(self, one: _Kept) -> None:
        context, connection = self._context, one.connection
        if one.link.buffered() * 2 > one.bytes:
            text = "all clients together leave too much unread, this one the most: read faster"
            context.close(connection, "slow_consumer", text)
            one.link.abort()  # with `close` it would be kept for some more seconds
            return
        text = "all clients together have begun too much without finishing it, this one the most: send the rest sooner"
        if _of_aliases(connection) * 2 > one.bytes:
            text = "the topics of all clients' aliases take too much memory, this one's the most: use shorter topics"
        context.refuse(connection, QUOTA_EXCEEDED, "buffers_full", text)
        connection.reader.held = None
        connection.aliases.clear()


def _of_aliases(connection: Connection) -> int:
    return sum(map(len, connection.aliases.values()))


def _kept(link: HubSocket) -> _Kept | None:
    """What is kept for a connection; None: nothing."""
    connection, size = link.connection, link.buffered()
    if connection is None:
        return None
    if connection.reader.held is not None:
        size += len(connection.reader.held)
    if connection.aliases:
        size += _of_aliases(connection)
    return _Kept(size, link, connection) if size else None
