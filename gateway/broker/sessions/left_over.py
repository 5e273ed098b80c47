"""Sessions of gateways that are no more, until they are taken over: which comes next, and who has to wait for it. Pure.

What is stored for a session may be tens of thousands of messages, which are read page by page. Devices that have come
back are not to wait for the sessions of all others, and those that have no session there wait for none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

from gateway.broker.context import Context
from gateway.broker.refused.set_aside import aside_of
from gateway.broker.sessions.recovery import read_staged
from gateway.broker.sessions.stored_records import Left, Looked, Staged, of_nobody, record_of
from gateway.broker.steps import Reads
from gateway.ports.batch import BatchQueueManager, Stored
from gateway.ports.counters import UnitKind
from gateway.ports.ownership import Owners
from gateway.ports.state_queues import OUT, PAGE, SESSIONS, STAGED, WILLS
from gateway.session.record import key_of

_MANY = 100
_TOGETHER = 16
"""Sessions that are read at once: each read is a turn of its own, and what is written after it is one commit."""
_MOST_BYTES = 32 << 10
"""Bytes of the records of these sessions: thousands of filters take their time."""


class Orphan(NamedTuple):
    """A session of a gateway that is no more, as its record describes it."""

    key: bytes
    stored: Stored
    record: dict[str, Any]


class LeftOver:
    """The sessions of some gateways that are to be taken over."""

    def __init__(self) -> None:
        self._owners: frozenset[str] = frozenset()
        self._all_found = False
        self._orphans: OrderedDict[str, Orphan] = OrderedDict()
        """By client identifier. The first of an OrderedDict is found at once, however many have been removed before
        it."""
        self._awaited: list[str] = []
        """Those of clients that wait, as far as is known; the last comes next."""
        self._until_looked = 0
        """How many are taken before the next look at who waits: many clients may wait for something else."""

    def begin(self, owners: Collection[str]) -> None:
        """Start looking for the sessions of these owners."""
        self._owners, self._all_found = frozenset(owners), False
        self._orphans.clear()
        self._awaited.clear()
        self._until_looked = 0

    def found(self, orphan: Orphan) -> None:
        """Add one of them."""
        self._orphans[orphan.record["client"]] = orphan

    def all_found(self) -> None:
        """Note that there are no others."""
        self._all_found = True

    def may_have(self, client_id: str, expired_owners: Collection[str]) -> bool:
        """Whether the session of a client may be among those left, considering all gateways that are no more."""
        if not self._all_found or not self._owners.issuperset(expired_owners):
            return True
        return client_id in self._orphans

    def next(self, waiting: Collection[str]) -> list[Orphan]:
        """Some of the sessions left, first those whose clients wait: of these the first in `waiting`, which has waited
        longest and has the least time left until `connect_timeout`. Empty if none is left."""
        if self._until_looked <= 0:
            self._awaited = [one for one in waiting if one in self._orphans]
            self._awaited.reverse()
            self._until_looked = len(waiting) // _MANY
        while self._awaited and self._awaited[-1] not in self._orphans:
            self._awaited.pop()
        clients = chain(reversed(self._awaited[-_TOGETHER:]), islice(self._orphans, 2 * _TOGETHER))
        some = {client: self._orphans[client] for client in clients if client in self._orphans}
        return list(islice(some.values(), _TOGETHER))

    def taken(self, orphan: Orphan) -> None:
        """Remove a session that has been taken over."""
        del self._orphans[orphan.record["client"]]
        self._until_looked -= 1


class Recovering:
    """Whose sessions and wills a gateway has as it starts: its own, and those of gateways whose successor it is; if it
    is alone, also of those of which nothing but records is left, because no other gateway will ever act for them."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._is_alone = False
        self.owners: list[str] = []
        """The gateways that are no more; those of which only records are left are added as they are found."""

    def begin(self) -> list[str]:
        """The gateways that are no more; none if there are others."""
        self._is_alone = not self._owners.peers()
        self.owners = self._owners.expired_owners() if self._is_alone else []
        return self.owners

    def is_nobodys(self, record: dict[str, Any]) -> bool:
        """Whether nothing but records is left of the owner."""
        owner = record.get("owner", "")
        if not (self._is_alone and isinstance(owner, str)):
            return False
        return owner not in {self._owners.instance, *self.owners} and not self._owners.knows(owner)

    def is_own(self, record: dict[str, Any]) -> bool:
        """Whether a record is this gateway's."""
        owner = record.get("owner", "")
        if self.is_nobodys(record):
            self.owners.append(owner)
        return owner == self._owners.instance or owner in self.owners

    def end(self) -> None:
        """All is recovered."""
        self._is_alone, self.owners = False, []


class Begun(NamedTuple):
    """What is read of a session in one go: most have no more, and thousands may be read."""

    staged: list[Stored]
    wills: list[Stored]
    """Empty if it was not asked for: the wills of gateways that are no more are read together."""
    page: list[Stored]
    """The first page of what is stored for it."""


def _begin(manager: BatchQueueManager, client: str, *, wills: bool) -> Begun:
    key = key_of(client)
    kept = manager.fetch(WILLS, key, 1) if wills else []
    return Begun(manager.fetch(STAGED, key, 0xFFFF), kept, manager.fetch(OUT, key, PAGE))


def begin_several(manager: BatchQueueManager, orphans: Iterable[Orphan]) -> list[tuple[Orphan, Begun]]:
    """Read the beginning of the first of these sessions, at least of one, until it is as much as others can be made to
    wait for. Returns those that were read."""
    found, rows, size = list[tuple[Orphan, Begun]](), 0, 0
    for orphan in orphans:
        begun = _begin(manager, orphan.record["client"], wills=False)
        found.append((orphan, begun))
        rows += len(begun.staged) + len(begun.page)
        size += len(orphan.stored.data)
        if rows >= PAGE or size >= _MOST_BYTES:
            break
    return found


def left_by_pages(
    context: Context, record: dict[str, Any], stored: Stored, begun: Begun | None = None
) -> Reads[Left]:  # fmt: skip
    """Read a session as it lies on the state queues, page by page; others may take their turn between two pages."""
    manager, client = context.queue_manager, record["client"]
    staged, wills, page = begun or (yield partial(_begin, manager, client, wills=True))
    looked = Looked()
    looked.look(page)
    while len(page) == PAGE:
        page = yield partial(manager.fetch, OUT, key_of(client), PAGE, page[-1].token)
        looked.look(page)
    read, unread = list[Staged](), None
    for first in range(0, len(staged), PAGE):
        if first:
            yield _nothing
        try:
            read += map(read_staged, staged[first : first + PAGE])
        except Exception as error:  # noqa: BLE001 -- whoever restores the session sets it aside
            unread = error
    return Left(record, looked, read, unread, wills, stored)


def record_or_aside(
    context: Context, owners: Owners, what: UnitKind, key: bytes, stored: Stored
) -> dict[str, Any]:  # fmt: skip
    """A record on a state queue; empty, and set aside, if nobody can read whose it is."""
    try:
        return record_of(what, stored)
    except (ValueError, TypeError) as error:
        queue = SESSIONS if what == "session" else WILLS
        others = set(owners.peers()).difference(owners.expired_owners())
        aside = of_nobody if others else partial(aside_of, queue, key, stored)
        context.set_aside.keep(what, key.hex(), error, aside)
        return {}


def _nothing() -> None:
    """A read of nothing, which lets others take their turn."""
