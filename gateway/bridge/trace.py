"""W3C Trace Context: what passes through the gateway carries the gateway's own span as its parent. Pure.

`traceparent` is `00-TRACE-PARENT-FLAGS` in hexadecimal. Downstream the trace stays the same, the parent becomes the
span of this hop, and `tracestate` and everything else is passed on as it is. A value that is not as the specification
says is left alone: a trace is never begun here, and never broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gateway.bridge.mqtt5 import USER_PROPERTY, user_properties
from gateway.mqtt.packets import Properties

TRACEPARENT = "traceparent"
_TRACEPARENT = TRACEPARENT.encode()
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 0x01
_KNOWN_FLAGS = 0x03
"""The flags for sampled and for a random trace identifier; the others have no meaning yet and are sent as 0."""
NewSpan = Callable[[], bytes]
"""Returns eight random bytes."""


def child(value: str, new_span: NewSpan) -> str | None:
    """The `traceparent` for downstream; None if `value` is not a valid one."""
    found = _FORM.fullmatch(value)
    if found is None:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(parent, 16):
        return None
    span = new_span()
    while not any(span):  # all zeros is no span
        span = new_span()
    return f"00-{trace}-{span.hex()}-{int(flags, 16) & _KNOWN_FLAGS:02x}"


def passed_on(properties: Properties, new_span: NewSpan) -> Properties:
    """The properties with the span of this hop, if there is exactly one trace context among them; otherwise
    unchanged."""
    users = user_properties(properties)
    places = [index for index, (name, _) in enumerate(users) if name == TRACEPARENT]
    made = child(users[places[0]][1], new_span) if len(places) == 1 else None
    if made is None:
        return properties
    users = [*users[: places[0]], (TRACEPARENT, made), *users[places[0] + 1 :]]
    return {**properties, USER_PROPERTY: users}


def sampled(properties: Properties) -> str:
    """The only trace context among the properties, if its trace is sampled; otherwise empty."""
    found = [value for name, value in user_properties(properties) if name == TRACEPARENT]
    match = _FORM.fullmatch(found[0]) if len(found) == 1 else None
    return found[0] if match is not None and int(match[4], 16) & _SAMPLED else ""


def is_traced(users: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether there is a trace context among user properties as they are on the wire."""
    return any(name == _TRACEPARENT for name, _ in users)


def carries(properties: Properties) -> bool:
    """Whether there is a trace context among the properties: such messages all differ."""
    return any(name == TRACEPARENT for name, _ in user_properties(properties))
