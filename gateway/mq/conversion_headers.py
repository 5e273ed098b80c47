"""One header in another encoding and character set: the fixed part by the layout table, the variable parts by their
kind."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from gateway.errors import MQError
from gateway.mq import layout, pcf
from gateway.mq.character_sets import ccsid as charsets
from gateway.mq.constants import (
    MQRC_CONVERTED_STRING_TOO_BIG,
    MQRC_NOT_CONVERTED,
    MQRC_SOURCE_CCSID_ERROR,
    MQRC_TARGET_CCSID_ERROR,
)
from gateway.mq.headers import dh, rfh2, rmh
from gateway.mq.headers.header import EMBEDDED, INHERIT, Described, Header


class Target(NamedTuple):
    """The encoding and character set that are asked for."""

    encoding: int
    ccsid: int
    codec: str

    @property
    def order(self) -> str:
        """Byte order of integers."""
        return ">" if self.encoding & 15 == 1 else "<"


class _Ways(NamedTuple):
    """The source and target forms of one header."""

    source: str
    target: str
    order: str
    new_order: str

    def text(self, raw: bytes, size: int | None = None) -> tuple[bytes, int]:
        """Returns a string; with `size` a field of that length, padded with blanks."""
        made, count = charsets.converted(raw, self.source, self.target)
        if size is None:
            return made, count
        if len(made) > size:
            made = made.rstrip(" ".encode(self.target))
        if len(made) > size:
            raise MQError(MQRC_CONVERTED_STRING_TOO_BIG, f"{raw!r} does not fit its {size} bytes after conversion", 1)
        return made.ljust(size, " ".encode(self.target)), count


def header_converted(header: Header, target: Target, follows: Described) -> tuple[bytes, int]:
    """Returns the header's bytes in the target form, with `follows` for what comes after it, and how many characters
    were substituted."""
    codec = charsets.source_codec(header.ccsid, 1 if header.order == ">" else 2) if header.ccsid > 0 else header.codec
    if not charsets.can_be_a_header(codec):
        raise MQError(MQRC_SOURCE_CCSID_ERROR, f"{header.name} cannot be in CCSID {header.ccsid}", 1)
    if not charsets.can_be_a_header(target.codec):
        raise MQError(MQRC_TARGET_CCSID_ERROR, f"{header.name} cannot be in CCSID {target.ccsid}", 1)
    ways = _Ways(header.codec, target.codec, header.order, target.order)
    fixed, count = _fixed(header.structure, header.values, ways, _said(header, target, follows))
    tail, more = _tail(header, ways, target)
    return _with_length(header, fixed + tail, ways), count + more


def _said(header: Header, target: Target, follows: Described) -> dict[str, layout.Value | str]:
    """Returns the three fields that describe what follows, as they are to be written."""
    if "Format" not in header.values and header.name != "MQXQH":
        return {}
    inherited = header.values.get("CodedCharSetId") == INHERIT and follows.ccsid == target.ccsid
    ccsid = INHERIT if inherited else follows.ccsid
    return {"Encoding": follows.encoding, "CodedCharSetId": ccsid, "Format": follows.format.decode("ascii", "replace")}


def _fixed(
    structure: layout.Structure, values: dict[str, layout.Value], ways: _Ways, said: dict[str, layout.Value | str]
) -> tuple[bytes, int]:
    made: dict[str, layout.Value | str] = {}
    substituted = 0
    for field in structure.fields:
        value = values.get(field.name)
        if isinstance(value, bytes) and field.embedded:
            inner = layout.STRUCTURES[field.embedded]
            unpacked = layout.unpack(inner.name, value, version=1, order=ways.order)
            value, count = _fixed(inner, unpacked, ways, said if field.embedded == "MQMD" else {})
            substituted += count
        elif isinstance(value, bytes) and field.is_text:
            value, count = ways.text(value, field.size)
            substituted += count
        if value is not None:
            made[field.name] = value
    own = {name: value for name, value in said.items() if name in made and "MsgDesc" not in made}
    version = max(field.version for field in structure.fields if field.name in made)
    packed = layout.pack(structure.name, made | own, version=version, order=ways.new_order, charset=ways.target)
    return packed, substituted


def _with_length(header: Header, raw: bytes, ways: _Ways) -> bytes:
    """Returns the header with StrucLength corrected after a change of its variable part."""
    if header.name in {"MQCFH", "MQXQH"} or "StrucLength" not in header.values:
        return raw
    at = header.structure["StrucLength"]
    return raw[:at] + struct.pack(ways.new_order + "i", len(raw)) + raw[at + 4 :]


def _tail(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    if not header.tail:
        return b"", 0
    convert = _TAILS.get(header.name)
    if convert is None:
        why = f"{header.name} is longer than its known fields: the rest cannot be converted"
        raise MQError(MQRC_NOT_CONVERTED, why, 1)
    return convert(header, ways, target)


def _folders(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    """Convert the folders: their text keeps its character set; lengths, and the byte order of UTF-16, follow the new
    encoding."""
    del target
    found = rfh2.parse(header.raw, order=header.order)
    if found.name_value_ccsid not in rfh2.UNICODE_CCSIDS:
        why = f"NameValueCCSID {found.name_value_ccsid} is not one of 1208, 1200, 13488, 17584"
        raise MQError(MQRC_SOURCE_CCSID_ERROR, why, 1)
    swap = found.name_value_ccsid != 1208 and ways.order != ways.new_order
    length = struct.Struct(ways.new_order + "i")
    return b"".join(length.pack(len(raw)) + (_swapped(raw) if swap else raw) for raw in found.folders), 0


def _swapped(raw: bytes) -> bytes:
    swapped = bytearray(raw)
    even = len(raw) & -2
    swapped[0:even:2], swapped[1:even:2] = raw[1:even:2], raw[0:even:2]
    return bytes(swapped)


def _pairs(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    del target
    made, count = ways.text(header.tail)
    return made + " ".encode(ways.target) * (-len(made) % 4), count


def _reference(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    del target
    names = rmh.parse(header.raw, header.values)
    made = [ways.text(raw) for raw in names]
    if [len(raw) for raw, _ in made] != list(map(len, names)):
        why = "a name would change its length, but the offsets of an MQRMH are kept"
        raise MQError(MQRC_CONVERTED_STRING_TOO_BIG, why, 1)
    tail = bytearray(" ".encode(ways.target) * len(header.tail))
    for name, (raw, _) in zip(rmh.STRINGS, made, strict=True):
        if raw:
            at = header.number(f"{name}Offset") - rmh.FIXED_LENGTH
            tail[at : at + len(raw)] = raw
    return bytes(tail), sum(count for _, count in made)


def _records(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    """Convert records: the names of an MQOR are characters, Feedback in an MQPMR is a number; identifiers stay."""
    del target
    found = dh.parse(header.raw, order=header.order, codec=header.codec)
    raw, substituted = bytearray(header.raw), 0
    for n in range(len(found.destinations)):
        for at in range(header.number("ObjectRecOffset") + n * 96, header.number("ObjectRecOffset") + (n + 1) * 96, 48):
            raw[at : at + 48], count = ways.text(header.raw[at : at + 48], 48)
            substituted += count
    first, size = header.number("PutMsgRecOffset"), dh.record_length(found.put_msg_rec_fields)
    feedback = dh.feedback_offset(found.put_msg_rec_fields)
    if first and feedback is not None and ways.order != ways.new_order:
        for n in range(len(found.destinations)):
            at = first + n * size + feedback
            raw[at : at + 4] = raw[at : at + 4][::-1]
    return bytes(raw[dh.FIXED_LENGTH :]), substituted


def _parameters(header: Header, ways: _Ways, target: Target) -> tuple[bytes, int]:
    fixed = header.structure.length(header.version)
    count = int.from_bytes(header.raw[fixed - 4 : fixed], "little" if header.order == "<" else "big")
    found, end = pcf.parse_parameters(header.raw, fixed, count, order=header.order)
    if end != len(header.raw) and header.raw[end:].strip(b"\0"):
        raise MQError(MQRC_NOT_CONVERTED, "there are unknown bytes behind the last PCF parameter", 1)
    parts, substituted = [], 0
    for each in found:
        substituted += _parameter(each, ways, target)
        parts.append(pcf.build_parameter(each, order=ways.new_order))
    return b"".join(parts) + header.raw[end:], substituted


def _parameter(given: pcf.Parameter, ways: _Ways, target: Target) -> int:
    """Convert one parameter in place; one of an unknown type cannot be converted. Returns how many characters were
    substituted."""
    if given.type not in pcf.STRUCTURE_OF_TYPE:
        raise MQError(MQRC_NOT_CONVERTED, f"PCF parameter of type {given.type} is not known here", 1)
    _forget_raw(given, ways.order)
    substituted = sum(_parameter(each, ways, target) for each in given.members)
    if given.type in {pcf.STRING, pcf.STRING_LIST, pcf.STRING_FILTER}:
        explicit = given.ccsid > 0 or given.ccsid == EMBEDDED
        encoding = 1 if ways.order == ">" else 2
        source = charsets.source_codec(given.ccsid, encoding) if given.ccsid > 0 else ways.source
        substituted += _strings(given, source, ways.target)
        given.ccsid = target.ccsid if explicit else given.ccsid
    given.order = ways.new_order
    return substituted


def _forget_raw(given: pcf.Parameter, order: str) -> None:
    """Drop padding that is not NUL. Raises MQError for unknown bytes after the value, which may not be dropped."""
    raw, given.raw = given.raw, b""
    if raw and len(pcf.build_parameter(given, order=order)) < len(raw):
        raise MQError(MQRC_NOT_CONVERTED, f"PCF parameter {given.parameter} is longer than its value", 1)


def _strings(given: pcf.Parameter, source: str, target: str) -> int:
    if isinstance(given.value, bytes):
        given.value, count = charsets.converted(given.value, source, target)
        return count
    assert isinstance(given.value, tuple)  # noqa: S101  a list of strings
    made = [charsets.converted(each, source, target) for each in given.value if isinstance(each, bytes)]
    longest = max((len(raw) for raw, _ in made), default=0)
    given.value = tuple(raw.ljust(longest, " ".encode(target)[:1]) for raw, _ in made)
    return sum(count for _, count in made)


_TAILS: dict[str, Callable[[Header, _Ways, Target], tuple[bytes, int]]] = {
    "MQRFH2": _folders,
    "MQRFH": _pairs,
    "MQRMH": _reference,
    "MQDH": _records,
    "MQCFH": _parameters,
    "MQEPH": _parameters,
}
