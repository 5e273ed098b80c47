"""Every MQ structure from one table: fields, types, defaults, versions, lengths; and the codecs compiled from it.

The Python codecs and the C headers of the MQI library are generated from this table, so that they cannot differ.
Offsets are not written down: they follow from natural alignment (Linux x86-64), and the tests compare them with the
published ones. This module knows only bytes and numbers: no character sets, no meaning of fields.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from gateway.errors import HeaderError
from gateway.mq.layout_table import TABLE

Value = int | bytes | tuple[int, ...]
LITTLE, BIG = "<", ">"

_LINE = re.compile(r"^(?P<name>MQ\w+)$|^ +(?:(?P<version>\d+):)?(?P<fields>.*)$")
_FIELD = re.compile(r'(?P<name>\w+) (?P<type>[\w/]+)(?: (?:"(?P<text>[^"]*)"|(?P<numbers>-?[\d,]+)))?$')
_SIMPLE = {"i4": (4, 4, "i"), "i8": (8, 8, "q"), "n8": (8, 8, "q"), "p": (8, 8, "Q")}  # size, alignment, struct code


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one structure. `code` is its struct code; a pointer is a number, an embedded structure its bytes."""

    name: str
    type: str
    offset: int
    size: int
    count: int
    code: str
    default: Value
    version: int
    embedded: str = ""
    """The name of the structure that this field holds (MQCHARV, MQMD, MQCFH), or empty."""

    @property
    def is_text(self) -> bool:
        """Whether the field is characters, which data conversion converts; everything else is numbers or bytes."""
        return self.type[0] == "c"

    @property
    def end(self) -> int:
        """The offset of the first byte after the field."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure of the MQI or a header of a message, in all its versions."""

    name: str
    fields: tuple[Field, ...]
    lengths: Mapping[int, int]
    """Version to length in bytes, padding at the end included."""

    @property
    def struc_id(self) -> bytes:
        """The four characters that it begins with, or nothing (MQCFH, MQOR, MQCD ...)."""
        first = self.fields[0]
        return first.default if first.name == "StrucId" and isinstance(first.default, bytes) else b""

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions known, ascending."""
        return tuple(self.lengths)

    @property
    def latest(self) -> int:
        """The highest version known."""
        return max(self.lengths)

    def length(self, version: int | None = None) -> int:
        """Returns the length in bytes of `version`, or of the highest known one if it is newer or not given."""
        return self.lengths[self.at(version)]

    def at(self, version: int | None) -> int:
        """Returns the known version as which to read `version`: the highest one not above it."""
        known = [each for each in self.lengths if version is None or each <= version]
        return max(known) if known else min(self.lengths)

    def fields_of(self, version: int | None = None) -> tuple[Field, ...]:
        """Returns the fields present in `version`."""
        limit = self.at(version)
        return tuple(field for field in self.fields if field.version <= limit)

    def field(self, name: str) -> Field:
        """Returns the field called `name`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name} has no field {name}")

    def __getitem__(self, name: str) -> int:
        return self.field(name).offset


@cache
def codec(name: str, version: int, order: str) -> struct.Struct:
    """Returns the compiled layout of one version in one byte order (`<` or `>`), gaps as pad bytes."""
    structure = STRUCTURES[name]
    return struct.Struct(order + _format(structure.fields_of(version), structure.length(version)))


def _format(fields: tuple[Field, ...], length: int) -> str:
    parts, at = [], 0
    for field in fields:
        parts.append("x" * (field.offset - at) + field.code)
        at = field.end
    return "".join(parts) + "x" * (length - at)


@cache
def defaults(name: str, version: int, order: str = LITTLE, charset: str = "ascii") -> tuple[int | bytes, ...]:
    """Returns the arguments that `codec(...).pack` needs for a structure with its defaults; Version is `version`, text
    is blank."""
    flat: list[int | bytes] = []
    for field in STRUCTURES[name].fields_of(version):
        flat.extend(_default_values(field, version, order, charset))
    return tuple(flat)


def _default_values(field: Field, version: int, order: str, charset: str) -> tuple[int | bytes, ...]:
    if field.embedded:
        inner, inner_version = field.embedded, int(field.type.partition("/")[2] or 1)
        return (codec(inner, inner_version, order).pack(*defaults(inner, inner_version, order, charset)),)
    if field.is_text:
        assert isinstance(field.default, bytes)  # noqa: S101  the table is ours
        return (_padded(field.default.decode().encode(charset), field.size, charset),)
    if field.name == "Version":
        return (version,)
    return field.default if isinstance(field.default, tuple) else (field.default,)


def _padded(raw: bytes, size: int, charset: str) -> bytes:
    return raw.ljust(size, " ".encode(charset))


def pack(
    name: str,
    values: Mapping[str, Value | str],
    *,
    version: int | None = None,
    order: str = LITTLE,
    charset: str = "ascii",
) -> bytes:
    """Returns the structure with `values` in place of its defaults and text in a single-byte `charset`. Errors name the
    field."""
    structure = STRUCTURES[name]
    number = structure.latest if version is None else version
    unknown = set(values) - {field.name for field in structure.fields_of(number)}
    if unknown:
        known = ", ".join(field.name for field in structure.fields_of(number))
        raise HeaderError(name, min(unknown), 0, f"version {number} has no such field; it has {known}")
    flat: list[int | bytes] = []
    for field in structure.fields_of(number):
        if field.name in values:
            flat.extend(_fitted(name, field, values[field.name], charset))
        else:
            flat.extend(_default_values(field, number, order, charset))
    return codec(name, structure.at(number), order).pack(*flat)


def _fitted(name: str, field: Field, value: Value | str, charset: str) -> tuple[int | bytes, ...]:
    if isinstance(value, str):
        value = _encoded(name, field, value, charset)
    if isinstance(value, tuple):
        if len(value) != field.count:
            raise HeaderError(name, field.name, field.offset, f"takes {field.count} numbers, not {len(value)}")
        for number in value:
            _check_range(name, field, number)
        return value
    if isinstance(value, int):
        _check_range(name, field, value)
        return (value,)
    if field.code[-1] != "s" or len(value) > field.size:
        why = f"takes {field.type}, not {len(value)} bytes: shorten the value"
        raise HeaderError(name, field.name, field.offset, why)
    return (_padded(value, field.size, charset) if field.is_text else value,)


def _encoded(name: str, field: Field, text: str, charset: str) -> bytes:
    try:
        return text.encode(charset, "surrogateescape")
    except UnicodeEncodeError as wrong:
        why = f"{text[wrong.start]!r} cannot be written in {charset}, the header's character set"
        raise HeaderError(name, field.name, field.offset, why) from None


def _check_range(name: str, field: Field, value: int) -> None:
    bits = 64 if field.code in {"q", "Q"} else 32
    if field.code[-1] == "s" or not -(1 << (bits - 1)) <= value < 1 << (bits - (field.code != "Q")):
        raise HeaderError(name, field.name, field.offset, f"{value} does not fit a field of type {field.type}")


def unpack(
    name: str, data: bytes, offset: int = 0, *, version: int | None = None, order: str = LITTLE
) -> dict[str, Value]:
    """Returns field values by name. Raises HeaderError if `data` ends inside the structure."""
    structure = STRUCTURES[name]
    number = structure.at(version)
    if len(data) - offset < structure.lengths[number]:
        raise HeaderError(
            name,
            _cut_field(structure, len(data) - offset),
            offset,
            f"the data ends before its {structure.lengths[number]} bytes",
        )
    flat = iter(codec(name, number, order).unpack_from(data, offset))
    return {
        field.name: next(flat) if field.count == 1 else tuple(next(flat) for _ in range(field.count))
        for field in structure.fields_of(number)
    }


def _cut_field(structure: Structure, available: int) -> str:
    return next((field.name for field in structure.fields if field.end > available), structure.fields[-1].name)


def _parse_table(text: str) -> Iterator[Structure]:
    rows: dict[str, dict[int, str]] = {}
    name, version = "", 0
    for line in text.strip("\n").split("\n"):
        match = _LINE.match(line)
        assert match, line  # noqa: S101  the table is ours
        if match["name"]:
            name = match["name"]
            rows[name] = {}
            continue
        version = int(match["version"] or version)
        rows[name][version] = rows[name].get(version, "") + match["fields"]
    for name, versions in rows.items():
        yield _structure(name, versions)


def _structure(name: str, versions: Mapping[int, str]) -> Structure:
    fields: list[Field] = []
    lengths: dict[int, int] = {}
    at, widest = 0, 1
    for version, text in versions.items():
        for part in filter(None, map(str.strip, text.split("|"))):
            field, alignment = _field(part, at, version)
            fields.append(field)
            at, widest = field.end, max(widest, alignment)
        lengths[version] = _aligned(at, widest)
    return STRUCTURES.setdefault(name, Structure(name, tuple(fields), lengths))


def _aligned(at: int, alignment: int) -> int:
    return (at + alignment - 1) // alignment * alignment


def _field(text: str, at: int, version: int) -> tuple[Field, int]:
    match = _FIELD.match(text)
    assert match, text  # noqa: S101  the table is ours
    size, alignment, code, count, embedded = _type(match["type"])
    default = _default(match["text"], match["numbers"], size, count, code)
    offset = _aligned(at, alignment)
    return Field(match["name"], match["type"], offset, size, count, code, default, version, embedded), alignment


def _type(text: str) -> tuple[int, int, str, int, str]:
    if text in _SIMPLE:
        size, alignment, code = _SIMPLE[text]
        return size, alignment, code, 1, ""
    if text.startswith("i4x"):
        count = int(text[3:])
        return 4 * count, 4, f"{count}i", count, ""
    inner, _, version = ("MQCHARV/1" if text == "V" else text).partition("/")
    if version:
        size = STRUCTURES[inner].lengths[int(version)]
        return size, 8 if inner == "MQCHARV" else 4, f"{size}s", 1, inner
    return int(text[1:]), 1, f"{text[1:]}s", 1, ""


def _default(text: str | None, numbers: str | None, size: int, count: int, code: str) -> Value:
    if text is not None:
        return (b" " * size) if text == " " else text.encode("ascii")
    if code[-1] == "s":
        return b""
    given = tuple(map(int, numbers.split(","))) if numbers else (0,)
    return given[0] if count == 1 else given + given[-1:] * (count - len(given))


STRUCTURES: dict[str, Structure] = {}
for _ in _parse_table(TABLE):
    pass
