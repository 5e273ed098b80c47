"""MQGET: find a message, convert it, browse or take it; wait for one.

Section 7 of the MQI reference, MQGET. Messages got under syncpoint are kept in the connection's unit of work.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache, partial

from gateway.errors import HeaderError, MQError, StoreCorrupt, StoreError
from gateway.mq import constants as mq
from gateway.mq import conversion, propctl
from gateway.ports.mqi import Arrived, Cancel, GetOptions, Got, Property
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.commit import reason_of
from gateway.queue_manager.descriptor import NO_ID
from gateway.queue_manager.groups import LogicalOrder, advance_logical, agreeing, group_status, whole
from gateway.queue_manager.objects.local_queue import INPUT, LocalQueue
from gateway.queue_manager.objects.name_resolution import refreshed
from gateway.queue_manager.store.unit import LaneTakes, StoreUnit
from gateway.queue_manager.verbs import browse_marks, plain_gets
from gateway.queue_manager.verbs.browse_marks import UNMARKS
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle, Taken, WaitingGet, tell
from gateway.queue_manager.verbs.long_search import LongSearch, SearchInterruptedError
from gateway.queue_manager.verbs.search import Candidate, Search, Wanted, message_token, wanted

BROWSE = mq.MQGMO_BROWSE_FIRST | mq.MQGMO_BROWSE_NEXT | mq.MQGMO_BROWSE_MSG_UNDER_CURSOR
MARKS = mq.MQGMO_MARK_BROWSE_HANDLE | mq.MQGMO_MARK_BROWSE_CO_OP
PROPERTIES = (
    mq.MQGMO_PROPERTIES_FORCE_MQRFH2 | mq.MQGMO_NO_PROPERTIES | mq.MQGMO_PROPERTIES_IN_HANDLE |
    mq.MQGMO_PROPERTIES_COMPATIBILITY )  # fmt: skip
_WITH_UNLOCK = mq.MQGMO_UNLOCK | mq.MQGMO_NO_SYNCPOINT | mq.MQGMO_FAIL_IF_QUIESCING
_PARTICULAR = (
    BROWSE | mq.MQGMO_MSG_UNDER_CURSOR | mq.MQGMO_LOGICAL_ORDER | mq.MQGMO_COMPLETE_MSG |
    mq.MQGMO_ALL_MSGS_AVAILABLE | mq.MQGMO_ALL_SEGMENTS_AVAILABLE )  # fmt: skip
"""Gets with these options pass over messages that others would take: those before the cursor, or those that are not
complete."""
_NO_FLAGS = bytes(4)
_SELECTS_NOTHING = mq.MQGMO_MSG_UNDER_CURSOR | mq.MQGMO_BROWSE_MSG_UNDER_CURSOR | mq.MQGMO_UNLOCK
SYNCPOINTS = mq.MQGMO_SYNCPOINT | mq.MQGMO_NO_SYNCPOINT | mq.MQGMO_SYNCPOINT_IF_PERSISTENT
KNOWN_OPTIONS = (
    mq.MQGMO_WAIT | SYNCPOINTS | BROWSE | mq.MQGMO_ACCEPT_TRUNCATED_MSG |
    mq.MQGMO_MARK_SKIP_BACKOUT | mq.MQGMO_MSG_UNDER_CURSOR | mq.MQGMO_LOCK | mq.MQGMO_UNLOCK |
    mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_CONVERT | mq.MQGMO_LOGICAL_ORDER | mq.MQGMO_COMPLETE_MSG |
    mq.MQGMO_ALL_MSGS_AVAILABLE | mq.MQGMO_ALL_SEGMENTS_AVAILABLE | MARKS | UNMARKS | mq.MQGMO_UNMARKED_BROWSE_MSG |
    PROPERTIES )  # fmt: skip


@lru_cache(maxsize=256)
def _clash(value: int) -> bool:
    """Whether options clash or are unknown."""
    under = value & mq.MQGMO_MSG_UNDER_CURSOR
    ordered = value & (mq.MQGMO_LOGICAL_ORDER | mq.MQGMO_COMPLETE_MSG | mq.MQGMO_LOCK)
    return bool(
        value & ~KNOWN_OPTIONS
        or (value & SYNCPOINTS).bit_count() > 1
        or (value & BROWSE).bit_count() > 1
        or (value & BROWSE and (under or value & (mq.MQGMO_SYNCPOINT | mq.MQGMO_SYNCPOINT_IF_PERSISTENT)))
        or (value & mq.MQGMO_LOCK and not value & BROWSE)
        or (value & mq.MQGMO_SYNCPOINT_IF_PERSISTENT and value & mq.MQGMO_COMPLETE_MSG)
        or (value & mq.MQGMO_MARK_SKIP_BACKOUT and not value & mq.MQGMO_SYNCPOINT)
        or (value & mq.MQGMO_UNLOCK and value & ~_WITH_UNLOCK)
        or (value & MARKS and (ordered or not value & BROWSE))
        or (value & PROPERTIES).bit_count() > 1
    )


def check_options(options: GetOptions) -> None:
    """Raise 2046 for options that clash, and 2460 if properties are to be returned in a message handle and none is
    given."""
    value = options.options
    if _clash(value):
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQGMO.Options 0x{value:X} holds options that clash or are unknown")
    if value & mq.MQGMO_PROPERTIES_IN_HANDLE and not options.handle_given:
        raise MQError(mq.MQRC_HMSG_ERROR, "MQGMO_PROPERTIES_IN_HANDLE needs a message handle in MQGMO.MsgHandle")
    if value & mq.MQGMO_WAIT and options.wait_interval < mq.MQWI_UNLIMITED:
        raise MQError(mq.MQRC_WAIT_INTERVAL_ERROR, f"WaitInterval {options.wait_interval} is less than -1")


def get(
    connection: ConnectionState,
    handle: Handle,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    *,
    briefly: bool = False,
) -> Got:
    """Get one message. Never waits: raises 2033 if there is none now. `briefly`: raises SearchInterruptedError if the
    outcome is not known soon."""
    correl_id = plain_gets.plain_correl_id(handle, md, options)
    if correl_id is None:
        check_options(options)
    else:
        got, looked = plain_gets.attempt(connection, handle, options, buffer_length, correl_id)
        if got is not None:
            return got
        if looked:
            raise MQError(mq.MQRC_NO_MSG_AVAILABLE, "no message on the queue matches", 2)
    asked = Wanted() if options.options & _SELECTS_NOTHING else wanted(md, options)
    part = LongSearch(connection.core) if briefly else None
    return _attempt(connection, handle, md, options, buffer_length, asked, part)


def _attempt(
    connection: ConnectionState,
    handle: Handle,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    asked: Wanted,
    part: LongSearch | None,
) -> Got:
    """The same, with options that have been checked."""
    queue = _queue_of(connection, handle, options)
    search = Search(connection.core, queue, handle, _order(handle, options), part)
    try:
        return _get(connection, handle, queue, search, md, options, buffer_length, asked)
    finally:
        if search.expired:
            discard_expired(connection, queue, search.expired.values())


def wait(
    connection: ConnectionState,
    handle: Handle,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    deadline: float | None,
    arrived: Arrived,
) -> Cancel:
    """Try, and wait on the queue until `deadline` if no message is there yet. Returns what cancels the wait."""
    correl_id = plain_gets.plain_correl_id(handle, md, options)
    if correl_id is None:
        check_options(options)
        asked = wanted(md, options)
        any_message = asked.any_message and handle.selector is None and not options.options & _PARTICULAR
        correl_id = asked.correl_id
        attempt = partial(_outcome, connection, handle, md, options, buffer_length, asked)
        accept = None
    else:
        any_message, correl_id = (True, None) if correl_id == NO_ID else (False, correl_id)
        attempt = partial(_plain_outcome, connection, handle, md, options, buffer_length, correl_id or NO_ID)
        accept = partial(plain_gets.accepted, connection, handle, options, buffer_length)
    outcome, search = None, None
    try:
        outcome = attempt(None)
    except SearchInterruptedError as interrupted:
        search = interrupted.search
    if outcome is not None:
        tell(connection, outcome, arrived)
        return _nothing
    queue = handle.queue
    if queue is None:
        raise MQError(mq.MQRC_NOT_OPEN_FOR_INPUT, "the object is not a queue messages can be got from")
    waiting = WaitingGet(
        connection, handle, attempt, arrived, any_message=any_message, correl_id=correl_id, accept=accept
    )
    waiting.start(queue, deadline, search)
    return waiting.cancel


def _plain_outcome(
    connection: ConnectionState,
    handle: Handle,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    correl_id: bytes,
    part: LongSearch | None,
) -> Got | MQError | None:
    """Returns the outcome of a plain get that may wait; None: it waits on."""
    if part is None and not (connection.ended or connection.core.quiescing):
        try:
            got, looked = plain_gets.attempt(connection, handle, options, buffer_length, correl_id)
        except (MQError, StoreError) as error:
            return _refused(error)
        if looked:
            return got
    return _outcome(connection, handle, md, options, buffer_length, wanted(md, options), part)


def _outcome(
    connection: ConnectionState,
    handle: Handle,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    asked: Wanted,
    part: LongSearch | None,
) -> Got | MQError | None:
    """Returns the outcome of a get that may wait; None: it waits on. `part` is its search, if that goes on."""
    if connection.ended:
        return MQError(mq.MQRC_CONNECTION_BROKEN, "the connection has ended")
    if connection.core.quiescing and options.options & mq.MQGMO_FAIL_IF_QUIESCING:
        return MQError(mq.MQRC_Q_MGR_QUIESCING, "the queue manager is being stopped")
    try:
        return _attempt(connection, handle, md, options, buffer_length, asked, part or LongSearch(connection.core))
    except (MQError, StoreError) as error:
        refused = _refused(error)
        return None if refused.reason == mq.MQRC_NO_MSG_AVAILABLE else refused


def _refused(error: MQError | StoreError) -> MQError:
    """Returns the answer to a get that may wait. A damaged message cannot be reported by raising, because nobody has
    called."""
    return error if isinstance(error, MQError) else MQError(reason_unread(error), str(error))


def reason_unread(error: StoreError) -> int:
    """Returns the reason code for a store that could not be read, or could not store the outcome of a call."""
    return mq.MQRC_OBJECT_DAMAGED if isinstance(error, StoreCorrupt) else reason_of(error)


def _nothing() -> None:
    """Does nothing: cancels a get that has been answered."""


def _queue_of(connection: ConnectionState, handle: Handle, options: GetOptions) -> LocalQueue:
    queue = handle.queue
    if queue is None:
        raise MQError(mq.MQRC_NOT_OPEN_FOR_INPUT, "the object is not a queue messages can be got from")
    if queue.deleted:
        raise MQError(mq.MQRC_Q_DELETED, f"{queue.name} has been deleted")
    if options.options & (BROWSE | mq.MQGMO_UNLOCK):
        handle.needs(mq.MQOO_BROWSE, mq.MQRC_NOT_OPEN_FOR_BROWSE, "MQOO_BROWSE")
    else:
        handle.needs(INPUT, mq.MQRC_NOT_OPEN_FOR_INPUT, "an MQOO_INPUT option")
        if options.options & mq.MQGMO_MSG_UNDER_CURSOR:
            handle.needs(mq.MQOO_BROWSE, mq.MQRC_NOT_OPEN_FOR_BROWSE, "MQOO_BROWSE")
    if options.options & mq.MQGMO_MARK_BROWSE_CO_OP and not handle.options & mq.MQOO_CO_OP:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "MQGMO_MARK_BROWSE_CO_OP needs MQOO_CO_OP on MQOPEN")
    if handle.target is not None:
        handle.target = refreshed(connection.core, handle.target)
        handle.target.check_get()
    if queue.get_inhibited:
        raise MQError(mq.MQRC_GET_INHIBITED, f"ALTER QLOCAL('{queue.name}') GET(ENABLED) allows it")
    plain_gets.note_get(connection, handle)
    return queue


def _get(
    connection: ConnectionState,
    handle: Handle,
    queue: LocalQueue,
    search: Search,
    md: bytes,
    options: GetOptions,
    buffer_length: int,
    asked: Wanted,
) -> Got:
    value = options.options
    if value & mq.MQGMO_UNLOCK:
        if not _unlock(connection, handle, queue):
            return Got(md, b"", 0, queue.name, mq.MQCC_WARNING, mq.MQRC_NO_MSG_LOCKED)
        return Got(md, b"", 0, queue.name)
    candidate = _choose(handle, search, asked, options)
    if candidate is None:
        raise MQError(mq.MQRC_NO_MSG_AVAILABLE, f"{queue.name} has no message that matches", 2)
    parts, reason = _parts(search, candidate, options)
    _check_syncpoint(search.order, candidate, options)
    got = _as_got(connection, handle, queue, candidate, parts, options)
    accept = bool(value & mq.MQGMO_ACCEPT_TRUNCATED_MSG)
    if value & mq.MQGMO_CONVERT:
        convert_data(got, md, buffer_length, connection.core.attribute("CCSID"), accept=accept)
    if fit_buffer(got, buffer_length, accept=accept):
        if value & BROWSE:
            _browse(connection, handle, queue, candidate, options)
        else:
            _take(connection, handle, queue, parts, options)
        if value & mq.MQGMO_LOGICAL_ORDER:
            _advance(connection, search.order, parts, options)
        elif not value & BROWSE and (search.order.open or candidate.md[descriptor.FLAGS] != _NO_FLAGS):
            reason = search.order.left_by(candidate.md, syncpoint=_inside(candidate, value), removes=True) or reason
            _place(connection, search.order, parts, options)
        if value & (mq.MQGMO_BROWSE_FIRST | mq.MQGMO_BROWSE_NEXT):
            handle.browsing, handle.browsed_in_order = search.order, bool(value & mq.MQGMO_LOGICAL_ORDER)
        if reason and not got.reason:
            got.comp_code, got.reason = mq.MQCC_WARNING, reason
    return got


def _order(handle: Handle, options: GetOptions) -> LogicalOrder:
    """Returns the position from which this get continues: browsing has its own, and begins anew with
    MQGMO_BROWSE_FIRST."""
    value = options.options
    if value & mq.MQGMO_BROWSE_FIRST:
        return LogicalOrder()
    goes_on = value & mq.MQGMO_BROWSE_NEXT and handle.cursor is not None
    if goes_on and bool(value & mq.MQGMO_LOGICAL_ORDER) != handle.browsed_in_order:
        text = "MQGMO_LOGICAL_ORDER differs from the last browse: begin again with MQGMO_BROWSE_FIRST"
        raise MQError(mq.MQRC_INCONSISTENT_BROWSE, text)
    return handle.browsing if value & BROWSE else handle.getting


def _check_syncpoint(order: LogicalOrder, candidate: Candidate, options: GetOptions) -> None:
    """Raise 2245 if a group is got in logical order partly inside and partly outside syncpoint."""
    value = options.options
    removes_next = value & mq.MQGMO_LOGICAL_ORDER and order.open and not value & BROWSE
    if removes_next and _inside(candidate, value) != order.syncpoint:
        raise MQError(mq.MQRC_INCONSISTENT_UOW, "a group must be got wholly inside syncpoint, or wholly outside")


def _inside(candidate: Candidate, value: int) -> bool:
    """Whether a message is got under syncpoint."""
    if value & mq.MQGMO_SYNCPOINT_IF_PERSISTENT:
        return descriptor.integer(candidate.md, "persistence") == mq.MQPER_PERSISTENT
    return bool(value & mq.MQGMO_SYNCPOINT)


def _choose(handle: Handle, search: Search, asked: Wanted, options: GetOptions) -> Candidate | None:
    value = options.options
    if value & (mq.MQGMO_MSG_UNDER_CURSOR | mq.MQGMO_BROWSE_MSG_UNDER_CURSOR):
        candidate = None if handle.cursor is None else search.at(handle.cursor)
        if candidate is None:
            raise MQError(mq.MQRC_NO_MSG_UNDER_CURSOR, "the browse cursor is on no message: browse one first")
        return candidate
    after = handle.cursor if value & mq.MQGMO_BROWSE_NEXT else None
    if after is not None and value & mq.MQGMO_LOGICAL_ORDER and handle.browsing.begun_at is not None:
        after = handle.browsing.begun_at  # where a group stands in logical order
    return search.first(asked, options, after)


def _parts(search: Search, candidate: Candidate, options: GetOptions) -> tuple[list[Candidate], int]:
    """Returns the segments that are got as one message, and the warning if these are not all of them."""
    segmented = descriptor.integer(candidate.md, "flags") & mq.MQMF_SEGMENT
    if not segmented or not options.options & mq.MQGMO_COMPLETE_MSG:
        return [candidate], 0
    parts = search.segments(candidate)
    count, reason = agreeing([part.md for part in parts])
    return parts[:count], reason


def _as_got(
    connection: ConnectionState,
    handle: Handle,
    queue: LocalQueue,
    candidate: Candidate,
    parts: list[Candidate],
    options: GetOptions,
) -> Got:
    """Returns the message as the program gets it, before it is converted and cut to the buffer."""
    core = connection.core
    md = descriptor.with_remaining(candidate.md, candidate.expiry / 1_000_000 if candidate.expiry else None, core.now())
    data = b"".join(part.data for part in parts) if len(parts) > 1 else candidate.data
    if len(parts) > 1:
        md = whole(md, parts[-1].md)
    status = group_status(md)
    md, data, held = _for_getter(md, data, options, _property_control(handle, queue))
    got = Got(md, data, len(data), queue.name, 0, 0, held, *status)
    got.token = message_token(candidate.token)
    return got


def _property_control(handle: Handle, queue: LocalQueue) -> int:
    """Returns PROPCTL of the object that was opened: an alias has its own."""
    definition = handle.target.chain[0] if handle.target is not None and handle.target.chain else queue.definition
    value = definition.attributes.get("PROPCTL", queue.property_control)
    return value if isinstance(value, int) else 0


def _advance(connection: ConnectionState, order: LogicalOrder, parts: list[Candidate], options: GetOptions) -> None:
    """Move the position on behind what was got in logical order."""
    first, before = parts[0], replace(order)
    if not order.open:
        order.group_id, order.offset = first.md[descriptor.GROUP_ID], 0
        order.sequence = descriptor.integer(first.md, "sequence")
        order.syncpoint, order.begun_at = _inside(first, options.options), first.token
    order.kept_by_queue_manager = True
    flags = descriptor.integer(parts[-1].md, "flags")
    advance_logical(order, flags, sum(len(part.data) for part in parts))
    if order.syncpoint and not options.options & BROWSE:
        connection.work.moved(order, before)


def _place(connection: ConnectionState, order: LogicalOrder, parts: list[Candidate], options: GetOptions) -> None:
    """Note the position of a message got without logical order: the next get in logical order continues there."""
    before = replace(order)
    order.place(parts[0].md, syncpoint=_inside(parts[0], options.options))
    order.kept_by_queue_manager = False
    advance_logical(order, descriptor.integer(parts[-1].md, "flags"), sum(len(part.data) for part in parts))
    if order.syncpoint:
        connection.work.moved(order, before)


def discard_expired(connection: ConnectionState, queue: LocalQueue, expired: Collection[Candidate]) -> None:
    """Remove messages that were found to have expired, and report those that ask for it."""
    unit = StoreUnit(takes=[LaneTakes(queue.name, b"", [one.token for one in expired])])
    for one in expired:
        if descriptor.integer(one.md, "report") & mq.MQRO_EXPIRATION:
            connection.placer.report(one.md, one.data, mq.MQFB_EXPIRATION, unit)
    connection.core.commit(unit)


# The message as the getter sees it


def _for_getter(
    md: bytes, data: bytes, options: GetOptions, property_control: int
) -> tuple[bytes, bytes, list[Property] | None]:
    """Returns descriptor and data with the properties as PROPCTL and the options require, and the properties for the
    message handle. A message with a broken MQRFH2 is returned unchanged."""
    if md[32:40] != mq.MQFMT_RF_HEADER_2:
        return md, data, [] if options.handle_given else None
    try:
        view = propctl.as_got(md, data, propctl=property_control, options=options.options, handle=options.handle_given)
    except (MQError, HeaderError):
        return md, data, [] if options.handle_given else None
    held = [Property(one.name, one.value, one.mqtype, one.support, one.context, one.copy) for one in view.properties]
    return view.md, view.data, held if options.handle_given else None


def convert_data(got: Got, asked: bytes, buffer_length: int, ccsid: int, *, accept: bool) -> None:
    """MQGMO_CONVERT: convert to the character set and encoding of the caller's MQMD; `ccsid` is the queue manager's.

    A message that fits the buffer only before conversion is returned unconverted (2120), unless truncation is accepted.
    DataLength of a message that is truncated is its length before conversion. One that is too long and may not be
    truncated is not converted.
    """
    too_long = got.length > buffer_length
    if not buffer_length or (too_long and not accept):
        return
    made = conversion.convert(
        got.md, got.data, encoding=descriptor.integer(asked, "encoding"), ccsid=descriptor.integer(asked, "ccsid"),
        default_ccsid=ccsid, max_length=None if accept else buffer_length,
    )  # fmt: skip
    got.md, got.data = made.md, made.data
    if len(made.data) <= buffer_length:
        got.length = len(made.data)
    if made.reason:
        got.comp_code, got.reason = 1, made.reason


def fit_buffer(got: Got, buffer_length: int, *, accept: bool) -> bool:
    """Cut the data to the buffer. Returns False if the message must stay on the queue (2080)."""
    if len(got.data) <= buffer_length:
        return True
    got.data = got.data[:buffer_length]
    got.comp_code = 1
    if not got.reason:  # a failed conversion is the more useful reason: that data was cut shows in DataLength
        got.reason = mq.MQRC_TRUNCATED_MSG_ACCEPTED if accept else mq.MQRC_TRUNCATED_MSG_FAILED
    return accept


# Browsing


def _browse(
    connection: ConnectionState, handle: Handle, queue: LocalQueue, candidate: Candidate, options: GetOptions
) -> None:
    value = options.options
    _unlock(connection, handle, queue)
    handle.cursor = candidate.token
    if value & mq.MQGMO_LOCK:
        connection.core.lock_messages(queue, [candidate.token], handle)
        handle.cursor_locked = True
    if value & (MARKS | UNMARKS):
        browse_marks.mark(connection.core, handle, queue, candidate.token, value)


def _unlock(connection: ConnectionState, handle: Handle, queue: LocalQueue) -> bool:
    """Release the handle's lock on the message under its cursor; returns whether there was one."""
    if not handle.cursor_locked or handle.cursor is None:
        return False
    handle.cursor_locked = False
    if queue.locked.get(handle.cursor) is not handle:
        return False
    connection.core.unlock_messages(queue, [handle.cursor])
    connection.core.wake(queue)
    return True


# Taking


def _take(
    connection: ConnectionState, handle: Handle, queue: LocalQueue, parts: list[Candidate], options: GetOptions
) -> None:
    value = options.options
    core = connection.core
    if _inside(parts[0], value):
        connection.check_room(len(parts))
        skip = bool(value & mq.MQGMO_MARK_SKIP_BACKOUT)
        if skip and any(taken.skip for taken in connection.work.taken):
            raise MQError(mq.MQRC_SECOND_MARK_NOT_ALLOWED, "a unit of work has one message that skips backout")
        tokens = [part.token for part in parts]
        core.lock_messages(queue, tokens, connection)
        queue.unmark(tokens)
        connection.work.taken += [
            Taken(queue, part.token, part.backout, md, data, skip)
            for part, (md, data) in zip(parts, _as_delivered(parts, core.now()), strict=True)
        ]
    else:
        unit = StoreUnit(takes=[LaneTakes(queue.name, b"", [part.token for part in parts])])
        for md, data in _as_delivered(parts, core.now()):
            if md[descriptor.REPORT] != descriptor.NO_REPORT:
                connection.placer.confirm_delivery(md, data, unit)
        connection.settlement = core.commit_call(unit, connection)
    if handle.cursor in {part.token for part in parts}:
        handle.cursor_locked = False
    if handle.options & mq.MQOO_SAVE_ALL_CONTEXT:
        handle.saved_context = parts[0].md


def _as_delivered(parts: list[Candidate], now: float) -> list[tuple[bytes, bytes]]:
    """Returns descriptor, with what is left of its Expiry, and data of each part, for its COD. If segments are got as
    one message, the first part reports all of the data, and the others ask for no report."""
    first, *others = parts
    md = descriptor.with_remaining(first.md, first.expiry / 1_000_000 if first.expiry else None, now)
    if not others:
        return [(md, first.data)]
    md = whole(md, parts[-1].md)
    quiet = [(descriptor.with_integer(one.md, "report", 0), b"") for one in others]
    return [(md, b"".join(one.data for one in parts)), *quiet]
