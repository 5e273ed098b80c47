"""Gets that most programs make most of the time: the next message, or the one with a CorrelId, whole and as it was put.

Nothing of these needs groups, segments, browsing, selectors, conversion, properties or expiry looked at; a message that
does need one of them is left where it is, and MQGET finds it in its own way.
"""

from __future__ import annotations

from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.mqi import GetOptions, Got
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.objects.local_queue import INPUT, LocalQueue
from gateway.queue_manager.store.unit import LaneTakes, Message, StoreUnit
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle, Taken
from gateway.queue_manager.verbs.search import Wanted, message_token

_PLAIN = mq.MQGMO_WAIT | mq.MQGMO_SYNCPOINT | mq.MQGMO_NO_SYNCPOINT | mq.MQGMO_FAIL_IF_QUIESCING
_NO_FLAGS = bytes(4)
_FORMAT = slice(32, 40)


def is_plain(handle: Handle, options: GetOptions, asked: Wanted) -> bool:
    """Whether a get may be made this way."""
    return (
        not options.options & ~_PLAIN
        and not options.handle_given
        and handle.selector is None
        and asked.msg_id is None
        and asked.group_id is None
        and asked.sequence is None
        and asked.offset is None
        and asked.token is None
    )


def may_get(connection: ConnectionState, handle: Handle) -> bool:
    """Whether the handle is known to be one that messages can be got with now: MQGET has found that out, and no object
    has changed since."""
    return handle.got_at == connection.core.catalogue.version and handle.queue is not None and not handle.queue.deleted


def note_get(connection: ConnectionState, handle: Handle) -> None:
    """MQGET has found no reason to refuse a get with the handle."""
    if handle.options & INPUT:
        handle.got_at = connection.core.catalogue.version


def found(connection: ConnectionState, handle: Handle, queue: LocalQueue, asked: Wanted) -> Message | None:
    """The message that such a get is for; None: there is none."""
    store = connection.core.store
    if asked.correl_id is None:
        messages = store.fetch(queue.name, b"", 1)
        return messages[0] if messages else None
    locked = queue.locked
    for message in store.find(queue.name, b"", None, asked.correl_id):
        if locked.get(message.token, handle) is handle:
            return message
    return None


def taken(
    connection: ConnectionState,
    handle: Handle,
    queue: LocalQueue,
    message: Message,
    options: GetOptions,
    buffer_length: int,
) -> Got | None:
    """The message, got; None: MQGET has to look at it."""
    token, head, body, _time, backout, expiry = message
    length = len(head) - MQMD_LENGTH + len(body)
    if expiry or length > buffer_length or head[descriptor.FLAGS] != _NO_FLAGS:
        return None
    if head[_FORMAT] == mq.MQFMT_RF_HEADER_2:
        return None
    core = connection.core
    md = complete(message, core.name)
    data = head[MQMD_LENGTH:] + body if length > len(body) else body
    if options.options & mq.MQGMO_SYNCPOINT:
        connection.check_room(1)
        core.lock_messages(queue, (token,), connection)
        connection.work.taken.append(Taken(queue, token, backout, md, data))
    else:
        unit = StoreUnit(takes=[LaneTakes(queue.name, b"", (token,))])
        if md[descriptor.REPORT] != descriptor.NO_REPORT:
            connection.placer.confirm_delivery(md, data, unit)
        connection.settlement = core.commit_call(unit)
    if handle.cursor == token:
        handle.cursor_locked = False
    if handle.options & mq.MQOO_SAVE_ALL_CONTEXT:
        handle.saved_context = md
    return Got(md, data, length, queue.name, token=message_token(token))
