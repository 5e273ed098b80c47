"""MQPUT and MQPUT1: the descriptor is checked and filled in, context and identifiers given, the message placed.

Section 7 of the MQI reference, MQPUT. Raises the reason code; a warning comes back in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import properties, property_names
from gateway.ports.mqi import Property, PutOptions, PutRecord, PutResult
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import NO_ID, Descriptor, padded, text
from gateway.queue_manager.groups import LogicalOrder, advance_logical, segments_of, start_logical
from gateway.queue_manager.objects.name_resolution import Target, reply_to
from gateway.queue_manager.objects.placement import split_time
from gateway.queue_manager.store.unit import StoreUnit
from gateway.queue_manager.verbs.handles import Handle

if TYPE_CHECKING:
    from gateway.queue_manager.verbs.connection import Connection

KNOWN_OPTIONS = (
    2 | 4 | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x40000
    | 0x80000 | 0x200000 | 0x800000 | 0x4000000 | 0x8000000 | 0x10000000
)  # fmt: skip
CONTEXTS = (
    mq.MQPMO_DEFAULT_CONTEXT, mq.MQPMO_PASS_IDENTITY_CONTEXT, mq.MQPMO_PASS_ALL_CONTEXT, mq.MQPMO_SET_IDENTITY_CONTEXT,
    mq.MQPMO_SET_ALL_CONTEXT, mq.MQPMO_NO_CONTEXT,
)  # fmt: skip
NEEDED_ON_OPEN = {
    mq.MQPMO_PASS_IDENTITY_CONTEXT: mq.MQOO_PASS_IDENTITY_CONTEXT | mq.MQOO_PASS_ALL_CONTEXT
    | mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT,
    mq.MQPMO_PASS_ALL_CONTEXT: mq.MQOO_PASS_ALL_CONTEXT | mq.MQOO_SET_ALL_CONTEXT,
    mq.MQPMO_SET_IDENTITY_CONTEXT: mq.MQOO_SET_IDENTITY_CONTEXT | mq.MQOO_SET_ALL_CONTEXT,
    mq.MQPMO_SET_ALL_CONTEXT: mq.MQOO_SET_ALL_CONTEXT,
}  # fmt: skip
KNOWN_REPORTS = 0x0FE07FC7 | mq.MQRO_EXCEPTION_WITH_FULL_DATA | mq.MQRO_EXPIRATION_WITH_FULL_DATA
ASKS_FOR_REPORT = (
    mq.MQRO_EXCEPTION | mq.MQRO_EXPIRATION | mq.MQRO_COA | mq.MQRO_COD | mq.MQRO_PAN | mq.MQRO_NAN | mq.MQRO_ACTIVITY
)
MQFB_MAX = 999_999_999


def check_options(options: PutOptions) -> None:
    """2046 for options that clash or are not known."""
    value = options.options
    contexts = sum(1 for context in CONTEXTS if value & context)
    both = mq.MQPMO_SYNCPOINT | mq.MQPMO_NO_SYNCPOINT
    responses = mq.MQPMO_ASYNC_RESPONSE | mq.MQPMO_SYNC_RESPONSE
    if value & ~KNOWN_OPTIONS or contexts > 1 or value & both == both or value & responses == responses:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQPMO.Options 0x{value:X} holds options that clash or are unknown")


def put(
    connection: Connection, handle: Handle | None, target: Target, md: bytes, options: PutOptions, data: bytes
) -> PutResult:
    """One message to one destination, in the connection's unit of work or committed before this returns."""
    core = connection.core
    target.check_put()
    message, warning = filled(connection, target, md, options)
    logical = handle.putting if handle is not None else LogicalOrder()
    in_order = bool(options.options & mq.MQPMO_LOGICAL_ORDER)
    if in_order:
        start_logical(core, logical, message, syncpoint=bool(options.options & mq.MQPMO_SYNCPOINT))
    connection.give_context(message, handle, options)
    md, data = with_message_properties(core, message.pack(), data, options.properties)
    parts = segments_of(core, target.queue, md, data)
    own = StoreUnit()
    for part, content in parts:
        connection.placer.place(target, part, content, own)
    connection.accept(own, options.options)
    if in_order:
        advance_logical(logical, message.flags, len(data))
    queue = target.queue
    name = queue.name if queue is not None else target.topic
    return PutResult(md, name, target.remote_queue_manager or core.name, *warning)


def filled(
    connection: Connection, target: Target, md: bytes, options: PutOptions
) -> tuple[Descriptor, tuple[int, int]]:
    """The descriptor checked and completed, but for its context; the warning, if there is one."""
    message = Descriptor(md)
    warning = _checked(message)
    _complete(connection.core, target, message, options, md)
    return message, warning


def prepared(connection: Connection, handle: Handle, md: bytes, options: PutOptions) -> Descriptor:
    """A publication, ready but for its copies: the defaults are those of the topic."""
    topics = connection.topics
    message = Descriptor(md)
    if message.priority == mq.MQPRI_PRIORITY_AS_Q_DEF:
        message.priority = max(0, int(topics.governing(handle.topic, "DEFPRTY", -2)))
    if message.persistence == mq.MQPER_PERSISTENCE_AS_Q_DEF:
        message.persistence = max(0, int(topics.governing(handle.topic, "DEFPSIST", -2)))
    message, _ = filled(connection, Target(()), message.pack(), options)
    connection.give_context(message, handle, options)
    return message


def with_record(md: bytes, record: PutRecord) -> bytes:
    """The descriptor with what a put message record says instead."""
    message = Descriptor(md)
    if record.msg_id is not None:
        message.msg_id = record.msg_id
    if record.correl_id is not None:
        message.correl_id = record.correl_id
    if record.group_id is not None:
        message.group_id = record.group_id
    if record.feedback is not None:
        message.feedback = record.feedback
    if record.accounting_token is not None:
        message.accounting_token = record.accounting_token
    return message.pack()


def _checked(message: Descriptor) -> tuple[int, int]:
    """The fields an application can get wrong; (1, 2049) when the priority is above the maximum."""
    if (
        not (0 < message.type <= mq.MQMT_DATAGRAM and message.type in {1, 2, 4, 8})
        and not 65_536 <= message.type <= MQFB_MAX
    ):
        raise MQError(mq.MQRC_MSG_TYPE_ERROR, f"MsgType {message.type} is neither MQ's nor an application's")
    if message.expiry <= 0 and message.expiry != mq.MQEI_UNLIMITED:
        raise MQError(mq.MQRC_EXPIRY_ERROR, f"Expiry {message.expiry} is neither -1 nor above 0")
    if message.persistence not in {0, 1, 2}:
        raise MQError(mq.MQRC_PERSISTENCE_ERROR, f"Persistence {message.persistence} is none of 0, 1, 2")
    if message.priority < mq.MQPRI_PRIORITY_AS_Q_DEF:
        raise MQError(mq.MQRC_PRIORITY_ERROR, f"Priority {message.priority} is below -1")
    if message.report & ~KNOWN_REPORTS & 0xFFFFFFFF:
        raise MQError(mq.MQRC_REPORT_OPTIONS_ERROR, f"Report 0x{message.report & 0xFFFFFFFF:X} holds unknown options")
    if message.flags & ~0x1F:
        raise MQError(mq.MQRC_MSG_FLAGS_ERROR, f"MsgFlags 0x{message.flags & 0xFFFFFFFF:X} holds unknown flags")
    descriptor.normalise(message)
    if text(message.reply_to_q) == "" and (message.type == mq.MQMT_REQUEST or message.report & ASKS_FOR_REPORT):
        raise MQError(mq.MQRC_MISSING_REPLY_TO_Q, "a request, or a message that asks for reports, needs ReplyToQ")
    return (1, mq.MQRC_PRIORITY_EXCEEDS_MAXIMUM) if message.priority > 9 else (0, 0)


def _complete(core: Core, target: Target, message: Descriptor, options: PutOptions, given: bytes) -> None:
    """Defaults of the first definition, identifiers, reply address, character set."""
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
    """Properties from a message handle become folders of an MQRFH2 in front of the data; descriptor fields go there."""
    if not given:
        return md, data
    limit = core.attribute("MAXPROPL")
    folders = []
    for each in given:
        if each.name.startswith("Root.MQMD."):
            md = properties.with_descriptor_property(md, each.name, each.value)
            continue
        dt = properties.DT_OF_MQTYPE.get(each.type, "string")
        name = property_names.resolve(each.name)
        folders.append(properties.Property(name, each.value, dt, each.support, each.context, each.copy))
    maximum = properties.MAX_PROPERTIES_LENGTH if limit < 0 else limit
    try:
        return properties.with_properties(md, data, folders, maximum=maximum)
    except HeaderError as wrong:  # a value that is not of its type
        raise MQError(mq.MQRC_PROPERTY_TYPE_ERROR, str(wrong)) from wrong


def default_context(connection: Connection, message: Descriptor) -> None:
    """MQPMO_DEFAULT_CONTEXT: who put it, where, when."""
    message.user = padded(connection.user, 12)
    message.accounting_token = bytes(32)
    message.application_identity = b" " * 32
    origin(connection, message)


def origin(connection: Connection, message: Descriptor) -> None:
    """The origin context of a message this application puts."""
    message.put_application_type = mq.MQAT_UNIX
    message.put_application_name = padded(connection.application, 28)
    message.put_date, message.put_time = split_time(connection.core.now())
    message.application_origin = b" " * 4


def context(
    connection: Connection, message: Descriptor, handle: Handle | None, options: PutOptions, saved: bytes | None
) -> None:
    """The context the options ask for. `saved` is that of the message got on the handle in Context."""
    asked = next((one for one in CONTEXTS if options.options & one), mq.MQPMO_DEFAULT_CONTEXT)
    if handle is not None and asked in NEEDED_ON_OPEN and not handle.options & NEEDED_ON_OPEN[asked]:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "the object was not opened with the option this context needs")
    if asked == mq.MQPMO_SET_ALL_CONTEXT:
        _kept_time(connection, message)
    elif asked == mq.MQPMO_SET_IDENTITY_CONTEXT:
        origin(connection, message)
    elif asked == mq.MQPMO_NO_CONTEXT:
        _no_context(message)
    elif asked in {mq.MQPMO_PASS_ALL_CONTEXT, mq.MQPMO_PASS_IDENTITY_CONTEXT}:
        if saved is None:
            raise MQError(mq.MQRC_CONTEXT_NOT_AVAILABLE, "no message was got on the handle in MQPMO.Context")
        _pass(connection, message, Descriptor(saved), everything=asked == mq.MQPMO_PASS_ALL_CONTEXT)
    else:
        default_context(connection, message)


def _kept_time(connection: Connection, message: Descriptor) -> None:
    """A put time that is given is kept; one that is not would read as no time at all."""
    if not message.put_date.strip():
        message.put_date, message.put_time = split_time(connection.core.now())


def _no_context(message: Descriptor) -> None:
    message.user, message.accounting_token, message.application_identity = b" " * 12, bytes(32), b" " * 32
    message.put_application_type, message.put_application_name = mq.MQAT_NO_CONTEXT, b" " * 28
    message.put_date, message.put_time, message.application_origin = b" " * 8, b" " * 8, b" " * 4


def _pass(connection: Connection, message: Descriptor, saved: Descriptor, *, everything: bool) -> None:
    message.user, message.accounting_token = saved.user, saved.accounting_token
    message.application_identity = saved.application_identity
    if not everything:
        origin(connection, message)
        return
    message.put_application_type, message.put_application_name = saved.put_application_type, saved.put_application_name
    message.put_date, message.put_time, message.application_origin = (
        saved.put_date,
        saved.put_time,
        saved.application_origin,
    )
