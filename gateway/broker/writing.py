"""What connections are told: collected for each while a batch is worked on, then written once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.ports.link import Link
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.turn import Turn

WriteEach = Callable[[list[Link], list[bytes]], Iterable[int]]
"""Write to each link its bytes; the answer: the positions of those that have not taken all."""


def one_by_one(links: list[Link], datas: list[bytes]) -> Iterable[int]:
    """To any links."""
    for link, data in zip(links, datas, strict=True):
        link.write(data)
    return range(len(links))


class Writing:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.each: WriteEach = one_by_one
        """How several links are written to."""
        self.dirty: set[Connection] = set()
        """Connections with something to be written."""

    def later(self, connection: Connection, data: bytes) -> None:
        """Bytes for a connection, with everything else it is told in this batch."""
        connection.out.append(data)
        self.dirty.add(connection)

    def all(self) -> None:
        """One write for each connection that has something to be told."""
        dirty, self.dirty = self.dirty, set()
        connections, datas = [], []
        for connection in dirty:
            out = connection.out
            if out and connection.state != CLOSED:
                connections.append(connection)
                datas.append(out[0] if len(out) == 1 else b"".join(out))
                connection.out = []
        self._send(connections, datas)

    def now(self, connection: Connection) -> None:
        """What one connection is to be told."""
        out = connection.out
        if out and connection.state != CLOSED:
            connection.out = []
            self._send([connection], [b"".join(out)])

    def acknowledge(self, turn: Turn) -> list[Connection]:
        """The replies of a turn that is committed; at once where nothing else goes with them. Answers to whom CONNACK
        is among them."""
        parking = self.engine.parking
        defer = parking.defer if parking.withholding else None
        together = bool(turn.deliveries or turn.after)
        connections, datas = [], []
        greeted: list[Connection] = []
        for connection, replies in turn.replies.items():
            if not connection.greeted and (connection.state != CLOSED or connection.leaving):
                connection.greeted = True
                greeted.append(connection)
            elif defer is not None and defer(connection, replies):
                continue
            if connection.state == CLOSED:
                if connection.leaving:  # it said DISCONNECT: what it did before that is answered before the end
                    connection.link.write(b"".join(replies))
                continue
            if together or connection.out:
                connection.out.extend(replies)
                self.dirty.add(connection)
            else:
                connections.append(connection)
                datas.append(replies[0] if len(replies) == 1 else b"".join(replies))
        if connections:
            self._send(connections, datas)
        return greeted

    def _send(self, connections: list[Connection], datas: list[bytes]) -> None:
        engine = self.engine
        engine.counters.bytes_out += sum(map(len, datas))
        links = [connection.link for connection in connections]
        behind = self.each(links, datas)
        if engine.trace_out is not None:
            for connection, data in zip(connections, datas, strict=True):
                engine.trace_out(connection, data)
        for at in behind:
            if links[at].buffered() > engine.limits.max_outgoing_bytes:
                engine.close(connections[at], "slow_consumer", "the client does not read what it is sent")
