"""A call that shares its commit with other calls; what it has done holds when it is settled."""

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
        """`counted`: the messages that it puts, which are counted until it is committed. `hidden`: those that it takes,
        which were free before. `failed` turns the error of the commit into the result of the call. `caller`: whose call
        it is."""
        self.unit = unit
        self.caller = caller
        self.counted = counted
        self.hidden = hidden
        self._failed = failed
        self._calls: list[Settled] = []
        self.ended = False
        """Whether the commit is made, or has failed."""
        self.error: MQError | None = None

    def then(self, call: Settled) -> None:
        """Have `call` called when the commit is made (with None) or has failed; at once if that is known."""
        if self.ended:
            call(self.error)
        else:
            self._calls.append(call)

    def uncount(self) -> None:
        """Stop counting its messages as uncommitted: the commit is made, and they count on their queues, or it has
        failed."""
        for queue, rows in self.counted.items():
            queue.uncommitted_puts -= rows
            if queue.left is not None:
                queue.left()

    @property
    def awaited(self) -> bool:
        """Whether somebody is to be told."""
        return bool(self._calls)

    def refuse(self, error: MQError) -> None:
        """Note that the commit has failed."""
        self.error = error if self._failed is None else self._failed(error)

    def tell(self) -> None:
        """Tell those who wait for it that it has ended."""
        for call in self._calls:
            call(self.error)
