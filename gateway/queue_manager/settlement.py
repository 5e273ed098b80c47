"""The commit of a call that shares it with other calls: what the call has done counts when it is settled."""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import MQError

Settled = Callable[[MQError | None], None]


class Settlement:
    """Implements `ports.mqi.Settlement`."""

    __slots__ = ("_calls", "_ended", "_error", "_failed")

    def __init__(self, failed: Callable[[MQError], MQError] | None = None) -> None:
        """`failed` makes of the error of the commit what the call comes to."""
        self._failed = failed
        self._calls: list[Settled] = []
        self._ended = False
        self._error: MQError | None = None

    def then(self, call: Settled) -> None:
        """Call when the commit is made (None) or has failed, at once if that is known."""
        if self._ended:
            call(self._error)
        else:
            self._calls.append(call)

    def end(self, error: MQError | None) -> None:
        """It is made, or has failed."""
        if error is not None and self._failed is not None:
            error = self._failed(error)
        self._ended, self._error = True, error
        calls, self._calls = self._calls, []
        for call in calls:
            call(error)
