"""MQINQ and MQSET: attributes by selector."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import Inquired
from gateway.queue_manager.objects.attributes import BY_SELECTOR, QUEUE_KINDS, Value
from gateway.queue_manager.objects.catalogue import COMMAND_LEVEL, VERSION, Definition, checked
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle

DATE, TIME = (2004, 2027), (2005, 2028)
"""MQCA_CREATION_DATE and MQCA_ALTERATION_DATE, and the corresponding times."""
MQCA_TOPIC_NAME = 2092
MQCA_PROCESS_NAME = 2012
OF_QUEUES = frozenset(selector for kind in QUEUE_KINDS for selector in BY_SELECTOR[kind]) | {
    mq.MQIA_Q_TYPE, mq.MQIA_CURRENT_Q_DEPTH, mq.MQIA_OPEN_INPUT_COUNT, mq.MQIA_OPEN_OUTPUT_COUNT,
    mq.MQIA_DEFINITION_TYPE,
}  # fmt: skip
"""Attributes of queues: one that a type of queue does not have gives a warning (2068), any other an error (2067)."""
_LENGTHS = {one.selector: one.length for kind in QUEUE_KINDS for one in BY_SELECTOR[kind].values() if one.is_text}
"""The lengths of the character attributes of queues."""
_WRONG_VALUES = {
    "GET": mq.MQRC_INHIBIT_VALUE_ERROR, "PUT": mq.MQRC_INHIBIT_VALUE_ERROR, "TRIGGER": mq.MQRC_TRIGGER_CONTROL_ERROR,
    "TRIGDPTH": mq.MQRC_TRIGGER_DEPTH_ERROR, "TRIGMPRI": mq.MQRC_TRIGGER_MSG_PRIORITY_ERR,
    "TRIGTYPE": mq.MQRC_TRIGGER_TYPE_ERROR,
}  # fmt: skip
SETTABLE = frozenset({"GET", "PUT", "TRIGGER", "TRIGDPTH", "TRIGMPRI", "TRIGTYPE", "TRIGDATA", "DISTL"})


def inquire(connection: ConnectionState, handle: Handle, selectors: Sequence[int]) -> Inquired:
    """MQINQ: returns attributes in the order of their selectors, with warning 2068 for one that the type of queue does
    not have."""
    handle.needs(mq.MQOO_INQUIRE, mq.MQRC_NOT_OPEN_FOR_INQUIRE, "MQOO_INQUIRE")
    definition = _current(connection, handle)
    integers: list[int] = []
    characters: list[bytes] = []
    misplaced = False
    for selector in selectors:
        if mq.MQIA_FIRST <= selector <= mq.MQIA_LAST:
            number = integer_attribute(connection, definition, selector)
            misplaced = misplaced or number is None
            integers.append(-1 if number is None else number)
        elif mq.MQCA_FIRST <= selector <= mq.MQCA_LAST:
            field = character_attribute(connection, definition, selector)
            misplaced = misplaced or field is None
            characters.append(b"*" * _LENGTHS[selector] if field is None else field)
        else:
            raise _unknown(selector)
    if misplaced:
        return Inquired(integers, characters, 1, mq.MQRC_SELECTOR_NOT_FOR_TYPE)
    return Inquired(integers, characters)


def _unknown(selector: int, kind: str = "") -> MQError:
    return MQError(mq.MQRC_SELECTOR_ERROR, f"selector {selector} is not an attribute of {kind or 'any object'}")


def _check_of_queues(definition: Definition, selector: int) -> None:
    """Raise 2067 unless the object is a queue and the selector an attribute of another type of queue."""
    if definition.kind not in QUEUE_KINDS or selector not in OF_QUEUES:
        raise _unknown(selector, f"a {definition.kind}")


def _current(connection: ConnectionState, handle: Handle) -> Definition:
    """Returns the current definition of an open object. Raises 2041 if it has been deleted, or 2052 for a dynamic
    queue, even if there is a new one of its name."""
    definition, queue = handle.definition, handle.named
    if queue is None and handle.target is not None and definition is not None and definition.kind == "QLOCAL":
        queue = handle.target.queue
    if queue is not None and queue.deleted and queue.definition.dynamic:
        raise MQError(mq.MQRC_Q_DELETED, f"{queue.name} has been deleted")
    if handle.queue is not None and definition is None:
        definition = handle.queue.definition
    if definition is None:
        raise MQError(mq.MQRC_NOT_OPEN_FOR_INQUIRE, "the object has no attributes")
    current = connection.core.catalogue.get(definition.kind, definition.name)
    if current is None:
        raise MQError(mq.MQRC_OBJECT_CHANGED, f"{definition.name!r} has been deleted")
    return current


def integer_attribute(connection: ConnectionState, definition: Definition, selector: int) -> int | None:
    """Returns an integer attribute; None if this type of queue does not have it. Raises 2067 if no type has it."""
    attribute = BY_SELECTOR[definition.kind].get(selector)
    if attribute is not None:
        return definition.number(attribute.keyword)
    value = _unset_integers(connection, definition).get(selector)
    if value is None:
        _check_of_queues(definition, selector)
    return value


def _unset_integers(connection: ConnectionState, definition: Definition) -> dict[int, int]:
    """Returns the integer attributes that no command sets."""
    core = connection.core
    if definition.kind == "QMGR":
        return {
            mq.MQIA_COMMAND_LEVEL: COMMAND_LEVEL, mq.MQIA_PLATFORM: mq.MQPL_UNIX, mq.MQIA_MAX_PRIORITY: 9,
            mq.MQIA_SYNCPOINT: 1, mq.MQIA_DIST_LISTS: 0,  # programs come through the library, which has none
        }  # fmt: skip
    if definition.kind == "NAMELIST":
        return {mq.MQIA_NAME_COUNT: len(definition.names())}
    if definition.kind not in QUEUE_KINDS:
        return {}
    values = {mq.MQIA_Q_TYPE: QUEUE_KINDS[definition.kind]}
    queue = core.queues.get(definition.name) if definition.kind == "QLOCAL" else None
    if queue is not None:
        values |= {
            mq.MQIA_CURRENT_Q_DEPTH: core.depth(queue),
            mq.MQIA_OPEN_INPUT_COUNT: queue.inputs,
            mq.MQIA_OPEN_OUTPUT_COUNT: queue.outputs,
            mq.MQIA_DEFINITION_TYPE: definition.dynamic or 1,
        }
    return values


def character_attribute(connection: ConnectionState, definition: Definition, selector: int) -> bytes | None:
    """Returns a character attribute in its full length; None and 2067 as for integers."""
    attribute = BY_SELECTOR[definition.kind].get(selector)
    if definition.kind == "NAMELIST" and selector == mq.MQCA_NAMES:
        return b"".join(name.encode().ljust(48) for name in definition.names())
    if attribute is not None:
        return definition.text(attribute.keyword).encode().ljust(attribute.length)[: attribute.length]
    name = _unset_names(connection, definition).get(selector)
    if name is not None:
        return name
    if selector in DATE or selector in TIME:
        when = definition.created if selector in {DATE[0], TIME[0]} else definition.altered
        day, _, time = when.partition(" ")
        return day.encode().ljust(12) if selector in DATE else time.encode().ljust(8)
    _check_of_queues(definition, selector)
    return None


def _unset_names(connection: ConnectionState, definition: Definition) -> dict[int, bytes]:
    core = connection.core
    name = definition.name.encode().ljust(48)
    if definition.kind == "QMGR":
        return {
            mq.MQCA_Q_MGR_NAME: core.name.encode().ljust(48),
            mq.MQCA_Q_MGR_IDENTIFIER: core.identifier.encode().ljust(48),
            mq.MQCA_VERSION: VERSION.encode(),
            mq.MQCA_COMMAND_INPUT_Q_NAME: b"SYSTEM.ADMIN.COMMAND.QUEUE".ljust(48),
        }
    if definition.kind in QUEUE_KINDS:
        return {mq.MQCA_Q_NAME: name}
    selector = {"NAMELIST": mq.MQCA_NAMELIST_NAME, "TOPIC": MQCA_TOPIC_NAME, "PROCESS": MQCA_PROCESS_NAME}.get(
        definition.kind
    )
    return {} if selector is None else {selector: name}


def set_attributes(
    connection: ConnectionState,
    handle: Handle,
    selectors: Sequence[int],
    integers: Sequence[int],
    characters: Sequence[bytes],
) -> None:
    """MQSET: change attributes of a queue."""
    handle.needs(mq.MQOO_SET, mq.MQRC_NOT_OPEN_FOR_SET, "MQOO_SET")
    definition = _current(connection, handle)
    given: dict[str, Value] = {}
    numbers, texts = iter(integers), iter(characters)
    for selector in selectors:
        attribute = BY_SELECTOR[definition.kind].get(selector)
        if attribute is None or attribute.keyword not in SETTABLE:
            raise MQError(mq.MQRC_SELECTOR_ERROR, f"selector {selector} cannot be set on a {definition.kind}")
        if attribute.is_text:
            field = next(texts, b"")
            if len(field) < attribute.length:
                raise MQError(mq.MQRC_CHAR_ATTR_LENGTH_ERROR, "fewer characters than the attributes have")
            value: Value = field.rstrip(b" \0").decode("utf-8", "replace")
        else:
            number = next(numbers, None)
            if number is None:
                raise MQError(mq.MQRC_INT_ATTR_COUNT_ERROR, "fewer integers than integer selectors")
            value = number
        if checked(attribute, value) is None:
            text = f"{value!r} is not a valid value for {attribute.keyword}"
            raise MQError(_WRONG_VALUES.get(attribute.keyword, mq.MQRC_SELECTOR_ERROR), text)
        given[attribute.keyword] = value
    connection.administration.alter(definition.kind, definition.name, given)
