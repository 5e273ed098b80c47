"""The gets that most programs make most of the time: the next message, or the one with a CorrelId, whole and as it was
put.

They need no look at groups, segments, browsing, selectors, conversion, properties or expiry. A message that does need
one is left where it is, and the full MQGET finds it.
"""

from __future__ import annotations

from functools import lru_cache

from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.mqi import GetOptions, Got
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.descriptor import NO_ID
from gateway.queue_manager.objects.local_queue import INPUT, LocalQueue
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import LaneTakes, Message, StoreUnit
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle, Taken
from gateway.queue_manager.verbs.search import message_token

_SYNCPOINTS = mq.MQGMO_SYNCPOINT | mq.MQGMO_NO_SYNCPOINT
_PLAIN = mq.MQGMO_WAIT | _SYNCPOINTS | mq.MQGMO_FAIL_IF_QUIESCING
_MATCHES = mq.MQMO_MATCH_MSG_ID | mq.MQMO_MATCH_CORREL_ID | mq.MQMO_MATCH_GROUP_ID
_NO_FLAGS = bytes(4)
_FORMAT = slice(32, 40)
_PUT_DATE = slice(304, 312)


class _NotPreparedError(Exception):
    """Finding messages by CorrelId takes longer than a get may."""


@lru_cache(maxsize=256)
def _may_be_plain(options: int, match: int) -> bool:
    """Whether a get with these options is plain unless the descriptor asks for more. The options do not clash."""
    return not options & ~_PLAIN and not match & ~_MATCHES and options & _SYNCPOINTS != _SYNCPOINTS


def plain_correl_id(handle: Handle, md: bytes, options: GetOptions) -> bytes | None:
    """Returns what a plain get selects by: a CorrelId, or nothing (NO_ID). Returns None if the get is not plain, or its
    options have to be refused."""
    match = options.match
    if (
        handle.selector is not None
        or options.handle_given
        or handle.getting.open
        or handle.cursor_locked
        or options.wait_interval < -1
        or not _may_be_plain(options.options, match)
    ):
        return None
    if (match & mq.MQMO_MATCH_MSG_ID and md[descriptor.MSG_ID] != NO_ID) or (
        match & mq.MQMO_MATCH_GROUP_ID and md[descriptor.GROUP_ID] != NO_ID
    ):
        return None
    return md[descriptor.CORREL_ID] if match & mq.MQMO_MATCH_CORREL_ID else NO_ID


def note_get(connection: ConnectionState, handle: Handle) -> None:
    """Note that MQGET has found no reason to refuse a get with the handle."""
    if handle.options & INPUT:
        handle.got_at = connection.core.catalogue.version


def attempt(
    connection: ConnectionState, handle: Handle, options: GetOptions, buffer_length: int, correl_id: bytes
) -> tuple[Got | None, bool]:
    """Try a plain get. Returns the message, and whether there is no need to look further."""
    queue, core = handle.queue, connection.core
    if queue is None or handle.got_at != core.catalogue.version or queue.deleted:
        return None, False
    try:
        message = _found(core.store, handle, queue, correl_id)
    except _NotPreparedError:
        return None, False
    if message is None:
        return None, True
    got = _taken(connection, handle, queue, message, options, buffer_length)
    return got, got is not None


def accepted(
    connection: ConnectionState, handle: Handle, options: GetOptions, buffer_length: int, head: bytes, body: bytes
) -> Got | None:
    """Returns the outcome of a plain get outside syncpoint with a message that is about to be put and matches; None:
    MQGET has to look at it on the queue."""
    queue, core = handle.queue, connection.core
    length = len(head) - MQMD_LENGTH + len(body)
    if (
        queue is None
        or options.options & mq.MQGMO_SYNCPOINT
        or handle.got_at != core.catalogue.version
        or connection.ended
        or core.quiescing
        or not _is_plain(head, length, buffer_length)
        or head[descriptor.REPORT] != descriptor.NO_REPORT
        or head[descriptor.MSG_ID] == NO_ID
        or head[_PUT_DATE] == descriptor.BLANK_DATE
    ):
        return None
    data = head[MQMD_LENGTH:] + body if length > len(body) else body
    token = message_token(int.from_bytes(core.new_identifier()[-8:], "big"))
    return Got(head[:MQMD_LENGTH], data, length, queue.name, token=token)


def _is_plain(head: bytes, length: int, buffer_length: int) -> bool:
    """Whether a message is got whole and as it was put."""
    return length <= buffer_length and head[descriptor.FLAGS] == _NO_FLAGS and head[_FORMAT] != mq.MQFMT_RF_HEADER_2


def _found(store: MessageStore, handle: Handle, queue: LocalQueue, correl_id: bytes) -> Message | None:
    if correl_id == NO_ID:
        messages = store.fetch(queue.name, b"", 1)
        return messages[0] if messages else None
    if not store.depth(queue.name):  # the reply is still to come, as it nearly always is
        return None
    if not handle.found_at_once:
        handle.found_at_once = store.prepare_find(queue.name, b"", "correl_id")
        if not handle.found_at_once:
            raise _NotPreparedError
    locked = queue.locked
    onward = (lambda token: token + (locked.get(token, handle) is not handle)) if locked else None
    for message in store.find(queue.name, b"", None, correl_id, onward=onward):
        if locked.get(message.token, handle) is handle:
            return message
    return None


def _taken(
    connection: ConnectionState,
    handle: Handle,
    queue: LocalQueue,
    message: Message,
    options: GetOptions,
    buffer_length: int,
) -> Got | None:
    """Take the message and return it; None: MQGET has to look at it."""
    token, head, body, _time, backout, expiry = message
    length = len(head) - MQMD_LENGTH + len(body)
    if expiry or not _is_plain(head, length, buffer_length):
        return None
    core = connection.core
    md = complete(message, core.name)
    data = head[MQMD_LENGTH:] + body if length > len(body) else body
    if options.options & mq.MQGMO_SYNCPOINT:
        connection.check_room(1)
        core.lock_messages(queue, (token,), connection)
        queue.unmark((token,))
        connection.work.taken.append(Taken(queue, token, backout, md, data))
    else:
        unit = StoreUnit(takes=[LaneTakes(queue.name, b"", (token,))])
        if md[descriptor.REPORT] != descriptor.NO_REPORT:
            connection.placer.confirm_delivery(md, data, unit)
        connection.settlement = core.commit_call(unit, connection)
    if handle.cursor == token:
        handle.cursor_locked = False
    if handle.options & mq.MQOO_SAVE_ALL_CONTEXT:
        handle.saved_context = md
    return Got(md, data, length, queue.name, token=message_token(token))
