"""Rows in the open batch for publications that the fast lane takes in Python."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from gateway.bridge.payload import Body
from gateway.broker.columns import Columns
from gateway.broker.publish.chunk import Chunk
from gateway.broker.publish.given import LONGEST_REST, NOTHING, Given, carried, encode_user, given_of, is_alias
from gateway.broker.publish.route import UNROUTED, Route
from gateway.mqtt.packets import V5
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.broker.marks import Released
    from gateway.broker.publish.fast import FastLane
    from gateway.broker.publish.route import Sent


RETAIN = 0x01


class Rows(Chunk):
    """The bytes of one connection while they are made into rows of the open batch."""

    __slots__ = (
        "acknowledged", "answers", "caches", "completed", "connection", "in_flight", "kept", "lane", "most_users",
        "received", "replies", "room", "sent", "session", "unanswered", "unrouted",
    )  # fmt: skip

    def __init__(
        self, lane: FastLane, connection: Connection, data: bytes, at: int, replies: dict[Connection, list[bytes]],
        sent: list[Sent],
    ) -> None:  # fmt: skip
        limits, session = connection.limits, connection.session
        super().__init__(
            data, at, version_5=connection.version == V5, max_packet=connection.reader.max_packet,
            longest=limits.max_payload or limits.max_packet,
        )  # fmt: skip
        self.lane = lane
        self.connection = connection
        self.session = session
        self.caches = connection.caches
        self.most_users = limits.max_user_properties
        self.replies = replies
        self.sent = sent
        """What clients of other gateways want and what is not put for them yet."""
        self.answers: list[bytes] = []
        self.kept: dict[Route, tuple[bytes, bytes]] = {}
        """What is to be retained: payload and properties of the last publication on each route."""
        self.room = limits.receive_maximum if self.version_5 else connection.unreleased
        """How many publications of QoS 2 may be in flight."""
        self.in_flight = connection.uncompleted if self.version_5 else 0
        """Publications of QoS 2 that are released, and whose PUBCOMP follows a commit."""
        self.unanswered = self.acknowledged = self.received = self.completed = self.unrouted = 0

    def _route(self, first: int, topic: bytes) -> Route | None:
        route: Route | None = self.caches[first & 7].get(topic)
        if route is None or route.version != route.changes[0]:
            return self.lane.route(self.connection, first, topic)
        return route

    # -- rows --

    def _columns_of(self, columns: Columns) -> tuple[Any, Any]:
        """The functions that append to some columns, which are opened if they are not open."""
        if columns.heads is None:
            self.lane.open(columns)
        if not columns.mixed:
            columns.owners.append(self.connection)
        return columns.heads.append, columns.bodies.append

    def _count(self, first: int, ids: list[bytes]) -> None:
        """Count publications with these packet identifiers, and have them answered."""
        rows = len(ids)
        if not first & 6:
            self.unanswered += rows
        elif rows:
            self.answers.append(b"\x40\x02" + b"\x40\x02".join(ids))
            self.acknowledged += rows

    def _keep(self, route: Route, payload: bytes, block: bytes) -> None:
        """Have this publication retained; the last one counts, even if a topic has two routes."""
        self.kept.pop(route, None)
        self.kept[route] = payload, b"" if is_alias(block) else block

    # -- other gateways --

    def _note_sent(
        self, route: Route, payload: bytes, block: bytes, given: Given | None = None, released: Released | None = None
    ) -> None:
        """Note a publication that is to be put for other gateways; Topic Alias and expiry are not among the properties
        kept for them."""
        expiry = 0 if given is None else given.expiry or 0
        if given is not None and (expiry or given.alias):
            block = carried(block)
        self.sent.append((self.connection, route, payload, block, expiry, released))

    def _forward(self) -> None:
        """Put all that was noted for other gateways, before what follows from this connection is put."""
        if self.sent:
            self.lane.forward(self.sent)
            self.sent.clear()

    # -- properties, and messages that are not all alike --

    def _made(
        self, first: int, route: Route, given: Given, body: Body, packet_id: int
    ) -> tuple[Route, bytes] | None:  # fmt: skip
        """The route whose rule applies to a publication with these properties, and the head of its message; None if the
        plain lane has to decide."""
        deciding = given.rest
        if deciding is not None and route.reads:
            deciding += b"".join(encode_user(name, value) for name, value in given.users if name in route.reads)
        if deciding is None or len(deciding) > LONGEST_REST or (given.traced and (route.reads or given.asks)):
            return None
        if deciding or route.reads:
            found = self.caches[first & 7].get(route.wire_topic + b"\0" + deciding)
            found = self.lane.variant(self.connection, route, deciding) if found is None else found
            if found is None:
                return None
            route = found
        made: tuple[Route, bytes] | None = (route, route.head)
        if not route.head or given.users or given.expiry is not None:
            made = formed(self.lane, route, given, body, packet_id)
        if made is None or made[0] is UNROUTED or not given.asks:
            return made
        head = self.lane.asked(*made, given.correlation, given.expiry or 0)
        return None if head is None else (made[0], head)


def formed(
    lane: FastLane, route: Route | None, given: Given, body: Body, packet_id: int
) -> tuple[Route, bytes] | None:  # fmt: skip
    """The head of one message, and the route that has made it: this one, or the first of its alternatives whose
    condition holds. None if the plain lane has to decide."""
    while route is not None:
        if route is UNROUTED:
            return route, b""
        form = route.ask_for_form()
        if form is None:
            return None
        if form.condition is None or form.condition(body):
            return lane.head(route, given.users, given.expiry, body, packet_id)
        route = route.otherwise
    return None


def released_rows(
    lane: FastLane, route: Route, payloads: dict[int, bytes], blocks: list[bytes], most_users: int
) -> tuple[list[bytes], list[bytes]] | None:  # fmt: skip
    """Heads and bodies, for the queue, of QoS 2 publications that subscribers get too; None if the plain lane has to
    make them."""
    heads, bodies = list[bytes](), list[bytes]()
    for (packet_id, payload), block in zip(payloads.items(), blocks or repeat(b""), strict=False):
        made: tuple[Route, bytes] | None = (route, route.head)
        if block or not route.head:
            given = given_of(block, most_users) if block else NOTHING
            if given is None or given.rest != b"" or given.traced or (block and route.reads):
                return None
            made = formed(lane, route, given, Body(payload), packet_id)
        if made is None or made[0].columns is not route.columns:
            return None
        heads.append(made[1])
        bodies.append(made[0].tails[packet_id] + payload)
    return heads, bodies
