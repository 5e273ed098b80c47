"""What a gateway that begins beside others waits with until it knows what their clients subscribe to. Pure.

Each of the others tells its filters when it first hears of this one. What was published here before that would miss
their sessions: what devices send, messages from queues, and the wills of gateways that are no more.
"""

from __future__ import annotations

from collections.abc import Callable


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

    def finish(self) -> None:
        """They have."""
        self.over = True
        calls, self._calls = self._calls, []
        for call in calls:
            call()
