"""All sessions by client identifier, and when they end. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

from gateway.session.session import NEVER, Session


class Registry:
    """The sessions of this gateway, by client identifier [MQTT-3.1.3-2]."""

    __slots__ = ("_due", "_sessions", "by_listener")

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self.by_listener: Counter[str] = Counter()
        """How many there are of clients that came last through each listener."""
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, client_id: str) -> Session | None:
        """The session of a client, connected or not."""
        return self._sessions.get(client_id)

    def add(self, session: Session) -> None:
        """Make it known."""
        self._sessions[session.client_id] = session
        self.by_listener[session.listener] += 1

    def move(self, session: Session, listener: str) -> None:
        """Its client came through this listener."""
        self.by_listener[session.listener] -= 1
        self.by_listener[listener] += 1
        session.listener = listener

    def remove(self, session: Session) -> None:
        """Forget it, unless another one has taken its place."""
        if self._sessions.get(session.client_id) is session:
            del self._sessions[session.client_id]
            self.by_listener[session.listener] -= 1

    def watch(self, session: Session, now: float) -> None:
        """Its connection ended: remember when it, or its delayed will, is due."""
        session.ends_at = 0.0 if session.expiry == NEVER else now + session.expiry
        for due in (session.ends_at, session.will_at):
            if due:
                heapq.heappush(self._due, (due, session.client_id))

    def watch_until(self, session: Session, due: float) -> None:
        """Name it in `due` at that time too."""
        heapq.heappush(self._due, (due, session.client_id))

    def due(self, now: float) -> list[Session]:
        """Sessions without a connection for which a time has come. Each is named once."""
        found: dict[str, Session] = {}
        while self._due and self._due[0][0] <= now:
            _, client_id = heapq.heappop(self._due)
            session = self._sessions.get(client_id)
            if session is not None and session.connection is None:
                found[client_id] = session
        return list(found.values())
