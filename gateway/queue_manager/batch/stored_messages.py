"""Stored messages with their descriptors completed: identifier, put time, backout count. Pure.

The store keeps one head for many messages; the fields that differ are inserted between parts of it, which are not
copied field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.ports.batch import MQMD_LENGTH, Stored
from gateway.queue_manager import descriptor
from gateway.queue_manager.descriptor import BLANK_DATE, MSG_ID, NO_ID
from gateway.queue_manager.store.place import NUMBER_MASK
from gateway.queue_manager.store.unit import Message

_PAGE = 1000
_NO_DATE = (BLANK_DATE, bytes(8))


def complete(message: Message, queue_manager: str) -> bytes:
    """The complete descriptor of one message."""
    md = message.head[:MQMD_LENGTH]
    if md[MSG_ID] == NO_ID or md[304:312] in _NO_DATE:
        identifier = descriptor.message_id(queue_manager, message.token & NUMBER_MASK)
        md = descriptor.stamp(md, identifier, message.put_time / 1_000_000)
    return descriptor.with_backout(md, message.backout) if message.backout else md


def as_got(message: Message, queue_manager: str, now: float) -> bytes:
    """The complete descriptor of one message, with the rest of its Expiry."""
    md = complete(message, queue_manager)
    return descriptor.with_remaining(md, message.expiry / 1_000_000, now) if message.expiry else md


def stored(messages: Iterable[Message], queue_manager: str, now: float = 0.0) -> list[Stored]:
    """Many messages with complete descriptors: heads and put times are examined when they change, not for each message.
    With a time `now`, each Expiry is what is left of it then."""
    completed: list[Stored] = []
    prefix = descriptor.message_id(queue_manager, 0)[:16]
    head = before = between = after = data = b""
    shared, put_time, date = False, -1, b""
    for token, own, body, time, backout, expiry in messages:
        if own is not head:
            head = own
            shared = head[MSG_ID] == NO_ID and head[304:312] in _NO_DATE
            before, between, after, data = head[:48], head[72:304], head[320:MQMD_LENGTH], head[MQMD_LENGTH:]
        if not shared or backout or (expiry and now):
            md = complete(Message(token, own, body, time, backout, 0), queue_manager)
            if expiry and now:
                md = descriptor.with_remaining(md, expiry / 1_000_000, now)
        else:
            if time != put_time:
                put_time, date = time, descriptor.date_and_time(time // 10_000)
            identifier = (token & NUMBER_MASK).to_bytes(8, "big")
            md = b"".join((before, prefix, identifier, between, date, after))
        completed.append(Stored(token, md, data + body))
    return completed


def keyed(messages: list[tuple[bytes, Message]], queue_manager: str) -> Iterator[tuple[bytes, Stored]]:
    """All messages with their keys, completed a page at a time and released as they are taken: there may be a million,
    each with a descriptor of its own."""
    messages.reverse()
    while messages:
        page = messages[: -_PAGE - 1 : -1]
        del messages[-_PAGE:]
        completed = stored([message for _, message in page], queue_manager)
        yield from zip([key for key, _ in page], completed, strict=True)
