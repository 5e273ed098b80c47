"""What a gateway that starts beside others waits with until it knows what their clients subscribe to. Pure.

Each of the others tells its filters when it first hears of this one. What is published here before that would miss
their sessions: what devices send, messages from queues, and the wills of gateways that are no more. What the sessions
of gateways that had ended before want is known when their successors have read those sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class Joining:
    """Whether all other gateways have told their filters, and what is done then."""

    def __init__(self) -> None:
        self.over = True
        self._calls: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Begin to wait: there are others that have not told their filters yet."""
        self.over = False

    def when_over(self, call: Callable[[], None]) -> None:
        """Make a call when all others have told; at once if they have."""
        if self.over:
            call()
        else:
            self._calls.append(call)

    def finish(self, unread: Collection[str] = ()) -> None:
        """Note that all others have told, and make the calls that waited; not while `unread` names gateways whose
        sessions have not been read."""
        if unread:
            return
        self.over = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
