"""Messages that a waiting get takes as they are committed: they go from the program that puts to the one that gets, and
are never on the queue.

The get is outside syncpoint, so that the message would leave the queue with the next frame and be written for nothing.
The commit of the put is the commit of the get as well: both programs are answered when it is made. If it cannot be
made, the message was never put and the get waits on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from gateway.queue_manager.descriptor import CORREL_ID
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import LanePuts, StoreUnit


class Handed(NamedTuple):
    """A message with the get that takes it."""

    puts: LanePuts
    queue: LocalQueue
    ended: Callable[[bool], None]
    """Tells the get whether the commit was made."""


def hand_over(unit: StoreUnit, queues: Mapping[str, LocalQueue], changed: Collection[LocalQueue]) -> list[Handed]:
    """The messages of a call's unit that waiting gets have taken. Of several messages for one queue none is handed
    over: what is put together is got in the order of priorities. On queues that have `changed`, gets are still to be
    tried."""
    puts = unit.puts
    handed: list[Handed] = []
    for one in puts:
        queue = queues.get(one.queue)
        if queue is None or not queue.waiters.count or queue in changed or _watched(queue):
            continue
        if len(one.heads) != 1 or not _is_whole(one):
            continue
        if len(puts) > 1 and sum(other.queue == one.queue or other.groups is not None for other in puts) > 1:
            continue
        waiter = queue.waiters.first(one.heads[0][CORREL_ID])
        ended = None if waiter is None else waiter.offer(one.heads[0], one.bodies[0])
        if ended is not None:
            handed.append(Handed(one, queue, ended))
    return handed


def _watched(queue: LocalQueue) -> bool:
    """Whether something else is told of what arrives on the queue."""
    return queue.triggers or bool(queue.consumers) or queue.served is not None


def _is_whole(puts: LanePuts) -> bool:
    """Whether head and body are everything there is of each message."""
    expires = puts.expiries is not None and any(puts.expiries)
    return not (puts.key or puts.groups or puts.msg_ids or puts.correl_ids or puts.put_times or expires)


def count_handed(handed: Collection[Handed], now: float, store: MessageStore) -> None:
    """Count messages that were handed over: for their queues they were put and got like any other."""
    for _, queue, _ in handed:
        queue.puts += 1
        queue.gets += 1
        queue.last_put = queue.last_get = now
    for queue in {one.queue for one in handed}:
        queue.high_depth = max(queue.high_depth, store.depth(queue.name) + 1)
