"""How far the search of an MQGET has got that looks at one part of a deep queue in each turn.

It goes through the queue as it stood when the search began. If something has changed on the queue meanwhile (a message
has come or was backed out, perhaps in front of its position), it starts again before it reports what it has found; what
the selector has refused is not looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.queue_manager.core import Core
from gateway.queue_manager.store.place import NUMBER_MASK

PASSED_AT_ONCE = 256
"""How many tokens are passed over, without reading the messages, between two looks at the clock."""


class SearchInterruptedError(Exception):
    """The time of this turn is over; the search goes on in a later one."""

    def __init__(self, search: LongSearch) -> None:
        super().__init__("the search goes on in a later turn")
        self.search = search


@dataclass(slots=True, eq=False)
class LongSearch:
    """The state of a search between its turns."""

    core: Core
    until: float = 0.0
    """When it has to make way for others (monotonic seconds)."""
    after: int | None = None
    """The token up to which it has looked; None: it is at the beginning."""
    newest: int = 0
    """Messages that came after it had begun have this number or a higher one."""
    disturbed: bool = False
    """Whether something has changed on the queue since it began."""
    last: bool = False
    """Whether the get waits no longer: 2033 if the search finds nothing."""
    anew: bool = False
    """Whether it has started again."""
    passed: int = 0

    def __post_init__(self) -> None:
        self.until = self.core.searches.until()
        self.newest = self.core.store.next_number

    def looked_at(self, token: int) -> None:
        """Note that a message was looked at and not selected. Raises SearchInterruptedError if the turn is over."""
        if self.core.scheduler.monotonic() >= self.until:
            self._interrupt(token)

    def interrupt(self) -> None:
        """Raise SearchInterruptedError because something that the search needs is not ready yet."""
        self._interrupt(self.after)

    def passes(self, token: int) -> bool:
        """Whether a message is too new for this search. Raises SearchInterruptedError if the turn is over."""
        self.passed += 1
        if not self.passed % PASSED_AT_ONCE and self.core.scheduler.monotonic() >= self.until:
            self._interrupt(token - 1)
        return token & NUMBER_MASK >= self.newest

    def at_end(self, *, found: bool) -> None:
        """A message was found, or there is none. If something has changed on the queue, start again: each time while
        the get may wait, and once if it is to be answered."""
        if not self.disturbed or (self.anew and (found or self.last)):
            return
        self.anew, self.disturbed = True, False
        self.newest = self.core.store.next_number
        self._interrupt(None)

    def _interrupt(self, token: int | None) -> None:
        self.after = token
        raise SearchInterruptedError(self)
