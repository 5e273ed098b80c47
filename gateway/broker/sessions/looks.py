"""Looks at the state queue for the session of one client: again for a bounded time while its record may be on its way.
Pure.

A record cannot be seen while a unit of work that has got it is open, and a unit of work may become visible message by
message, or be committed in parts. That it is not there once does not say that there is no session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from functools import partial
from itertools import repeat
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.refused.set_aside import aside_of
from gateway.broker.sessions.claims import Claims
from gateway.broker.sessions.left_over import left_by_pages
from gateway.broker.sessions.stored_records import Left, Unread, record_of
from gateway.broker.steps import Reads, ask_in_steps
from gateway.errors import MQError
from gateway.mqtt import reasons
from gateway.ports.batch import Stored
from gateway.ports.ownership import Message, Owners
from gateway.ports.state_queues import SESSIONS
from gateway.session.record import key_of

LOOKS, LOOK_SECONDS = 20, 0.25
"""How often, and how far apart in seconds, a record is looked for that should be there, or should not."""
_RETRY_SECONDS = 1.0
_RECORDS = 10
"""The most records of one client that are looked at: a record that could not be seen was not replaced."""
_TOGETHER = 100
"""The most clients that are looked for in one question. Thousands may come at once, each is a call to the queue
manager, and what is read for connected devices is read in between."""

_REMEMBERED = 10_000


class Elsewhere(NamedTuple):
    """The record of a session names another gateway as its owner."""

    owner: str


Found = Left | Unread | Elsewhere | None
Rows = list[Stored]


class Looks:
    """Looks for stored sessions."""

    def __init__(self, context: Context, owners: Owners, claims: Claims, receiving: Container[str]) -> None:
        """`receiving`: clients whose sessions other gateways have given to this one, until they have been read."""
        self.context = context
        self.owners = owners
        self.claims = claims
        self.receiving = receiving
        self._missed: dict[str, Message] = {}
        """What other gateways have said as they gave sessions whose records were not found; `_REMEMBERED` at most."""
        self._wanted: deque[tuple[str, Callable[[Rows | MQError], None]]] = deque()
        """Clients whose records are to be read, and whom to tell."""
        self._is_asking = False

    def given(self, client_id: str, found: Callable[[Found], None]) -> None:
        """Look for a session that another gateway has given to this one, until its record says so."""
        self._missed.pop(client_id, None)
        self._look(client_id, lambda one: isinstance(one, Left | Unread), found)

    def miss_given(self, client_id: str, message: Message) -> None:
        """Note that a session that was given with this message has not been found; `given_before` is told of it."""
        self._missed[client_id] = message
        while len(self._missed) > _REMEMBERED:
            del self._missed[next(iter(self._missed))]
        self.miss(client_id, f"gateway {message['from']} has given its session, whose record is not there")

    def given_before(self, client_id: str) -> Message | None:
        """The message with which a session was given, if it was not found then."""
        return self._missed.pop(client_id, None)

    def set_aside(self, client_id: str, unread: Unread) -> None:
        """Set aside a session of this gateway that nobody can read."""
        key = key_of(client_id)
        aside = partial(aside_of, SESSIONS, key, unread.stored)
        self.context.set_aside.keep("session", key.hex(), unread.error, aside)

    def take_in(self, client_id: str, left: Left, restore: Callable[[], object]) -> None:
        """Restore a session that has been found, unless its client has one meanwhile."""
        if self.context.sessions.get(client_id) is None:
            taken = self.context.set_aside.record("session", SESSIONS, key_of(client_id), left.stored, restore)
            self.context.counters.mqtt_sessions_taken_over += taken

    def unowned(
        self, client_id: str, take_in: Callable[[str, Left], None], go_on: Callable[[str], None]
    ) -> None:  # fmt: skip
        """Let a client go on whose session no gateway says it has, with what is found of it. If a record says that
        another gateway has it, and still does after the last look, that one is told, and the client is refused; but if
        nobody knows that gateway and so nobody takes over from it, the session is this one's."""
        number = self.claims.number(client_id)

        def found(one: Found) -> None:
            if self.claims.number(client_id) != number or client_id in self.receiving:
                return  # it has left, or others are asked anew, or have given it
            if isinstance(one, Left):
                take_in(client_id, one)
            elif isinstance(one, Elsewhere) and self.context.sessions.get(client_id) is None:
                if self.owners.knows(one.owner):
                    if one.owner in self.owners.peers():
                        self.claims.write(one.owner, {"kind": "named", "client": client_id})
                    self.miss(client_id, f"no gateway has its session, whose record names {one.owner}")
                else:
                    self._look(client_id, lambda _one: True, found, also=one.owner)
                return
            go_on(client_id)

        self._look(client_id, lambda one: not isinstance(one, Elsewhere), found)

    def miss(self, client_id: str, why: str) -> None:
        """Count and report a session that should be there, and refuse its client: what began anew now would be in its
        place."""
        self.context.set_aside.keep("session", client_id, LookupError(why))
        if client_id in self.claims:
            self.claims.refuse(client_id, reasons.SERVER_UNAVAILABLE, "its session cannot be found now: connect again")

    def _look(
        self, client_id: str, is_settled: Callable[[Found], bool], found: Callable[[Found], None], also: str = "",
    ) -> None:  # fmt: skip
        """`also`: a gateway whose sessions are this one's, too."""
        owners, looks = {self.owners.instance, "", also}, 0

        def seen(one: Found | MQError) -> None:
            nonlocal looks
            if isinstance(one, MQError):  # it is away for the moment
                self.context.scheduler.later(_RETRY_SECONDS, look)
            elif is_settled(one) or looks == LOOKS or self.context.sessions.get(client_id) is not None:
                found(one)
            else:
                looks += 1
                self.context.scheduler.later(LOOK_SECONDS, look)

        def fetched(rows: Rows | MQError) -> None:
            if isinstance(rows, MQError):
                seen(rows)
            else:
                ask_in_steps(self.context, self._read(rows, owners), seen)

        def look() -> None:
            self._wanted.append((client_id, fetched))
            self._fetch()

        look()

    def _fetch(self) -> None:
        """Read the records of those that have waited longest, unless some are being read."""
        if self._is_asking or not self._wanted:
            return
        self._is_asking, fetch = True, self.context.queue_manager.fetch
        some = [self._wanted.popleft() for _ in range(min(_TOGETHER, len(self._wanted)))]
        keys = [key_of(client_id) for client_id, _ in some]

        def fetched(found: list[Rows] | MQError) -> None:
            self._is_asking = False
            self._fetch()
            each: Iterable[Rows | MQError] = repeat(found) if isinstance(found, MQError) else found
            for (client_id, tell), rows in zip(some, each, strict=False):
                self.context.set_aside.run("call", client_id, partial(tell, rows))
                self.context.close_full()

        self.context.ask(lambda: [fetch(SESSIONS, key, _RECORDS) for key in keys], fetched)

    def _read(self, rows: Rows, owners: Container[str]) -> Reads[Found]:
        found: Found = None
        for stored in rows:
            try:
                record = record_of("session", stored)
            except (ValueError, TypeError) as error:
                found = found or Unread(stored, error)
                continue
            if record.get("owner", "") in owners:
                return (yield from left_by_pages(self.context, record, stored))
            found = Elsewhere(record["owner"])
        return found
