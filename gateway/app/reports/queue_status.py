"""Depths of the queues that metrics and the page show, and the state of those that refuse messages.

The embedded queue manager is asked at once. IBM MQ is asked every few seconds in a thread of its own; its last answer
is used for a minute, after which there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.ports.batch import BatchQueueManager
from gateway.ports.inspection import DepthLimits, Inspects, QueueRow
from gateway.queue_manager.embedded import EmbeddedQueueManager

if TYPE_CHECKING:
    from gateway.app.queue_managers.inquiries import Inquiries
    from gateway.backends.ibm.inspection import IbmInspection

    Names = Callable[[], Iterable[str]]

EVERY_SECONDS = 5.0
OLD_SECONDS = 60.0


class QueueStatus:
    """The status of queues of a queue manager that answers at once."""

    def __init__(self, queue_manager: BatchQueueManager, inspection: Inspects | None) -> None:
        self._queue_manager = queue_manager
        self._inspection = inspection

    def look(self) -> None:
        """Update the status; called every second."""

    def depth(self, queue: str) -> int | None:
        """Returns the depth; None if the queue is not defined, so that messages to it are dead-lettered, or if nothing
        is known about it now."""
        with suppress(MQError):
            return self._queue_manager.depth(queue)
        return None

    def limits(self, queue: str) -> DepthLimits | None:
        """Returns the limits; None if there is no such queue, or nothing is known about it now."""
        manager = self._queue_manager
        return manager.depth_limits(queue) if isinstance(manager, EmbeddedQueueManager) else None

    def row(self, queue: str) -> QueueRow | None:
        """Returns a queue that refuses messages; None if nothing is known about it. Raises MQError if it does not
        exist."""
        return None if self._inspection is None else self._inspection.queue(queue)


class PolledQueueStatus(QueueStatus):
    """The status of queues of IBM MQ, by its last answer. `names`: queues to count; `refusing`: queues that refuse
    messages."""

    def __init__(
        self,
        queue_manager: BatchQueueManager,
        inspection: IbmInspection,
        inquiries: Inquiries,
        names: Names,
        refusing: Names,
    ) -> None:
        super().__init__(queue_manager, inspection)
        self._view = inspection
        self._inquiries = inquiries
        self._names = names
        self._refusing = refusing
        self._depths: dict[str, int] = {}
        self._limits: dict[str, DepthLimits] = {}
        self._limits_at = float("-inf")
        self._rows: dict[str, QueueRow | MQError] = {}
        self._answered_at = self._asked_at = float("-inf")
        self._asking = False

    def look(self) -> None:
        """Ask again when it is time and the last question has been answered."""
        now = time.monotonic()
        if self._asking or now - self._asked_at < EVERY_SECONDS:
            return
        self._asking, self._asked_at = True, now
        names, refusing = sorted(self._names()), sorted(self._refusing())
        self._inquiries.ask(
            lambda: (200, (self._ask_depths(names), self._ask_rows(refusing), self._ask_limits(names))), self._answered
        )

    def _ask_depths(self, names: list[str]) -> dict[str, int]:
        """Ask for depths, in the thread."""
        depths = {}
        for name in names:
            with suppress(MQError):
                depths[name] = self._view.depth(name)
        return depths

    def _ask_limits(self, names: list[str]) -> dict[str, DepthLimits]:
        """Ask for limits, in the thread, once a minute: they seldom change."""
        now = time.monotonic()
        again = now - self._limits_at > OLD_SECONDS
        if again:
            self._limits_at = now
        limits = {}
        for name in names:
            known = None if again else self._limits.get(name)
            with suppress(MQError):
                limits[name] = known or self._view.depth_limits(name)
        return limits

    def _ask_rows(self, names: list[str]) -> dict[str, QueueRow | MQError]:
        """Ask for the queues that refuse messages, in the thread."""
        rows: dict[str, QueueRow | MQError] = {}
        for name in names:
            try:
                rows[name] = self._view.queue(name)
            except MQError as error:
                rows[name] = error
        return rows

    def _answered(self, answer: tuple[int, object] | Exception) -> None:
        self._asking = False
        if isinstance(answer, tuple):
            self._depths, self._rows, self._limits = answer[1]  # type: ignore[misc]
            self._answered_at = time.monotonic()

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._answered_at < OLD_SECONDS

    def depth(self, queue: str) -> int | None:
        """Returns the depth in the last answer."""
        return self._depths.get(queue) if self._fresh else None

    def limits(self, queue: str) -> DepthLimits | None:
        """Returns the limits in the last answer."""
        return self._limits.get(queue) if self._fresh else None

    def row(self, queue: str) -> QueueRow | None:
        """Returns the queue in the last answer."""
        row = self._rows.get(queue) if self._fresh else None
        if isinstance(row, MQError):
            raise row
        return row
