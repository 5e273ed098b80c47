"""Marks of browsed messages: those of one handle, or of all handles that browse a queue together (MQOO_CO_OP).

Section 7 of the MQI reference, MQGMO.Options. A mark of handles that browse together lasts MARKINT at most, and no
longer than the last of them is open. A mark of either kind ends when the message is got, even if that get is backed
out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.verbs.connection_state import Handle

UNMARKS = 0x400000 | 0x800000
"""MQGMO_UNMARK_BROWSE_CO_OP, MQGMO_UNMARK_BROWSE_HANDLE."""
LOOK_SECONDS = 0.05
"""The time between two searches for marks that have run out: a program sets thousands in a second."""


def mark(core: Core, handle: Handle, queue: LocalQueue, token: int, options: int) -> None:
    """Mark a browsed message, or unmark it, as the options ask."""
    if options & mq.MQGMO_MARK_BROWSE_HANDLE:
        queue.handle_marks.setdefault(token, set()).add(handle)
    if options & mq.MQGMO_MARK_BROWSE_CO_OP:
        interval = core.attribute("MARKINT")
        until = float("inf") if interval < 0 else core.scheduler.monotonic() + interval / 1000
        queue.marked[token] = until
        if interval >= 0 and not queue.marks_timed:
            _look_again(core, queue, until)
    if options & UNMARKS:
        queue.marked.pop(token, None)
        _unmark_own(handle, queue, token)


def marks_of(core: Core, handle: Handle, queue: LocalQueue) -> Callable[[int], bool]:
    """Returns a function that tells whether a token is marked now, by the handle itself or, if the handle browses
    together with others, by any of these."""
    until = queue.marked if handle.options & mq.MQOO_CO_OP else {}
    own, now = queue.handle_marks, core.scheduler.monotonic()
    return lambda token: until.get(token, now) > now or (token in own and handle in own[token])


def closed(core: Core, handle: Handle, queue: LocalQueue) -> None:
    """Remove the handle's own marks, and with the last of the handles that browse together the marks of all of them."""
    for token in [token for token, marked_by in queue.handle_marks.items() if handle in marked_by]:
        _unmark_own(handle, queue, token)
    if handle.options & mq.MQOO_CO_OP:
        queue.cooperating -= 1
        if not queue.cooperating and queue.marked:
            queue.marked.clear()
            core.wake(queue)


def _unmark_own(handle: Handle, queue: LocalQueue, token: int) -> None:
    marked_by = queue.handle_marks.get(token)
    if marked_by is not None:
        marked_by.discard(handle)
        if not marked_by:
            del queue.handle_marks[token]


def _look_again(core: Core, queue: LocalQueue, due: float) -> None:
    queue.marks_timed = True
    core.scheduler.later(max(0.0, due - core.scheduler.monotonic()), partial(_ended, core, queue))


def _ended(core: Core, queue: LocalQueue) -> None:
    """The interval of some marks has passed: try waiting gets again."""
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
            _look_again(core, queue, max(due, now + LOOK_SECONDS))
