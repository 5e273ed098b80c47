"""Moves the state that a gateway without a buffer has left on IBM MQ into a new buffer: once, at a start.

It is copied, then the copy is marked as complete, then it is removed from IBM MQ. After a failure in between the next
start continues, and nothing is lost or doubled. No client is served meanwhile. A buffer that was begun while IBM MQ was
away has a state of its own already and takes nothing over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from gateway.backends.buffer.spool import ADOPTED, COPIED, COPYING, Spool
from gateway.errors import StoreUnavailable
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Stored, Takes, Token, Unit

Load = Callable[[str], Iterable[tuple[bytes, Stored]]]
Remove = Callable[[str, Sequence[Token]], None]
"""Takes these messages from a queue of IBM MQ, for good."""
_PAGE = 500
_HEAD = mqmd.build(persistence=1)


def adopt(spool: Spool, queues: Iterable[str], load: Load, remove: Remove) -> int:
    """Take over the messages of these queues of IBM MQ; returns how many. Raises MQError if the connection is lost."""
    found = 0
    if spool.identity.home in {"", COPYING}:
        found = _copy(spool, queues, load)
    if spool.identity.home == COPIED:
        for queue in queues:
            while tokens := [stored.token for _, stored in islice(load(queue), _PAGE)]:
                remove(queue, tokens)
        _mark(spool, ADOPTED)
    return found


def stay(spool: Spool) -> None:
    """Begin a new buffer empty, because IBM MQ is away. Raises StoreUnavailable if half of the state has moved in."""
    if spool.identity.home == COPYING:
        raise StoreUnavailable(
            "the gateway's state is on its way from IBM MQ into the buffer: start again when it is back"
        )
    if not spool.identity.home:
        _mark(spool, ADOPTED)


def _copy(spool: Spool, queues: Iterable[str], load: Load) -> int:
    if spool.identity.home == COPYING:  # an earlier attempt was interrupted
        _clear(spool, queues)
    _mark(spool, COPYING)
    found = 0
    for queue in queues:
        messages = iter(load(queue))
        while page := list(islice(messages, _PAGE)):
            spool.commit_now(Unit([_put(queue, key, stored) for key, stored in page]))
            found += len(page)
    _mark(spool, COPIED)
    return found


def _put(queue: str, key: bytes, stored: Stored) -> Puts:
    priority = max(0, mqmd.number(stored.md, mqmd.AT_PRIORITY))
    return Puts(queue, key=key, priority=priority, heads=[_HEAD], bodies=[stored.data])


def _clear(spool: Spool, queues: Iterable[str]) -> None:
    for queue in queues:
        while page := list(islice(spool.store.load(queue), _PAGE)):
            spool.commit_now(Unit(takes=[Takes(queue, key, [stored.token]) for key, stored in page]))


def _mark(spool: Spool, home: str) -> None:
    spool.commit_now(Unit(replaces=[spool.know(replace(spool.identity, home=home))]))
