"""Rows on the dead-letter queue: messages that cannot go where they should, each behind an MQDLH. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import deadletter
from gateway.broker.publish.route import DEAD_LETTER_POLICY
from gateway.mq import mqmd
from gateway.ports.batch import Address

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination, Row
    from gateway.broker.context import Context


class Undelivered(NamedTuple):
    """A message, why it cannot be put or handed over, and where it should have gone."""

    head: bytes
    """Descriptor and the beginning of the data."""
    body: bytes
    reason: int
    queue: str
    queue_manager: str
    """The queue manager of that queue; empty: the gateway's own."""
    persistent: bool


def put(context: Context, batch: Batch, message: Undelivered, now: float) -> Row:
    """Append a message to the dead-letter queue and return its row, which has the priority of the message. The queue
    manager is asked how long it may be."""
    return DeadLetters(context, batch, message, now).put(message.head, message.body)


class DeadLetters:
    """Dead letters for messages that one queue has refused together: what they have in common is found once."""

    def __init__(self, context: Context, batch: Batch, alike: Undelivered, now: float) -> None:
        self._batch = batch
        self._alike = alike
        self._now = now
        self._queue = context.dead_letter_queue
        self._manager = alike.queue_manager or context.queue_manager.name
        self._longest = context.queue_manager.max_length(self._queue)
        self._open: dict[int, Destination] = {}
        """The dead-letter queue's open destination for each priority."""

    def put(self, head: bytes, body: bytes) -> Row:
        """Append one message; returns its row. It keeps the priority of the message."""
        alike, priority = self._alike, mqmd.number(head, mqmd.AT_PRIORITY)
        destination = self._open.get(priority)
        if destination is None:
            address = Address(self._queue, "", priority, alike.persistent)
            destination = self._open[priority] = self._batch.destination(address, DEAD_LETTER_POLICY)
        made = deadletter.build(
            head, body, reason=alike.reason, queue=alike.queue, queue_manager=self._manager, now=self._now,
            max_length=self._longest,
        )  # fmt: skip
        return self._batch.append(destination, made.head, made.body)

    def interrupt(self) -> None:
        """Forget the open destinations: something else has been put, perhaps to the same queue."""
        self._open.clear()
