"""MQOPEN and MQCLOSE: handles of objects, dynamic queues made from models and deleted on closing."""

from __future__ import annotations

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import ObjectDescriptor
from gateway.queue_manager.objects.dynamic_queues import MADE_BY, delete_dynamic, make_dynamic
from gateway.queue_manager.objects.local_queue import INPUT, LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, resolve
from gateway.queue_manager.objects.selectors import compile_selector
from gateway.queue_manager.verbs import browse_marks
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle

KNOWN_OPTIONS = (
    INPUT | mq.MQOO_BROWSE | mq.MQOO_OUTPUT | mq.MQOO_INQUIRE | mq.MQOO_SET | mq.MQOO_SAVE_ALL_CONTEXT
    | mq.MQOO_PASS_IDENTITY_CONTEXT | mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT
    | mq.MQOO_ALTERNATE_USER_AUTHORITY | mq.MQOO_FAIL_IF_QUIESCING | mq.MQOO_BIND_ON_OPEN | mq.MQOO_BIND_NOT_FIXED
    | mq.MQOO_RESOLVE_LOCAL_Q | mq.MQOO_NO_READ_AHEAD | mq.MQOO_READ_AHEAD | mq.MQOO_CO_OP | 0x10000
    | mq.MQOO_BIND_ON_GROUP | mq.MQOO_NO_MULTICAST
)  # fmt: skip
CONTEXT_OPTIONS = (
    mq.MQOO_PASS_IDENTITY_CONTEXT | mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT
)
_BINDS = mq.MQOO_BIND_ON_OPEN | mq.MQOO_BIND_NOT_FIXED | mq.MQOO_BIND_ON_GROUP
_KINDS = {mq.MQOT_NAMELIST: "NAMELIST", mq.MQOT_PROCESS: "PROCESS"}


def open_object(connection: ConnectionState, wanted: ObjectDescriptor, options: int, *, once: bool = False) -> Handle:
    """MQOPEN: returns a handle of the object, and fills in the descriptor. `once`: for MQPUT1."""
    check_options(options)
    if wanted.selection and (wanted.object_type != mq.MQOT_Q or not options & (INPUT | mq.MQOO_BROWSE)):
        raise MQError(mq.MQRC_SELECTOR_INVALID_FOR_TYPE, "a selection string needs a queue opened for input or browse")
    selector = compile_selector(wanted.selection) if wanted.selection else None
    user = connection.user_for(wanted.alternate_user, asked=bool(options & mq.MQOO_ALTERNATE_USER_AUTHORITY))
    if wanted.object_type == mq.MQOT_Q:
        if once:
            _refuse_model(connection, wanted)
        connection.authorise_open(wanted.name, wanted.queue_manager, options, user)
        handle = open_queue(connection, wanted, options, user)
    elif wanted.object_type == mq.MQOT_TOPIC:
        handle = _topic(connection, wanted, options, user)
    elif wanted.object_type == mq.MQOT_Q_MGR:
        _check_inquires(wanted, options)
        if wanted.queue_manager not in {"", connection.core.name}:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_Q_MGR, f"this is {connection.core.name}, not {wanted.queue_manager}")
        handle = Handle(0, options, mq.MQOT_Q_MGR, connection.core.catalogue.queue_manager)
    elif wanted.object_type in _KINDS:
        _check_inquires(wanted, options)
        definition = connection.core.catalogue.get(_KINDS[wanted.object_type], wanted.name)
        if definition is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"no {_KINDS[wanted.object_type].lower()} {wanted.name!r}")
        handle = Handle(0, options, wanted.object_type, definition)
    else:
        raise MQError(mq.MQRC_OBJECT_TYPE_ERROR, f"ObjectType {wanted.object_type} cannot be opened")
    handle.selector = selector
    return handle


def _refuse_model(connection: ConnectionState, wanted: ObjectDescriptor) -> None:
    """Raise 2057 for a model queue in MQPUT1: the queue made from it would be deleted, with the message, when the call
    ends."""
    core = connection.core
    if wanted.name in core.queues or wanted.queue_manager not in {"", core.name}:
        return
    named = core.catalogue.get("QUEUE", wanted.name)
    if named is not None and named.kind == "QMODEL":
        raise MQError(mq.MQRC_Q_TYPE_ERROR, f"{wanted.name!r} is a model queue: MQOPEN makes a queue from it")


def _check_inquires(wanted: ObjectDescriptor, options: int) -> None:
    """Raise 2045 if an object that is neither a queue nor a topic is opened for anything but MQINQ."""
    if options & (INPUT | mq.MQOO_BROWSE | mq.MQOO_OUTPUT | mq.MQOO_SET):
        text = f"an object of type {wanted.object_type} can be opened with MQOO_INQUIRE only"
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, text)


def check_options(options: int) -> None:
    """Raise 2046 for options that clash, are unknown, or ask for nothing."""
    inputs = options & INPUT
    verbs = options & (INPUT | mq.MQOO_BROWSE | mq.MQOO_OUTPUT | mq.MQOO_INQUIRE | mq.MQOO_SET)
    clash = (
        options & ~KNOWN_OPTIONS
        or inputs.bit_count() > 1
        or not verbs
        or (options & mq.MQOO_SAVE_ALL_CONTEXT and not inputs)
        or (options & CONTEXT_OPTIONS and not options & mq.MQOO_OUTPUT)
        or (options & mq.MQOO_READ_AHEAD and options & mq.MQOO_NO_READ_AHEAD)
        or (options & _BINDS).bit_count() > 1
        or (options & mq.MQOO_NO_MULTICAST and not options & mq.MQOO_OUTPUT)
        or (options & mq.MQOO_CO_OP and not options & mq.MQOO_BROWSE)
    )
    if clash:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQOPEN options 0x{options:X} clash, are unknown or name no verb")


def _topic(connection: ConnectionState, wanted: ObjectDescriptor, options: int, user: str) -> Handle:
    if options & (INPUT | mq.MQOO_BROWSE | mq.MQOO_INQUIRE | mq.MQOO_SET) or not options & mq.MQOO_OUTPUT:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic can be opened for output only: use MQSUB")
    topic = connection.topics.full(wanted.name, wanted.object_string)
    definition = connection.core.catalogue.get("TOPIC", wanted.name or "SYSTEM.BASE.TOPIC")
    connection.authorise_topic(topic, "PUB", user)
    wanted.resolved_string, wanted.resolved_type = topic, mq.MQOT_TOPIC
    wanted.resolved_queue_manager = connection.core.name
    return Handle(0, options, mq.MQOT_TOPIC, definition, topic=topic)


def open_queue(connection: ConnectionState, wanted: ObjectDescriptor, options: int, user: str) -> Handle:
    """Returns a handle of a queue, or of a dynamic queue made from a model. The caller has checked the options and the
    authority of the user."""
    core = connection.core
    gets = options & (INPUT | mq.MQOO_BROWSE | mq.MQOO_SET | mq.MQOO_INQUIRE)
    if gets and wanted.queue_manager not in {"", core.name}:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a remote queue can be opened for output only")
    model = core.catalogue.get("QUEUE", wanted.name) if wanted.queue_manager in {"", core.name} else None
    created = model is not None and model.kind == "QMODEL"
    if created and model is not None:
        definition = make_dynamic(core, model, wanted.dynamic_name, user)
        wanted.name, wanted.queue_manager = definition.name, core.name
    uses = options & (INPUT | mq.MQOO_BROWSE | mq.MQOO_OUTPUT)
    if options & (mq.MQOO_INQUIRE | mq.MQOO_SET) and not (uses or created):
        handle = _attributes_only(connection, wanted, options)
    else:
        target = resolve(core, wanted.name, wanted.queue_manager)
        handle = _opened(connection, wanted, options, target, created=created)
    handle.user = user
    return handle


def _attributes_only(connection: ConnectionState, wanted: ObjectDescriptor, options: int) -> Handle:
    """Returns a handle only for MQINQ and MQSET, which are about the object named and not the queue it resolves to."""
    definition = connection.core.catalogue.get("QUEUE", wanted.name)
    if definition is None:
        raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {wanted.name!r}")
    wanted.resolved_type = mq.MQOT_Q
    named = connection.core.queues.get(definition.name) if definition.kind == "QLOCAL" else None
    return Handle(0, options, mq.MQOT_Q, definition, named=named)


def _opened(
    connection: ConnectionState, wanted: ObjectDescriptor, options: int, target: Target, *, created: bool
) -> Handle:
    queue = target.queue
    gets = options & (INPUT | mq.MQOO_BROWSE)
    if gets and (queue is None or target.remote):
        raise MQError(
            mq.MQRC_OPTION_NOT_VALID_FOR_TYPE,
            f"{wanted.name!r} leads to no local queue: it can be opened for output only",
        )
    definition = target.chain[0] if target.chain else None
    handle = Handle(0, options, mq.MQOT_Q, definition, target)
    if target.topic:
        handle.topic = connection.topics.full(target.topic, "")
        wanted.resolved_string, wanted.resolved_type = handle.topic, mq.MQOT_TOPIC
        return handle
    if queue is None:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{wanted.name!r} cannot be opened with these options")
    if queue.emptied:
        raise MQError(mq.MQRC_OBJECT_IN_USE, f"{queue.name} is being cleared, or deleted: try again")
    if gets:
        handle.queue = queue
        take_input(queue, options)
        if options & INPUT:
            connection.core.inputs_changed(queue, opened=True)
    if options & mq.MQOO_OUTPUT:
        queue.outputs += 1
    handle.made_queue = created
    if gets or options & mq.MQOO_OUTPUT:  # MQOD.ResolvedQName: not filled in for MQINQ and MQSET alone
        names = target.resolved(connection.core.name, local=bool(options & mq.MQOO_RESOLVE_LOCAL_Q))
        wanted.resolved_name, wanted.resolved_queue_manager = names
    wanted.resolved_type = mq.MQOT_Q
    return handle


def take_input(queue: LocalQueue, options: int) -> None:
    """Count a handle that gets or browses. Raises 2042 if another handle, or this one, is exclusive."""
    inputs = options & INPUT
    if inputs:
        exclusive = inputs == mq.MQOO_INPUT_EXCLUSIVE or (
            inputs == mq.MQOO_INPUT_AS_Q_DEF and queue.definition.number("DEFSOPT") == mq.MQOO_INPUT_EXCLUSIVE
        )
        exclusive = exclusive or not queue.definition.number("SHARE")
        if queue.inputs and (exclusive or queue.exclusive):
            raise MQError(mq.MQRC_OBJECT_IN_USE, f"{queue.name} is open for input elsewhere, exclusively here or there")
        queue.inputs += 1
        queue.exclusive = exclusive
    else:
        queue.browsers += 1
    if options & mq.MQOO_CO_OP:
        queue.cooperating += 1


_CLOSE_OPTIONS = {
    mq.MQCO_NONE,
    mq.MQCO_DELETE,
    mq.MQCO_DELETE_PURGE,
    mq.MQCO_QUIESCE,
    mq.MQCO_KEEP_SUB,
    mq.MQCO_REMOVE_SUB,
}


def close_object(connection: ConnectionState, handle: Handle, options: int = mq.MQCO_NONE) -> None:
    """MQCLOSE of anything except a subscription."""
    if handle.object_type == mq.MQOT_Q:
        _close_queue(connection, handle, options)
    elif options != mq.MQCO_NONE:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "close options are only for dynamic queues and subscriptions")


def _close_queue(connection: ConnectionState, handle: Handle, options: int) -> None:
    """Release what the handle counts for; delete a dynamic queue if that is asked for or due."""
    if options not in _CLOSE_OPTIONS:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQCLOSE options {options} are unknown or clash")
    if options in {mq.MQCO_KEEP_SUB, mq.MQCO_REMOVE_SUB}:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "MQCO_KEEP_SUB and MQCO_REMOVE_SUB are only for subscriptions")
    local = handle.named if handle.target is None else handle.target.queue
    deletes = options in {mq.MQCO_DELETE, mq.MQCO_DELETE_PURGE}
    goes_with_handle = handle.made_queue and local is not None and local.temporary
    if deletes and not goes_with_handle and (local is None or not local.deleted):
        _may_delete(connection, handle, local, purge=options == mq.MQCO_DELETE_PURGE)
    if handle.queue is not None:
        _release_input(connection, handle, handle.queue)
    if handle.target is not None and handle.target.queue is not None and handle.options & mq.MQOO_OUTPUT:
        handle.target.queue.outputs -= 1
    if local is None or local.deleted:
        return
    if deletes or goes_with_handle or (local.ending and not local.open_count):
        delete_dynamic(connection.core, local)
        connection.authority.forget("QUEUE", local.name)


def _may_delete(connection: ConnectionState, handle: Handle, queue: LocalQueue | None, *, purge: bool) -> None:
    """Raise MQError if MQCO_DELETE or MQCO_DELETE_PURGE is not allowed. Other handles of the queue do not prevent it:
    they find it deleted. The user who needs the right is the one that MQOPEN was authorised for
    (MQOD.AlternateUserId)."""
    dynamic = queue is not None and queue.definition.dynamic == mq.MQQDT_PERMANENT_DYNAMIC
    if queue is None or not dynamic or connection.topics.manages(queue.name):
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "MQCO_DELETE is for dynamic queues of no subscription")
    if not handle.made_queue and queue.definition.extra.get(MADE_BY) != handle.user:
        connection.authority.check(handle.user, "QUEUE", queue.name, "DLT")
    if queue.uncommitted_puts or any(owner is not handle for owner in queue.locked.values()):
        raise MQError(mq.MQRC_Q_NOT_EMPTY, f"{queue.name} has messages in units of work: commit or back out first")
    if connection.core.depth(queue) and not purge:
        raise MQError(mq.MQRC_Q_NOT_EMPTY, f"{queue.name} holds messages: MQCO_DELETE_PURGE deletes them with it")


def _release_input(connection: ConnectionState, handle: Handle, queue: LocalQueue) -> None:
    """Stop counting a handle that gets or browses, and release its lock on the message under the cursor."""
    if handle.options & INPUT:
        queue.inputs -= 1
        queue.exclusive = queue.exclusive and bool(queue.inputs)
        connection.core.inputs_changed(queue, opened=False)
    else:
        queue.browsers -= 1
    browse_marks.closed(connection.core, handle, queue)
    if handle.cursor_locked and handle.cursor is not None and queue.locked.get(handle.cursor) is handle:
        connection.core.unlock_messages(queue, [handle.cursor])
        connection.core.wake(queue)
