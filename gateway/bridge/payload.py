"""The payload of one publication as rules see it: bytes, and a JSON document when something asks for it."""

from __future__ import annotations

import json
from typing import Any

from gateway.errors import Refused
from gateway.mq.ccsid import codec_of
from gateway.rules.feedback import Feedback
from gateway.rules.model import When
from gateway.rules.payload_schema import Invalid, compile_schema
from gateway.rules.templates import Value

_UNREAD: Any = object()
MAX_JSON_BYTES = 16 * 2**20
"""Longer payloads are not parsed for conditions and templates: they count as having no fields."""


class Body:
    """Payload bytes; parsed at most once, and only when a condition, a template or a schema needs it."""

    __slots__ = ("_json", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._json: Any = _UNREAD

    @property
    def json(self) -> Any:
        """The document, or None when the payload is not JSON."""
        if self._json is _UNREAD:
            self._json = _parse(self.raw)
        return self._json

    def field(self, path: str) -> Value:
        """The scalar at `a.b` or `list.0.c`; None when it is not there. Structures come as JSON text."""
        value = self.json
        for step in path.split("."):
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 9:
                value = value[int(step)] if int(step) < len(value) else None
            else:
                return None
        return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else value


def _parse(raw: bytes) -> Any:
    if len(raw) > MAX_JSON_BYTES:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def agrees(when: When, body: Body) -> bool:
    """Whether the payload is what a rule's conditions ask for."""
    size = when.payload
    if size is not None and not size.at_least <= len(body.raw) <= (size.at_most or len(body.raw)):
        return False
    return all(_equal(body.field(path), wanted) for path, wanted in (when.json_fields or {}).items())


def _equal(found: Value, wanted: bool | float | str) -> bool:
    """JSON equality: true is not 1, and text is not a number."""
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def check_schema(schema: str, body: Body) -> None:
    """Refuse a payload that is not JSON or not what the schema describes. The text names places, not values."""
    try:
        document = json.loads(body.raw)
    except (ValueError, RecursionError):
        raise Refused("the payload is not JSON", Feedback.SCHEMA) from None
    try:
        compile_schema(schema).validate(document)
    except Invalid as error:
        place = "/".join(map(str, error.instance_path)) or "the document"
        raise Refused(f"{place}: {error.message}"[:300], Feedback.SCHEMA) from None


def check_text(raw: bytes, ccsid: int) -> None:
    """Refuse a payload that is not text in the character set a rule names."""
    codec = codec_of(ccsid)
    if codec is None:
        return  # not known here: the reader's queue manager decides
    try:
        raw.decode(codec)
    except UnicodeDecodeError as error:
        raise Refused(f"not text in CCSID {ccsid} at byte {error.start}", Feedback.TEXT_NOT_VALID) from None
