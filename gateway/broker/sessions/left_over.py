"""Sessions of gateways that are no more, until they are taken over: which comes next, and who has to wait for it. Pure.

What is stored for a session may be ten thousands of messages, which are read page by page. Devices that have come back
are not to wait for the sessions of all others, and those that have no session there wait for none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

from gateway.broker.context import Context
from gateway.broker.sessions.stored_records import Left, Looked
from gateway.broker.steps import Reads
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, PAGE, STAGED, WILLS
from gateway.session.record import key_of

_MANY = 100


class Orphan(NamedTuple):
    """A session as its record says."""

    key: bytes
    stored: Stored
    record: dict[str, Any]


class LeftOver:
    """The sessions of some gateways that are to be taken over."""

    def __init__(self) -> None:
        self._owners: frozenset[str] = frozenset()
        self._all_found = False
        self._orphans: OrderedDict[str, Orphan] = OrderedDict()
        """The first of so many is found at once, however many have gone before it."""
        self._awaited: list[str] = []
        """Those of clients that wait, as far as is known."""
        self._until_looked = 0
        """So many are taken before it is looked again who waits: many may, for something else."""

    def begin(self, owners: Collection[str]) -> None:
        """Theirs are looked for."""
        self._owners, self._all_found = frozenset(owners), False
        self._orphans.clear()
        self._awaited.clear()
        self._until_looked = 0

    def found(self, orphan: Orphan) -> None:
        """One of them."""
        self._orphans[orphan.record["client"]] = orphan

    def all_found(self) -> None:
        """There are no others."""
        self._all_found = True

    def may_have(self, client_id: str, expired_owners: Collection[str]) -> bool:
        """Whether the session of a client may be among those that are left; of all gateways that are no more."""
        if not self._all_found or not self._owners.issuperset(expired_owners):
            return True
        return client_id in self._orphans

    def next(self, waiting: Collection[str]) -> Orphan | None:
        """One whose client waits, if there is one: of several the first in `waiting`, which waits longest and has the
        least time left until `connect_timeout`."""
        if self._until_looked <= 0:
            self._awaited = [one for one in waiting if one in self._orphans]
            self._awaited.reverse()
            self._until_looked = len(waiting) // _MANY
        else:
            self._until_looked -= 1
        while self._awaited:
            orphan = self._orphans.get(self._awaited.pop())
            if orphan is not None:
                return orphan
        return next(iter(self._orphans.values()), None)

    def taken(self, orphan: Orphan) -> None:
        """It is not left any more."""
        del self._orphans[orphan.record["client"]]


def left_by_pages(context: Context, record: dict[str, Any], stored: Stored) -> Reads[Left]:
    """A session as it lies on the state queues. Others may read between two pages; the first comes with all else,
    because most sessions have no more, and thousands may be read."""
    manager, key = context.queue_manager, key_of(record["client"])

    def read() -> tuple[list[Stored], list[Stored], list[Stored]]:
        return manager.fetch(STAGED, key, 0xFFFF), manager.fetch(WILLS, key, 1), manager.fetch(OUT, key, PAGE)

    staged, wills, page = yield read
    looked = Looked()
    looked.look(page)
    while len(page) == PAGE:
        page = yield partial(manager.fetch, OUT, key, PAGE, page[-1].token)
        looked.look(page)
    return Left(record, looked, staged, wills, stored)
