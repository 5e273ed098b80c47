"""MQRFH, the older rules and formatting header: one string of names and values, as used by publish/subscribe before
V7."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout

FORMAT = b"MQHRF   "
FIXED_LENGTH = 32
_FIXED = {order: layout.codec("MQRFH", 1, order) for order in "<>"}
MAX_WORDS = 10_000
"""The most names and values of one header that are read."""
_SHOWN = 40
"""Characters of a word that are quoted in an error: the word may be as long as the message."""
_TOKEN = re.compile(r'[ \0]*(?:"((?:[^"]++|"")*+)"|([^ \0]+))')
"""Possessive, so that nothing is remembered for another attempt, which would take 150 bytes for each character of a
value."""


class Rfh(NamedTuple):
    """One parsed header; `pairs` keep order and repeats."""

    length: int
    encoding: int
    coded_char_set_id: int
    format: bytes
    flags: int
    pairs: tuple[tuple[str, str], ...]


def parse(data: bytes, at: int = 0, *, order: str = "<", codec: str = "utf-8") -> Rfh:
    """Read the header at `at`. Raises HeaderError."""
    if len(data) - at < FIXED_LENGTH:
        raise HeaderError("MQRFH", "StrucLength", at, f"the data ends after {len(data) - at} bytes of 32")
    _, _, length, encoding, ccsid, form, flags = _FIXED[order].unpack_from(data, at)
    if not FIXED_LENGTH <= length <= len(data) - at:
        raise HeaderError(
            "MQRFH", "StrucLength", at + 8, f"{length} is not between 32 and the {len(data) - at} bytes there"
        )
    text = data[at + FIXED_LENGTH : at + length].decode(codec, "replace")
    return Rfh(length, encoding, ccsid, form, flags, parse_pairs(text, at + FIXED_LENGTH))


def parse_pairs(text: str, at: int = 0) -> tuple[tuple[str, str], ...]:
    """Returns the names and values of a NameValueString. Raises HeaderError for a name without a value."""
    words = [
        match[1].replace('""', '"') if match[1] is not None else match[2]
        for match in islice(_TOKEN.finditer(text.rstrip(" \0")), MAX_WORDS + 1)
    ]
    if len(words) > MAX_WORDS:
        raise HeaderError("MQRFH", "NameValueString", at, f"more than {MAX_WORDS} words in one header")
    if len(words) % 2:
        raise HeaderError("MQRFH", "NameValueString", at, f"{_short(words[-1])} has no value: the words do not pair")
    return tuple(zip(words[::2], words[1::2], strict=True))


def _short(word: str) -> str:
    return repr(word) if len(word) <= _SHOWN else f"{word[:_SHOWN]!r}... ({len(word)} characters)"
