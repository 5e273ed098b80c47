"""Marks of browsed messages: of one handle, or of all that browse a queue together (MQOO_CO_OP).

Section 7 of the MQI reference, MQGMO.Options. A mark of those that browse together lasts MARKINT at most, and no longer
than the last of their handles is open; then gets that wait find the message again.
"""

from __future__ import annotations

from functools import partial

from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.verbs.connection_state import Handle

UNMARKS = 0x400000 | 0x800000
"""MQGMO_UNMARK_BROWSE_CO_OP, MQGMO_UNMARK_BROWSE_HANDLE."""
LOOKED_THROUGH_AT = 1000
"""Marks of a handle are looked through when there are so many: messages of some have gone."""


def mark(core: Core, handle: Handle, queue: LocalQueue, token: int, options: int) -> None:
    """Mark a browsed message, or unmark it, as the options ask."""
    if options & mq.MQGMO_MARK_BROWSE_HANDLE:
        handle.marks.add(token)
        if len(handle.marks) >= handle.marks_looked_through_at:
            _forget_gone(core, handle, queue)
    if options & mq.MQGMO_MARK_BROWSE_CO_OP:
        interval = core.attribute("MARKINT")
        until = float("inf") if interval < 0 else core.scheduler.monotonic() + interval / 1000
        queue.marked[token] = until
        if interval >= 0 and not queue.marks_timed:
            _look_again(core, queue, until)
    if options & UNMARKS:
        handle.marks.discard(token)
        queue.marked.pop(token, None)


def is_marked(core: Core, handle: Handle, queue: LocalQueue, token: int) -> bool:
    """By the handle itself or, if it is one of those that browse together, by any of these."""
    until = queue.marked.get(token) if handle.options & mq.MQOO_CO_OP else None
    return token in handle.marks or (until is not None and until > core.scheduler.monotonic())


def _forget_gone(core: Core, handle: Handle, queue: LocalQueue) -> None:
    """Keep the marks of messages that are on the queue."""
    handle.marks.intersection_update({*core.store.tokens(queue.name, b""), *queue.locked})
    handle.marks_looked_through_at = max(LOOKED_THROUGH_AT, 2 * len(handle.marks))


def _look_again(core: Core, queue: LocalQueue, due: float) -> None:
    queue.marks_timed = True
    core.scheduler.later(max(0.0, due - core.scheduler.monotonic()), partial(_ended, core, queue))


def _ended(core: Core, queue: LocalQueue) -> None:
    """The interval of some marks has passed: gets that wait are tried again."""
    with core.entered():
        queue.marks_timed = False
        if core.closed or queue.deleted:
            return
        now = core.scheduler.monotonic()
        for token in [token for token, until in queue.marked.items() if until <= now]:
            del queue.marked[token]
        core.wake(queue)
        due = min(queue.marked.values(), default=float("inf"))
        if due < float("inf"):
            _look_again(core, queue, due)
