"""The properties of a PUBLISH, as the fast lane takes them. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.bridge.trace import is_traced
from gateway.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    TOPIC_ALIAS,
    USER_PROPERTY,
)

LONGEST_REST = 128
"""The most bytes of properties for which a route of its own is kept: devices choose them."""
_LENGTHS = {PAYLOAD_FORMAT_INDICATOR: 1, MESSAGE_EXPIRY_INTERVAL: 4, TOPIC_ALIAS: 2}
"""The length of the values that have no length before them."""
_APART = frozenset({MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS})
_BEFORE = 3
"""Bytes of the correlation data property before its data."""
_ALIAS = 3
"""Bytes of the Topic Alias property."""
_TOPIC = re.compile(rb"[ !\"$-*,-~]+")
"""A response topic that needs no further look: printable ASCII without wildcards."""


class Given(NamedTuple):
    """What the properties of a PUBLISH say."""

    users: list[tuple[bytes, bytes]]
    expiry: int | None
    alias: int
    rest: bytes | None = b""
    """The other properties as they came, except Topic Alias and expiry, with NULs for the correlation data; None: too
    many."""
    is_text: bool = False
    """Whether the payload is said to be text."""
    asks: bool = False
    """Whether there is a response topic, or correlation data."""
    correlation: bytes = b""
    traced: bool = False
    """Whether there is a trace context; what is put on a queue carries that of this hop's span."""


NOTHING = Given([], None, 0)


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def given_of(block: bytes, most_users: int) -> Given | None:
    """Read the properties of a PUBLISH. Returns None if the plain lane has to look at them, as when there are too
    many."""
    users: list[tuple[bytes, bytes]] = []
    found, kept, at, end = dict[int, bytes](), b"", 0, len(block)
    while at + 2 <= end:
        kind, begin = block[at], at
        if kind == USER_PROPERTY:
            name, at = _string(block, at + 1)
            value, at = _string(block, at)
            if at > end or not (_is_string(name) and _is_string(value)):
                return None
            users.append((name, value))
            continue
        length = _LENGTHS.get(kind)
        value, at = _string(block, at + 1) if length is None else (block[at + 1 : at + 1 + length], at + 1 + length)
        if kind in found or at > end or not _is_ordinary(kind, value):
            return None
        found[kind] = value
        if kind == CORRELATION_DATA:
            kept += block[begin : begin + _BEFORE] + bytes(len(value))
        elif kind not in _APART:
            kept += block[begin:at]
    if at != end or len(users) > most_users:
        return None
    asks, correlation = RESPONSE_TOPIC in found or CORRELATION_DATA in found, found.get(CORRELATION_DATA, b"")
    expiry, alias = (_number(found.get(kind)) for kind in (MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS))
    says_text = found.get(PAYLOAD_FORMAT_INDICATOR) == b"\1"
    rest = kept if len(kept) <= LONGEST_REST else None
    return Given(users, expiry, alias or 0, rest, says_text, asks, correlation, is_traced(users))


def _is_ordinary(kind: int, value: bytes) -> bool:
    """Whether a property, other than a user property, needs no further look."""
    if kind == PAYLOAD_FORMAT_INDICATOR:
        return value in {b"\0", b"\1"}
    if kind in {MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS}:
        return any(value)
    if kind == CONTENT_TYPE:
        return _is_string(value)
    return kind == CORRELATION_DATA or (kind == RESPONSE_TOPIC and _TOPIC.fullmatch(value) is not None)


def _is_string(raw: bytes) -> bool:
    """Whether bytes are a string of MQTT [MQTT-1.5.4-2]."""
    return 0 not in raw and (raw.isascii() or is_text(raw))


def _number(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value, "big")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """The bytes that follow a length at `at`, and where they end, which may be beyond the block."""
    stop = at + 2 + int.from_bytes(block[at : at + 2], "big")
    return block[at + 2 : stop], stop


def carried(block: bytes) -> bytes:
    """The properties that are passed on to others: all but Topic Alias and expiry, in their order."""
    kept, at = b"", 0
    while at < len(block):
        kind, begin = block[at], at
        if kind == MESSAGE_EXPIRY_INTERVAL:
            at += 5
        elif kind == TOPIC_ALIAS:
            at += 3
        else:
            at = begin + 2 if kind == PAYLOAD_FORMAT_INDICATOR else _string(block, begin + 1)[1]
            at = _string(block, at)[1] if kind == USER_PROPERTY else at
            kept += block[begin:at]
    return kept


def is_alias(block: bytes) -> bool:
    """Whether the properties are a Topic Alias and nothing else."""
    return len(block) == _ALIAS and block[0] == TOPIC_ALIAS


def encode_user(name: bytes, value: bytes) -> bytes:
    """Encode a user property."""
    return b"\x26%b%b%b%b" % (len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value)
