"""One header in front of message data, whatever its structure: found, read by the layout table, kept byte for byte.

A header's own numbers and characters are described by what is before it (`Described`); its own Encoding, CodedCharSetId
and Format describe what follows. What is not known (a newer version, a longer structure) stays in `raw`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout, pcf_span
from gateway.mq.character_sets.ccsid import codec_of, is_ebcdic

INHERIT = -2
EMBEDDED = -1
FORMAT_NONE = b"        "

STRUCTURE_OF_FORMAT = {
    b"MQCICS  ": "MQCIH",
    b"MQDEAD  ": "MQDLH",
    b"MQHDIST ": "MQDH",
    b"MQHEPCF ": "MQEPH",
    b"MQIMS   ": "MQIIH",
    b"MQHMDE  ": "MQMDE",
    b"MQADMIN ": "MQCFH",
    b"MQEVENT ": "MQCFH",
    b"MQPCF   ": "MQCFH",
    b"MQHREF  ": "MQRMH",
    b"MQHRF   ": "MQRFH",
    b"MQHRF2  ": "MQRFH2",
    b"MQHWIH  ": "MQWIH",
    b"MQXMIT  ": "MQXQH",
    b"MQTRIG  ": "MQTM",
}
FORMAT_OF_STRUCTURE = {name: form for form, name in STRUCTURE_OF_FORMAT.items()} | {"MQCFH": b"MQPCF   "}
TERMINAL = {"MQCFH", "MQTM"}
"""Structures that do not describe any following data: they are the whole message."""


class Described(NamedTuple):
    """What a descriptor or header says about the bytes after it; `format` is always eight bytes of ASCII."""

    encoding: int
    ccsid: int
    format: bytes


@dataclass(slots=True)
class Header:
    """One header of a chain. Its fields are unpacked when they are first asked for."""

    structure: layout.Structure
    version: int
    """The version it states; `known` is the version it is read as."""
    known: int
    order: str
    """Byte order of its numbers, `<` or `>`."""
    codec: str
    """Codec of its characters."""
    ccsid: int
    offset: int
    """Where it begins in the message data."""
    raw: bytes = field(repr=False)
    follows: Described
    """What the header says about the bytes after it."""
    _values: dict[str, layout.Value] | None = field(default=None, repr=False, compare=False)

    @property
    def values(self) -> dict[str, layout.Value]:
        """The fields of its fixed part."""
        if self._values is None:
            self._values = layout.unpack(self.structure.name, self.raw, version=self.known, order=self.order)
        return self._values

    @property
    def name(self) -> str:
        """IBM's name of the structure."""
        return self.structure.name

    @property
    def tail(self) -> bytes:
        """The variable part after the fixed one: folders, records, strings, parameters."""
        return self.raw[self.structure.length(self.known) :]

    def __getitem__(self, name: str) -> layout.Value:
        return self.values[name]

    def number(self, name: str) -> int:
        """Returns the value of a number field."""
        value = self.values[name]
        assert isinstance(value, int), name  # noqa: S101  a wrong name is a programmer's mistake
        return value

    def text(self, name: str) -> str:
        """Returns the value of a character field without padding."""
        value = self.values[name]
        assert isinstance(value, bytes), name  # noqa: S101  a wrong name is a programmer's mistake
        return characters(value, self.codec)


def characters(raw: bytes, codec: str) -> str:
    """Returns a character field as text: it ends at its length or the first NUL, and blanks at the end mean nothing."""
    return raw.decode(codec, "replace").partition("\0")[0].rstrip(" ")


class _Usual(NamedTuple):
    """What is needed to read an ordinary header: one in ASCII, of a known version, and complete."""

    structure: layout.Structure
    struc_id: bytes
    lengths: Mapping[int, int]
    has_length: bool
    follows_at: int
    head: tuple[Callable[[bytes, int], tuple[Any, ...]] | None, ...]
    """By integer encoding: StrucId, Version, StrucLength and the three fields that describe what follows, read in one
    go."""


def _usual(name: str) -> _Usual:
    structure = layout.STRUCTURES[name]
    at = structure["MsgDesc"] + layout.STRUCTURES["MQMD"]["Encoding"] if name == "MQXQH" else structure["Encoding"]
    little, big = (struct.Struct(f"{order}4sii{at - 12}xii8s").unpack_from for order in "<>")
    head = (None, big, little, *[None] * 13)
    return _Usual(structure, structure.struc_id, structure.lengths, name not in {"MQDLH", "MQXQH"}, at, head)


_USUAL = {form: _usual(name) for form, name in STRUCTURE_OF_FORMAT.items() if name not in TERMINAL}
_EMBEDDED_AT = layout.STRUCTURES["MQXQH"]["MsgDesc"]
_FOLLOWS = {order: struct.Struct(order + "ii8s").unpack_from for order in "<>"}


class _AsciiCodecs(dict[int, str]):
    """The codec of header characters by CCSID; nothing if they are not ASCII. A cache."""

    def __missing__(self, ccsid: int) -> str:
        codec = codec_of(ccsid)
        if codec is None:
            return "utf-8"  # not kept, because messages may contain any number
        self[ccsid] = found = codec if "A".encode(codec) == b"A" else ""
        return found


_ASCII = _AsciiCodecs()
_described = tuple.__new__  # half the cost of calling the type


def read(described: Described, data: bytes, at: int) -> Header | None:
    """Returns the header that `described` announces at `at`; None if it announces none of the built-in ones."""
    encoding, ccsid, form = described
    usual = _USUAL.get(form)
    if usual is None:
        return _read_other(described, data, at) if form in STRUCTURE_OF_FORMAT else None
    structure, usual_id, lengths, has_length, follows_at, head = usual
    unpack, codec = head[encoding & 15], _ASCII[ccsid]
    if unpack is None or not codec or len(data) - at < follows_at + 16:
        return _read_other(described, data, at)
    struc_id, version, length, number, said, form = unpack(data, at)
    shortest = lengths.get(version, 0)
    end = at + length if has_length else at + shortest
    if struc_id != usual_id or not shortest or end - at < shortest or end > len(data):
        return _read_other(described, data, at)
    if follows_at > _EMBEDDED_AT and data[at + _EMBEDDED_AT : at + _EMBEDDED_AT + 4] != b"MD  ":
        return _read_other(described, data, at)
    if b"\0" in form or not form.isascii():
        form = format_in_ascii(form, codec)
    follows = _described(Described, (number, ccsid if said == INHERIT else said, form))
    order = ">" if encoding & 1 else "<"
    return Header(structure, version, version, order, codec, ccsid, at, data[at:end], follows)


def _read_other(described: Described, data: bytes, at: int) -> Header | None:
    name = STRUCTURE_OF_FORMAT.get(described.format)
    if name is None:
        return None
    structure = layout.STRUCTURES[name]
    shortest = structure.length(structure.versions[0])
    if len(data) - at < min(shortest, 12):
        why = f"the data ends after {len(data) - at} bytes: the message was cut or its Format is wrong"
        raise HeaderError(name, "StrucId", at, why)
    order = _order(described.encoding, structure, data, at)
    structure = _other_rfh(structure, data, at, order)
    ccsid, codec = _characters(structure, described.ccsid, data, at)
    version = _version(structure, data, at, order)
    length, known = _extent(structure, version, data, at, order)
    header = Header(structure, version, known, order, codec, ccsid, at, data[at : at + length], described)
    if name == "MQXQH":
        _check_embedded(header)
    header.follows = _follows(header, described.encoding)
    return header


def _check_embedded(header: Header) -> None:
    """Check the descriptor inside an MQXQH, which says what follows the header: other bytes in its place must not be
    believed."""
    found = header.raw[_EMBEDDED_AT : _EMBEDDED_AT + 4]
    if found != "MD  ".encode(header.codec):
        why = f"{found!r} is not 'MD  ': the header holds no descriptor"
        raise HeaderError("MQXQH", "MsgDesc.StrucId", header.offset + _EMBEDDED_AT, why)


def _order(encoding: int, structure: layout.Structure, data: bytes, at: int) -> str:
    integers = encoding & 15
    if integers in {1, 2}:
        return ">" if integers == 1 else "<"
    # Undefined (0): the Version tells, being a small number in only one byte order.
    where = at + structure["Version"]
    return "<" if data[where : where + 1] != b"\0" else ">"


def _other_rfh(structure: layout.Structure, data: bytes, at: int, order: str) -> layout.Structure:
    """Choose between MQRFH and MQRFH2, which share their StrucId. Programs confuse the two formats, but the Version is
    right."""
    if structure.name not in {"MQRFH", "MQRFH2"}:
        return structure
    version = _int(data, at + 4, order)
    return layout.STRUCTURES["MQRFH" if version == 1 else "MQRFH2"] if version in {1, 2} else structure


def _int(data: bytes, at: int, order: str) -> int:
    return int.from_bytes(data[at : at + 4], "little" if order == "<" else "big", signed=True)


def _characters(structure: layout.Structure, ccsid: int, data: bytes, at: int) -> tuple[int, str]:
    """Returns the character set and codec of the header's own text, checked with its StrucId."""
    codec = codec_of(ccsid) or "utf-8"
    if not structure.struc_id:
        return ccsid, codec
    found = data[at : at + 4]
    if found == structure.struc_id:
        return ccsid, codec if "A".encode(codec) == b"A" else "iso8859-1"
    if found == structure.struc_id.decode().encode("cp500"):
        return ccsid, codec if is_ebcdic("A".encode(codec)) else "cp500"
    why = f"{found!r} is not {structure.struc_id.decode()!r}: the Format before it promises a {structure.name}"
    raise HeaderError(structure.name, "StrucId", at, why)


def _version(structure: layout.Structure, data: bytes, at: int, order: str) -> int:
    where = at + structure["Version"]
    version = _int(data, where, order)
    if 1 <= version < 1 << 16:
        return version
    swapped = _int(data, where, "<" if order == ">" else ">")
    hint = "; the bytes are of the other order: the Encoding before it is wrong" if 1 <= swapped < 1 << 16 else ""
    raise HeaderError(structure.name, "Version", where, f"{version} is not a version{hint}")


def _extent(structure: layout.Structure, version: int, data: bytes, at: int, order: str) -> tuple[int, int]:
    """Returns how many bytes the header takes, and the version to read it as."""
    available = len(data) - at
    if structure.name == "MQCFH":
        return pcf_span.length(data, at, order), version
    if "StrucLength" not in {each.name for each in structure.fields}:
        length = structure.length(version)
        if length > available:
            raise HeaderError(structure.name, "Version", at, f"the data ends after {available} bytes of {length}")
        return length, version
    where = at + structure["StrucLength"]
    length = _int(data, where, order)
    if length > available:
        raise HeaderError(structure.name, "StrucLength", where, f"{length} is more than the {available} bytes there")
    fitting = [
        each
        for each in structure.versions
        if each <= max(version, structure.versions[0]) and structure.length(each) <= length
    ]
    if not fitting:
        raise HeaderError(
            structure.name,
            "StrucLength",
            where,
            f"{length} is less than the {structure.length(structure.versions[0])} of this structure",
        )
    return length, max(fitting)


def _follows(header: Header, encoding: int) -> Described:
    if header.name in TERMINAL:
        return Described(encoding, header.ccsid, FORMAT_NONE)
    at = _USUAL[FORMAT_OF_STRUCTURE[header.name]].follows_at
    number, said, raw = _FOLLOWS[header.order](header.raw, at)
    return Described(number, header.ccsid if said == INHERIT else said, format_in_ascii(raw, header.codec))


def format_in_ascii(raw: bytes, codec: str) -> bytes:
    """Returns a Format as eight ASCII bytes, whatever character set it is written in; NULs become blanks."""
    return characters(raw, codec).encode("ascii", "replace").ljust(8)


def build(
    name: str,
    values: Mapping[str, layout.Value | str],
    *,
    tail: bytes = b"",
    version: int | None = None,
    order: str = "<",
    charset: str = "ascii",
) -> bytes:
    """Build any header from its fields; StrucLength is filled in unless given. `tail` is its variable part."""
    structure = layout.STRUCTURES[name]
    if name != "MQCFH" and "StrucLength" not in values and any(each.name == "StrucLength" for each in structure.fields):
        values = {**values, "StrucLength": structure.length(version) + len(tail)}
    return layout.pack(name, values, version=version, order=order, charset=charset) + tail


def redescribed(header: Header, follows: Described) -> bytes:
    """Returns the header's bytes with another description of what follows it."""
    if header.name in TERMINAL:
        raise HeaderError(header.name, "Format", header.offset, f"nothing can follow a {header.name}")
    at, fields = 0, header.structure
    if header.name == "MQXQH":
        at, fields = header.structure["MsgDesc"], layout.STRUCTURES["MQMD"]
    numbers = struct.Struct(header.order + "i")
    raw = bytearray(header.raw)
    numbers.pack_into(raw, at + fields["Encoding"], follows.encoding)
    numbers.pack_into(raw, at + fields["CodedCharSetId"], follows.ccsid)
    where = at + fields["Format"]
    raw[where : where + 8] = follows.format.decode("ascii").encode(header.codec)
    return bytes(raw)
