"""The next messages of a queue as columns, as the store has them: a descriptor is completed only where it is asked for.
A page ends before a message that needs to be handled by itself. Called with the queue manager's lock held.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import StoreCorrupt
from gateway.mq import mqmd
from gateway.mq.constants import MQFMT_XMIT_Q_HEADER
from gateway.ports.batch import Stored
from gateway.queue_manager.batch import stored_messages
from gateway.queue_manager.batch.logical_messages import transmitted_part
from gateway.queue_manager.batch.translation import QUIET, UNLIMITED
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import BROKER, LocalQueue
from gateway.queue_manager.store.unit import Message

_NO_FLAGS = bytes(4)
"""MsgFlags of a message that is neither a segment nor in a group."""


class Page:
    """Implements `ports.sources.Page`."""

    __slots__ = ("_messages", "_queue_manager", "bodies", "heads", "tokens")

    def __init__(self, messages: list[Message], queue_manager: str) -> None:
        self._messages = messages
        self._queue_manager = queue_manager
        self.tokens: Sequence[int] = [message.token for message in messages]
        self.heads: Sequence[bytes] = [message.head for message in messages]
        self.bodies: Sequence[bytes] = [message.body for message in messages]

    def stored(self, first: int, last: int) -> list[Stored]:
        """Some messages of the page with complete descriptors."""
        return stored_messages.stored(self._messages[first:last], self._queue_manager)


def next_page(core: Core, queue: LocalQueue, key: bytes, limit: int) -> Page | None:
    """The next messages, locked for the batch port. None if the first is not plain, if one cannot be read, or if there
    is none."""
    try:
        messages = core.store.fetch(queue.name, key, limit, None, locked=True)
    except StoreCorrupt:
        return None
    plain = _plain(queue, messages)
    if not plain:
        return None
    page = Page(messages if plain == len(messages) else messages[:plain], core.name)
    core.lock_messages(queue, page.tokens, BROKER)
    return page


def _plain(queue: LocalQueue, messages: list[Message]) -> int:
    """How many messages come before the first that is not plain."""
    locked = queue.locked
    heads = {message.head for message in messages}
    special = {head for head in heads if not _is_plain(head)}
    transmitted = {head for head in heads if head[mqmd.FORMAT] == MQFMT_XMIT_Q_HEADER}
    for number, message in enumerate(messages):
        token, head, _body, _time, backout, expiry = message
        if backout or expiry or head in special or (locked and locked.get(token, BROKER) is not BROKER):
            return number
        if transmitted and head in transmitted and transmitted_part(message) is not None:
            return number
    return len(messages)


def _is_plain(head: bytes) -> bool:
    """Whether a message asks for no report, does not expire, and is neither a segment nor in a group."""
    flags = head[mqmd.AT_MSG_FLAGS : mqmd.AT_MSG_FLAGS + 4]
    return head[8:12] == QUIET and head[16:20] == UNLIMITED and flags == _NO_FLAGS
