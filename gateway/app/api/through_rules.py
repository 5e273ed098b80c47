"""Sends a dead letter as the publication that it was through the current rules, after a rule has been corrected that
refused the payload or made an invalid name from it."""

from __future__ import annotations

from gateway.bridge.inbound import Origin, Prepared, plan
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
"""MQRC_DLH_ERROR: nothing says which publication it was."""


def puts_of(table: Table, md: bytes, data: bytes, now: float, destination: str = "") -> list[Puts]:
    """Returns what the rules make of the message without its dead-letter header. Raises MQError if it was not a
    publication, no rule takes it, or a rule refuses it again. Of several rules that take it (`continue`), only the one
    that puts to the letter's destination counts: what the others made of the publication is on their queues."""
    try:
        message = read_message(md, data)
    except Refused as refused:
        raise MQError(DLH_ERROR, f"it cannot be read: {refused}") from refused
    origin, properties = _origin(message), _properties(message)
    body = Body(message.body.raw)
    prepared = plan(table, origin, properties).settle(body)
    if not prepared:
        raise MQError(DLH_ERROR, f"no rule takes topic {origin.topic!r} now")
    made = [_made(one, origin, body, now) for one in prepared]
    found = []
    for name, _, puts in [one for one in made if one[1] == destination] or made:
        if isinstance(puts, Refused):
            raise MQError(DLH_ERROR, f"rule {name!r} still refuses it: {puts}") from puts
        found.append(puts)
    return found


def _made(prepared: Prepared, origin: Origin, body: Body, now: float) -> tuple[str, str, Puts | Refused]:
    """Returns the rule, where it puts as far as that is known, and what it makes of the publication."""
    packet_id = 1 if origin.qos else 0
    try:
        built = prepared.build(packet_id, body, now)
    except Refused as refused:
        return prepared.rule.name, prepared.destination(packet_id, body, now)[0], refused
    queue = built.queue or f"topic://{built.mq_topic}"
    manager = names_of(built.queue_manager)[0]
    puts = Puts(queue, manager, b"", built.priority, built.persistent, [built.head], [built.body])
    return prepared.rule.name, queue, puts


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
