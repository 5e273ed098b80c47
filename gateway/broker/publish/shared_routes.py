"""The part of a route that depends on the topic alone, shared by all clients: the route of a client that is new to the
topic then costs a look into the access list and a join, not the whole way through rules and templates. Pure.

Only the usual case is shared: one rule that looks at nothing but the topic, the flags and the listener, whose message
is a topic's part and a client's part, and no subscriber. Everything else is computed for each client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.assembly import NO_TAILS
from gateway.bridge.stencil import Stencil, stencil_of
from gateway.broker.columns import Columns
from gateway.broker.publish.route import FastPath, Route
from gateway.ports.failure_policy import Policy
from gateway.routing.table import Table
from gateway.session.connection import Publisher

if TYPE_CHECKING:
    from gateway.broker.publish.router import Router

_NEW = Route.__new__
MAX_SHARED_ROUTES, MAX_TOPIC = 8192, 256
"""How many are kept, and the longest topic they are kept for: clients choose topics."""

Key = tuple[bytes, int, str, bool]
"""Topic, QoS and RETAIN bits, listener, and whether there is a user name."""


class SharedRoute(NamedTuple):
    """What routes to one topic have in common, whoever publishes."""

    topic: str
    stencil: Stencil
    front: bytes
    """The topic's part of the headers."""
    policies: tuple[Policy, ...]
    columns: Columns
    queue: str
    fast_path: FastPath
    changes: list[int]
    elsewhere: tuple[str, ...]
    version: int
    """Valid while `changes` says the same: no subscription that could match has been made or ended."""


class SharedRoutes:
    """The shared routes of the topics that were published to last."""

    def __init__(self) -> None:
        self._routes: dict[Key, SharedRoute] = {}
        self._generation = -1

    def find(self, publisher: Publisher, wire_topic: bytes, first: int, generation: int) -> SharedRoute | None:
        """The shared route of a topic, if there is one that is still valid."""
        if generation != self._generation:
            self._forget(generation)
        shared = self._routes.get((wire_topic, first, publisher.listener, bool(publisher.user)))
        valid = shared is not None and shared.version == shared.changes[0]
        return shared if valid else None

    def _forget(self, generation: int) -> None:
        """Those of another generation are void."""
        self._routes.clear()
        self._generation = generation

    def keep(self, publisher: Publisher, route: Route, table: Table, generation: int) -> None:
        """Keep the part of a new route that other clients share, if it has one."""
        if route.fast_path not in {FastPath.DIRECT, FastPath.STAGED} or len(route.wire_topic) > MAX_TOPIC:
            return
        shared = _shared_part(route, table)
        if shared is None:
            return
        if generation != self._generation or len(self._routes) >= MAX_SHARED_ROUTES:
            self._forget(generation)
        self._routes[route.wire_topic, route.first, publisher.listener, bool(publisher.user)] = shared


def _shared_part(route: Route, table: Table) -> SharedRoute | None:
    plan = route.plan
    if plan is None or table.asks_who(route.topic):
        return None
    only = plan.prepared[0]
    stencil = stencil_of(only.match, only.origin)
    front = None if stencil is None else stencil.front_of(only.origin, route.head)
    if stencil is None or front is None:
        return None
    return SharedRoute(
        route.topic, stencil, front, route.policies, route.columns, route.queue, route.fast_path, route.changes,
        route.elsewhere, route.version,
    )  # fmt: skip


def route_from_shared(
    shared: SharedRoute, publisher: Publisher, wire_topic: bytes, first: int, router: Router
) -> Route | None:
    """The route of another client; None if the client's part of the message is not known yet."""
    client = shared.stencil.clients.get((publisher.client_id, publisher.user or ""))
    if client is None:
        return None
    route = _NEW(Route)  # what is not set here is as in every new route
    route.topic, route.wire_topic, route.first = shared.topic, wire_topic, first
    route.router, route.publisher = router, publisher
    route.policies, route.rule = shared.policies, shared.policies[0].rule
    route.columns, route.queue, route.fast_path = shared.columns, shared.queue, shared.fast_path
    route.changes, route.elsewhere, route.version = shared.changes, shared.elsewhere, shared.version
    front = shared.front
    route.head = client.head(front)
    route.tails = client.tails if front else NO_TAILS
    route.form, route.linked, route.otherwise = False, (), None
    return route
