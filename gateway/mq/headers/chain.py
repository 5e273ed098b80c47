"""The chain of headers in front of a message's payload: walked, lengthened, shortened, described.

Each header says what follows it (Encoding, CodedCharSetId, Format); the descriptor says what the first one is. All
functions take and return whole messages as `(md, data)` with `md` in our own form: version 2, 364 bytes, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.describe import body_in_words, descriptor_in_words, header_in_words
from gateway.mq.headers import rfh2
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE, TERMINAL, Described, Header, build, read, redescribed

Fields = dict[str, layout.Value | str]

MAX_DESCRIBED = 1 << 20
"""The most bytes of headers whose folders, records and parameters are put in words."""
MAX_HEADERS = 64
"""A longer chain is refused; no program makes one of more than a handful."""


@dataclass(slots=True)
class Chain:
    """Headers in order, then the payload from `body_at` on, described by `body`."""

    headers: list[Header]
    data: bytes = field(repr=False)
    body_at: int
    body: Described

    @property
    def payload(self) -> bytes:
        """The bytes after the last header."""
        return self.data[self.body_at :]

    def __iter__(self) -> Iterator[Header]:
        return iter(self.headers)

    def find(self, name: str) -> Header | None:
        """Returns the first header of a structure: `find("MQRFH2")`."""
        return next((header for header in self.headers if header.name == name), None)


_DESCRIBED = struct.Struct("<ii8s").unpack_from


def described_by(md: bytes) -> Described:
    """Returns what a descriptor says about its data."""
    said = _DESCRIBED(md, 24)
    if b"\0" in said[2]:
        return Described(said[0], said[1], said[2].replace(b"\0", b" "))
    return tuple.__new__(Described, said)  # half the cost of calling the type


def walk(md: bytes, data: bytes) -> Chain:
    """Returns all headers of a message as a chain. Raises HeaderError, with offset and field, at a header that is not
    what was announced."""
    return walk_described(described_by(md), data)


def first(md: bytes, data: bytes) -> Header | None:
    """Returns only the first header; what follows it is not read."""
    return read(described_by(md), data, 0)


def walk_described(described: Described, data: bytes, *, most: int = MAX_HEADERS + 1) -> Chain:
    """As `walk`, for data without a descriptor; reads at most `most` headers."""
    headers: list[Header] = []
    at = 0
    while len(headers) < most and (header := read(described, data, at)):
        if len(headers) == MAX_HEADERS:
            raise HeaderError(header.name, "Format", at, f"more than {MAX_HEADERS} headers: the chain runs into itself")
        headers.append(header)
        at += len(header.raw)
        described = header.follows
    return Chain(headers, data, at, described)


def walk_far(md: bytes, data: bytes) -> tuple[Chain, HeaderError | None]:
    """As `walk`, but a broken header ends the chain and is reported, for people who look at damaged messages."""
    described, headers, at = described_by(md), list[Header](), 0
    try:
        while len(headers) < MAX_HEADERS and (header := read(described, data, at)):
            headers.append(header)
            at, described = at + len(header.raw), header.follows
    except HeaderError as broken:
        return Chain(headers, data, at, described), broken
    return Chain(headers, data, at, described), None


def describe(md: bytes, data: bytes, *, body_limit: int = 4096) -> dict[str, object]:
    """Returns a message in words, ready for JSON: descriptor, headers, payload (its first `body_limit` bytes)."""
    chain, broken = walk_far(md, data)
    described: dict[str, object] = {
        "descriptor": descriptor_in_words(md),
        "headers": _in_words(chain.headers),
        "body": body_in_words(chain.body, data, chain.body_at, body_limit),
    }
    if broken:
        described["problem"] = str(broken)
    return described


def _in_words(headers: list[Header]) -> list[dict[str, object]]:
    """Returns headers in words, with their variable parts as far as a reader may want them."""
    room, bounds, found = MAX_DESCRIBED, rfh2.Bounds(), list[dict[str, object]]()
    for header in headers:
        room -= len(header.raw)
        whole = room >= 0
        if header.name == "MQRFH2" and whole:
            try:
                bounds.check(header.raw, 0, len(header.raw))
            except HeaderError:
                whole = False
        found.append(header_in_words(header, whole=whole))
    return found


Message = tuple[bytes, bytes]
"""Descriptor and data."""


def insert(
    md: bytes, data: bytes, index: int, name: str, values: Fields | None = None, *, tail: bytes = b""
) -> Message:
    """Returns the message with a header `name` before the one at `index` (0: in front of all), describing what was
    there; the chain stays correct.

    `values` are its other fields; an MQXQH holds the message's own descriptor unless they give another. It is written
    in the encoding and character set of its place, so that nothing else changes, or in UTF-8 if that character set is
    not one that headers can be in.
    """
    chain = walk_described(described_by(md), data, most=index)
    at, described = _place(md, chain, index)
    order = ">" if described.encoding & 15 == 1 else "<"
    charset, ccsid = _charset(described.ccsid)
    said: Fields = {"Encoding": described.encoding, "CodedCharSetId": described.ccsid}
    said["Format"] = described.format.decode("ascii", "replace")
    own = {field.name for field in layout.STRUCTURES[name].fields}
    fields = {key: value for key, value in said.items() if key in own} | (values or {})
    if name in TERMINAL and at < len(data):
        raise HeaderError(name, "Format", at, f"nothing can follow a {name}: {len(data) - at} bytes would")
    if name == "MQXQH" and "MsgDesc" not in fields:
        fields["MsgDesc"] = _embedded(md, order, charset)
    added = build(name, fields, tail=tail, order=order, charset=charset)
    place = Described(described.encoding, ccsid, FORMAT_OF_STRUCTURE[name])
    if name == "MQXQH":
        header = read(place, added, 0)
        assert header is not None  # noqa: S101 -- it was built a moment ago
        added = redescribed(header, described)
    return _spliced(md, chain, index, at, at, added, place)


def _embedded(md: bytes, order: str, charset: str) -> bytes:
    """Returns the descriptor of a message as an MQXQH in this form holds it: version 1."""
    values = layout.unpack("MQMD", mqmd.version_1(md), version=1)
    text = {field.name for field in layout.STRUCTURES["MQMD"].fields_of(1) if field.is_text}
    own = {name: _in_charset(value, charset) if name in text else value for name, value in values.items()}
    return layout.pack("MQMD", own, version=1, order=order, charset=charset)


def _in_charset(value: layout.Value, charset: str) -> layout.Value:
    return value.decode("utf-8", "replace").encode(charset, "replace") if isinstance(value, bytes) else value


def prepend(md: bytes, data: bytes, name: str, values: Fields | None = None, *, tail: bytes = b"") -> Message:
    """Returns the message with a header in front of all others: `insert` at 0."""
    return insert(md, data, 0, name, values, tail=tail)


def remove(md: bytes, data: bytes, index: int) -> Message:
    """Returns the message without the header at `index`; what precedes it now describes what followed it."""
    chain = walk_described(described_by(md), data, most=index + 1)
    header = _header(chain, index)
    return _spliced(md, chain, index, header.offset, header.offset + len(header.raw), b"", header.follows)


def replace(md: bytes, data: bytes, index: int, raw: bytes, format_name: bytes | None = None) -> Message:
    """Returns the message with other bytes for the header at `index`, of another structure if `format_name` says so.

    The new bytes must be in the encoding and character set of their place and describe what follows.
    """
    chain = walk_described(described_by(md), data, most=index + 1)
    header = _header(chain, index)
    _, described = _place(md, chain, index)
    described = described._replace(format=(format_name or described.format).ljust(8))
    return _spliced(md, chain, index, header.offset, header.offset + len(header.raw), raw, described)


def _header(chain: Chain, index: int) -> Header:
    if not 0 <= index < len(chain.headers):
        raise HeaderError("MQMD", "Format", 0, f"the message has {len(chain.headers)} headers, not one at {index}")
    return chain.headers[index]


def _place(md: bytes, chain: Chain, index: int) -> tuple[int, Described]:
    """Returns the offset of the header (or payload) at `index`, and what describes it."""
    if not 0 <= index <= len(chain.headers):
        raise HeaderError(
            "MQMD", "Format", 0, f"the message has {len(chain.headers)} headers: there is no place {index}"
        )
    at = chain.headers[index].offset if index < len(chain.headers) else chain.body_at
    return at, chain.headers[index - 1].follows if index else described_by(md)


def _charset(ccsid: int) -> tuple[str, int]:
    """Returns the codec and character set in which a header is written where text is in `ccsid`."""
    codec = codec_of(ccsid)
    if codec and len("A".encode(codec)) == 1:
        return codec, ccsid
    return ("ascii", ccsid) if ccsid <= 0 else ("ascii", 1208)


def _spliced(md: bytes, chain: Chain, index: int, begin: int, end: int, raw: bytes, described: Described) -> Message:
    """Returns the message with `raw` in place of the bytes from `begin` to `end`, and with `described` in what is
    before them."""
    if index == 0:
        return mqmd.with_described(md, *described), chain.data[:begin] + raw + chain.data[end:]
    before = chain.headers[index - 1]
    changed = redescribed(before, described)
    return md, chain.data[: before.offset] + changed + raw + chain.data[end:]
