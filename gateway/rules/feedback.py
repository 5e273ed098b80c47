"""The gateway's own reasons, in the range that MQ leaves to applications (MQFB_APPL_FIRST to MQFB_APPL_LAST).

They are used in the Reason of an MQDLH and in the Feedback of a report, like the MQRCs of the queue manager. The
numbers are an interface: they never change their meaning, and new ones are added at the end.
"""

from __future__ import annotations

from enum import IntEnum


class Feedback(IntEnum):
    """Why the gateway, not the queue manager, could not pass a message on."""

    NO_RULE = 65537
    """No rule matches the topic and the file says that unmatched publications are dead-lettered."""
    NAME_NOT_VALID = 65538
    """A template gives a name that MQ does not allow or that the rule's author did not mean."""
    VALUE_MISSING = 65539
    """A template needs a level, property or JSON field that the message does not have."""
    VALUE_NOT_VALID = 65540
    """A value is not of the type that the rule asks for."""
    SCHEMA = 65541
    """The payload is not JSON, or not what the rule's JSON Schema describes."""
    TEXT_NOT_VALID = 65542
    """The payload is not text in the character set that the rule names."""
    TOPIC_NOT_VALID = 65543
    """A message on a queue gives no topic that MQTT allows."""
    DEVICE_UNKNOWN = 65544
    """The device that a message is addressed to is not known here."""
    NOT_AUTHORISED = 65545
    """The access control list does not allow it."""
    TOO_LONG = 65546
    """The message is longer than the device, or the rule, accepts."""
    QUEUE_LIMIT = 65547
    """The device's queue in the gateway is full."""
    LOOP = 65548
    """The message has passed this gateway before. Kept for the number alone: nothing makes it, as such a publication is
    known, not published again, and counted in `mqgate_messages_returned_total`."""
    REJECTED = 65549
    """The device refused the message with an MQTT 5 reason code."""
    SESSION_ENDED = 65550
    """The device's session ended (expired, cleaned or purged) with the message undelivered."""
    REQUEST_UNKNOWN = 65551
    """It answers a request of a device that has been answered already or has waited too long, and its rule has no
    topic."""
