"""A dead letter as the publication that it was, followed by the rules as they are now: what is wanted after a rule has
been corrected that refused the payload or made no valid name of it."""

from __future__ import annotations

from gateway.bridge.inbound import Origin, plan
from gateway.bridge.message import Message, read_message
from gateway.bridge.mqtt5 import from_properties
from gateway.bridge.payload import Body
from gateway.errors import MQError, Refused
from gateway.mq import mqmd
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import Puts
from gateway.ports.spread import names_of
from gateway.routing.table import Table

DLH_ERROR = 2141
"""MQRC_DLH_ERROR: nothing says what publication it was."""


def puts_of(table: Table, md: bytes, data: bytes, now: float) -> list[Puts]:
    """What the rules make of the message without its dead-letter header. MQError: it was no publication, no rule takes
    it, or one refuses it again."""
    try:
        message = read_message(md, data)
    except Refused as refused:
        raise MQError(DLH_ERROR, f"it cannot be read: {refused}") from refused
    origin, properties = _origin(message), _properties(message)
    body = Body(message.body.raw)
    prepared = plan(table, origin, properties).settle(body)
    if not prepared:
        raise MQError(DLH_ERROR, f"no rule takes topic {origin.topic!r} now")
    found = []
    for one in prepared:
        try:
            built = one.build(1 if origin.qos else 0, body, now)
        except Refused as refused:
            raise MQError(DLH_ERROR, f"rule {one.rule.name!r} refuses it still: {refused}") from refused
        queue = built.queue or f"topic://{built.mq_topic}"
        manager = names_of(built.queue_manager)[0]
        found.append(Puts(queue, manager, b"", built.priority, built.persistent, [built.head], [built.body]))
    return found


def _origin(message: Message) -> Origin:
    topic, client = message.property("mqps", "Top"), message.property("mqtt", "clientId")
    if topic is None or client is None:
        raise MQError(DLH_ERROR, "it does not say from which topic and client it came: replay it to its destination")
    qos, user = message.property("mqtt", "qos"), mqmd.text(message.md, mqmd.USER_IDENTIFIER)
    known = "" if str(client).startswith(user) else user
    return Origin(str(client), known, str(topic), int(qos) if isinstance(qos, int) else 1)


def _properties(message: Message) -> Properties:
    folder = message.folders.get("usr")
    order = message.property("mqtt", "userProperties")
    pairs = from_properties([(name, str(value)) for name, value in folder.pairs], str(order or "")) if folder else []
    return {prop.USER_PROPERTY: pairs} if pairs else {}
