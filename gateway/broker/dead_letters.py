"""Rows on the dead-letter queue: messages that cannot go where they should, each behind an MQDLH. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import deadletter
from gateway.broker.publish.route import DEAD_LETTER_POLICY
from gateway.mq import mqmd
from gateway.ports.batch import Address

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Row
    from gateway.broker.context import Context


class Undelivered(NamedTuple):
    """A message, why it cannot be put or handed over, and where it should have gone."""

    head: bytes
    """Descriptor and the first of its data."""
    body: bytes
    reason: int
    queue: str
    queue_manager: str
    """Of that queue; empty: the gateway's own."""
    persistent: bool


def longest(context: Context) -> int:
    """The longest message that the dead-letter queue takes. The queue manager is asked."""
    return context.queue_manager.max_length(context.dead_letter_queue)


def put(context: Context, batch: Batch, message: Undelivered, now: float, most: int | None = None) -> Row:
    """The row of its dead letter, which has the priority of the message. `most`: what `longest` says, where it is
    known."""
    queue, manager = context.dead_letter_queue, context.queue_manager
    most = longest(context) if most is None else most
    made = deadletter.build(
        message.head, message.body, reason=message.reason, queue=message.queue,
        queue_manager=message.queue_manager or manager.name, now=now, max_length=most,
    )  # fmt: skip
    address = Address(queue, "", mqmd.number(message.head, mqmd.AT_PRIORITY), message.persistent)
    return batch.put(address, DEAD_LETTER_POLICY, made.head, made.body)
