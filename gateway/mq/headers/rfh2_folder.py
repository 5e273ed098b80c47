"""The folder text inside an MQRFH2: typed values to elements and back.

A folder is `<name attributes><element dt='type'>value</element>...</name>`; elements may nest. Reading is lenient about
what IBM's own programs vary (quotes, blanks, order of attributes), and refuses what is not a tree. No XML library is
used: queue managers write and accept only this small language, and a general parser would open its attack surface.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.errors import HeaderError

MAX_DEPTH = 32
"""Groups nested deeper than this are refused; no program writes more than a few."""

Scalar = str | int | float | bytes | bool | None


class Typed(NamedTuple):
    """A value with the type it has on the wire: `Typed("i1", 5)`."""

    dt: str
    value: Scalar


PropertyValue = Scalar | Typed

INTEGER_BITS = {"i1": 8, "i2": 16, "i4": 32, "i8": 64, "int": 64}
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;"))
_ESCAPES_OF_BYTES = tuple((plain.encode(), entity.encode()) for plain, entity in _ESCAPES)
_SPECIAL, _SPECIAL_BYTES = re.compile("[&<>\"']"), re.compile(b"[&<>\"']")
_ENTITY = re.compile(r"&(?:#(x[0-9A-Fa-f]{1,6}|[0-9]{1,7})|([A-Za-z]+));")
_NAMED = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "amp": "&"}
_NAME = re.compile(r"[^\W\d][\w.\-:$]*")


def escape(text: str, *, for_format: bool = False) -> str:
    """Returns text with the five characters of markup written as entities (`for_format`: with percent signs doubled
    instead)."""
    if for_format:
        return text.replace("%", "%%")
    if _SPECIAL.search(text):
        for plain, entity in _ESCAPES:
            text = text.replace(plain, entity)
    return text


def escape_bytes(text: bytes) -> bytes:
    """As `escape`, for text in UTF-8."""
    if _SPECIAL_BYTES.search(text):
        for plain, entity in _ESCAPES_OF_BYTES:
            text = text.replace(plain, entity)
    return text


def unescape(text: str) -> str:
    """Returns the text that an element stands for; an undefined reference stays as it is."""
    if "&" not in text:
        return text
    if "&#" in text:
        return _ENTITY.sub(_character, text)
    for name, character in _NAMED.items():  # the ampersand itself last: what it begins then is no reference
        text = text.replace(f"&{name};", character)
    return text


def _character(match: re.Match[str]) -> str:
    number, name = match[1], match[2]
    if name:
        return _NAMED.get(name, match[0])
    code = int(number[1:], 16) if number[0] == "x" else int(number)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


def typed(value: PropertyValue) -> Typed:
    """Returns a Python value with its wire type: bool, i4 or i8 by size, r8, bin.hex, string; None is the null
    value."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed("boolean", value)
    if isinstance(value, int):
        return Typed("i4" if -(1 << 31) <= value < 1 << 31 else "i8", value)
    if isinstance(value, float):
        return Typed("r8", value)
    return Typed("bin.hex" if isinstance(value, bytes) else "string", value)


def written(value: PropertyValue) -> tuple[dict[str, str], str]:
    """Returns the attributes and the escaped text of an element with this value."""
    dt, content = typed(value)
    attributes = {} if dt == "string" else {"dt": dt}
    if content is None:
        return attributes | {"xsi:nil": "true"}, ""
    return attributes, escape(str(content)) if dt == "string" else _written(dt, content)


def _written(dt: str, value: str | float | bytes | bool) -> str:
    if dt == "boolean":
        return "1" if value else "0"
    if dt == "bin.hex" and isinstance(value, bytes):
        return value.hex().upper()
    if dt in INTEGER_BITS and isinstance(value, int):
        return _integer(dt, value)
    if dt in {"r4", "r8"} and isinstance(value, int | float):
        return _float(float(value))
    raise HeaderError("MQRFH2", "NameValueData", 0, f"{value!r} cannot be written as dt='{dt}'")


def _integer(dt: str, value: int) -> str:
    half = 1 << (INTEGER_BITS[dt] - 1)
    if not -half <= value < half:
        raise HeaderError("MQRFH2", "NameValueData", 0, f"{value} does not fit dt='{dt}'")
    return str(value)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


def element(name: str, value: PropertyValue) -> str:
    """Returns one element with its type as `dt`. The name must be one that can stand in a tag."""
    check_name(name)
    attributes, text = written(value)
    said = "".join(f" {key}='{word}'" for key, word in attributes.items())
    return f"<{name}{said}>{text}</{name}>"


def check_name(name: str) -> None:
    """Refuse a name that would not be read back as itself from the folder."""
    if not _NAME.fullmatch(name):
        why = f"{name!r} cannot be an element name: begin with a letter or `_`, then letters, digits, `_`"
        raise HeaderError("MQRFH2", "NameValueData", 0, why)


def opening(name: str, *, content_properties: bool) -> str:
    """Returns the start tag of a folder."""
    check_name(name)
    return f"<{name} content='properties'>" if content_properties else f"<{name}>"


def folder(
    name: str,
    values: Mapping[str, PropertyValue] | Iterable[tuple[str, PropertyValue]],
    *,
    content_properties: bool = False,
) -> str:
    """Returns the text of one folder, elements in the order given; names may repeat when given as pairs."""
    pairs = values.items() if isinstance(values, Mapping) else values
    inside = "".join(element(key, value) for key, value in pairs)
    return f"{opening(name, content_properties=content_properties)}{inside}</{name}>"


@dataclass(slots=True)
class Element:
    """One element of a folder: a value, or a group of `children`."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def dt(self) -> str:
        """The type on the wire; string if none is given."""
        return self.attributes.get("dt") or self.attributes.get("xsi:type", "").rpartition(":")[2] or "string"

    @property
    def value(self) -> Scalar:
        """The value as Python has it. Raises HeaderError for text that is not of its type."""
        if self.attributes.get("xsi:nil") in {"true", "1"}:
            return None
        return read_value(self.dt, unescape(self.text))


def render(given: Element) -> str:
    """Returns the text of an element or folder; what was parsed is written with single quotes and without blanks
    between elements."""
    attributes = "".join(f" {name}='{escape(value)}'" for name, value in given.attributes.items())
    inside = "".join(map(render, given.children)) if given.children else given.text
    return f"<{given.name}{attributes}>{inside}</{given.name}>"


_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}
_FLOATS = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?")


def read_value(dt: str, text: str) -> Scalar:
    """Returns the Python value of an element's text. An unknown type is read as a string."""
    if dt in {"", "string", "char"}:
        return text
    plain = text.strip()
    if dt in INTEGER_BITS and _INTEGER.fullmatch(plain):
        number = int(plain)
        if -(half := 1 << (INTEGER_BITS[dt] - 1)) <= number < half:
            return number
    elif dt in {"r4", "r8"} and (plain in _FLOATS or _REAL.fullmatch(plain)):
        return _FLOATS[plain] if plain in _FLOATS else float(plain)
    elif dt == "boolean" and plain in _BOOLEANS:
        return _BOOLEANS[plain]
    elif dt == "bin.hex":
        return _bytes(plain)
    elif dt not in INTEGER_BITS and dt not in {"r4", "r8", "boolean"}:
        return text
    raise HeaderError("MQRFH2", "NameValueData", 0, f"{plain[:40]!r} is not a value of dt='{dt}'")


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise HeaderError("MQRFH2", "NameValueData", 0, f"{text[:40]!r} is not a value of dt='bin.hex'") from None


_LEAF = re.compile(r"\s*<([^\s<>/'\"=]+)((?:\s+[^\s<>/'\"=]+\s*=\s*(?:'[^'<]*'|\"[^\"<]*\"))*)\s*>([^<]*)</\1\s*>")
_USUAL_LEAF = re.compile(r"<([A-Za-z_]\w*)(?: dt='([\w.]+)')?>([^<]*)</\1>")
_TAG = re.compile(r"([^<]*)<(/?)([^\s<>/'\"=]+)((?:\s+[^\s<>/'\"=]+\s*=\s*(?:'[^'<]*'|\"[^\"<]*\"))*)\s*(/?)>")
_ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\")")


def parse_folder(text: str, offset: int = 0) -> Element:
    """Returns the tree of one folder's text (padding may follow). `offset` is its place in the message, for errors."""
    stack: list[Element] = []
    position, last = 0, len(text)
    while position < last:
        if stack:
            position = _usual_leaves(stack[-1].children, text, position)
        if stack and (leaf := _LEAF.match(text, position)):
            stack[-1].children.append(Element(leaf[1], _attributes(leaf[2]), leaf[3]))
            position = leaf.end()
            continue
        tag = _TAG.match(text, position)
        if not tag:
            raise _not_a_folder(text, position, offset)
        position = tag.end()
        root = _apply(stack, tag, text, offset)
        if root:
            if text[position:].strip(" \0\t\r\n"):
                raise _not_a_folder(text, position, offset)
            return root
    raise _not_a_folder(text, position, offset)


def _usual_leaves(children: list[Element], text: str, position: int) -> int:
    """Read values as queue managers nearly always write them: with no attribute but dt, and no blanks between. Returns
    the position behind them."""
    match = _USUAL_LEAF.match
    while leaf := match(text, position):
        name, dt, value = leaf.groups()
        children.append(Element(name, {"dt": dt} if dt else {}, value, []))
        position = leaf.end()
    return position


def _attributes(text: str) -> dict[str, str]:
    if not text:
        return {}
    return {match[1]: unescape(match[2] if match[2] is not None else match[3]) for match in _ATTRIBUTE.finditer(text)}


def _apply(stack: list[Element], tag: re.Match[str], text: str, offset: int) -> Element | None:
    """Open or close an element; returns the root when it is finished."""
    before, closing, name, attributes, empty = tag.groups()
    if closing:
        if not stack or stack[-1].name != name or attributes or empty:
            raise _not_a_folder(text, tag.start(), offset)
        done = stack.pop()
        if not done.children:
            done.text = before
        return None if stack else done
    if (not stack and before.strip()) or len(stack) >= MAX_DEPTH:
        raise _not_a_folder(text, tag.start(), offset)
    made = Element(name, _attributes(attributes))
    if stack:
        stack[-1].children.append(made)
    if not empty:
        stack.append(made)
    return made if empty and not stack else None


def _not_a_folder(text: str, position: int, offset: int) -> HeaderError:
    near = text[position : position + 40]
    why = f"not a folder <name>...</name> of elements nested at most {MAX_DEPTH} deep, near {near!r}"
    return HeaderError("MQRFH2", "NameValueData", offset + position, why)
