"""The part of a route that depends on the topic alone, shared by all clients. The route of a client that is new to the
topic then costs a look into the access list and a join, not the whole way through rules and templates; compiled where
there was a compiler at installation. Pure.

Only the usual case is shared: one rule that looks at nothing but the topic, the flags and the listener, whose message
consists of a topic's part and a client's part, and subscribers that are the same whoever publishes. Everything else is
computed for each client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.assembly import NO_TAILS
from gateway.bridge.stencil import ClientPart, stencil_of
from gateway.broker.publish.kept_routes import emptied, make_way
from gateway.broker.publish.route import FastPath, Route
from gateway.ports.access import Decisions
from gateway.routing.table import Table
from gateway.session.connection import Publisher

if TYPE_CHECKING:
    from gateway.broker.publish.router import Router

MAX_SHARED_ROUTES, MAX_TOPIC, MAX_RECEIVERS = 32_768, 256, 8
"""How many shared routes are kept, and the longest topic and the most subscribers they are kept for: clients choose
topics, and a route holds sessions that may have ended until it is found void."""
SWEEP_SECONDS = 60.0
"""Seconds between two searches for void routes."""
PATHS = frozenset({FastPath.DIRECT, FastPath.STAGED, FastPath.FAN_OUT, FastPath.PROMISED})

Key = tuple[bytes, int, str, bool]
"""Topic, QoS and RETAIN bits, listener, and whether there is a user name."""
MayPublish = Callable[[str, str, "str | None", str], bool]
"""Whether this client and user, who comes through this listener, may publish to this topic."""


class SharedRoute(NamedTuple):
    """What routes to one topic have in common, whoever publishes."""

    pattern: Route
    """A route without a publisher and a head. It is valid while its `changes` equal its `version`: no subscription that
    could match has been made or ended."""
    clients: dict[tuple[str, str], ClientPart]
    """The clients' parts of the message."""
    front: bytes
    """The topic's part of the headers."""


class SharedRoutes:
    """The shared routes of the topics that were published to last."""

    def __init__(self) -> None:
        self._routes: dict[Key, SharedRoute] = {}
        self._generation = -1
        self._next = 0.0
        """When void routes are looked for again."""

    def of(self, router: Router) -> dict[Key, SharedRoute]:
        """The shared routes of this generation; those of another are dropped."""
        if router.generation != self._generation:
            self.forget(router)
            self._generation = router.generation
        return self._routes

    def forget(self, router: Router) -> None:
        """Drop all shared routes."""
        (self._routes,) = emptied(router.context, (self._routes,))

    def sweep(self, now: float) -> Iterator[None]:
        """Let go of void routes, and with them of sessions that have ended. One route is looked at in each step."""
        if now < self._next:
            return
        self._next = now + SWEEP_SECONDS
        for key in list(self._routes):
            shared = self._routes.get(key)
            if shared is not None and shared.pattern.version != shared.pattern.changes[0]:
                del self._routes[key]
            yield

    def keep(self, publisher: Publisher, route: Route, table: Table, router: Router) -> None:
        """Keep the part of a new route that other clients share, if it has one."""
        if (
            not route.head
            or route.fast_path not in PATHS
            or route.is_own
            or len(route.receivers) + len(route.shared) > MAX_RECEIVERS
            or len(route.wire_topic) > MAX_TOPIC
        ):
            return
        shared = _shared_part(route, table, router)
        if shared is None:
            return
        if len(self.of(router)) >= MAX_SHARED_ROUTES:
            make_way(self._routes)
        self._routes[route.wire_topic, route.first, publisher.listener, bool(publisher.user)] = shared


def _shared_part(route: Route, table: Table, router: Router) -> SharedRoute | None:
    plan = route.plan
    if plan is None or table.asks_who(route.topic):
        return None
    only = plan.prepared[0]
    stencil = stencil_of(only.match, only.origin)
    front = None if stencil is None else stencil.front_of(only.origin, route.head)
    if stencil is None or front is None:
        return None
    pattern = Route(route.topic, route.wire_topic, route.first)
    pattern.router, pattern.rule, pattern.policies = router, route.policies[0].rule, route.policies
    pattern.columns, pattern.queue, pattern.fast_path = route.columns, route.queue, route.fast_path
    pattern.changes, pattern.elsewhere, pattern.version = route.changes, route.elsewhere, route.version
    pattern.reads, pattern.receivers, pattern.shared, pattern.most = (
        route.reads,
        route.receivers,
        route.shared,
        route.most,
    )
    pattern.tails = NO_TAILS
    return SharedRoute(pattern, stencil.clients, front)


def join_in_python(
    routes: dict[Key, SharedRoute], publisher: Publisher, wire_topic: bytes, first: int, decisions: Decisions,
    may_publish: MayPublish, /,
) -> Route | None:  # fmt: skip
    """A client's route, made from a shared one. None if there is no valid one, the client may not publish there, or its
    part of the message is not known yet."""
    listener, client_id, user, _ = publisher
    shared = routes.get((wire_topic, first, listener, bool(user)))
    if shared is None:
        return None
    pattern, clients, front = shared
    if pattern.version != pattern.changes[0]:
        return None
    allowed = decisions if isinstance(decisions, bool) else decisions.get(pattern.topic)
    if not (may_publish(listener, client_id, user, pattern.topic) if allowed is None else allowed):
        return None
    client = clients.get((client_id, user or ""))
    if client is None:
        return None
    route = pattern.copy()
    route.publisher, route.head = publisher, client.head(front)
    if front:
        route.tails = client.tails
    return route


join = join_in_python
with suppress(ModuleNotFoundError):
    import gateway.broker.publish._fast as compiled_join

    join = compiled_join.join
