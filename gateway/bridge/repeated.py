"""Keeps what a rule made of a message for all messages with the same headers, because applications put thousands of
them.

The key is the rule, the beginning of the descriptor (report, type, expiry, what describes the data, priority,
persistence), the MQRFH2 without its packet identifier, in which messages that devices publish differ, and the JSON
fields that templates name. What depends on more is not kept: other fields of the descriptor, the body, the time. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.bridge.message import read_message
from gateway.bridge.mqtt5 import CORRELATION_DATA, MESSAGE_EXPIRY, RESPONSE_TOPIC
from gateway.bridge.outbound import Outgoing
from gateway.bridge.payload import Body
from gateway.bridge.trace import carries
from gateway.mq import mqmd
from gateway.mqtt import properties as prop
from gateway.rules.mappings import OutboundRule
from gateway.rules.templates import shown

_RFH2, _RFH2_BEGINS = b"MQHRF2  ", b"RFH \2\0\0\0"
_BODIES = frozenset({b"MQSTR   ", b"        ", bytes(8)})
"""Formats of data that is not a header."""
_BEGINNING = slice(0, 48)
_MAX_KNOWN, _LONGEST_HEADER = 4096, 2048
_NOTHING = bytes(24)
_OPEN, _CLOSE = b"<msgId dt='i4'>", b"</msgId></mqtt>"
_ANY = b"0" + _CLOSE
_DIGITS, _MOST_DIGITS = b"0123456789", 5
_VARYING = frozenset({"md", "xqh"})
"""Kinds of slots whose values are not part of the key."""
_LONGEST_TEXT = 256
"""How long the JSON fields in a key may be together, because applications choose them."""


_Key = tuple[int, bytes, bytes, tuple[str, ...]]
"""The rule, the descriptor, the headers, the JSON fields as text."""


class Known:
    """A publication without its payload, which is the data from `start` on."""

    __slots__ = ("block", "made", "prefixes", "rule", "start", "topic")

    def __init__(self, rule: OutboundRule, made: Outgoing, start: int) -> None:
        self.rule = rule
        self.made = made._replace(payload=b"")
        self.start = start
        self.topic = made.topic.encode()
        self.block = prop.encode(made.properties)
        self.prefixes: dict[tuple[int, bool, tuple[int, ...]], bytes] = {}
        """The heads of what durable sessions store of it."""


class Repeated:
    """What rules made of messages, by the headers of these messages."""

    def __init__(self) -> None:
        self._known: dict[_Key, Known] = {}

    def find(self, rules: Sequence[OutboundRule], md: bytes, data: bytes) -> Known | None:
        """What its rule makes of a message, if that was kept for another one with the same headers; otherwise None."""
        key = _key(rules, md, data, header_length(md, data))
        return None if key is None else self._known.get(key)

    def find_shared(self, rules: Sequence[OutboundRule], md: bytes, data: bytes) -> Known | None:
        """The same for all messages that begin with this data, whatever their bodies."""
        return self.find(rules, md, data) if not rules[0].json_fields else None

    def find_numbered(self, rules: Sequence[OutboundRule], md: bytes, opened: bytes) -> Known | None:
        """The same for messages whose headers end with a packet identifier; `opened` is what comes before that."""
        if len(rules) != 1 or md[mqmd.CORREL_ID] != _NOTHING:
            return None
        return self._known.get((id(rules[0]), md[_BEGINNING], opened + _ANY, ()))

    def keep(self, rules: Sequence[OutboundRule], md: bytes, data: bytes, made: Outgoing) -> None:
        """Keep what its rule made of a message, if the rule makes the same of others with these headers."""
        start = header_length(md, data)
        key = _key(rules, md, data, start)
        if key is None or made.payload != data[start:] or sum(map(len, key[3])) > _LONGEST_TEXT:
            return
        if rules[0].json_fields and read_message(md, data).is_in_another_character_set:
            return  # the values of its fields are not what was compared
        if not _same_for_all(rules[0]) or mqmd.number(md, mqmd.AT_REPORT) or _differs(made):
            return
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[key] = Known(rules[0], made, start)


def _key(rules: Sequence[OutboundRule], md: bytes, data: bytes, start: int) -> _Key | None:
    """The key of a message whose body begins at `start`; None: it is not kept."""
    if not 0 <= start <= len(data) or len(rules) != 1 or md[mqmd.CORREL_ID] != _NOTHING:
        return None
    texts: list[str] = []
    asked = rules[0].json_fields
    if asked:
        body = Body(data[start:])
        for path in asked:
            value = body.field(path)
            if value is None:
                return None
            texts.append(value if isinstance(value, str) else f"\0{shown(value)}")  # no text with NUL is ever kept
    return id(rules[0]), md[_BEGINNING], _unnumbered(data[:start]), tuple(texts)


def header_length(md: bytes, data: bytes) -> int:
    """Where the body of a message begins that has one MQRFH2, whose beginning is in `data`, or no header; -1: it has
    other headers."""
    kind = md[mqmd.FORMAT]
    if kind in _BODIES:
        return 0
    if kind != _RFH2 or data[:8] != _RFH2_BEGINS or data[20:28] not in _BODIES:
        return -1
    start = int.from_bytes(data[8:12], "little")
    return start if start <= _LONGEST_HEADER else -1


def is_opened(header: bytes) -> bool:
    """Whether a header ends where its packet identifier would begin."""
    return header.endswith(_OPEN)


def are_numbers(ends: Iterable[bytes], length: int) -> bool:
    """Whether each of these is a header's end whose packet identifier's digits have been stripped, and which had this
    length with them."""
    return all(0 < length - len(one) <= _MOST_DIGITS and one.rstrip(b" ") == _CLOSE for one in ends)


def stripped(bodies: Iterable[bytes], length: int) -> set[bytes]:
    """The distinct beginnings of the bodies, of this length, without the digits that they begin with."""
    digits = _DIGITS
    return {body[:length].lstrip(digits) for body in bodies}


def _unnumbered(header: bytes) -> bytes:
    """A header without the digits of its packet identifier. Headers of different lengths stay different, because
    StrucLength is in them."""
    closed = header.rstrip(b" ")
    if not closed.endswith(_CLOSE):
        return header
    numbered = closed[: -len(_CLOSE)]
    opened = numbered.rstrip(_DIGITS)
    if 0 < len(numbered) - len(opened) <= _MOST_DIGITS and opened.endswith(_OPEN):
        return opened + _ANY
    return header


def _same_for_all(rule: OutboundRule) -> bool:
    """Whether headers and JSON fields alone decide what the rule makes of a message."""
    spec = rule.spec
    varies = any(slot.kind in _VARYING or (slot.kind == "mqtt" and slot.name == "msgId") for slot in rule.slots)
    whole = spec.convert is not None or not spec.strip_headers or spec.user_properties == "all"
    whole = whole or spec.groups == "whole"
    return not (varies or whole) and spec.transmission_queue is None


def _differs(made: Outgoing) -> bool:
    """Whether a publication has something that others with these headers do not share."""
    own = {CORRELATION_DATA, MESSAGE_EXPIRY, RESPONSE_TOPIC}
    return bool(made.report) or not own.isdisjoint(made.properties) or carries(made.properties)
