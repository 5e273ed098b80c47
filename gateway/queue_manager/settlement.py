"""A call that shares its commit with other calls: what it has done counts when it is settled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from gateway.errors import MQError
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.store.unit import StoreUnit

Settled = Callable[[MQError | None], None]


class Settlement:
    """Implements `ports.mqi.Settlement`."""

    __slots__ = ("_calls", "_failed", "caller", "counted", "ended", "error", "hidden", "unit")

    def __init__(
        self,
        unit: StoreUnit,
        counted: Mapping[LocalQueue, int],
        hidden: Sequence[tuple[LocalQueue, int]],
        failed: Callable[[MQError], MQError] | None = None,
        caller: Hashable = None,
    ) -> None:
        """`counted` are messages that it puts, which count until it is committed, and `hidden` those that it takes,
        which were free before. `failed` makes of the error of the commit what the call comes to. `caller`: whose call
        it is."""
        self.unit = unit
        self.caller = caller
        self.counted = counted
        self.hidden = hidden
        self._failed = failed
        self._calls: list[Settled] = []
        self.ended = False
        """The commit is made, or has failed."""
        self.error: MQError | None = None

    def then(self, call: Settled) -> None:
        """Call when the commit is made (None) or has failed, at once if that is known."""
        if self.ended:
            call(self.error)
        else:
            self._calls.append(call)

    def uncount(self) -> None:
        """The commit is made, or has failed: its messages count as those of their queues, or not at all."""
        for queue, rows in self.counted.items():
            queue.uncommitted_puts -= rows
            if queue.left is not None:
                queue.left()

    @property
    def awaited(self) -> bool:
        """Whether somebody is to be told."""
        return bool(self._calls)

    def refuse(self, error: MQError) -> None:
        """The commit has failed."""
        self.error = error if self._failed is None else self._failed(error)

    def tell(self) -> None:
        """Tell those who wait for it. It has ended."""
        for call in self._calls:
            call(self.error)
