"""PCF commands on objects: create, change, copy, delete and inquire, for every type from one table of identifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.mq.pcf import Parameter
from gateway.queue_manager.commands.display_rows import DATED
from gateway.queue_manager.objects.administration import AdministrationError, not_found
from gateway.queue_manager.objects.attributes import (
    BY_SELECTOR,
    KIND_OF_QUEUE,
    PASSED_OVER_IN_PCF,
    QUEUE_KINDS,
    TABLES,
    Value,
)
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.objects.topic_names import topic_of
from gateway.queue_manager.verbs import mqinq
from gateway.queue_manager.verbs.connection_state import ConnectionState

MQRCCF_PARM_MISSING = 3228
MQRCCF_PARM_VALUE_ERROR = 3229
MQRCCF_CFIN_PARM_ID_ERROR, MQRCCF_CFST_PARM_ID_ERROR = 3014, 3015
ALL = mq.MQIACF_ALL
NAME_LENGTH = 48
BYTE_STRINGS = {7015: 24, 7010: 32}
"""Attributes of subscriptions that are bytes in PCF and hexadecimal digits in MQSC, with their lengths."""
MQBACF_SUB_ID = 7016
MQCA_TOPIC_STRING = 2094
MQIACF_REMOVE_AUTHREC, MQRAR_YES = 1398, 1
_OPTIONS = frozenset({mq.MQIACF_REPLACE, 1005, mq.MQIACF_PURGE, 1007, mq.MQIA_Q_TYPE, 1304, 63})


class ObjectType(NamedTuple):
    """The PCF identifiers of one type of object."""

    kinds: tuple[str, ...]
    name: int
    attributes: int
    names: int
    from_name: int
    to_name: int


QUEUES = ObjectType(tuple(QUEUE_KINDS), mq.MQCA_Q_NAME, mq.MQIACF_Q_ATTRS, 3011, 3001, 3002)
NAMELISTS = ObjectType(("NAMELIST",), mq.MQCA_NAMELIST_NAME, mq.MQIACF_NAMELIST_ATTRS, 3013, 3005, 3006)
PROCESSES = ObjectType(("PROCESS",), 2012, 1003, 3012, 3003, 3004)
AUTHINFOS = ObjectType(("AUTHINFO",), mq.MQCA_AUTH_INFO_NAME, mq.MQIACF_AUTH_INFO_ATTRS, 3048, 3009, 3010)
TOPICS = ObjectType(("TOPIC",), 2092, 1269, 3151, 3150, 3149)
SUBSCRIPTIONS = ObjectType(("SUB",), mq.MQCACF_SUB_NAME, 1287, 0, 3163, 3164)
CHANNELS = ObjectType(("CHANNEL",), mq.MQCACH_CHANNEL_NAME, 1015, 3512, 3007, 3008)

Reply = list[Parameter]
Answer = Iterable[Reply | None]
"""The replies of a command, with None where a command that takes long may be interrupted."""
Handler = Callable[[ConnectionState, pcf.Message], Answer]


def refuse(reason: int, text: str) -> AdministrationError:
    """Returns the refusal of a command."""
    return AdministrationError(reason, text)


def text_of(message: pcf.Message, identifier: int, default: str | None = None) -> str:
    """Returns a string parameter. Raises 3228 if it is required and missing."""
    found = message.find(identifier)
    if found is None:
        if default is None:
            raise refuse(MQRCCF_PARM_MISSING, f"parameter {identifier} is required")
        return default
    if not isinstance(found.value, bytes):
        raise refuse(MQRCCF_CFIN_PARM_ID_ERROR, f"parameter {identifier} must be a string")
    return found.text()


def number_of(message: pcf.Message, identifier: int, default: int) -> int:
    """Returns an integer parameter."""
    found = message.find(identifier)
    if found is not None and isinstance(found.value, bytes):
        raise refuse(MQRCCF_CFST_PARM_ID_ERROR, f"parameter {identifier} must be a number")
    return found.value if found is not None and isinstance(found.value, int) else default


def kind_of(message: pcf.Message, of: ObjectType, *, default: str = "") -> str:
    """Returns the type of object that a command is about; for queues a parameter names it."""
    if of is not QUEUES:
        return of.kinds[0]
    number = number_of(message, mq.MQIA_Q_TYPE, 0)
    kind = KIND_OF_QUEUE.get(number, default)
    if not kind:
        raise refuse(MQRCCF_PARM_VALUE_ERROR if number else MQRCCF_PARM_MISSING, "QType is missing or unknown")
    return kind


def given_attributes(message: pcf.Message, of: ObjectType, kind: str) -> dict[str, Value]:
    """Returns the attributes among the parameters."""
    given: dict[str, Value] = {}
    for parameter in message.parameters:
        identifier = parameter.parameter
        if identifier in {of.name, of.from_name, of.to_name, MQBACF_SUB_ID} or identifier in _OPTIONS:
            continue
        attribute = BY_SELECTOR[kind].get(identifier)
        if attribute is None and identifier in PASSED_OVER_IN_PCF.get(kind, ()):
            continue
        if attribute is None:
            raise refuse(MQRCCF_CFIN_PARM_ID_ERROR, f"parameter {identifier} is not an attribute of {kind}")
        given[attribute.keyword] = _value(parameter)
    return given


def _value(parameter: Parameter) -> Value:
    if isinstance(parameter.value, int):
        return parameter.value
    if isinstance(parameter.value, tuple):
        return ",".join(name for name in parameter.texts() if name)
    if parameter.type == pcf.BYTE_STRING:
        return parameter.value.hex()
    return parameter.text()


def create(of: ObjectType) -> Handler:
    """Returns the handler of the CREATE commands of a type."""

    def run(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
        kind, name = kind_of(message, of), text_of(message, of.name)
        replace = number_of(message, mq.MQIACF_REPLACE, mq.MQRP_NO) == mq.MQRP_YES
        connection.authorise(family(of), name, "CRT")
        connection.administration.define(kind, name, given_attributes(message, of, kind), replace=replace)
        return [[]]

    return run


def change(of: ObjectType) -> Handler:
    """Returns the handler of the CHANGE commands of a type."""

    def run(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
        name = name_of(connection, message, of)
        found = connection.core.catalogue.get(of.kinds[0] if of is not QUEUES else "QUEUE", name)
        kind = kind_of(message, of, default=found.kind if found is not None else "QLOCAL")
        connection.authorise(family(of), name, "CHG")
        connection.administration.alter(kind, name, given_attributes(message, of, kind))
        return [[]]

    return run


def copy(of: ObjectType) -> Handler:
    """Returns the handler of the COPY commands of a type: a new object with the attributes of another and those
    given."""

    def run(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
        source, name = text_of(message, of.from_name), text_of(message, of.to_name)
        kind = kind_of(message, of, default="QLOCAL")
        replace = number_of(message, mq.MQIACF_REPLACE, mq.MQRP_NO) == mq.MQRP_YES
        connection.authorise(family(of), name, "CRT")
        given = given_attributes(message, of, kind)
        connection.administration.define(kind, name, given, replace=replace, like=source)
        return [[]]

    return run


def delete(of: ObjectType) -> Handler:
    """Returns the handler of the DELETE commands of a type."""

    def run(connection: ConnectionState, message: pcf.Message) -> Answer:
        name = name_of(connection, message, of)
        kind = "QUEUE" if of is QUEUES else of.kinds[0]
        if of is QUEUES and message.find(mq.MQIA_Q_TYPE) is not None:
            kind = kind_of(message, of)
        connection.authorise(family(of), name, "DLT")
        purge = number_of(message, mq.MQIACF_PURGE, mq.MQPO_NO) == mq.MQPO_YES
        records = number_of(message, MQIACF_REMOVE_AUTHREC, MQRAR_YES) == MQRAR_YES
        yield from connection.administration.delete(kind, name, purge=purge, records=records)
        yield []

    return run


def inquire(of: ObjectType) -> Handler:
    """Returns the handler of the INQUIRE commands of a type: one reply for every object that matches."""

    def run(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
        pattern = name_of(connection, message, of)
        numbers = _wanted(message, of)
        kinds = of.kinds
        if of is QUEUES and number_of(message, mq.MQIA_Q_TYPE, mq.MQQT_ALL) != mq.MQQT_ALL:
            kinds = (kind_of(message, of),)
        accepts = filter_of(message)
        replies = [
            described(connection, one, numbers)
            for one in displayed(connection, kinds, pattern)
            if accepts(partial(attribute_value, connection, one))
        ]
        if not replies:
            raise not_found(kinds[0], pattern)
        return replies

    return run


def displayed(connection: ConnectionState, kinds: Sequence[str], pattern: str) -> list[Definition]:
    """Returns the objects that match and that the user may display. Raises 2035 if some match and he may display none
    of them."""
    found = list(connection.core.catalogue.matching(tuple(kinds), pattern))
    if not connection.authority.records:
        return found
    allowed = [one for one in found if _may_display(connection, one)]
    if found and not allowed:
        raise MQError(mq.MQRC_NOT_AUTHORIZED, f"user {connection.user!r} may display none of {pattern!r}")
    return allowed


def _may_display(connection: ConnectionState, definition: Definition) -> bool:
    """Whether the user may display an object; a subscription may be displayed by whoever may display its topic."""
    if definition.kind == "SUB":
        return may_display_topic(connection, topic_of(connection.core.catalogue, definition))
    return connection.may("QUEUE" if definition.kind in QUEUE_KINDS else definition.kind, definition.name, "DSP")


def may_display_topic(connection: ConnectionState, topic: str) -> bool:
    """Whether a topic object above a topic string lets the user display it."""
    try:
        connection.authorise_topic(topic, "DSP")
    except MQError:
        return False
    return True


def _wanted(message: pcf.Message, of: ObjectType) -> list[int]:
    """Returns the attributes asked for, and those of the filters."""
    wanted = message.find(of.attributes)
    chosen: Sequence[object] = (ALL,)
    if wanted is not None:
        chosen = wanted.value if isinstance(wanted.value, tuple) else (wanted.value,)
    filtered = [one.parameter for one in message.parameters if one.type in FILTERS]
    return [one for one in chosen if isinstance(one, int)] + filtered


def name_of(connection: ConnectionState, message: pcf.Message, of: ObjectType) -> str:
    """Returns the name of the object a command is about; a subscription may be named by its identifier."""
    given = message.find(MQBACF_SUB_ID) if of is SUBSCRIPTIONS else None
    if given is None or not isinstance(given.value, bytes) or not any(given.value):
        return text_of(message, of.name)
    identifier = given.value.hex().upper()
    for definition in connection.core.catalogue.matching(("SUB",)):
        if definition.extra.get("SUBID") == identifier:
            return definition.name
    raise not_found("SUB", identifier)


def names(of: ObjectType) -> Handler:
    """Returns the handler of the INQUIRE NAMES commands of a type: one reply with a list."""

    def run(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
        pattern = text_of(message, of.name)
        kinds = of.kinds
        if of is QUEUES and number_of(message, mq.MQIA_Q_TYPE, mq.MQQT_ALL) != mq.MQQT_ALL:
            kinds = (kind_of(message, of),)
        found = displayed(connection, kinds, pattern)
        if not found:
            raise not_found(kinds[0], pattern)
        reply = [pcf.strings(of.names, [one.name for one in found], size=NAME_LENGTH)]
        if of is QUEUES:
            reply.append(pcf.integers(1261, [QUEUE_KINDS[one.kind] for one in found]))
        return [reply]

    return run


def family(of: ObjectType) -> str:
    """Returns the type as authority records name it: QUEUE for all types of queue."""
    return "QUEUE" if of is QUEUES else of.kinds[0]


# Replies


def described(connection: ConnectionState, definition: Definition, wanted: Sequence[int]) -> Reply:
    """Returns a reply about an object: name, type and the attributes asked for."""
    everything = not wanted or ALL in wanted
    reply = _title(definition)
    known = {parameter.parameter for parameter in reply}
    for selector in every_selector(definition) if everything else wanted:
        if selector not in known:
            parameter = attribute_parameter(connection, definition, selector)
            if parameter is not None:
                reply.append(parameter)
    return reply


def every_selector(definition: Definition) -> list[int]:
    """Returns every attribute of an object, including those that no command sets."""
    selectors = [attribute.selector for attribute in TABLES[definition.kind]]
    selectors += [2004, 2005, 2027, 2028] if definition.kind in DATED else [2027, 2028]
    if definition.kind == "QLOCAL":
        selectors += [3, 17, 18, 7]
    if definition.kind == "NAMELIST":
        selectors.append(mq.MQIA_NAME_COUNT)
    if definition.kind == "QMGR":
        selectors += [2003, 2032, 2120, 31, 32, 14, 30, mq.MQIA_DIST_LISTS]
    return selectors


def _title(definition: Definition) -> Reply:
    name = definition.name
    if definition.kind in QUEUE_KINDS:
        title = [pcf.string(mq.MQCA_Q_NAME, name, size=NAME_LENGTH)]
        return [*title, pcf.integer(mq.MQIA_Q_TYPE, QUEUE_KINDS[definition.kind])]
    if definition.kind == "SUB":
        identifier = bytes.fromhex(str(definition.extra.get("SUBID", ""))).ljust(24, b"\0")
        return [pcf.string(mq.MQCACF_SUB_NAME, name), pcf.byte_string(MQBACF_SUB_ID, identifier)]
    if definition.kind == "CHANNEL":
        title = [pcf.string(mq.MQCACH_CHANNEL_NAME, name, size=20)]
        return [*title, pcf.integer(1511, definition.number("CHLTYPE"))]
    of = {"NAMELIST": NAMELISTS, "PROCESS": PROCESSES, "AUTHINFO": AUTHINFOS, "TOPIC": TOPICS}.get(definition.kind)
    return [] if of is None else [pcf.string(of.name, name, size=NAME_LENGTH)]


def attribute_parameter(connection: ConnectionState, definition: Definition, selector: int) -> Parameter | None:
    """Returns one attribute as a parameter; None if the object does not have it."""
    if definition.kind == "NAMELIST" and selector == mq.MQCA_NAMES:
        return pcf.strings(selector, definition.names(), size=NAME_LENGTH)
    if selector in BYTE_STRINGS:
        raw = bytes.fromhex(definition.text(BY_SELECTOR[definition.kind][selector].keyword))
        return pcf.byte_string(selector, raw.ljust(BYTE_STRINGS[selector], b"\0"))
    value = attribute_value(connection, definition, selector)
    if value is None:
        return None
    if isinstance(value, int):
        return pcf.integer(selector, value)
    attribute = BY_SELECTOR[definition.kind].get(selector)
    size = attribute.length if attribute is not None and attribute.length <= 264 else 0
    return pcf.string(selector, value, size=size or {2004: 12, 2027: 12, 2005: 8, 2028: 8}.get(selector, 0))


def attribute_value(connection: ConnectionState, definition: Definition, selector: int) -> Value | None:
    """Returns the value of an attribute, for filters and replies."""
    try:
        if mq.MQIA_FIRST <= selector <= mq.MQIA_LAST:
            return mqinq.integer_attribute(connection, definition, selector)
        attribute = BY_SELECTOR[definition.kind].get(selector)
        if definition.kind == "SUB" and selector == MQCA_TOPIC_STRING:
            return topic_of(connection.core.catalogue, definition)
        if selector == MQBACF_SUB_ID and definition.kind == "SUB":
            return str(definition.extra.get("SUBID", "")).lower().ljust(48, "0")
        if attribute is not None and selector in BYTE_STRINGS:
            return definition.text(attribute.keyword).lower().ljust(2 * BYTE_STRINGS[selector], "0")
        if attribute is not None:
            return definition.text(attribute.keyword)
        raw = mqinq.character_attribute(connection, definition, selector)
    except MQError:
        return None
    return None if raw is None else raw.decode("utf-8", "replace").rstrip()


# Filters

Lookup = Callable[[int], Value | None]
FILTERS = frozenset({pcf.INTEGER_FILTER, pcf.STRING_FILTER, pcf.BYTE_STRING_FILTER})
_OPERATORS = frozenset({1, 2, 3, 4, 5, 6, mq.MQCFOP_LIKE, mq.MQCFOP_NOT_LIKE, 10, 13, 26, 29})
_NO_OPERATOR = {pcf.INTEGER_FILTER: 3242, pcf.STRING_FILTER: 3246, pcf.BYTE_STRING_FILTER: 3266}
"""MQRCCF_CFIF_OPERATOR_ERROR, MQRCCF_CFSF_OPERATOR_ERROR, MQRCCF_CFBF_OPERATOR_ERROR."""


def filter_of(message: pcf.Message) -> Callable[[Lookup], bool]:
    """Returns the condition of the filter parameters of an INQUIRE."""
    filters = [parameter for parameter in message.parameters if parameter.type in FILTERS]
    for one in filters:
        if one.operator not in _OPERATORS:
            raise refuse(_NO_OPERATOR[one.type], f"{one.operator} is not a filter operator")
    return lambda lookup: all(_holds(one, lookup(one.parameter)) for one in filters)


def filtered(message: pcf.Message, replies: Iterable[Reply]) -> list[Reply]:
    """Returns the replies that the filters accept; each filter looks at the parameters of the reply."""
    accepts = filter_of(message)
    return [reply for reply in replies if accepts({one.parameter: _as_compared(one) for one in reply}.get)]


def _as_compared(parameter: Parameter) -> Value:
    if isinstance(parameter.value, int):
        return parameter.value
    if parameter.type == pcf.BYTE_STRING and isinstance(parameter.value, bytes):
        return parameter.value.hex()
    if isinstance(parameter.value, tuple):
        return (
            ",".join(map(str, parameter.value)) if parameter.type == pcf.INTEGER_LIST else ",".join(parameter.texts())
        )
    return parameter.text()


def _holds(given: Parameter, value: Value | None) -> bool:
    if value is None:
        return False
    if isinstance(given.value, int):
        return isinstance(value, int) and _compared(given.operator, (value > given.value) - (value < given.value))
    other = (
        given.text() if given.type == pcf.STRING_FILTER else given.value.hex() if isinstance(given.value, bytes) else ""
    )
    text = str(value)
    if given.operator in {mq.MQCFOP_LIKE, mq.MQCFOP_NOT_LIKE}:
        like = text.startswith(other[:-1]) if other.endswith("*") else text == other
        return like is (given.operator == mq.MQCFOP_LIKE)
    if given.operator in {10, 13}:  # MQCFOP_CONTAINS, MQCFOP_EXCLUDES, on lists
        return (other in text.split(",")) is (given.operator == 10)
    if given.operator in {26, 29}:  # MQCFOP_CONTAINS_GEN, MQCFOP_EXCLUDES_GEN
        return any(each.startswith(other.rstrip("*")) for each in text.split(",")) is (given.operator == 26)
    return _compared(given.operator, (text > other) - (text < other))


def _compared(operator: int, order: int) -> bool:
    """Whether a filter operator accepts a comparison. MQCFOP: 1 less, 2 equal, 4 greater, and their sums; NOT_EQUAL is
    less or greater."""
    return bool(operator & {-1: 1, 0: 2, 1: 4}[order])
