"""The chain of headers in front of a message's payload: walked, lengthened, shortened, described.

Each header says what follows it (Encoding, CodedCharSetId, Format), the descriptor says what the first one is. All
functions take and return whole messages as `(md, data)` with `md` in our own form: version 2, 364 bytes, little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.errors import HeaderError
from gateway.mq import mqmd
from gateway.mq.describe import body_in_words, descriptor_in_words, header_in_words
from gateway.mq.header import Described, Header, read

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
        """The bytes behind the last header."""
        return self.data[self.body_at :]

    def __iter__(self) -> Iterator[Header]:
        return iter(self.headers)

    def find(self, name: str) -> Header | None:
        """The first header of a structure: `find("MQRFH2")`."""
        return next((header for header in self.headers if header.name == name), None)


def described_by(md: bytes) -> Described:
    """What a descriptor says of its data."""
    encoding, ccsid = mqmd.number(md, mqmd.AT_ENCODING), mqmd.number(md, mqmd.AT_CCSID)
    return Described(encoding, ccsid, md[mqmd.FORMAT].replace(b"\0", b" "))


def walk(md: bytes, data: bytes) -> Chain:
    """All headers of a message. A header that is not what was announced raises HeaderError with offset and field."""
    return walk_described(described_by(md), data)


def walk_described(described: Described, data: bytes) -> Chain:
    """As `walk`, for data without a descriptor."""
    headers: list[Header] = []
    at = 0
    while header := read(described, data, at):
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
    """A message in words, ready for JSON: descriptor, headers, payload (its first `body_limit` bytes)."""
    chain, broken = walk_far(md, data)
    described: dict[str, object] = {
        "descriptor": descriptor_in_words(md),
        "headers": [header_in_words(header) for header in chain.headers],
        "body": body_in_words(chain.body, data, chain.body_at, body_limit),
    }
    if broken:
        described["problem"] = str(broken)
    return described
