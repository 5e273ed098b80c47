"""What waits for sessions, of each and of all together, against its limits. Pure."""

from __future__ import annotations

from collections.abc import Callable

from gateway.broker.limits import Limits
from gateway.session.session import Session


class Waiting:
    """Counts what is stored for sessions; the sum is kept, not computed."""

    __slots__ = ("_told", "bytes", "messages", "on_full")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.on_full: Callable[[Session], None] = lambda _session: None
        """Told of a session without room for what it would get; once, until it has room again."""
        self._told: set[Session] = set()

    def full(self, limits: Limits, session: Session, size: int, count: int = 1) -> bool:
        """Whether one more message of this size, or so many, is too much for the session, or for all of them."""
        if session.stored + count > limits.max_queued or session.stored_bytes + size > limits.max_queued_bytes:
            return True
        most, most_bytes = limits.max_total_queued, limits.max_total_queued_bytes
        return bool((most and self.messages + count > most) or (most_bytes and self.bytes + size > most_bytes))

    def room(self, limits: Limits, size: int, count: int) -> bool:
        """Whether all sessions together have room for so much more."""
        most, most_bytes = limits.max_total_queued, limits.max_total_queued_bytes
        return not ((most and self.messages + count > most) or (most_bytes and self.bytes + size > most_bytes))

    def added(self, session: Session, size: int, messages: int = 1) -> None:
        """So much more is stored for it."""
        session.stored += messages
        session.stored_bytes += size
        self.messages += messages
        self.bytes += size

    def taken(self, session: Session, size: int) -> None:
        """A message is over."""
        self.added(session, -size, -1)

    def emptied(self, session: Session) -> None:
        """Nothing is stored for it any more."""
        self.added(session, -session.stored_bytes, -session.stored)

    def no_room(self, session: Session) -> None:
        """Something was not stored for it."""
        if session not in self._told:
            self._told.add(session)
            self.on_full(session)

    def tick(self, limits: Limits) -> None:
        """Who has room again is told of anew when it is gone."""
        if self._told:
            self._told = {one for one in self._told if not one.over and self.full(limits.at(one.listener), one, 1)}
