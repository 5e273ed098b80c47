"""Topic names and filters: validity, levels, shared subscriptions. Checks return a text, or None if all is well.

Matching is done in `gateway.routing`; nothing here is called per message (sessions keep the result per topic).
"""

from __future__ import annotations

from gateway.errors import MalformedPacket
from gateway.mqtt.primitives import MAX_STRING_BYTES, decode_text, has_control

SHARE_PREFIX = "$share/"
NOBODYS = ("$SYS/", SHARE_PREFIX)
"""How topics begin on which no client may publish: the broker's own, and names that nobody can subscribe to."""


def topic_name_error(topic: bytes, max_levels: int = 0) -> str | None:
    """Why these bytes cannot be the topic name of a PUBLISH; None if they can. `max_levels` 0 means any number."""
    try:
        text = decode_text(topic)  # [MQTT-3.3.2-1]
    except MalformedPacket as error:
        return str(error)
    return name_error(text, max_levels)


def name_error(name: str, max_levels: int = 0) -> str | None:
    """The same for a name that is already text (wills, response topics, names made by rules)."""
    if not name:  # [MQTT-4.7.3-1]
        return "a topic name needs at least one character"
    if "+" in name or "#" in name:  # [MQTT-3.3.2-2] [MQTT3-4.7.1-1] [MQTT-4.7.0-1]
        return "a topic name may not contain the wildcards + and #"
    return _size_error(name, max_levels)


def filter_error(filter_: str, max_levels: int = 0) -> str | None:
    """Why this cannot be the topic filter of a subscription, shared ones included; None if it can."""
    if not filter_:  # [MQTT-4.7.3-1]
        return "a topic filter needs at least one character"
    if is_shared(filter_):
        return _shared_error(filter_, max_levels)
    return _size_error(filter_, max_levels) or _wildcard_error(filter_)


def _size_error(text: str, max_levels: int) -> str | None:
    if has_control(text):  # [MQTT-4.7.3-2] and, as the specifications allow, everything that does not print
        return "topics may not contain U+0000, other control characters or non-characters"
    if len(text) > MAX_STRING_BYTES // 4 and len(text.encode()) > MAX_STRING_BYTES:  # [MQTT-4.7.3-3]
        return f"topics have at most {MAX_STRING_BYTES} bytes of UTF-8"
    if max_levels and text.count("/") >= max_levels:
        return f"topics have at most {max_levels} levels here: use a shorter one"
    return None


def _wildcard_error(filter_: str) -> str | None:
    if "+" not in filter_ and "#" not in filter_:
        return None
    *parents, last = filter_.split("/")
    if any("#" in level for level in parents) or ("#" in last and last != "#"):  # [MQTT3-4.7.1-2] [MQTT5-4.7.1-1]
        return "# stands alone in the last level of a filter: write a/#, not a#, a/#/b or a/b#"
    if any("+" in level and level != "+" for level in (*parents, last)):  # [MQTT5-4.7.1-2] [MQTT-4.7.1-3]
        return "+ takes a whole level of a filter: write a/+/b, not a+/b"
    return None


def _shared_error(filter_: str, max_levels: int) -> str | None:
    group, _, rest = filter_[len(SHARE_PREFIX) :].partition("/")
    if not group or "+" in group or "#" in group:  # [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        return "a shared subscription is $share/GROUP/FILTER, and GROUP may not contain /, + or #"
    if not rest:  # [MQTT-4.8.2-2]
        return "a shared subscription is $share/GROUP/FILTER: the filter is missing"
    return _size_error(rest, max_levels) or _wildcard_error(rest)


def is_shared(filter_: str) -> bool:
    """Whether the filter names a shared subscription."""
    return filter_.startswith(SHARE_PREFIX)


def split_shared(filter_: str) -> tuple[str, str]:
    """`(group, filter)` of a valid filter; the group is empty for an ordinary subscription."""
    if not is_shared(filter_):
        return "", filter_
    group, _, rest = filter_[len(SHARE_PREFIX) :].partition("/")
    return group, rest
