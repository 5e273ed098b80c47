"""What waits for sessions, of each and of all together, against its limits. Pure."""

from __future__ import annotations

from gateway.broker.limits import Limits
from gateway.session.session import Session


class Waiting:
    """Counts what is stored for sessions; the sum is kept, not computed."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def full(self, limits: Limits, session: Session, size: int) -> bool:
        """Whether one more message of this size is too much for the session, or for all of them."""
        if session.stored >= limits.max_queued or session.stored_bytes + size > limits.max_queued_bytes:
            return True
        most, most_bytes = limits.max_total_queued, limits.max_total_queued_bytes
        return bool((most and self.messages >= most) or (most_bytes and self.bytes + size > most_bytes))

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
