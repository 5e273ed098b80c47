"""Reads JSON text that peers send, strictly: what is not JSON by RFC 8259 is refused."""

from __future__ import annotations

import json
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder

DECODE = Decoder().decode
"""Decodes UTF-8 text, which `read_json` tries first."""


def read_json(raw: bytes) -> object:
    """The document that the bytes hold. If a name occurs twice in an object, its last value counts; integers may have
    any length. A byte order mark is skipped, and UTF-16 and UTF-32 are read too. Raises ValueError if the bytes are not
    JSON, or hold text or a number that could not be written again, as half of a surrogate pair (RFC 8259 8.2) or 1e999;
    RecursionError if they are nested too deeply."""
    try:
        return DECODE(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        encoding = json.detect_encoding(raw)
        if encoding == "utf-8":
            raise ValueError(str(error)) from None
        return _read_text(raw.decode(encoding))


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in bytes from an untrusted source. Raises ValueError if they hold anything else."""
    try:
        found = read_json(raw)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 -- callers catch one error for all that is not an object
    return found


def _read_text(text: str) -> object:
    try:
        return DECODE(text)
    except DecodeError as error:
        raise ValueError(str(error)) from None
