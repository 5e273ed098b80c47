"""What a gateway that begins beside others waits with until it knows what their clients subscribe to. Pure.

Each of the others tells its filters when it first hears of this one. What was published here before that would miss
their sessions: what devices send, messages from queues, and the wills of gateways that are no more. Of those that had
ended before, it is known when their successors have read the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class Joining:
    """Whether all others have told, and what is done then."""

    def __init__(self) -> None:
        self.over = True
        self._calls: list[Callable[[], None]] = []

    def begin(self) -> None:
        """There are others, who have not told yet."""
        self.over = False

    def when_over(self, call: Callable[[], None]) -> None:
        """Do it when all others have told; at once if they have."""
        if self.over:
            call()
        else:
            self._calls.append(call)

    def finish(self, unread: Collection[str] = ()) -> None:
        """They have; unless there are gateways whose sessions are not read yet."""
        if unread:
            return
        self.over = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
