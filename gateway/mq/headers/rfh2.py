"""MQRFH2, the header of name-value folders: built from typed values, parsed, and prepared as templates.

The folders hold text in a small subset of XML; `folder` writes one, `parse_folder` reads one. Which folders are message
properties, and what their names may be, is decided in properties.py. Nothing here converts character sets.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout
from gateway.mq.headers.rfh2_folder import PropertyValue, Typed, element, folder, opening

__all__ = ["Rfh2", "Template", "Typed", "build", "build_template", "folder", "parse"]

FIXED_LENGTH = 36
FORMAT = b"MQHRF2  "
MAX_LENGTH = 1 << 20
"""The most bytes of MQRFH2 headers in one message that are read."""
MAX_TAGS, MAX_ATTRIBUTES, MAX_REFERENCES = 20_000, 20_000, 50_000
"""The most tags, attributes and numeric character references that are read: what is made from them takes a hundred
times as much memory as their text."""
UNICODE_CCSIDS = (1208, 1200, 13488, 17584)
"""The character sets that NameValueData may be in."""

_FIXED = {order: layout.codec("MQRFH2", 2, order) for order in "<>"}
_INT = {order: struct.Struct(order + "i") for order in "<>"}


class Rfh2(NamedTuple):
    """One parsed header. `folders` are the texts as they came, padding included."""

    length: int
    encoding: int
    coded_char_set_id: int
    format: bytes
    flags: int
    name_value_ccsid: int
    folders: tuple[bytes, ...]
    order: str
    offset: int

    def texts(self) -> tuple[str, ...]:
        """Returns the folders as text without padding."""
        codec = name_value_codec(self.name_value_ccsid, self.order)
        try:
            return tuple(raw.decode(codec).rstrip(" \0") for raw in self.folders)
        except UnicodeDecodeError as broken:
            why = f"folder text is not in CCSID {self.name_value_ccsid}: {broken.reason}"
            raise HeaderError("MQRFH2", "NameValueData", self.offset + FIXED_LENGTH, why) from None


def name_value_codec(ccsid: int, order: str) -> str:
    """Returns the codec of NameValueData. UTF-16 is written in the byte order of the header's numbers."""
    if ccsid == 1208:
        return "utf-8"
    if ccsid in UNICODE_CCSIDS:
        return "utf-16-le" if order == "<" else "utf-16-be"
    return "utf-8"  # 0 and others are wrong, but occur; all folders seen with them were ASCII


def build(
    folders: Iterable[str],
    *,
    encoding: int = 546,
    coded_char_set_id: int = 1208,
    format_name: bytes = b"        ",
    flags: int = 0,
    name_value_ccsid: int = 1208,
    order: str = "<",
) -> bytes:
    """Returns the header with these folder texts (`folder` writes them); Encoding, CodedCharSetId and Format describe
    what follows it."""
    if name_value_ccsid not in UNICODE_CCSIDS:
        raise HeaderError("MQRFH2", "NameValueCCSID", 32, f"{name_value_ccsid} is not one of 1208, 1200, 13488, 17584")
    codec = name_value_codec(name_value_ccsid, order)
    data = b"".join(_pair(text, codec, order) for text in folders)
    length = FIXED_LENGTH + len(data)
    fixed = (b"RFH ", 2, length, encoding, coded_char_set_id, format_name.ljust(8), flags, name_value_ccsid)
    return _FIXED[order].pack(*fixed) + data


def _pair(text: str, codec: str, order: str) -> bytes:
    raw = padded(text, codec)
    return _INT[order].pack(len(raw)) + raw


def padded(text: str, codec: str) -> bytes:
    """Returns folder text as it lies in the header: a multiple of four bytes, filled with blanks (two bytes each in
    UTF-16)."""
    try:
        raw = text.encode(codec)
    except UnicodeEncodeError as wrong:
        why = f"character {wrong.start} of {text[:40]!r} is half of a surrogate pair"
        raise HeaderError("MQRFH2", "NameValueData", FIXED_LENGTH, why) from None
    blank = " ".encode(codec)
    return raw + blank * (-len(raw) % 4 // len(blank))


def rebuilt(data: bytes, header: Rfh2, folders: Sequence[bytes]) -> bytes:
    """Returns the header as it lies in `data`, but with these (padded) folders."""
    number = _INT[header.order].pack
    inside = b"".join(number(len(raw)) + raw for raw in folders)
    fixed = data[header.offset : header.offset + FIXED_LENGTH]
    return fixed[:8] + number(FIXED_LENGTH + len(inside)) + fixed[12:] + inside


class Bounds:
    """What the headers of one message contain in all, counted before their folders are read."""

    __slots__ = ("attributes", "length", "references", "tags")

    def __init__(self) -> None:
        self.length = self.tags = self.attributes = self.references = 0

    def check(self, data: bytes, at: int, length: int) -> None:
        """Count one more header. Raises HeaderError if there is more than is read."""
        self.length += length
        if self.length > MAX_LENGTH:
            why = f"headers of {self.length} bytes in one message, over {MAX_LENGTH}: send long values in the body"
            raise HeaderError("MQRFH2", "StrucLength", at + 8, why)
        if self.length < MAX_TAGS:
            return
        self.tags += data.count(b"<", at, at + length)
        self.attributes += data.count(b"=", at, at + length)
        self.references += data.count(b"&#", at, at + length)
        if self.tags > MAX_TAGS or self.attributes > MAX_ATTRIBUTES or self.references > MAX_REFERENCES:
            most = f"{MAX_TAGS} tags, {MAX_ATTRIBUTES} attributes or {MAX_REFERENCES} references"
            why = f"more than {most} in one message: send fewer properties"
            raise HeaderError("MQRFH2", "NameValueData", at + FIXED_LENGTH, why)


def parse(data: bytes, at: int = 0, *, order: str = "<", bounds: Bounds | None = None) -> Rfh2:
    """Read the header at `at`. Folders stay bytes; lengths are checked. `bounds` are those of the message it is part
    of."""
    if len(data) - at < FIXED_LENGTH:
        raise HeaderError("MQRFH2", "StrucLength", at, f"the data ends after {len(data) - at} bytes of 36")
    _, _, length, encoding, ccsid, format_name, flags, text_ccsid = _FIXED[order].unpack_from(data, at)
    if length < FIXED_LENGTH or length > len(data) - at:
        raise HeaderError(
            "MQRFH2", "StrucLength", at + 8, f"{length} is not between 36 and the {len(data) - at} bytes there"
        )
    (bounds or Bounds()).check(data, at, length)
    return Rfh2(length, encoding, ccsid, format_name, flags, text_ccsid, _split(data, at, length, order), order, at)


def _split(data: bytes, at: int, length: int, order: str) -> tuple[bytes, ...]:
    read = _INT[order].unpack_from
    found, position, end = [], at + FIXED_LENGTH, at + length
    while position < end:
        size = read(data, position)[0] if end - position >= 4 else -1
        if not 0 <= size <= end - position - 4:
            raise HeaderError(
                "MQRFH2", "NameValueLength", position, f"a folder of {size} bytes does not fit StrucLength {length}"
            )
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return tuple(found)


class Tails(dict[int, bytes]):
    """For each number, the end of a header with it; a cache (packet identifiers: at most 65535 entries)."""

    def __init__(self, close: bytes, width: int) -> None:
        self.close, self.width = close, width

    def __missing__(self, number: int) -> bytes:
        tail = (b"%d%b" % (number, self.close)).ljust(self.width)
        if len(tail) > self.width:
            raise HeaderError("MQRFH2", "NameValueData", 0, f"{number} has more digits than the template has room for")
        self[number] = tail
        return tail


@cache
def _tails(close: bytes, width: int) -> Tails:
    return Tails(close, width)


@dataclass(frozen=True, slots=True)
class Template:
    """A header whose last value varies, though not in length: `head + tails[number]` is the whole header."""

    head: bytes
    tails: Tails = field(repr=False)
    length: int


def build_template(
    folders: Iterable[str],
    last: str,
    constant: Mapping[str, PropertyValue] | Sequence[tuple[str, PropertyValue]],
    varying: str,
    *,
    dt: str = "i4",
    digits: int = 5,
    encoding: int = 546,
    coded_char_set_id: int = 1208,
    format_name: bytes = b"        ",
) -> Template:
    """Returns a template: `folders`, then a folder `last` with `constant` elements and the number `varying` at its very
    end."""
    pairs = constant.items() if isinstance(constant, Mapping) else constant
    text, close = opened(last, pairs, varying, dt)
    open_value = text.encode()
    tails, size = tails_behind(len(open_value), close, digits)
    whole = build(
        [*folders, " " * size], encoding=encoding, coded_char_set_id=coded_char_set_id, format_name=format_name
    )
    return Template(whole[:-size] + open_value, tails, len(whole))


def opened(last: str, pairs: Iterable[tuple[str, PropertyValue]], varying: str, dt: str = "i4") -> tuple[str, bytes]:
    """Returns a template's last folder up to the varying value, and what closes it."""
    begin = opening(last, content_properties=False) + "".join(element(name, value) for name, value in pairs)
    return f"{begin}<{varying} dt='{dt}'>", f"</{varying}></{last}>".encode()


def tails_behind(length: int, close: bytes, digits: int = 5) -> tuple[Tails, int]:
    """Returns the tails of a template whose last folder has `length` bytes before the varying value, and the folder's
    size."""
    size = (length + digits + len(close) + 3) // 4 * 4
    return _tails(close, size - length), size


_ELEMENT_NAME = re.compile(r"<([^\s/>]+)")


def folder_name(raw: bytes | str) -> str:
    """Returns the name of a folder from its text, without parsing it, such as `usr`; empty if it does not begin like a
    folder."""
    match = _ELEMENT_NAME.match(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw)
    return match[1] if match else ""
