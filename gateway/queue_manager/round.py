"""Calls that share one commit: what each has put and taken until then, and what each is told afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from gateway.errors import MQError, StoreError
from gateway.queue_manager.batch.commit import Batch, reason_of
from gateway.queue_manager.entry import Entry
from gateway.queue_manager.handing_over import Handed, count_handed, hand_over
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.settlement import Settlement
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

if TYPE_CHECKING:
    from gateway.queue_manager.core import Core

LEAVING = "leaving"
"""The owner of messages that a frame takes while it is being written."""


class Gathering:
    """The context manager of `with core.gathered()`. One instance serves all: its state belongs to the lock's
    holder."""

    __slots__ = ("_core", "_depth", "_entry")

    def __init__(self, core: Core, entry: Entry) -> None:
        self._core = core
        self._entry = entry
        self._depth = 0
        """How often the current round has been entered."""

    def __enter__(self) -> Callable[[], None]:
        self._entry.__enter__()
        try:
            if self._core.begin_round():
                self._depth = 0
        except BaseException:
            self._entry.__exit__(None, None, None)
            raise
        self._depth += 1
        return self._core.next_round

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        try:
            if self._depth == 0:
                self._core.end_round()
        finally:
            self._entry.__exit__(None, None, None)


class Round:
    """Calls that are committed together: one unit of work, and what each call is told. Until it is committed, messages
    that it takes are hidden and those it puts are counted."""

    __slots__ = ("_core", "_handed", "_unit", "calls")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._unit = StoreUnit()
        self._handed: deque[Handed] = deque()
        """Messages that are not stored, as waiting gets have taken them."""
        self.calls: deque[Settlement] = deque()

    def add(
        self,
        unit: StoreUnit,
        counted: Mapping[LocalQueue, int] | None = None,
        failed: Callable[[MQError], MQError] | None = None,
        caller: Hashable = None,
    ) -> Settlement:
        """Add a call's unit; returns its settlement. `counted`: the unit was open before, so that its puts are counted
        and what it takes is hidden already."""
        hidden: Sequence[tuple[LocalQueue, int]] = ()
        if counted is None:
            counted = self._count(unit.puts) if unit.puts else {}
            hidden = self._hide(unit.takes) if unit.takes else ()
        settlement = Settlement(unit, counted, hidden, failed, caller)
        self.calls.append(settlement)
        return settlement

    def _count(self, puts: Sequence[LanePuts]) -> dict[LocalQueue, int]:
        counted: dict[LocalQueue, int] = {}
        for one in puts:
            queue = self._core.queues.get(one.queue)
            if queue is not None:
                rows = len(one.heads)
                queue.uncommitted_puts += rows
                counted[queue] = counted.get(queue, 0) + rows
        return counted

    def _hide(self, takes: Sequence[LaneTakes]) -> list[tuple[LocalQueue, int]]:
        hidden: list[tuple[LocalQueue, int]] = []
        for one in takes:
            queue = self._core.queues.get(one.queue)
            free = [] if queue is None else [token for token in one.tokens if token not in queue.locked]
            if queue is not None and free:
                self._core.lock_messages(queue, free, LEAVING)
                hidden += [(queue, token) for token in free]
        return hidden

    def batch(self) -> Batch:
        """The batch that commits all of the calls."""
        core, joined = self._core, self._unit
        for call in self.calls:
            unit = call.unit
            if unit.puts:
                joined.puts += self._stored(unit.puts, hand_over(unit, core.queues, core.changed))
            joined.takes += unit.takes
            if unit.moves:
                joined.moves += unit.moves
            if unit.backouts:
                joined.backouts += unit.backouts
            if unit.state:
                joined.state.update(unit.state)
            if unit.on_commit:
                joined.say(*unit.on_commit)
        apart = self._apart if len(self.calls) > 1 else None
        return Batch(joined, self._finished, apart=apart, callers=self._callers)

    def _callers(self) -> list[Hashable]:
        return [call.caller for call in self.calls]

    def _stored(self, puts: list[LanePuts], handed: list[Handed]) -> list[LanePuts]:
        """The puts of a call that are left when some have been handed over."""
        if not handed:
            return puts
        self._handed += handed
        if len(handed) == len(puts):
            return []
        gone = {id(one.puts) for one in handed}
        return [one for one in puts if id(one) not in gone]

    def _apart(self) -> list[Batch]:
        """The calls one by one, for when they are refused together."""
        self._take_back()
        batches = []
        for call in self.calls:
            alone = Round(self._core)
            alone.calls.append(call)
            batches.append(alone.batch())
        return batches

    def _finished(self, failure: StoreError | None) -> None:
        """Called when the round is committed, or a single call is refused."""
        for call in self.calls:
            call.uncount()
        if failure is None:
            self._core.settled(self._unit)
            count_handed(self._handed, self._core.scheduler.now(), self._core.store)
        else:
            self._take_back()
            self._refuse(failure)
        for call in self.calls:
            call.ended = True
        if self._handed or any(call.awaited for call in self.calls):
            self._core.tell(self._tell)

    def _refuse(self, failure: StoreError) -> None:
        error = MQError(reason_of(failure), str(failure))
        error.__cause__ = failure
        for call in self.calls:
            for queue, token in call.hidden:
                self._core.unlock_messages(queue, [token])
            call.refuse(error)

    def _take_back(self) -> None:
        """The messages were not put: let the gets that had taken them go on waiting."""
        handed, self._handed = self._handed, deque()
        for one in handed:
            one.ended(False)  # noqa: FBT003

    def _tell(self) -> None:
        """Tell the programs. A defect in what one of them does next does not keep the others waiting."""
        handed, calls = self._handed, self.calls
        try:
            while handed:
                handed.popleft().ended(True)  # noqa: FBT003
            while calls:
                calls.popleft().tell()
        finally:
            if handed or calls:
                self._core.tell(self._tell)
