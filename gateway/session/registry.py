"""All sessions by client identifier, when they end, and those that are about to end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from typing import NamedTuple

from gateway.ports.batch import MQMD_LENGTH, Puts, Stored, Token
from gateway.session.connection import CLOSED, Connection
from gateway.session.due import Due
from gateway.session.record import REPORTS, SHARED
from gateway.session.session import NEVER, Session

PARTS = 256
"""In how many parts sessions are kept: each part of a hundred thousand sessions has a few hundred."""
_FLAGS = 2
"""Bytes of a stored record up to its flags."""


class Waiter(NamedTuple):
    """A connection that waits until a session has ended, and what is to be done then."""

    connection: Connection | None
    call: Callable[[], None]


class Ending:
    """A session that ends as soon as it is known what is stored for it, because that is removed in the same unit of
    work."""

    __slots__ = ("last", "session", "stored", "waiters")

    def __init__(self, session: Session, waiter: Waiter) -> None:
        self.session = session
        self.waiters = [waiter]
        """In order."""
        self.stored: dict[Token, Stored] = {}
        self.last: Token | None = None
        """The last stored message that was read."""

    def add_waiter(self, waiter: Waiter) -> None:
        """Let another connection wait for the end, and drop those that have closed meanwhile."""
        self.waiters = [one for one in self.waiters if one.connection is None or one.connection.state != CLOSED]
        self.waiters.append(waiter)

    def add(self, stored: Stored) -> None:
        """Note a message that is stored for the session. Payloads are kept only for reports and shared
        subscriptions."""
        wanted = stored.data[1] & (REPORTS | SHARED)
        self.stored[stored.token] = stored if wanted else Stored(stored.token, b"", stored.data[:_FLAGS])

    def stored_meanwhile(self, puts: Puts, row: int, count: int) -> None:
        """Note messages that have been stored for the session meanwhile."""
        for at in range(row, row + count):
            self.add(Stored(puts.tokens[at], b"", puts.heads[at][MQMD_LENGTH:] + puts.bodies[at]))


class Registry:
    """The sessions of this gateway, by client identifier [MQTT-3.1.3-2]."""

    __slots__ = ("_asking", "_count", "_due", "_parts", "_staged_key", "by_listener", "ending")

    def __init__(self, staged_key: bytes = b"") -> None:
        self._staged_key = staged_key
        """The key under which the publications of all sessions are staged; empty: each session has its own."""
        self._parts: list[dict[str, Session]] = [{} for _ in range(PARTS)]
        """Sessions by client identifier, each in the part that the identifier's hash selects."""
        self._count = 0
        self.by_listener: Counter[str] = Counter()
        """How many sessions have clients that last connected through each listener."""
        self._due = Due(self._is_current)
        self.ending: dict[Session, Ending] = {}
        """Sessions whose stored messages are being read so that they can end."""
        self._asking: dict[str, dict[Connection, None]] = {}
        """Connections that ask for a session and are still being authenticated, by client identifier and in order."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Session]:
        return chain.from_iterable(self.portions())

    def portions(self) -> Iterator[list[Session]]:
        """Yield all sessions, some at a time, while others come and go; copying a table of a hundred thousand would
        take long."""
        return (list(part.values()) for part in self._parts)

    def get(self, client_id: str) -> Session | None:
        """The session of a client, connected or not."""
        return self._part(client_id).get(client_id)

    def _part(self, client_id: str) -> dict[str, Session]:
        return self._parts[hash(client_id) % PARTS]

    def asks(self, connection: Connection) -> None:
        """Note that a connection has sent CONNECT and is being authenticated."""
        self._asking.setdefault(connection.request.client_id, {})[connection] = None

    def asked(self, connection: Connection) -> None:
        """Note that a connection is authenticated, or has ended."""
        if connection.request is None:
            return
        same = self._asking.get(connection.request.client_id, {})
        same.pop(connection, None)
        if not same:
            self._asking.pop(connection.request.client_id, None)

    def earlier(self, connection: Connection) -> list[Connection]:
        """The connections that asked for the session of the same client before this one and still wait."""
        request, asked_at = connection.request, connection.asked_at
        same = self._asking.get(request.client_id, ()) if request.client_id else ()
        return list(takewhile(lambda one: one.asked_at < asked_at, same))

    def add(self, session: Session) -> None:
        """Add a session, or replace the one with the same client identifier."""
        session.staged_key = self._staged_key or session.key
        part = self._part(session.client_id)
        self._count += session.client_id not in part
        part[session.client_id] = session
        self.by_listener[session.listener] += 1

    def move(self, session: Session, listener: str) -> None:
        """Note through which listener the client of a session has connected."""
        self.by_listener[session.listener] -= 1
        self.by_listener[listener] += 1
        session.listener = listener

    def remove(self, session: Session) -> None:
        """Remove a session, unless another one has taken its place."""
        if self.get(session.client_id) is session:
            del self._part(session.client_id)[session.client_id]
            self._count -= 1
            self.by_listener[session.listener] -= 1

    def watch(self, session: Session, now: float) -> None:
        """Note when a session whose connection has ended, or its delayed will, is due."""
        session.ends_at = 0.0 if session.expiry == NEVER else now + session.expiry
        for due in (session.ends_at, session.will_at):
            if due:
                self.watch_until(session, due)

    def watch_until(self, session: Session, due: float) -> None:
        """Have `due` name a session at this time too; it must be when the session ends or its delayed will is due."""
        self._due.note(due, session.client_id)

    def _is_current(self, due: float, client_id: str) -> bool:
        """Whether a noted time still counts: a client that comes and goes leaves one for each of its connections."""
        session = self.get(client_id)
        return session is not None and due in (session.ends_at, session.will_at)

    def due(self, now: float) -> Iterator[Session]:
        """Yield sessions without a connection of which something is due, one at a time, because what is done about one
        may concern the next."""
        for client_id in self._due.over(now):
            session = self.get(client_id)
            if session is not None and session.connection is None:
                yield session
