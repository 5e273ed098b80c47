"""The bound on the routes that are kept for connections, all together.

A connection keeps the routes of some thousand topics for each kind of PUBLISH, and a route takes some KiB: one client
that makes up topics could have a hundred MiB kept, and a few such clients could fill the memory. The sum is not kept up
to date, which would cost something for each route. As each route comes from a PUBLISH, the sum is looked at again when
as many publications have come as there was room for routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.publish.router import Router
    from gateway.session.connection import Connection

    Tables = tuple[dict[Any, Any], ...]

Key = TypeVar("Key")

MAX_CACHED_ROUTES = 32_768
"""Routes that are kept for a client for each kind of PUBLISH. They are found quickly as long as they are no more than
the compiled lane has numbers for."""
ROUTE_BYTES = 5 << 10
"""Measured bytes of a route with its plan and the head of its messages."""
LEFT = 3 / 4
"""The part of what is allowed that stays when too many were kept."""
OFTEN = 1 / 4
"""A part of what is allowed: at least this many publications come before the sum is looked at again, however little
room there is. Where many clients have few topics each the sum is no more than is wanted."""


_FEW, _AT_ONCE = 500, 64
"""The routes that are freed in one go, whose cost is hardly felt; and how many in each step where there are more."""
_numbers = count()


def emptied(context: Context, tables: Tables) -> Tables:
    """Empty tables whose routes nobody is to find any more; returns the tables that take their place. Thousands of
    routes are freed in later turns: rules and access lists may change for many clients at once."""
    if sum(map(len, tables)) <= _FEW:
        for table in tables:
            table.clear()
        return tables
    context.slices.run(f"routes {next(_numbers)}", lambda: _freed(tables), 0.0)
    return tuple({} for _ in tables)


def _freed(tables: Tables) -> Iterator[None]:
    for table in tables:
        while table:
            yield
            for one in list(islice(reversed(table), _AT_ONCE)):
                del table[one]


def leaving(kept: dict[Key, Any]) -> list[Key]:
    """The keys that go when no more may be kept. Mostly those that came last, so that of more things than are kept,
    which come in turn, the others are still found; and some of the oldest, so that nothing stays for ever that does not
    come any more. They are few, as everybody waits meanwhile."""
    some = min(len(kept) // _AT_ONCE or 1, _AT_ONCE // 4)
    return list(dict.fromkeys([*islice(kept, some), *islice(reversed(kept), 3 * some)]))


def make_way(routes: dict[Any, Any]) -> None:
    """Make room in a table that holds as many routes as are kept."""
    for one in leaving(routes):
        del routes[one]


class KeptRoutes:
    """Keeps the routes of all connections within their bound. A route that was dropped is made again when its topic
    comes again."""

    def __init__(self, context: Context, router: Router) -> None:
        self._context = context
        self._router = router
        self._next = 0
        """How many publications will have come when the sum is looked at again."""

    def look(self) -> None:
        """Drop the routes of the connections that have most, if all together have too many; the shared routes count as
        one connection. Called between rounds."""
        come = self._context.counters.packets_in[3]
        if come < self._next:
            return
        most = self._context.limits.max_buffered_bytes // ROUTE_BYTES
        if not most:
            return
        kept: list[tuple[int, Connection | None]] = [
            (many, one) for one in self._context.connections if (many := sum(map(len, one.caches)))
        ]
        kept.append((len(self._router.shared_routes), None))  # the last of those with as many
        left = sum(many for many, _ in kept)
        if left > most:
            kept.sort(key=lambda one: one[0], reverse=True)
            for many, connection in kept:
                if connection is None:
                    self._router.forget_shared_routes()
                else:
                    connection.caches = emptied(self._context, connection.caches)
                left -= many
                if left <= most * LEFT:
                    break
        self._next = come + max(most - left, int(most * OFTEN))
