"""MQSUB, MQSUBRQ, and MQCLOSE of subscriptions: durable or not, managed or to a queue that the program has opened."""

from __future__ import annotations

from contextlib import suppress

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import ObjectDescriptor, SubscriptionDescriptor
from gateway.queue_manager.objects.attributes import Value
from gateway.queue_manager.objects.catalogue import Definition, defaults
from gateway.queue_manager.objects.dynamic_queues import delete_dynamic
from gateway.queue_manager.objects.name_resolution import resolve
from gateway.queue_manager.objects.selectors import compile_selector
from gateway.queue_manager.objects.topic_names import block
from gateway.queue_manager.objects.topics import Subscription
from gateway.queue_manager.store.unit import StoreUnit
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle
from gateway.queue_manager.verbs.mqopen import close_object, open_queue

MQRC_INVALID_DESTINATION, MQRC_SELECTOR_NOT_ALTERABLE = 2522, 2524
MQRC_DEST_CLASS_NOT_ALTERABLE, MQRC_ACTION_ERROR = 2533, 2535
MQPRI_PRIORITY_AS_PUBLISHED = -3
HOW = mq.MQSO_CREATE | mq.MQSO_RESUME | mq.MQSO_ALTER
KNOWN_OPTIONS = (
    HOW | mq.MQSO_DURABLE | mq.MQSO_GROUP_SUB | mq.MQSO_MANAGED | mq.MQSO_SET_IDENTITY_CONTEXT | 0x80 |
    mq.MQSO_FIXED_USERID | mq.MQSO_ANY_USERID | mq.MQSO_PUBLICATIONS_ON_REQUEST | mq.MQSO_NEW_PUBLICATIONS_ONLY |
    mq.MQSO_FAIL_IF_QUIESCING | mq.MQSO_ALTERNATE_USER_AUTHORITY | mq.MQSO_WILDCARD_CHAR | mq.MQSO_WILDCARD_TOPIC |
    mq.MQSO_SET_CORREL_ID | mq.MQSO_SCOPE_QMGR | 0x10000 | 0x8000000 | 0x10000000
)  # fmt: skip
_CLASHES = (
    mq.MQSO_WILDCARD_CHAR | mq.MQSO_WILDCARD_TOPIC, mq.MQSO_ANY_USERID | mq.MQSO_FIXED_USERID,
    mq.MQSO_GROUP_SUB | mq.MQSO_MANAGED, mq.MQSO_NEW_PUBLICATIONS_ONLY | mq.MQSO_PUBLICATIONS_ON_REQUEST,
)  # fmt: skip
"""Options that exclude each other ("Rules for validating MQI options")."""


def check_options(wanted: SubscriptionDescriptor) -> None:
    """Raise 2046 for options that clash, and 2440 for a durable subscription without a name."""
    options = wanted.options
    if options & ~KNOWN_OPTIONS or not options & HOW or any(options & both == both for both in _CLASHES):
        raise MQError(
            mq.MQRC_OPTIONS_ERROR,
            f"MQSD.Options 0x{options:X} clash, are unknown, or contain none of CREATE, RESUME, ALTER",
        )
    if options & mq.MQSO_NEW_PUBLICATIONS_ONLY and not options & mq.MQSO_CREATE:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "MQSO_NEW_PUBLICATIONS_ONLY is only for new subscriptions: MQSO_CREATE")
    if options & mq.MQSO_GROUP_SUB and not options & mq.MQSO_SET_CORREL_ID:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "MQSO_GROUP_SUB needs MQSO_SET_CORREL_ID")
    if options & mq.MQSO_DURABLE and not wanted.name:
        raise MQError(mq.MQRC_SUB_NAME_ERROR, "a durable subscription needs SubName")
    if wanted.expiry < 1 and wanted.expiry != mq.MQEI_UNLIMITED:
        raise MQError(mq.MQRC_EXPIRY_ERROR, f"SubExpiry {wanted.expiry} is neither -1 nor above 0")
    if not MQPRI_PRIORITY_AS_PUBLISHED <= wanted.publication_priority <= 9:
        raise MQError(mq.MQRC_PRIORITY_ERROR, f"PubPriority {wanted.publication_priority} is not from -3 to 9")
    if not 0 <= wanted.level <= 9:
        raise MQError(mq.MQRC_SD_ERROR, f"SubLevel {wanted.level} is not from 0 to 9")
    if wanted.level > 1 and options & mq.MQSO_PUBLICATIONS_ON_REQUEST:
        raise MQError(mq.MQRC_OPTIONS_ERROR, "MQSO_PUBLICATIONS_ON_REQUEST needs a SubLevel of 0 or 1")


def subscribe(
    connection: ConnectionState, wanted: SubscriptionDescriptor, queue_handle: Handle | None
) -> tuple[Handle | None, Handle]:
    """MQSUB: returns the handle of the managed queue (None: the program gave its own) and that of the subscription."""
    check_options(wanted)
    existing = connection.core.catalogue.get("SUB", wanted.name) if wanted.name else None
    if existing is None:
        if not wanted.options & mq.MQSO_CREATE:
            raise MQError(mq.MQRC_NO_SUBSCRIPTION, f"there is no subscription {wanted.name!r}: MQSO_CREATE makes one")
        return _create(connection, wanted, queue_handle)
    if not wanted.options & (mq.MQSO_RESUME | mq.MQSO_ALTER):
        raise MQError(
            mq.MQRC_SUB_ALREADY_EXISTS, f"subscription {wanted.name!r} exists already: MQSO_RESUME resumes it"
        )
    return _resume(connection, wanted, existing, queue_handle)


def _create(
    connection: ConnectionState, wanted: SubscriptionDescriptor, queue_handle: Handle | None
) -> tuple[Handle | None, Handle]:
    core = connection.core
    durable = bool(wanted.options & mq.MQSO_DURABLE)
    topic = connection.topics.full(wanted.topic_object, wanted.object_string)
    connection.authorise_topic(topic, "SUB", _user(connection, wanted))
    connection.topics.check_subscribe(topic, durable=durable)
    if wanted.selection:
        compile_selector(wanted.selection)
    managed: Handle | None = None
    connection.check_handles(2 if wanted.options & mq.MQSO_MANAGED else 1)
    if wanted.options & mq.MQSO_MANAGED:
        managed = _make_managed_queue(connection, topic, durable=durable)
        queue_name = managed.queue.name if managed.queue is not None else ""
    else:
        queue_name = _own_queue(queue_handle)
    if not wanted.options & mq.MQSO_SET_CORREL_ID:
        wanted.correl_id = core.new_identifier()
    definition = _definition(connection, wanted, topic, queue_name, managed=managed is not None)
    wanted.resolved_string = topic
    try:
        if durable:
            core.save((definition,))
        core.install(definition)
        _first_publications(connection, wanted, definition.name)
    except MQError:  # the call fails: no subscription and no queue may be left
        _undo(connection, definition, managed)
        raise
    return managed, Handle(0, wanted.options, mq.MQOT_TOPIC, definition, subscription=definition.name)


def _user(connection: ConnectionState, wanted: SubscriptionDescriptor) -> str:
    """Returns the user whose authority counts."""
    asked = bool(wanted.options & mq.MQSO_ALTERNATE_USER_AUTHORITY)
    return connection.user_for(wanted.alternate_user, asked=asked)


def _undo(connection: ConnectionState, definition: Definition, managed: Handle | None) -> None:
    """Remove what a failing MQSUB has made. What cannot be deleted because of the disk can be deleted with MQSC
    later."""
    core = connection.core
    with suppress(MQError):
        if managed is not None:
            close_object(connection, managed)
        if core.catalogue.get("SUB", definition.name) is not None:
            remove(connection, definition)
        queue = managed.queue if managed is not None else None
        if queue is not None and not queue.deleted:
            delete_dynamic(core, queue)


def _own_queue(handle: Handle | None) -> str:
    if handle is None or handle.target is None or handle.target.queue is None or handle.target.remote:
        raise MQError(mq.MQRC_HOBJ_ERROR, "without MQSO_MANAGED a handle of an open local queue is required")
    return handle.target.queue.name


def _make_managed_queue(connection: ConnectionState, topic: str, *, durable: bool) -> Handle:
    definition = connection.topics.make_managed_queue(topic, durable=durable)
    return _open_managed(connection, definition.name)


def _open_managed(connection: ConnectionState, name: str) -> Handle:
    """Open a managed queue. No authority is checked: the right to subscribe includes it."""
    options = mq.MQOO_INPUT_AS_Q_DEF | mq.MQOO_BROWSE | mq.MQOO_INQUIRE
    return open_queue(connection, ObjectDescriptor(name), options, connection.user)


def _definition(
    connection: ConnectionState, wanted: SubscriptionDescriptor, topic: str, queue: str, *, managed: bool
) -> Definition:
    core = connection.core
    identifier = core.new_identifier()
    now = core.timestamp()
    identity = wanted.options & mq.MQSO_SET_IDENTITY_CONTEXT
    owner = wanted.alternate_user if wanted.options & mq.MQSO_ALTERNATE_USER_AUTHORITY else connection.user
    given: dict[str, Value] = {
        "TOPICSTR": topic, "DEST": queue, "DESTCLAS": 1 if managed else 2, "DESTCORL": wanted.correl_id.hex(),
        "DURABLE": 1 if wanted.options & mq.MQSO_DURABLE else 2, "EXPIRY": wanted.expiry,
        "PUBAPPID": wanted.application_identity if identity else "",
        "PUBACCT": wanted.accounting_token.hex() if identity else "",
        "PUBPRTY": wanted.publication_priority, "REQONLY": 1 if wanted.options & mq.MQSO_PUBLICATIONS_ON_REQUEST else 2,
        "SELECTOR": wanted.selection, "SUBLEVEL": wanted.level, "SUBUSER": owner[:12], "USERDATA":
        wanted.user_data, "VARUSER": 1 if wanted.options & mq.MQSO_FIXED_USERID else 2,
        "WSCHEMA": 1 if wanted.options & mq.MQSO_WILDCARD_CHAR else 2, "SUBTYPE": 1,
    }  # fmt: skip
    name = wanted.name or f"AMQ.{identifier.hex().upper()}"
    extra: dict[str, Value] = {"SUBID": identifier.hex().upper(), "TOPIC": wanted.topic_object}
    if wanted.options & mq.MQSO_GROUP_SUB and not managed:
        extra["GROUPED"] = 1
    definition = Definition("SUB", name, defaults("SUB") | given, now, now, 0, extra)
    definition.begin_expiry(core.now())
    block(core.catalogue, definition)
    return definition


def _resume(
    connection: ConnectionState, wanted: SubscriptionDescriptor, existing: Definition, queue_handle: Handle | None
) -> tuple[Handle | None, Handle]:
    if connection.connections.subscription_in_use(existing.name):
        raise MQError(mq.MQRC_SUBSCRIPTION_IN_USE, f"subscription {existing.name!r} has a handle elsewhere")
    topic = connection.topics.topic_of(existing)
    if wanted.object_string or wanted.topic_object:
        asked = connection.topics.full(wanted.topic_object, wanted.object_string)
        if asked != topic:
            raise MQError(mq.MQRC_TOPIC_NOT_ALTERABLE, f"subscription {existing.name!r} is for {topic!r}")
    connection.authorise_topic(topic, "RESUME", _user(connection, wanted))
    managed = existing.number("DESTCLAS") == mq.MQDC_MANAGED
    connection.check_handles(2 if managed or queue_handle is None else 1)
    if queue_handle is not None and not managed and not wanted.options & mq.MQSO_ALTER:
        _check_same_queue(connection, existing, queue_handle)
    queue = None
    if managed:
        queue = _open_managed(connection, existing.text("DEST"))
    elif queue_handle is None:
        queue = _open_destination(connection, existing)
    try:
        existing = _altered(connection, wanted, existing, queue_handle)
    except MQError:
        if queue is not None:
            close_object(connection, queue)
        raise
    _fill_in(wanted, existing, topic)
    return queue, Handle(0, wanted.options, mq.MQOT_TOPIC, existing, subscription=existing.name)


def _check_same_queue(connection: ConnectionState, existing: Definition, handle: Handle) -> None:
    """Raise 2019 unless the handle belongs to the queue that the subscription puts to, by whatever name it was
    opened."""
    own, destination = _own_queue(handle), None
    with suppress(MQError):  # the queue no longer exists
        destination = resolve(connection.core, existing.text("DEST"), existing.text("DESTQMGR")).queue
    if destination is None or destination.name != own:
        text = f"subscription {existing.name!r} puts to {existing.text('DEST')!r}: MQSO_ALTER changes that"
        raise MQError(mq.MQRC_HOBJ_ERROR, text)


def _open_destination(connection: ConnectionState, existing: Definition) -> Handle:
    """Open the queue that a program or an administrator has given the subscription, for a program that resumes it
    without a handle. Raises 2522 if it cannot be opened."""
    name, queue_manager = existing.text("DEST"), existing.text("DESTQMGR")
    options = mq.MQOO_INPUT_AS_Q_DEF | mq.MQOO_BROWSE
    try:
        connection.authorise_open(name, queue_manager, options, connection.user)
        wanted = ObjectDescriptor(name, queue_manager=queue_manager)
        return open_queue(connection, wanted, options, connection.user)
    except MQError as error:
        raise MQError(MQRC_INVALID_DESTINATION, f"destination of subscription {existing.name!r}: {error}") from error


def _fill_in(wanted: SubscriptionDescriptor, existing: Definition, topic: str) -> None:
    """Fill in the subscription's own attributes, which MQSO_RESUME returns in the descriptor."""
    flags = (
        (existing.number("DURABLE") == 1, mq.MQSO_DURABLE),
        (existing.number("DESTCLAS") == mq.MQDC_MANAGED, mq.MQSO_MANAGED),
        (existing.number("REQONLY") == 1, mq.MQSO_PUBLICATIONS_ON_REQUEST),
        (existing.number("WSCHEMA") == 1, mq.MQSO_WILDCARD_CHAR),
        (bool(existing.extra.get("GROUPED", 0)), mq.MQSO_GROUP_SUB | mq.MQSO_SET_CORREL_ID),
    )
    for holds, flag in flags:
        wanted.options |= flag if holds else 0
    wanted.resolved_string = topic
    wanted.correl_id = bytes.fromhex(existing.text("DESTCORL"))[:24].ljust(24, b"\0")
    wanted.user_data, wanted.selection = existing.text("USERDATA"), existing.text("SELECTOR")
    wanted.publication_priority, wanted.level = existing.number("PUBPRTY"), existing.number("SUBLEVEL")
    wanted.expiry = existing.number("EXPIRY")
    wanted.application_identity = existing.text("PUBAPPID")
    wanted.accounting_token = bytes.fromhex(existing.text("PUBACCT"))[:32].ljust(32, b"\0")


def _check_alterable(wanted: SubscriptionDescriptor, existing: Definition) -> None:
    """Refuse to alter what a subscription keeps for as long as it exists."""
    options, grouped = wanted.options, bool(existing.extra.get("GROUPED", 0))
    managed = bool(options & mq.MQSO_MANAGED)
    correl_id = bytes.fromhex(existing.text("DESTCORL"))[:24].ljust(24, b"\0")
    other_group = grouped and bool(options & mq.MQSO_SET_CORREL_ID) and wanted.correl_id != correl_id
    reasons = (
        (bool(options & mq.MQSO_DURABLE) != (existing.number("DURABLE") == 1), mq.MQRC_DURABILITY_NOT_ALTERABLE),
        (wanted.level != existing.number("SUBLEVEL"), mq.MQRC_SUBLEVEL_NOT_ALTERABLE),
        (managed != (existing.number("DESTCLAS") == mq.MQDC_MANAGED), MQRC_DEST_CLASS_NOT_ALTERABLE),
        (bool(options & mq.MQSO_GROUP_SUB) != grouped or other_group, mq.MQRC_GROUPING_NOT_ALTERABLE),
        (wanted.selection not in {"", existing.text("SELECTOR")}, MQRC_SELECTOR_NOT_ALTERABLE),
    )
    for differs, reason in reasons:
        if differs:
            raise MQError(
                reason, f"subscription {existing.name!r} cannot be altered in this respect: remove and re-create it"
            )


def _altered(
    connection: ConnectionState, wanted: SubscriptionDescriptor, existing: Definition, queue_handle: Handle | None
) -> Definition:
    """MQSO_ALTER: change the attributes that may change. Returns the definition."""
    if not wanted.options & mq.MQSO_ALTER:
        return existing
    _check_alterable(wanted, existing)
    core = connection.core
    changed = dict(existing.attributes)
    changed |= {"USERDATA": wanted.user_data, "PUBPRTY": wanted.publication_priority, "EXPIRY": wanted.expiry}
    if wanted.options & mq.MQSO_SET_CORREL_ID:
        changed["DESTCORL"] = wanted.correl_id.hex()
    if queue_handle is not None and existing.number("DESTCLAS") != mq.MQDC_MANAGED:
        changed["DEST"] = _own_queue(queue_handle)
    definition = Definition("SUB", existing.name, changed, existing.created, core.timestamp(), 0, existing.extra)
    definition.begin_expiry(core.now())
    if definition.number("DURABLE") == 1:
        core.save((definition,))
    core.install(definition)
    return definition


def _first_publications(connection: ConnectionState, wanted: SubscriptionDescriptor, name: str) -> None:
    """Send a new subscription what is retained, unless its options say otherwise."""
    if wanted.options & (mq.MQSO_NEW_PUBLICATIONS_ONLY | mq.MQSO_PUBLICATIONS_ON_REQUEST):
        return
    _send_retained(connection, name)


def request(connection: ConnectionState, handle: Handle, action: int, options: int) -> int:
    """MQSUBRQ: send retained publications again; returns how many."""
    if not handle.subscription:
        raise MQError(mq.MQRC_HOBJ_ERROR, "the handle is not a subscription handle")
    if action != mq.MQSR_ACTION_PUBLICATION:
        raise MQError(MQRC_ACTION_ERROR, f"action {action} is not a request for publications")
    if options & ~mq.MQSO_FAIL_IF_QUIESCING:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQSRO.Options 0x{options:X} holds unknown options")
    if options:
        connection.check_quiescing()
    sent = _send_retained(connection, handle.subscription)
    if not sent:
        raise MQError(mq.MQRC_NO_RETAINED_MSG, "nothing is retained on the topics of the subscription")
    return sent


def _send_retained(connection: ConnectionState, name: str) -> int:
    """Send a subscription the retained publications on its topics; returns how many."""
    subscription = _found(connection, name)
    unit = StoreUnit()
    sent = connection.topics.send_retained(subscription, unit)
    if unit:
        connection.core.commit(unit)
    return sent


def _found(connection: ConnectionState, name: str) -> Subscription:
    subscription = connection.topics.find(name)
    if subscription is None:
        raise MQError(mq.MQRC_NO_SUBSCRIPTION, f"subscription {name!r} has been deleted")
    return subscription


def close_subscription(connection: ConnectionState, handle: Handle, options: int) -> None:
    """MQCLOSE: delete the subscription if it is not durable or MQCO_REMOVE_SUB is given."""
    if options in {mq.MQCO_DELETE, mq.MQCO_DELETE_PURGE}:
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "MQCO_DELETE is only for dynamic queues")
    if options not in {mq.MQCO_NONE, mq.MQCO_KEEP_SUB, mq.MQCO_REMOVE_SUB}:
        raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQCLOSE options {options} are unknown or clash")
    definition = connection.core.catalogue.get("SUB", handle.subscription)
    if definition is None:
        return
    durable = definition.number("DURABLE") == 1
    if durable and options != mq.MQCO_REMOVE_SUB:
        return
    remove(connection, definition)


def remove(connection: ConnectionState, definition: Definition) -> None:
    """Delete a subscription and its managed queue, which is deleted when its last handle is closed."""
    core = connection.core
    if definition.number("DURABLE") == 1:
        core.save((), (definition,))
    core.uninstall(definition)
