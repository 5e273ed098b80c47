"""Publications that go to several queues, for the fast lane in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gateway.bridge.payload import Body
from gateway.broker.publish.given import NOTHING, Given, given_of
from gateway.broker.publish.route import UNROUTED, Route
from gateway.broker.publish.rows import RETAIN, Rows

if TYPE_CHECKING:
    from gateway.broker.batch import Destination
    from gateway.broker.columns import Columns
    from gateway.broker.links import LinkedRun
    from gateway.broker.publish.fast import FastLane
    from gateway.session.connection import Connection

LinkedTargets = tuple[tuple[Route, bytes, bytes], ...]
"""Like `Chosen`, with the bodies of the messages."""
Chosen = tuple[tuple[Route, bytes], ...]
"""The targets whose rules apply to a publication, with the heads of its messages."""


class Linking(Rows):
    """The bytes of one connection while they are made into rows, several of which may belong together."""

    __slots__ = ()

    def _link(self, first: int, route: Route) -> bool:
        """Take publications on one topic to which several rules apply, or may apply. Returns whether any was taken."""
        begin, ids = self.at, list[bytes]()
        while (one := self._read(self.at, first)) is not None:
            topic, packet_id, block, body, stop = one
            given = given_of(block, self.most_users) if block else NOTHING
            if (
                topic != route.wire_topic
                or given is None
                or given.alias
                or given.rest != b""
                or (block and route.reads)
            ):
                break
            payload, number = self.data[body:stop], packet_id if first & 6 else 0
            chosen = self._chosen(first, route, given, Body(payload), number)
            if chosen is None:
                break
            self._put(first, chosen, payload, number)
            self.unrouted += not chosen
            if route.elsewhere:
                self._note_sent(route, payload, block, given)
            if first & RETAIN:
                self._keep(route, payload, block)
            ids.append(packet_id.to_bytes(2, "big"))
            self.at = stop
        self._count(first, ids)
        return self.at > begin

    def _rows_of(
        self, first: int, route: Route, given: Given, payload: bytes, number: int, *, has_block: bool
    ) -> LinkedTargets | None:
        """The targets of a publication that has subscribers too, with heads and bodies; None as in `_chosen`."""
        if given.rest != b"" or (has_block and route.reads):
            return None
        chosen = self._chosen(first, route, given, Body(payload), number)
        return None if chosen is None else tuple((one, head, one.tails[number] + payload) for one, head in chosen)

    def _chosen(self, first: int, route: Route, given: Given, body: Body, number: int) -> Chosen | None:
        """The targets of one publication; None if the plain lane has to decide."""
        if given.traced:  # all of them are one span's
            return None
        chosen: list[tuple[Route, bytes]] = []
        for target, goes_on in route.linked:
            made = self._made(first, target, given, body, number)
            if made is None:
                return None
            if made[0] is UNROUTED:
                continue
            chosen.append(made)
            if not goes_on:
                break
        return tuple(chosen)

    def _put(self, first: int, chosen: Chosen, payload: bytes, number: int) -> None:
        """Append a row for each target, and note that they belong together."""
        for target, head in chosen:
            heads, bodies = self._columns_of(target.columns)
            heads(head)
            bodies(target.tails[number] + payload)
        self._belong_together(first, chosen)

    def _belong_together(self, first: int, chosen: Chosen) -> None:
        """Note that the last rows of these targets are one publication's."""
        waits = self.connection if first & 6 else None
        belong_together(self.lane.linked(), [target.columns for target, _ in chosen], waits)


def belong_together(linked: list[LinkedRun], all_columns: list[Columns], waits: Connection | None) -> None:
    """Note that the last rows of some columns are one publication's, for which a connection waits. At QoS 0, which
    keeps no order, none does."""
    if len(all_columns) < (1 if waits else 2):
        return
    rows = tuple(len(columns.heads) - 1 for columns in all_columns)
    destinations = tuple(cast("Destination", columns.destination) for columns in all_columns)
    if linked and linked[-1][0] == destinations and linked[-1][3] is waits:
        before, firsts, count, _ = linked[-1]
        if all(at + count == row for at, row in zip(firsts, rows, strict=True)):
            linked[-1] = before, firsts, count + 1, waits
            return
    linked.append((destinations, rows, 1, waits))


def put_linked(lane: FastLane, connection: Connection, first: int, rows: list[LinkedTargets]) -> int:
    """Append the rows of publications that subscribers get too; returns how many of these go to no queue."""
    linked, waits = lane.linked(), connection if first & 6 else None
    for row in rows:
        for target, head, body in row:
            columns = target.columns
            if columns.heads is None:
                lane.open(columns)
            columns.heads.append(head)
            columns.bodies.append(body)
            columns.owners.append(connection)
        belong_together(linked, [target.columns for target, _, _ in row], waits)
    return sum(not row for row in rows)
