"""How far the search of an MQGET has got that looks at a part of a deep queue in each turn.

It goes through the queue as it stood when it began. Where something has changed on the queue meanwhile (a message has
come, or has been backed out, perhaps in front of where it was), it begins anew before it says what it has found: what
the selector has refused is not looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.queue_manager.core import Core
from gateway.queue_manager.store.place import NUMBER_MASK

PASSED_AT_ONCE = 256
"""So many tokens are passed over, without reading the messages, between two looks at the clock."""


class SearchInterruptedError(Exception):
    """The time of this turn is over."""

    def __init__(self, search: LongSearch) -> None:
        super().__init__("the search goes on in a later turn")
        self.search = search


@dataclass(slots=True, eq=False)
class LongSearch:
    """What is kept of a search between its turns."""

    core: Core
    until: float = 0.0
    """When it has to make room for others (monotonic seconds)."""
    after: int | None = None
    """The token up to which it has looked; None: it is at its beginning."""
    newest: int = 0
    """Messages that came when it had begun have this number, or a higher one."""
    disturbed: bool = False
    """Something has changed on the queue since it began."""
    last: bool = False
    """The get waits no more: 2033 when it has found nothing."""
    anew: bool = False
    """It has begun anew."""
    passed: int = 0

    def __post_init__(self) -> None:
        self.until = self.core.searches.until()
        self.newest = self.core.store.next_number

    def looked_at(self, token: int) -> None:
        """It has looked at a message that is not selected."""
        if self.core.scheduler.monotonic() >= self.until:
            self._interrupt(token)

    def interrupt(self) -> None:
        """It needs something that is not there yet."""
        self._interrupt(self.after)

    def passes(self, token: int) -> bool:
        """Whether a message that is come across is too new for it."""
        self.passed += 1
        if not self.passed % PASSED_AT_ONCE and self.core.scheduler.monotonic() >= self.until:
            self._interrupt(token - 1)
        return token & NUMBER_MASK >= self.newest

    def at_end(self, *, found: bool) -> None:
        """It has found a message, or there is none. What has changed in front of it is looked at: again and again
        while the get may wait, and once where it is to be answered."""
        if not self.disturbed or (self.anew and (found or self.last)):
            return
        self.anew, self.disturbed = True, False
        self.newest = self.core.store.next_number
        self._interrupt(None)

    def _interrupt(self, token: int | None) -> None:
        self.after = token
        raise SearchInterruptedError(self)
