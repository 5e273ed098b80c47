"""The properties of a PUBLISH, as the fast lane takes them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.bridge.trace import TRACEPARENT as TRACEPARENT_NAME
from gateway.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS, USER_PROPERTY

TRACEPARENT = TRACEPARENT_NAME.encode()


class Given(NamedTuple):
    """What the properties of a PUBLISH say."""

    users: list[tuple[bytes, bytes]]
    expiry: int | None
    alias: int


NOTHING = Given([], None, 0)


def is_text(raw: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def given_of(block: bytes, most_users: int) -> Given | None:
    """What the properties of a PUBLISH say; None: the plain lane looks at them, as where there are too many."""
    users: list[tuple[bytes, bytes]] = []
    expiry: int | None = None
    alias, at, end, text = 0, 0, len(block), block.isascii()
    while at + 3 <= end:
        kind = block[at]
        if kind == USER_PROPERTY:
            middle = at + 3 + (block[at + 1] << 8 | block[at + 2])
            if middle + 2 > end:
                return None
            stop = middle + 2 + (block[middle] << 8 | block[middle + 1])
            name, value = block[at + 3 : middle], block[middle + 2 : stop]
            if stop > end or not (text or (is_text(name) and is_text(value))) or 0 in name or 0 in value:
                return None
            if name == TRACEPARENT:  # the span of this hop goes on
                return None
            users.append((name, value))
            at = stop
        elif kind == MESSAGE_EXPIRY_INTERVAL and expiry is None and at + 5 <= end:
            expiry = int.from_bytes(block[at + 1 : at + 5], "big")
            if not expiry:
                return None
            at += 5
        elif kind == TOPIC_ALIAS and not alias:
            alias = block[at + 1] << 8 | block[at + 2] or 1 << 16  # there is no 0
            at += 3
        else:
            return None
    if at < end or len(users) > most_users:
        return None
    return Given(users, expiry, alias)


def user_properties(given: Given) -> bytes:
    """Its user properties as they came: what stays of the properties beside Topic Alias and expiry."""
    return b"".join(
        b"\x26%b%b%b%b" % (len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value)
        for name, value in given.users
    )
