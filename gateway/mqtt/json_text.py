"""JSON text as peers send it, read strictly: what is not JSON by RFC 8259 is not taken for it."""

from __future__ import annotations

import json
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder

DECODE = Decoder().decode
"""Reads text in UTF-8, as `read_json` does first of all."""


def read_json(raw: bytes) -> object:
    """The document; of a name that stands twice the last value, and integers of any length as they are. A byte order
    mark is skipped, and UTF-16 and UTF-32 are read too. ValueError: not JSON, or text or a number that could not be
    written again: half of a surrogate pair (RFC 8259 8.2), 1e999. RecursionError: nested too deeply."""
    try:
        return DECODE(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        encoding = json.detect_encoding(raw)
        if encoding == "utf-8":
            raise ValueError(str(error)) from None
        return _read_text(raw.decode(encoding))


def read_object(raw: bytes) -> dict[str, Any]:
    """A JSON object from where others may put what they like. ValueError: it is none."""
    try:
        found = read_json(raw)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 -- as whatever else is none
    return found


def _read_text(text: str) -> object:
    try:
        return DECODE(text)
    except DecodeError as error:
        raise ValueError(str(error)) from None
