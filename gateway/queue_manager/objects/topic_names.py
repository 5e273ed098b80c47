"""Topic strings of topic objects and subscriptions. Pure."""

from __future__ import annotations

import json

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.objects.catalogue import Catalogue, Definition

MAX_TOPIC = 10_240
CHARACTER_WILDCARDS, BLOCK = 1, 1
"""Values of WSCHEMA and WILDCARD."""
_BLOCKED = "BLOCKED"


def full(catalogue: Catalogue, topic_object: str, topic_string: str) -> str:
    """Returns the full topic string of a topic object and a string below it. Raises MQError if there is no such object,
    or the string is too long."""
    prefix = ""
    if topic_object:
        definition = catalogue.get("TOPIC", topic_object)
        if definition is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"topic object {topic_object!r} is not defined")
        prefix = definition.text("TOPICSTR")
    topic = f"{prefix}/{topic_string}" if prefix and topic_string else prefix or topic_string
    if not topic or len(topic) > MAX_TOPIC or "\0" in topic:
        raise MQError(mq.MQRC_TOPIC_STRING_ERROR, "a topic string has 1 to 10,240 characters")
    return topic


def topic_of(catalogue: Catalogue, subscription: Definition) -> str:
    """Returns the topic string of a subscription, which may be given by a topic object."""
    try:
        return full(catalogue, subscription.text("TOPICOBJ"), subscription.text("TOPICSTR"))
    except MQError:  # SYSTEM.DEFAULT.SUB has none
        return subscription.text("TOPICSTR")


def is_inside(topic: str, over: str) -> bool:
    """Whether a topic string is `over` or lies below it."""
    return topic == over or topic.startswith(over + "/")


def blocked(subscription: Definition) -> tuple[str, ...]:
    """Returns the topic strings at and below which the wildcards of a subscription match nothing."""
    return tuple(json.loads(str(subscription.extra.get(_BLOCKED, "[]"))))


def block(catalogue: Catalogue, subscription: Definition) -> None:
    """Keep with a subscription that is being made where its wildcards are blocked: at topic objects with
    WILDCARD(BLOCK), unless the levels before its first wildcard name them. Later changes of those objects do not affect
    it."""
    known = _before_wildcards(topic_of(catalogue, subscription), subscription.number("WSCHEMA"))
    strings = (one.text("TOPICSTR") for one in catalogue.matching(("TOPIC",)) if one.number("WILDCARD") == BLOCK)
    found = [over for over in strings if over and not is_inside(known, over)]
    subscription.extra = {word: value for word, value in subscription.extra.items() if word != _BLOCKED}
    if found:
        subscription.extra[_BLOCKED] = json.dumps(found)


def _before_wildcards(topic: str, schema: int) -> str:
    """Returns the part of a topic before its first wildcard, in whole levels: it is the same in everything that
    matches."""
    if schema == CHARACTER_WILDCARDS:
        starts = [topic.find(one) for one in "*?" if one in topic]
        return topic[: min(starts)].rpartition("/")[0] if starts else topic
    levels = topic.split("/")
    return "/".join(levels[: min((levels.index(one) for one in "+#" if one in levels), default=len(levels))])
