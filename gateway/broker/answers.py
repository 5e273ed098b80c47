"""What clients are told: one write for each connection and batch, acknowledgements once their batch is committed, and
PINGRESP. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gateway.broker.publish.answered import ordinary
from gateway.broker.publish.columns import length_of
from gateway.mqtt.writer import PINGRESP_BYTES
from gateway.ports.link import Link
from gateway.session.connection import CLOSED, Connection

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.context import Context
    from gateway.broker.refused.parking import Parking

WriteEach = Callable[[list[Link], list[bytes]], Iterable[int]]
"""Writes to each link its bytes. Returns the positions of links that have not taken all of them."""


def pubrec(packet_id: int) -> bytes:
    """A plain PUBREC."""
    return b"\x50\x02" + packet_id.to_bytes(2, "big")


def pubcomp(packet_id: int) -> bytes:
    """A plain PUBCOMP."""
    return b"\x70\x02" + packet_id.to_bytes(2, "big")


def one_by_one(links: list[Link], datas: list[bytes]) -> Iterable[int]:
    """Write to links of any kind, one after the other. Returns what `WriteEach` returns."""
    for link, data in zip(links, datas, strict=True):
        link.write(data)
    return range(len(links))


class Answers:
    """Collects and writes what connections are told."""

    def __init__(self, context: Context, parking: Parking) -> None:
        self.context = context
        self.parking = parking
        self.write_each: WriteEach = one_by_one
        """Writes to several links."""
        self.pings: set[Pings] = set()
        """Pings that wait for the commit of what was sent before them."""

    # -- writing --

    def write_all(self) -> None:
        """Write to each connection, in a single write, what it is to be told."""
        context = self.context
        unwritten, context.unwritten = context.unwritten, set()
        connections, datas = [], []
        for connection in unwritten:
            out = connection.out
            if out and connection.state != CLOSED:
                connections.append(connection)
                datas.append(out[0] if len(out) == 1 else b"".join(out))
                connection.out = []
        self._send(connections, [connection.link for connection in connections], datas)

    def write(self, connection: Connection) -> None:
        """Write what one connection is to be told, at once."""
        out = connection.out
        if out and connection.state != CLOSED:
            connection.out = []
            self._send([connection], [connection.link], [b"".join(out)])

    def acknowledge(self, batch: Batch) -> list[Connection]:
        """Write the replies of a committed batch, at once if nothing else goes with them. Returns the connections that
        get their CONNACK with these."""
        parking, replies = self.parking, batch.replies
        if parking.deferred or batch.after:
            return self._acknowledge_each(batch, list(replies))
        delivered = {session.connection for session, *_ in batch.deliveries}
        both = [connection for connection in delivered if connection in replies]
        if both:
            replies = {connection: answers for connection, answers in replies.items() if connection not in delivered}
        connections, links, datas, others = ordinary(replies)
        others += both
        if connections:
            self._send(connections, links, datas)
        return self._acknowledge_each(batch, others) if others else []

    def _acknowledge_each(self, batch: Batch, connections: list[Connection]) -> list[Connection]:
        """Acknowledge to connections that may be closed, may not have got a CONNACK so far, or have other things to be
        told."""
        parking = self.parking
        defer = parking.defer if parking.deferred else None
        together = bool(batch.deliveries or batch.after)
        told, datas = list[Connection](), list[bytes]()
        accepted: list[Connection] = []
        for connection in connections:
            replies = batch.replies[connection]
            if not connection.connack_sent and (connection.state != CLOSED or connection.leaving):
                connection.connack_sent = True
                accepted.append(connection)
                replies = [*replies, *self.context.behind_connack(connection)]
            elif defer is not None and defer(connection, replies):
                continue
            if connection.state == CLOSED:
                if connection.leaving:  # it said DISCONNECT: what it did before that is answered before the end
                    connection.link.write(b"".join(replies))
                continue
            if together or connection.out:
                connection.out.extend(replies)
                self.context.unwritten.add(connection)
            else:
                told.append(connection)
                datas.append(replies[0] if len(replies) == 1 else b"".join(replies))
        if told:
            self._send(told, [connection.link for connection in told], datas)
        return accepted

    def _send(self, connections: list[Connection], links: list[Link], datas: list[bytes]) -> None:
        context = self.context
        context.counters.bytes_out += length_of(datas)
        unfinished = self.write_each(links, datas)
        if context.trace_out is not None:
            for connection, data in zip(connections, datas, strict=True):
                if connection.traced:
                    context.trace_out(connection, data)
        for at in unfinished:
            if context.piles_up(connections[at]):
                context.close(connections[at], "slow_consumer", "the client does not read what it is sent")

    # -- PINGREQ --

    def pingreq(self, connection: Connection, packet: Any) -> None:
        """Answer PINGREQ with PINGRESP [MQTT-3.12.4-1], after the answers to everything the client sent before it, so
        that a client may take it for a sign that these are complete. It is sent at once if nothing is under way or the
        queue manager is known not to answer; otherwise with the next commit or the next tick, whichever comes first.
        None is sent before CONNACK; PINGREQs that wait for that are only counted."""
        del packet
        context = self.context
        nothing = context.idle and not self.parking.waiting
        if connection.connack_sent and (nothing or context.held_since or self.parking.withholds(connection)):
            context.send(connection, PINGRESP_BYTES)
            return
        after = context.batch.after
        last = after[-1] if after else None
        if isinstance(last, Pings) and last.connection is connection:
            last.count += 1
            return
        pings = Pings(self, connection)
        self.pings.add(pings)
        after.append(pings)

    def tick(self) -> None:
        """Answer pings once a second even if a commit takes long, so that clients do not take the gateway for dead."""
        for pings in self.pings:
            if pings.connection.connack_sent:
                pings.answer()


class Pings:
    """PINGREQs of a connection, with nothing between them, that wait for a commit."""

    def __init__(self, answers: Answers, connection: Connection) -> None:
        self.answers = answers
        self.connection = connection
        self.count = 1

    def __call__(self) -> None:
        """Answer, as the commit has returned."""
        self.answers.pings.discard(self)
        self.answer()

    def answer(self) -> None:
        """Send the PINGRESPs that no tick has sent already."""
        connection, count, self.count = self.connection, self.count, 0
        context = self.answers.context
        if count and connection.state != CLOSED:
            context.counters.packets_out[PINGRESP_BYTES[0] >> 4] += count - 1
            context.send(connection, PINGRESP_BYTES * count)
        elif count and connection.leaving:
            connection.link.write(PINGRESP_BYTES * count)
