"""PCF commands on status and authority: handles, connections, topics, subscriptions, authority records."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.queue_manager.commands import open_handles
from gateway.queue_manager.commands.pcf_objects import (
    Handler,
    Reply,
    displayed,
    filtered,
    may_display_topic,
    number_of,
    refuse,
    text_of,
)
from gateway.queue_manager.objects.administration import not_found
from gateway.queue_manager.objects.authority import RIGHTS
from gateway.queue_manager.objects.catalogue import Definition, matches
from gateway.queue_manager.verbs import mqdisc
from gateway.queue_manager.verbs.connection_state import ConnectionState

MQOT_ALL = 1001
KIND_OF_MQOT = {1: "QUEUE", 2: "NAMELIST", 3: "PROCESS", 5: "QMGR", 6: "CHANNEL", 7: "AUTHINFO", 8: "TOPIC"}
MQOT_OF_KIND = {kind: number for number, kind in KIND_OF_MQOT.items()}
RIGHT_OF_MQAUTH = {
    1: "ALTUSR", 2: "BROWSE", 3: "CHG", 4: "CLR", 5: "CONNECT", 6: "CRT", 7: "DLT", 8: "DSP", 9: "GET", 10: "INQ",
    11: "PUT", 12: "PASSALL", 13: "PASSID", 14: "SET", 15: "SETALL", 16: "SETID", 17: "CTRL", 18: "CTRLX", 19: "PUB",
    20: "SUB", 21: "RESUME", 22: "SYSTEM", 0: "NONE", -1: "ALL", -2: "ALLADM", -3: "ALLMQI",
}  # fmt: skip
_MQAUTH_OF_RIGHT = {right: number for number, right in RIGHT_OF_MQAUTH.items() if right in RIGHTS}
MQZAET_PRINCIPAL = 1
MQAT_USER = 25
MQRCCF_CONNECTION_ID_ERROR, MQRCCF_PROFILE_NAME_ERROR, MQRCCF_TOPIC_STRING_NOT_FOUND = 3174, 3170, 3308
MQRCCF_NONE_FOUND, MQRCCF_CHL_STATUS_NOT_FOUND = 3200, 3065
TOPIC_STATUS, TOPIC_SUBSCRIPTIONS = 1295, 1296
_INPUT = {"NO": 0, "SHARED": 1, "EXCL": 2}
_YES = {"NO": 0, "YES": 1}
NAME, ENTITY = 48, 1024


def queue_handles(connection: ConnectionState, pattern: str) -> Iterable[Reply]:
    """Carries out INQUIRE_Q_STATUS with StatusType handle."""
    for definition in displayed(connection, ("QLOCAL",), pattern):
        for held in open_handles.handles_of(connection.connections, definition.name):
            row = open_handles.queue_handle(*held)
            yield [
                pcf.string(mq.MQCA_Q_NAME, definition.name, size=NAME), pcf.integer(1103, 1104),
                pcf.string(3058, row["APPLTAG"], size=28), pcf.integer(mq.MQIA_APPL_TYPE, MQAT_USER),
                pcf.integer(mq.MQIACF_PROCESS_ID, int(row["PID"])),
                pcf.string(3025, row["USERID"], size=12), pcf.string(mq.MQCACH_CHANNEL_NAME, row["CHANNEL"], size=20),
                pcf.string(mq.MQCACH_CONNECTION_NAME, row["CONNAME"], size=264),
                pcf.integer(1098, _INPUT[row["INPUT"]]), pcf.integer(1099, _YES[row["OUTPUT"]]),
                pcf.integer(1102, _YES[row["BROWSE"]]), pcf.integer(1101, _YES[row["INQUIRE"]]),
                pcf.integer(1100, _YES[row["SET"]]), pcf.integer(1028, int(row["HSTATE"] == "ACTIVE")),
            ]  # fmt: skip


def open_objects(connection: ConnectionState) -> Iterable[Reply]:
    """Carries out INQUIRE_CONNECTION with ConnInfoType handle: the objects that a connection has open."""
    for row, handle in zip(open_handles.open_objects(connection), connection.handles.values(), strict=True):
        reply = [
            pcf.byte_string(mq.MQBACF_CONNECTION_ID, connection.connection_id),
            pcf.integer(mq.MQIACF_CONN_INFO_TYPE, 1112), pcf.string(mq.MQCACF_OBJECT_NAME, row["OBJNAME"], size=NAME),
            pcf.integer(mq.MQIACF_OPEN_OPTIONS, handle.options), pcf.integer(1028, int(row["HSTATE"] == "ACTIVE")),
        ]  # fmt: skip
        if row["OBJTYPE"] in MQOT_OF_KIND:
            reply.append(pcf.integer(mq.MQIACF_OBJECT_TYPE, MQOT_OF_KIND[row["OBJTYPE"]]))
        if "SUBNAME" in row:
            reply.append(pcf.string(mq.MQCACF_SUB_NAME, row["SUBNAME"]))
            reply.append(pcf.string(mq.MQCACF_DESTINATION, row["DEST"], size=NAME))
        if "TOPICSTR" in row:
            reply.append(pcf.string(2094, row["TOPICSTR"]))
        yield reply


def stop_connection(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out STOP_CONNECTION."""
    connection.authorise("QMGR", connection.core.name, "CHG")
    given = message.find(mq.MQBACF_CONNECTION_ID)
    wanted = given.value if given is not None and isinstance(given.value, bytes) else b""
    for one in connection.connections:
        if one.connection_id == wanted.ljust(24, b"\0"):
            mqdisc.disconnect(one, commit=False)
            return [[]]
    raise refuse(MQRCCF_CONNECTION_ID_ERROR, "no connection has this identifier")


# Topics and subscriptions


def topic_status(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out INQUIRE_TOPIC_STATUS: the status of topics, or the subscriptions of one."""
    topics = connection.topics
    pattern = text_of(message, 2094)
    if number_of(message, 1302, TOPIC_STATUS) == TOPIC_SUBSCRIPTIONS:
        subscriptions = topics.matching(pattern) if may_display_topic(connection, pattern) else ()
        found = [_subscription(one.definition, pattern) for one in subscriptions]
    else:
        found = [
            [
                pcf.string(2094, topic), pcf.integer(1302, TOPIC_STATUS),
                pcf.integer(1300, int(topic in topics.retained)),
                pcf.integer(204, sum(1 for _ in topics.matching(topic))),
            ]
            for topic in topics.known(pattern)
            if may_display_topic(connection, topic)
        ]  # fmt: skip
    found = filtered(message, found)
    if not found:
        raise refuse(MQRCCF_TOPIC_STRING_NOT_FOUND, f"{pattern!r} has no publications and no subscriptions")
    return found


def _subscription(definition: Definition, topic: str) -> Reply:
    return [
        pcf.string(2094, topic), pcf.integer(1302, TOPIC_SUBSCRIPTIONS), _identifier(definition),
        pcf.string(3156, definition.text("SUBUSER"), size=12), pcf.integer(1274, definition.number("DURABLE")),
        pcf.integer(1289, definition.number("SUBTYPE")),
    ]  # fmt: skip


def _identifier(definition: Definition) -> pcf.Parameter:
    return pcf.byte_string(7016, bytes.fromhex(str(definition.extra.get("SUBID", ""))).ljust(24, b"\0"))


def subscription_status(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out INQUIRE_SUB_STATUS."""
    pattern = text_of(message, mq.MQCACF_SUB_NAME, "*")
    found = [
        [
            pcf.string(mq.MQCACF_SUB_NAME, one.name), _identifier(one),
            pcf.string(2094, connection.topics.topic_of(one)), pcf.integer(1274, one.number("DURABLE")),
            pcf.integer(1289, one.number("SUBTYPE")),
        ]
        for one in displayed(connection, ("SUB",), pattern)
    ]  # fmt: skip
    found = filtered(message, found)
    if not found:
        raise not_found("SUB", pattern)
    return found


def clear_topic(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out CLEAR_TOPIC_STRING: removes the retained publication."""
    topic = text_of(message, 2094)
    connection.authorise("TOPIC", "SYSTEM.BASE.TOPIC", "CLR")
    if topic not in connection.topics.retained:
        raise refuse(MQRCCF_TOPIC_STRING_NOT_FOUND, f"nothing is retained on {topic!r}")
    connection.topics.clear_retained([topic])
    return [[]]


def publish_subscribe_status(connection: ConnectionState, _message: pcf.Message) -> Iterable[Reply]:
    """Carries out INQUIRE_PUBSUB_STATUS."""
    topics = connection.topics
    return [[
        pcf.string(mq.MQCA_Q_MGR_NAME, connection.core.name, size=NAME), pcf.integer(1314, 1), pcf.integer(1311, 3),
        pcf.integer(204, topics.subscriptions), pcf.integer(253, len(topics.known())),
    ]]  # fmt: skip


def always_empty(reason: int, what: str) -> Handler:
    """Returns a handler that finds nothing: monitors ask for the status of channels, of which there are none."""

    def run(_connection: ConnectionState, _message: pcf.Message) -> Iterable[Reply]:
        raise refuse(reason, f"no {what}: programs connect through a local socket")

    return run


# Authority


def authority_records(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out INQUIRE_AUTH_RECS."""
    profile, entity = text_of(message, 3067, "*"), text_of(message, 3068, "")
    number = number_of(message, 1016, MQOT_ALL)
    kind = KIND_OF_MQOT.get(number, "" if number == MQOT_ALL else "?")
    found = [
        [
            pcf.string(3067, name, size=NAME), pcf.integer(1016, MQOT_OF_KIND[of]), pcf.string(3068, user, size=ENTITY),
            pcf.integer(1118, MQZAET_PRINCIPAL), pcf.integers(1115, _numbers(rights)),
        ]
        for (of, name, user), rights in sorted(connection.authority.records.items())
        if matches(profile or "*", name) and kind in {"", of} and entity in {"", "*", user}
    ]  # fmt: skip
    found = filtered(message, found)
    if not found:
        raise refuse(MQRCCF_NONE_FOUND, "no authority record matches")
    return found


def entity_authority(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out INQUIRE_ENTITY_AUTH: the rights of a user on an object."""
    kind = KIND_OF_MQOT.get(number_of(message, 1016, 0))
    if kind is None:
        raise refuse(3173, "ObjectType is missing")
    user, name = text_of(message, 3068), text_of(message, 3046, connection.core.name)
    rights = connection.authority.rights(user, kind, name)
    return [[
        pcf.string(3046, name, size=NAME), pcf.integer(1016, MQOT_OF_KIND[kind]), pcf.string(3068, user, size=ENTITY),
        pcf.integer(1118, number_of(message, 1118, MQZAET_PRINCIPAL)), pcf.integers(1115, _numbers(rights)),
    ]]  # fmt: skip


def _numbers(rights: Iterable[str]) -> list[int]:
    return sorted(_MQAUTH_OF_RIGHT[right] for right in rights) or [0]


def delete_authority(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    """Carries out DELETE_AUTH_REC."""
    connection.authorise("QMGR", connection.core.name, "CHG")
    profile, kind = text_of(message, 3067), KIND_OF_MQOT.get(number_of(message, 1016, 0))
    entities = [found.texts() if isinstance(found.value, tuple) else [found.text()]
                for found in (message.find(3065), message.find(3066)) if found is not None]  # fmt: skip
    users = [user for several in entities for user in several]
    users = users or [user for of, name, user in connection.authority.records if (of, name) == (kind, profile)]
    known = [user for user in users if (kind, profile, user) in connection.authority.records]
    if kind is None or not known:
        raise refuse(MQRCCF_PROFILE_NAME_ERROR, f"no authority record for {profile!r}")
    for user in known:
        connection.authority.delete_record(kind, profile, user)
    return [[]]


OF_THE_QUEUE_MANAGER = {42, 87, 88, 185}
"""Commands that show attributes of the queue manager itself."""
COMMANDS: dict[int, Handler] = {
    42: always_empty(MQRCCF_CHL_STATUS_NOT_FOUND, "channel runs"),
    86: stop_connection,
    87: authority_records,
    88: entity_authority,
    89: delete_authority,
    182: subscription_status,
    183: topic_status,
    184: clear_topic,
    185: publish_subscribe_status,
}
