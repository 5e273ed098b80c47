"""The commit of a call that shares it with other calls: what the call has done counts when it is settled."""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import MQError

Settled = Callable[[MQError | None], None]


class Settlement:
    """Implements `ports.mqi.Settlement`."""

    __slots__ = ("_call", "_ended", "_error", "_failed", "_others")

    def __init__(self, failed: Callable[[MQError], MQError] | None = None) -> None:
        """`failed` makes of the error of the commit what the call comes to."""
        self._failed = failed
        self._call: Settled | None = None
        self._others: list[Settled] | tuple[()] = ()
        self._ended = False
        self._error: MQError | None = None

    def then(self, call: Settled) -> None:
        """Call when the commit is made (None) or has failed, at once if that is known."""
        if self._ended:
            call(self._error)
        elif self._call is None:
            self._call = call
        else:
            self._others = [*self._others, call]

    def end(self, error: MQError | None) -> None:
        """It is made, or has failed."""
        if error is not None and self._failed is not None:
            error = self._failed(error)
        self._ended, self._error = True, error
        call, self._call = self._call, None
        if call is not None:
            call(error)
        for other in self._others:
            other(error)
