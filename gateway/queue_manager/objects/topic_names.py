"""Topic strings of topic objects and subscriptions. Pure."""

from __future__ import annotations

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.objects.catalogue import Catalogue, Definition

MAX_TOPIC = 10_240


def full(catalogue: Catalogue, topic_object: str, topic_string: str) -> str:
    """The full topic string of a topic object and a string below it."""
    prefix = ""
    if topic_object:
        definition = catalogue.get("TOPIC", topic_object)
        if definition is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"no topic object {topic_object!r}")
        prefix = definition.text("TOPICSTR")
    topic = f"{prefix}/{topic_string}" if prefix and topic_string else prefix or topic_string
    if not topic or len(topic) > MAX_TOPIC or "\0" in topic:
        raise MQError(mq.MQRC_TOPIC_STRING_ERROR, "a topic string has 1 to 10,240 characters")
    return topic


def topic_of(catalogue: Catalogue, subscription: Definition) -> str:
    """The topic string of a subscription, which may be given by a topic object."""
    try:
        return full(catalogue, subscription.text("TOPICOBJ"), subscription.text("TOPICSTR"))
    except MQError:  # SYSTEM.DEFAULT.SUB has none
        return subscription.text("TOPICSTR")
