"""What a topic alone decides of a publication's route, kept for all clients: a client that is new to a topic then costs
a look into the access list and a join, not the whole way through rules and templates. Pure.

Only the usual case has a signpost: one rule that looks at nothing but the topic, the flags and the listener, whose
message is a topic's part and a client's, and nobody subscribed. Everything else is worked out for each client.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.bridge.assembly import NO_TAILS
from gateway.bridge.stencil import Stencil, stencil_of
from gateway.broker.publish.route import HOT, STAGING, Policy, Route
from gateway.broker.turn import Run
from gateway.routing.table import Table
from gateway.session.connection import Publisher

MAX_SIGNPOSTS, MAX_TOPIC = 8192, 256
"""Topics that have one, and their greatest length: clients choose them."""

Key = tuple[bytes, int, str, bool]
"""Topic, QoS and RETAIN bits, listener, and whether there is a user name."""


class Signpost(NamedTuple):
    """See the module."""

    topic: str
    stencil: Stencil
    front: bytes
    """The topic's part of the headers."""
    policies: tuple[Policy, ...]
    run: Run
    hot: int
    cell: list[int]
    seen: int
    """While the cell says so, nobody is subscribed."""


class Signposts:
    """Those of the topics met last."""

    def __init__(self) -> None:
        self._known: dict[Key, Signpost] = {}
        self._generation = -1

    def find(self, publisher: Publisher, wire_topic: bytes, first: int, generation: int) -> Signpost | None:
        """The topic's, if it has one that still holds."""
        if generation != self._generation:
            self._known.clear()
            self._generation = generation
        known = self._known.get((wire_topic, first, publisher.listener, bool(publisher.user)))
        return known if known is not None and known.seen == known.cell[0] else None

    def keep(self, publisher: Publisher, route: Route, table: Table) -> None:
        """Remember what of a route other clients share."""
        if route.hot not in {HOT, STAGING} or len(route.wire_topic) > MAX_TOPIC:
            return
        made = _made(route, table)
        if made is None:
            return
        if len(self._known) >= MAX_SIGNPOSTS:
            self._known.clear()
        self._known[route.wire_topic, route.first, publisher.listener, bool(publisher.user)] = made


def _made(route: Route, table: Table) -> Signpost | None:
    plan = route.plan
    if plan is None or table.asks_who(route.topic):
        return None
    only = plan.prepared[0]
    stencil = stencil_of(only.match, only.origin)
    front = None if stencil is None else stencil.front_of(only.origin, route.head)
    if stencil is None or front is None:
        return None
    return Signpost(route.topic, stencil, front, route.policies, route.run, route.hot, route.cell, route.seen)


def followed(sign: Signpost, publisher: Publisher, wire_topic: bytes, first: int) -> Route | None:
    """The route of another client; None if its part is not known yet."""
    client = sign.stencil.clients.get((publisher.client_id, publisher.user or ""))
    if client is None:
        return None
    route = Route(sign.topic, wire_topic, first)
    route.policies = sign.policies
    route.rule = sign.policies[0].rule
    route.run, route.hot, route.cell, route.seen = sign.run, sign.hot, sign.cell, sign.seen
    route.head = client.head(sign.front)
    route.tails = client.tails if sign.front else NO_TAILS
    return route
