"""MQTT 5 user properties as MQ message properties and back, without loss.

MQ does not allow every name, and no name twice; MQTT 5 allows both. In a name, each character that MQ would refuse
becomes `_xHH_`, and a repeated name gets a number (`name_xR2_`); if names are repeated, one list property
(`mqtt.userProperties`) keeps the order. Reading undoes all of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import cast

from gateway.mqtt.packets import Properties

Pairs = Sequence[tuple[str, str]]

# Identifiers of MQTT 5 properties (section 2.2.2.2).
PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA = 0x01, 0x02, 0x03, 0x08, 0x09
USER_PROPERTY = 0x26

RESERVED = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})
ORDER_PROPERTY = "userProperties"
"""A property in the `mqtt` folder: the names in order, separated by commas."""
MAX_NAME = 4095

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LOOKS_ESCAPED = re.compile(r"_(?=x)")
_ESCAPED = re.compile(r"_x([0-9A-F]*|R[0-9]+)_")


def user_properties(properties: Properties) -> list[tuple[str, str]]:
    """The user properties of a decoded property block, in order."""
    return cast("list[tuple[str, str]]", properties.get(USER_PROPERTY, []))


def escape_name(name: str) -> str:
    """A name that MQ accepts in the `usr` folder, from which `unescape_name` makes `name` again."""
    if not name:
        return "_x_"
    text = _LOOKS_ESCAPED.sub("_x5F_", name)
    if not _PLAIN.match(text):
        text = "".join(_escape_character(character, index) for index, character in enumerate(text))
    if text.upper() in RESERVED or text[:3].upper() == "JMS":
        text = f"_x{ord(text[0]):X}_{text[1:]}"
    return text


def _escape_character(character: str, index: int) -> str:
    plain = character.isascii() and (character.isalpha() or character == "_" or (character.isdigit() and index))
    return character if plain else f"_x{ord(character):X}_"


def unescape_name(name: str) -> str:
    """The name that `escape_name` was given."""
    return _ESCAPED.sub(_unescape_match, name)


def _unescape_match(match: re.Match[str]) -> str:
    digits = match[1]
    if not digits or digits[0] == "R":  # the empty name, or the number of a repeat
        return ""
    code = int(digits, 16) if len(digits) <= 6 else 0
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def to_properties(pairs: Pairs, taken: Collection[str] = ()) -> tuple[list[tuple[str, str]], str]:
    """(MQ properties in order, order list). `taken`: names that the rule sets, which a device cannot replace."""
    names, order = numbered_names([name for name, _ in pairs], taken)
    properties = [(name, value) for name, (_, value) in zip(names, pairs, strict=True) if len(name) <= MAX_NAME]
    return properties, order


def numbered_names(names: Iterable[str], taken: Collection[str] = ()) -> tuple[list[str], str]:
    """The names as MQ accepts them, with repeated ones numbered; and, if any are repeated, the list of those that are
    not too long."""
    counts = dict.fromkeys(taken, 1)
    found: list[str] = []
    numbered = False
    for name in names:
        escaped = escape_name(name)
        count = counts[escaped] = counts.get(escaped, 0) + 1
        if count > 1:
            escaped, numbered = f"{escaped}_xR{count}_", True
        found.append(escaped)
    return found, ",".join(name for name in found if len(name) <= MAX_NAME) if numbered else ""


def from_properties(properties: Iterable[tuple[str, str]], order: str = "") -> list[tuple[str, str]]:
    """The user properties for the `usr` properties of a message, in their original order as far as it is known."""
    found = list(properties)
    if order:
        place = {name: index for index, name in enumerate(order.split(","))}
        found.sort(key=lambda pair: place.get(pair[0], len(place)))
    return [(unescape_name(name), value) for name, value in found]
