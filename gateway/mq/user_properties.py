"""MQTT 5 user properties as MQ message properties and back: any text, repeated, empty, in order, nothing lost.

A name becomes an identifier: what may not stand in one is written `_xHHHH_` (as XML names are commonly escaped), so
that usual names stay readable and are properties any MQ or JMS program can select on. A name that comes again gets
`__x_2`, `__x_3` behind it; the empty name is `_x_`. A value the folder text cannot carry (control characters, and what
lies beyond the Unicode basic plane: IBM documents that NameValueData cannot hold it) is written as bytes. The order is
that of the properties; `ORDER` repeats it for programs and queue managers that do not keep it.

None of the marks can come out of a name: a literal `_x` is always escaped, so that `_x` begins an escape or a mark, and
before the `_` that ends an escape stands a hexadecimal digit, never another `_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.mq.properties import Property
from gateway.mq.property_names import MAX_NAME_LENGTH

ORDER = "mqtt.userProperties"
"""The property that lists the names of the others, separated by blanks, in their order."""
_EMPTY = "_x_"

_ESCAPED = re.compile(r"_x([0-9A-F]{4,6})_")
_REPEAT = re.compile(r"__x_[0-9]{1,9}$")
_LONG = re.compile(r"_x_[0-9]{1,9}")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = re.compile(
    r"(?i:null|true|false|not|and|or|between|like|in|is|escape)"
    r"|JMS.*|MQ(?:IsRetained|PubLevel|PubOptions|SubUserData|TopicString)|Root|Body"
)
_NOT_TEXT = re.compile("[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd]")


def escape_name(name: str) -> str:
    """The identifier for any text; different texts give different identifiers."""
    if _PLAIN.fullmatch(name) and "_x" not in name and not _RESERVED.fullmatch(name):
        return name
    escaped = "".join(_escaped(name, at) for at in range(len(name))) or _EMPTY
    return _hex(escaped[0]) + escaped[1:] if _RESERVED.fullmatch(escaped) else escaped


def _escaped(name: str, at: int) -> str:
    char = name[at]
    if char == "_":
        return _hex(char) if name[at + 1 : at + 2] == "x" else char
    stays = (char.isdigit() and char.isascii() and at) or (char.isalpha() and char.isidentifier() and char <= "\ud7ff")
    return char if stays else _hex(char)


def _hex(char: str) -> str:
    return f"_x{ord(char):04X}_"


def unescape_name(escaped: str) -> str:
    """The text an identifier stands for, its repeat mark taken away."""
    plain = _REPEAT.sub("", escaped)
    return "" if plain == _EMPTY else _ESCAPED.sub(_character, plain)


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code < 0x110000 else match[0]


def encode(pairs: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> list[Property]:
    """The properties for these user properties, and `ORDER` when there is more than one.

    `taken` are names the sender of the pairs must not replace: theirs count as repeats.
    """
    seen = dict.fromkeys(taken, 1)
    found: list[Property] = []
    for name, value in pairs:
        escaped = escape_name(name)
        seen[escaped] = count = seen.get(escaped, 0) + 1
        marked = escaped if count == 1 else f"{escaped}__x_{count}"
        if len(marked) > MAX_NAME_LENGTH:  # no property name is that long: the name goes into the value
            marked, value = f"{_EMPTY}{len(found)}", f"{len(name)}:{name}{value}"
        found.append(_property(marked, value))
    if len(found) > 1:
        found.append(Property(ORDER, " ".join(each.name for each in found)))
    return found


def _property(name: str, value: str) -> Property:
    if _NOT_TEXT.search(value):
        return Property(name, value.encode("utf-8", "surrogatepass"), "bin.hex")
    return Property(name, value)


def decode(properties: Sequence[Property]) -> list[tuple[str, str]]:
    """The user properties among `properties` (those of usr), in the order they had; other types come as text."""
    order = next((each.value for each in properties if each.name == ORDER), None)
    wanted = [each for each in properties if "." not in each.name]
    if isinstance(order, str):
        places = {name: place for place, name in enumerate(order.split(" "))}
        wanted.sort(key=lambda each: places.get(each.name, len(places)))
    return [_pair(each) for each in wanted]


def _pair(given: Property) -> tuple[str, str]:
    text = _text(given)
    if _LONG.fullmatch(given.name):
        length, _, both = text.partition(":")
        if length.isdigit() and len(length) < 6:
            return both[: int(length)], both[int(length) :]
    return unescape_name(given.name), text


def _text(given: Property) -> str:
    value = given.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
