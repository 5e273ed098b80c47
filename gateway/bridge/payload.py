"""The payload of one publication as rules see it: bytes, and a JSON document if something asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import msgspec

from gateway.errors import Refused
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.constants import MQENC_NATIVE
from gateway.mqtt.json_text import DECODE, read_json
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule
from gateway.rules.model import When
from gateway.rules.payload_schema import Differs, compile_schema
from gateway.rules.templates import Value

UNREAD, _NO_JSON, _TOO_MANY = object(), object(), object()
MAX_JSON_BYTES = 16 * 2**20
"""Longer payloads are not parsed: no rule takes them for JSON."""
MAX_STRUCTURES = 100_000
"""How many arrays and objects a payload may have: a megabyte of empty ones becomes 40 MB of objects, and everybody has
to wait while they are made."""
_FEW = 2 * MAX_STRUCTURES
"""A payload of this many bytes cannot have more of them."""
NAMED = 256 << 10
"""Up to this size it is said where a payload differs from a schema; for that the validator writes out the whole
payload."""

Check = Callable[["Body"], None]
"""Refuses a payload."""
Condition = Callable[["Body"], bool]
"""Whether a rule applies to a payload."""


class Body(msgspec.Struct, eq=False, gc=False):
    """The bytes of a payload, parsed at most once, and only if a condition, a template or a schema needs it."""

    raw: bytes
    known: Any = UNREAD
    """The JSON document, once it has been read."""

    def read(self) -> Any:
        """Read the document; if the payload is not JSON, it has no fields."""
        raw, known = self.raw, _NO_JSON
        if len(raw) > _FEW and _structures(raw) > MAX_STRUCTURES:
            known = _TOO_MANY
        elif len(raw) <= MAX_JSON_BYTES:
            try:
                known = DECODE(raw)
            except (ValueError, RecursionError):  # or in another encoding
                known = _parse(raw)
        self.known = known
        return known

    @property
    def document(self) -> Any:
        """The JSON document. Raises Refused if the payload is not JSON, or has too many arrays and objects."""
        known = self.read() if self.known is UNREAD else self.known
        if known is _NO_JSON:
            raise Refused("the payload is not JSON", Feedback.SCHEMA)
        if known is _TOO_MANY:
            raise Refused(f"the payload has more than {MAX_STRUCTURES} arrays and objects", Feedback.SCHEMA)
        return known

    def field(self, path: str) -> Value:
        """The scalar at `a.b` or `list.0.c`; None if it does not exist. Arrays and objects are returned as JSON
        text."""
        return self.find(steps_of(path))

    def find(self, steps: tuple[str, ...]) -> Value:
        """Like `field`, for a path that has been split."""
        value = self.read() if self.known is UNREAD else self.known
        for step in steps:
            kind = type(value)
            if kind is dict:
                value = value.get(step)
            elif kind is list:
                value = _item(value, step)
            else:
                return None
        kind = type(value)
        return _text(value) if kind is dict or kind is list else value


@lru_cache(maxsize=4096)
def steps_of(path: str) -> tuple[str, ...]:
    """The steps of a path."""
    return tuple(path.split("."))


def _structures(raw: bytes) -> int:
    """How many arrays and objects a JSON text has, without making them."""
    found = raw.count(b"[") + raw.count(b"{")
    if found <= MAX_STRUCTURES:
        return found
    outside = raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]  # the pieces outside strings
    return sum(one.count(b"[") + one.count(b"{") for one in outside)


def _item(values: list[Any], step: str) -> Any:
    if not (step.isascii() and step.isdigit() and len(step) < 9) or int(step) >= len(values):
        return None
    return values[int(step)]


def _text(value: object) -> str | None:
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return None


def _parse(raw: bytes) -> object:
    try:
        return read_json(raw)
    except (ValueError, RecursionError):
        return _NO_JSON


# -- which rules apply --


def condition_of(when: When) -> Condition:
    """A test of whether a payload meets the rule's conditions on it."""
    found: list[Condition] = []
    if when.payload is not None:
        found.append(partial(_has_size, when.payload.at_least, when.payload.at_most or 0))
    for path, wanted in (when.json_fields or {}).items():
        found.append(partial(_has_field, steps_of(path), wanted, type(wanted) is bool))
    return found[0] if len(found) == 1 else lambda body: all(condition(body) for condition in found)


def _has_size(least: int, most: int, body: Body) -> bool:
    return least <= len(body.raw) and (not most or len(body.raw) <= most)


def _has_field(steps: tuple[str, ...], wanted: bool | float | str, is_bool: bool, body: Body) -> bool:
    found = body.find(steps)
    return found == wanted and (type(found) is bool) is is_bool  # true is not 1, and text is not a number


# -- what is refused --


def check_of(rule: InboundRule) -> Check | None:
    """A check that refuses a payload which is not as a rule says; None: any payload is accepted."""
    payload, found = rule.spec.payload, list[Check]()
    if rule.schema is not None:
        found.append(partial(_check_schema, compile_schema(rule.schema)))
    elif payload.format == "json":
        found.append(check_json)
    codec = codec_of(payload.ccsid or 1208, payload.encoding or MQENC_NATIVE) if payload.format == "string" else None
    if codec is not None:  # a character set that is not known here is left to the reader's queue manager
        found.append(partial(_check_text, codec, payload.ccsid or 1208))
    return (partial(_check_all, found) if len(found) > 1 else found[0]) if found else None


def _check_all(checks: list[Check], body: Body) -> None:
    for check in checks:
        check(body)


def check_json(body: Body) -> None:
    """Refuse a payload that is not JSON."""
    body.document  # noqa: B018 -- refuses


def _check_schema(differs: Differs, body: Body) -> None:
    """Refuse a payload that is not JSON or does not match the schema. The text names places, not values."""
    text = differs(body.document, len(body.raw) <= NAMED)
    if text:
        raise Refused(text[:300], Feedback.SCHEMA)


def _check_text(codec: str, ccsid: int, body: Body) -> None:
    """Refuse a payload that is not text in the character set that a rule names."""
    try:
        body.raw.decode(codec)
    except UnicodeDecodeError as error:
        raise Refused(f"not text in CCSID {ccsid} at byte {error.start}", Feedback.TEXT_NOT_VALID) from None
