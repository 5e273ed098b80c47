"""MQPUT and MQPUT1: check and complete the descriptor, set context and identifiers, place the message.

Section 7 of the MQI reference, MQPUT. An error is raised; a warning is part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import properties, property_names
from gateway.ports.mqi import Property, PutOptions, PutResult, Status
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import NO_ID, Descriptor, padded, text
from gateway.queue_manager.groups import LogicalOrder, advance_logical, segments_of, start_logical
from gateway.queue_manager.objects.name_resolution import Target, refreshed, reply_to
from gateway.queue_manager.objects.placement import split_time
from gateway.queue_manager.objects.topics import HIGHEST_LEVEL
from gateway.queue_manager.store.unit import StoreUnit
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle
from gateway.queue_manager.verbs.repeated_puts import repeated_put

KNOWN_OPTIONS = (
    2 | 4 | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x40000
    | 0x80000 | 0x200000 | 0x800000 | 0x4000000 | 0x8000000 | 0x10000000
)  # fmt: skip
CONTEXTS = (
    mq.MQPMO_DEFAULT_CONTEXT, mq.MQPMO_PASS_IDENTITY_CONTEXT, mq.MQPMO_PASS_ALL_CONTEXT, mq.MQPMO_SET_IDENTITY_CONTEXT,
    mq.MQPMO_SET_ALL_CONTEXT, mq.MQPMO_NO_CONTEXT,
)  # fmt: skip
NEEDED_ON_OPEN = {
    mq.MQPMO_PASS_IDENTITY_CONTEXT: (
        mq.MQOO_PASS_IDENTITY_CONTEXT | mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_IDENTITY_CONTEXT
        | mq.MQOO_SET_ALL_CONTEXT,
        mq.MQRC_NOT_OPEN_FOR_PASS_IDENT,
    ),
    mq.MQPMO_PASS_ALL_CONTEXT: (mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_ALL_CONTEXT, mq.MQRC_NOT_OPEN_FOR_PASS_ALL),
    mq.MQPMO_SET_IDENTITY_CONTEXT: (
        mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT, mq.MQRC_NOT_OPEN_FOR_SET_IDENT
    ),
    mq.MQPMO_SET_ALL_CONTEXT: (mq.MQOO_SET_ALL_CONTEXT, mq.MQRC_NOT_OPEN_FOR_SET_ALL),
}  # fmt: skip
"""By context option: the options of MQOPEN that allow it, and the reason code if none was given."""
KNOWN_REPORTS = 0x0FE07FC7 | mq.MQRO_EXCEPTION_WITH_FULL_DATA | mq.MQRO_EXPIRATION_WITH_FULL_DATA
REFUSED_REPORTS = 0x101C0000
"""MQRO_REJECT_UNSUP_MASK: an unknown bit among these is refused; other unknown bits are let through with a warning."""
REFUSED_LOCAL_REPORTS = 0x0003FF00
"""MQRO_ACCEPT_UNSUP_IF_XMIT_MASK: unknown bits among these are let through only on the way to another queue manager."""
ASKS_FOR_REPORT = (
    mq.MQRO_EXCEPTION | mq.MQRO_EXPIRATION | mq.MQRO_COA | mq.MQRO_COD | mq.MQRO_PAN | mq.MQRO_NAN | mq.MQRO_ACTIVITY
)
_PASSES = (mq.MQPMO_PASS_ALL_CONTEXT, mq.MQPMO_PASS_IDENTITY_CONTEXT)
MQFB_MAX = 999_999_999
MAX_PLACE = 999_999_999
"""The highest MsgSeqNumber and Offset."""
SAME_AS_OF_MQOPEN = (
    mq.MQPMO_PASS_IDENTITY_CONTEXT | mq.MQPMO_PASS_ALL_CONTEXT | mq.MQPMO_SET_IDENTITY_CONTEXT
    | mq.MQPMO_SET_ALL_CONTEXT | mq.MQPMO_ALTERNATE_USER_AUTHORITY
)  # fmt: skip
"""What MQPUT needs the object to be opened for, and MQPUT1 opens it for; the values are those of the MQOPEN options."""


def check_options(options: PutOptions, *, mqput1: bool = False) -> None:
    """Raise 2046 for options that clash, are unknown, or belong to the other call."""
    value = options.options
    others = mq.MQPMO_LOGICAL_ORDER if mqput1 else mq.MQPMO_ALTERNATE_USER_AUTHORITY
    contexts = sum(1 for context in CONTEXTS if value & context)
    both = mq.MQPMO_SYNCPOINT | mq.MQPMO_NO_SYNCPOINT
    responses = mq.MQPMO_ASYNC_RESPONSE | mq.MQPMO_SYNC_RESPONSE
    if value & (~KNOWN_OPTIONS | others) or contexts > 1 or value & both == both or value & responses == responses:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQPMO.Options 0x{value:X} holds options that clash or are unknown")


def put(connection: ConnectionState, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
    """Put one message on an open object. The outcome of an asynchronous put is also noted for MQSTAT; one that fails in
    a unit of work makes MQCMIT fail."""
    repeated = handle.repeated
    if repeated is not None:
        made = repeated.message(connection.core, connection.user, md, options, data)
        if made is not None:
            connection.accept_one(repeated.queue, made[1], options.options)
            return PutResult(made[0], repeated.queue.name, connection.core.name)
    handle.needs(mq.MQOO_OUTPUT, mq.MQRC_NOT_OPEN_FOR_OUTPUT, "MQOO_OUTPUT")
    if not options.options & mq.MQPMO_ASYNC_RESPONSE:
        return _put(connection, handle, md, options, data)
    status = connection.async_status
    try:
        result = _put(connection, handle, md, options, data)
    except MQError as error:
        status.failures += 1
        if options.options & mq.MQPMO_SYNCPOINT:
            connection.work.failed += 1
        _note(status, connection.core.name, error.comp_code, error.reason, handle)
        raise
    if result.comp_code:
        status.warnings += 1
        _note(status, connection.core.name, result.comp_code, result.reason, handle)
    else:
        status.successes += 1
    return result


def _note(status: Status, queue_manager: str, comp_code: int, reason: int, handle: Handle) -> None:
    """Note an outcome for MQSTAT, which reports the first error of asynchronous puts, and a warning only until there is
    an error."""
    if status.comp_code >= comp_code:
        return
    status.comp_code, status.reason = comp_code, reason
    status.object_type = handle.object_type
    status.object_name = handle.definition.name if handle.definition is not None else ""
    status.object_queue_manager = status.resolved_queue_manager = queue_manager
    queue = handle.target.queue if handle.target is not None else None
    status.resolved_name = queue.name if queue is not None else ""


def _put(connection: ConnectionState, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
    check_options(options, mqput1=not handle.number)
    if options.options & mq.MQPMO_FAIL_IF_QUIESCING:
        connection.check_quiescing()
    if handle.topic:
        return _publish(connection, handle, md, options, data)
    target = handle.target
    if target is None:
        raise MQError(mq.MQRC_NOT_OPEN_FOR_OUTPUT, "messages cannot be put on this object")
    if target.queue is not None and target.queue.deleted:
        raise MQError(mq.MQRC_Q_DELETED, f"{target.queue.name} has been deleted")
    target = handle.target = refreshed(connection.core, target)
    return _put_to(connection, handle, target, md, options, data)


def _put_to(
    connection: ConnectionState, handle: Handle, target: Target, md: bytes, options: PutOptions, data: bytes
) -> PutResult:
    """Put one message on one destination, in the connection's unit of work or committed before this returns."""
    core = connection.core
    if options.options & mq.MQPMO_RETAIN and not target.topic:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "MQPMO_RETAIN is only for publications")
    target.check_put()
    message, warning = completed(connection, target, md, options)
    if message.flags & mq.MQMF_SEGMENT:
        _check_segment(message, len(data))
    given = md
    logical = handle.putting
    in_order = bool(options.options & mq.MQPMO_LOGICAL_ORDER)
    before = replace(logical) if in_order or message.flags or logical.open else None
    syncpoint = bool(options.options & mq.MQPMO_SYNCPOINT)
    if in_order:
        start_logical(core, logical, message, syncpoint=syncpoint)
    elif logical.left_open and not warning[0]:
        warning = mq.MQCC_WARNING, logical.left_by(message.pack(), syncpoint=syncpoint)
    give_context(connection, message, handle, options)
    md, data = with_message_properties(core, message.pack(), data, options.properties)
    own = StoreUnit()
    for part, content in segments_of(core, target.queue, md, data, remote=target.remote):
        connection.placer.place(target, part, content, own)
    connection.accept(own, options.options)
    if before is not None:
        _move_on(connection, handle, before, message, options, len(data))
    elif handle.number and not warning[0]:  # MQPUT1 uses its handle for one message only
        handle.repeated = repeated_put(core, connection.user, target, given, options, message, md)
    local = bool(options.options & mq.MQPMO_RESOLVE_LOCAL_Q)
    return PutResult(md, *target.resolved(core.name, local=local), *warning)


def _check_segment(message: Descriptor, length: int) -> None:
    """Refuse an empty segment that is not the last, and a report about a segment whose OriginalLength is impossible."""
    least = 0 if message.flags & mq.MQMF_LAST_SEGMENT else 1
    if length < least:
        raise MQError(mq.MQRC_SEGMENT_LENGTH_ZERO, "only the last segment of a message may be empty")
    if message.type == mq.MQMT_REPORT and message.original_length < max(least, length):
        text = f"OriginalLength {message.original_length} of a report with {length} bytes about a segment"
        raise MQError(mq.MQRC_ORIGINAL_LENGTH_ERROR, text)


def _move_on(
    connection: ConnectionState,
    handle: Handle,
    before: LogicalOrder,
    message: Descriptor,
    options: PutOptions,
    length: int,
) -> None:
    """Note the handle's position in a group or a message after this put."""
    logical, syncpoint = handle.putting, bool(options.options & mq.MQPMO_SYNCPOINT)
    logical.kept_by_queue_manager = bool(options.options & mq.MQPMO_LOGICAL_ORDER)
    if not logical.kept_by_queue_manager:
        logical.place(message.pack(), syncpoint=syncpoint)
    advance_logical(logical, message.flags, length)
    handle.repeated = None
    if syncpoint:
        connection.work.moved(logical, before)


def _publish(connection: ConnectionState, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
    if not 0 <= options.publication_level <= HIGHEST_LEVEL:
        raise MQError(mq.MQRC_PMO_ERROR, f"PubLevel {options.publication_level} is not from 0 to {HIGHEST_LEVEL}")
    message = _publication(connection, handle, md, options)
    md, data = with_message_properties(connection.core, message.pack(), data, options.properties)
    own = StoreUnit()
    level = options.publication_level
    reached = connection.topics.publish("", handle.topic, md, data, options.options, own, level)
    connection.accept(own, options.options)
    if not reached and options.options & mq.MQPMO_WARN_IF_NO_SUBS_MATCHED:
        return PutResult(md, "", connection.core.name, 1, mq.MQRC_NO_SUBS_MATCHED)
    return PutResult(md, "", connection.core.name)


def _publication(connection: ConnectionState, handle: Handle, md: bytes, options: PutOptions) -> Descriptor:
    """Returns the descriptor of a publication before it is copied for each subscription, with the defaults of the
    topic."""
    topics = connection.topics
    message = Descriptor(md)
    if message.priority == mq.MQPRI_PRIORITY_AS_Q_DEF:
        message.priority = max(0, int(topics.governing(handle.topic, "DEFPRTY", -2)))
    if message.persistence == mq.MQPER_PERSISTENCE_AS_Q_DEF:
        message.persistence = max(0, int(topics.governing(handle.topic, "DEFPSIST", -2)))
    message, _ = completed(connection, Target(()), message.pack(), options)
    give_context(connection, message, handle, options)
    return message


# The descriptor


def completed(
    connection: ConnectionState, target: Target, md: bytes, options: PutOptions
) -> tuple[Descriptor, tuple[int, int]]:
    """Returns the descriptor, checked and complete except for its context, and the warning (0, 0: none)."""
    message = Descriptor(md)
    warning = _checked(message, options, remote=target.remote)
    _complete(connection.core, target, message, options, md)
    return message, warning


def _checked(message: Descriptor, options: PutOptions, *, remote: bool) -> tuple[int, int]:
    """Check the fields that a program sets. Returns (1, 2049) if the priority is above the maximum, (1, 2104) for
    unknown report options that do no harm."""
    if (
        not (0 < message.type <= mq.MQMT_DATAGRAM and message.type in {1, 2, 4, 8})
        and not 65_536 <= message.type <= MQFB_MAX
    ):
        raise MQError(mq.MQRC_MSG_TYPE_ERROR, f"MsgType {message.type} is neither MQ's nor an application's")
    if message.expiry <= 0 and message.expiry != mq.MQEI_UNLIMITED:
        raise MQError(mq.MQRC_EXPIRY_ERROR, f"Expiry {message.expiry} is neither -1 nor above 0")
    if message.feedback and not 0 < message.feedback <= MQFB_MAX:  # whatever the type (MQMD, Feedback)
        raise MQError(mq.MQRC_FEEDBACK_ERROR, f"Feedback {message.feedback} is not from 0 to {MQFB_MAX}")
    if message.persistence not in {0, 1, 2}:
        raise MQError(mq.MQRC_PERSISTENCE_ERROR, f"Persistence {message.persistence} is not 0, 1 or 2")
    if message.priority < mq.MQPRI_PRIORITY_AS_Q_DEF:
        raise MQError(mq.MQRC_PRIORITY_ERROR, f"Priority {message.priority} is less than -1")
    unknown = message.report & ~KNOWN_REPORTS & 0xFFFFFFFF
    if unknown & (REFUSED_REPORTS if remote else REFUSED_REPORTS | REFUSED_LOCAL_REPORTS):
        raise MQError(mq.MQRC_REPORT_OPTIONS_ERROR, f"Report 0x{message.report & 0xFFFFFFFF:X} holds unknown options")
    if message.flags & ~0x1F:
        raise MQError(mq.MQRC_MSG_FLAGS_ERROR, f"MsgFlags 0x{message.flags & 0xFFFFFFFF:X} holds unknown flags")
    if not options.options & mq.MQPMO_LOGICAL_ORDER:
        _check_place(message)
    descriptor.normalise(message)
    if text(message.reply_to_q) == "" and (message.type == mq.MQMT_REQUEST or message.report & ASKS_FOR_REPORT):
        raise MQError(mq.MQRC_MISSING_REPLY_TO_Q, "a request or a message that asks for reports needs ReplyToQ")
    if message.priority > 9:
        return mq.MQCC_WARNING, mq.MQRC_PRIORITY_EXCEEDS_MAXIMUM
    return (mq.MQCC_WARNING, mq.MQRC_UNKNOWN_REPORT_OPTION) if unknown else (0, 0)


def _check_place(message: Descriptor) -> None:
    """Check the position in a group that a program sets itself; in logical order the queue manager sets it."""
    if not 1 <= message.sequence <= MAX_PLACE:
        raise MQError(mq.MQRC_MSG_SEQ_NUMBER_ERROR, f"MsgSeqNumber {message.sequence} is not from 1 to {MAX_PLACE}")
    if not 0 <= message.offset <= MAX_PLACE:
        raise MQError(mq.MQRC_OFFSET_ERROR, f"Offset {message.offset} is not from 0 to {MAX_PLACE}")


def _complete(core: Core, target: Target, message: Descriptor, options: PutOptions, given: bytes) -> None:
    """Fill in the defaults of the first definition, the identifiers, the reply address and the character set."""
    first = target.chain[0].attributes if target.chain else {}
    if message.priority == mq.MQPRI_PRIORITY_AS_Q_DEF:
        message.priority = max(0, int(first.get("DEFPRTY", 0)))
    if message.persistence == mq.MQPER_PERSISTENCE_AS_Q_DEF:
        message.persistence = max(0, int(first.get("DEFPSIST", 0)))
    if options.options & mq.MQPMO_NEW_MSG_ID or message.msg_id == NO_ID:
        message.msg_id = core.new_identifier()
    if options.options & mq.MQPMO_NEW_CORREL_ID:
        message.correl_id = core.new_identifier()
    if options.options & mq.MQPMO_SUPPRESS_REPLYTO:
        message.reply_to_q, message.reply_to_qmgr = b" " * 48, b" " * 48
    queue, queue_manager = reply_to(core, text(message.reply_to_q), text(message.reply_to_qmgr))
    message.reply_to_q, message.reply_to_qmgr = padded(queue, 48), padded(queue_manager, 48)
    if message.ccsid == mq.MQCCSI_Q_MGR:
        message.ccsid = core.attribute("CCSID")
    message.backout_count = 0
    in_group = message.flags & (mq.MQMF_MSG_IN_GROUP | mq.MQMF_LAST_MSG_IN_GROUP)
    segmented = message.flags & (mq.MQMF_SEGMENT | mq.MQMF_LAST_SEGMENT)
    if message.flags & mq.MQMF_LAST_MSG_IN_GROUP:
        message.flags |= mq.MQMF_MSG_IN_GROUP
    if message.flags & mq.MQMF_LAST_SEGMENT:
        message.flags |= mq.MQMF_SEGMENT
    if (in_group or segmented) and message.group_id == NO_ID:
        message.group_id = core.new_identifier()
    if not in_group and not segmented and given[324:348] == NO_ID:
        message.sequence, message.offset = 1, 0


def with_message_properties(core: Core, md: bytes, data: bytes, given: Sequence[Property]) -> tuple[bytes, bytes]:
    """Returns the message with the properties of a message handle: in an MQRFH2, or in the descriptor those named
    Root.MQMD."""
    if not given:
        return md, data
    limit = core.attribute("MAXPROPL")
    folders = []
    for held in given:
        if held.name.startswith("Root.MQMD."):
            md = properties.with_descriptor_property(md, held.name, held.value)
            continue
        dt = properties.DT_OF_MQTYPE.get(held.type, "string")
        name = property_names.resolve(held.name)
        folders.append(properties.Property(name, held.value, dt, held.support, held.context, held.copy))
    maximum = properties.MAX_PROPERTIES_LENGTH if limit < 0 else limit
    try:
        return properties.with_properties(md, data, folders, maximum=maximum)
    except HeaderError as wrong:  # a value is not of its type
        raise MQError(mq.MQRC_PROPERTY_TYPE_ERROR, str(wrong)) from wrong


# Context


def give_context(connection: ConnectionState, message: Descriptor, handle: Handle, options: PutOptions) -> None:
    """Set the message context that the options ask for."""
    option = next((context for context in CONTEXTS if options.options & context), mq.MQPMO_DEFAULT_CONTEXT)
    passed = _passed_context(connection, options) if option in _PASSES else None
    allowed, reason = NEEDED_ON_OPEN.get(option, (0, 0))
    if reason and not handle.options & allowed:
        raise MQError(reason, "the object was not opened with the option that this context needs")
    if option == mq.MQPMO_SET_ALL_CONTEXT:
        _fill_in_put_time(connection, message)
    elif option == mq.MQPMO_SET_IDENTITY_CONTEXT:
        _origin_context(connection, message)
    elif option == mq.MQPMO_NO_CONTEXT:
        _no_context(message)
    elif option in _PASSES:
        if passed is None:
            raise MQError(mq.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got on the handle in MQPMO.Context")
        _pass_context(connection, message, Descriptor(passed), with_origin=option == mq.MQPMO_PASS_ALL_CONTEXT)
    else:
        _identity_context(connection, message)
        _origin_context(connection, message)


def _passed_context(connection: ConnectionState, options: PutOptions) -> bytes | None:
    """Returns the MQMD last got on the handle in MQPMO.Context; None if there was no MQGET yet."""
    source = connection.handles.get(options.context)
    if source is None or not source.options & mq.MQOO_SAVE_ALL_CONTEXT:
        raise MQError(mq.MQRC_CONTEXT_HANDLE_ERROR, "MQPMO.Context is not a handle opened with MQOO_SAVE_ALL_CONTEXT")
    return source.saved_context


def _identity_context(connection: ConnectionState, message: Descriptor) -> None:
    """Set the identity context of a message that this program puts: its user."""
    message.user = padded(connection.user, 12)
    message.accounting_token = bytes(32)
    message.application_identity = b" " * 32


def _origin_context(connection: ConnectionState, message: Descriptor) -> None:
    """Set the origin context of a message that this program puts: the program and the time."""
    message.put_application_type = mq.MQAT_UNIX
    message.put_application_name = padded(connection.application, 28)
    message.put_date, message.put_time = split_time(connection.core.now())
    message.application_origin = b" " * 4


def _fill_in_put_time(connection: ConnectionState, message: Descriptor) -> None:
    """Keep the put time that a program gives with MQPMO_SET_ALL_CONTEXT; blanks become the current time."""
    if not message.put_date.strip():
        message.put_date, message.put_time = split_time(connection.core.now())


def _no_context(message: Descriptor) -> None:
    message.user, message.accounting_token, message.application_identity = b" " * 12, bytes(32), b" " * 32
    message.put_application_type, message.put_application_name = mq.MQAT_NO_CONTEXT, b" " * 28
    message.put_date, message.put_time, message.application_origin = b" " * 8, b" " * 8, b" " * 4


def _pass_context(connection: ConnectionState, message: Descriptor, passed: Descriptor, *, with_origin: bool) -> None:
    message.user, message.accounting_token = passed.user, passed.accounting_token
    message.application_identity = passed.application_identity
    if not with_origin:
        _origin_context(connection, message)
        return
    message.put_application_type, message.put_application_name = (
        passed.put_application_type,
        passed.put_application_name,
    )
    message.put_date, message.put_time = passed.put_date, passed.put_time
    message.application_origin = passed.application_origin
