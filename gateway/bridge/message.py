"""A message from a queue as rules see it: descriptor, header chain, properties by folder, body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gateway.bridge.payload import Body
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import mqmd, situations
from gateway.mq.character_sets import ccsid as charsets
from gateway.mq.headers import chain, mde, rfh2
from gateway.mq.headers.header import INHERIT, STRUCTURE_OF_FORMAT, Described, Header
from gateway.mq.headers.rfh2_folder import Element, Scalar, parse_folder

Pairs = tuple[tuple[str, Scalar], ...]
RFH_ERROR, XQH_ERROR = 2334, 2260  # MQRC_RFH_ERROR, MQRC_XQH_ERROR
STRING, _RFH2 = b"MQSTR   ", b"MQHRF2  "
_CACHED_FOLDER = 512
"""Longer folders are not cached, so that the cache's memory is bounded by entries times this."""


class Folder(NamedTuple):
    """The properties of one folder: all of them in order, and the first of each name."""

    name: str
    pairs: Pairs
    first: dict[str, Scalar]


@dataclass(slots=True)
class Message:
    """A message. `md` is the descriptor that the application wrote; on a transmission queue, the embedded one."""

    md: bytes
    data: bytes = field(repr=False)
    headers: list[Header]
    body_at: int
    described: Described
    """What the last header says about the body."""
    folders: dict[str, Folder]
    remote_queue: str = ""
    remote_queue_manager: str = ""
    _body: Body | None = None
    _readable: Body | None = None

    @property
    def body(self) -> Body:
        """The bytes after the headers."""
        if self._body is None:
            self._body = Body(self.data[self.body_at :])
        return self._body

    @property
    def is_in_another_character_set(self) -> bool:
        """Whether the body is text that is not in UTF-8."""
        return self.described.format == STRING and charsets.says_another(self.described.ccsid)

    @property
    def readable(self) -> Body:
        """The body in the form in which its JSON is read: text in UTF-8, whatever its character set, as far as that is
        known."""
        if self._readable is None:
            self._readable = self._in_utf_8() if self.is_in_another_character_set else self.body
        return self._readable

    def _in_utf_8(self) -> Body:
        try:
            codec = charsets.source_codec(self.described.ccsid, self.described.encoding)
            return Body(charsets.decoded(self.body.raw, codec).encode())
        except MQError:
            return self.body

    @property
    def persistent(self) -> bool:
        """Whether the message survives a restart."""
        return self.md[mqmd.AT_PERSISTENCE] == 1

    def property(self, folder: str, name: str) -> Scalar:
        """The first property with that name; None if there is none."""
        found = self.folders.get(folder)
        return found.first.get(name) if found is not None else None

    def pairs(self, folder: str) -> Pairs:
        """All properties of a folder in order."""
        found = self.folders.get(folder)
        return found.pairs if found is not None else ()


def read_message(md: bytes, data: bytes) -> Message:
    """Take a message apart. Raises Refused, with the MQRC for it, if its headers are not as they should be."""
    try:
        return _read_plain(md, data) or _read_chain(md, data)
    except HeaderError as error:
        reason = XQH_ERROR if error.structure == "MQXQH" else RFH_ERROR
        raise Refused(str(error), reason) from None


def _read_plain(md: bytes, data: bytes) -> Message | None:
    """Read the common case, four times as fast: little-endian MQRFH2s or none, and no other header. None: it is not
    that case."""
    described = chain.described_by(md)
    folders: dict[str, Folder] = {}
    at, bounds = 0, rfh2.Bounds()
    while described.format == _RFH2 and described.encoding & 15 == 2 and data[at : at + 8] == b"RFH \2\0\0\0":
        header = rfh2.parse(data, at, bounds=bounds)
        _merge(folders, header)
        at += header.length
        ccsid = described.ccsid if header.coded_char_set_id == INHERIT else header.coded_char_set_id
        described = Described(header.encoding, ccsid, header.format.replace(b"\0", b" "))
    if described.format in STRUCTURE_OF_FORMAT:
        return None
    return Message(md, data, [], at, described, folders)


def _read_chain(md: bytes, data: bytes) -> Message:
    walked = chain.walk(md, data)
    folders: dict[str, Folder] = {}
    bounds = rfh2.Bounds()
    for header in walked.headers:
        if header.name == "MQRFH2":
            _merge(folders, rfh2.parse(data, header.offset, order=header.order, bounds=bounds))
    message = Message(md, data, walked.headers, walked.body_at, walked.body, folders)
    if walked.headers and walked.headers[0].name == "MQXQH":
        _unwrap(message, walked.headers)
    return message


def _unwrap(message: Message, headers: list[Header]) -> None:
    """Replace the descriptor of a message on a transmission queue by the embedded one, with the MQMDE that follows
    it."""
    first = headers[0]
    message.remote_queue = first.text("RemoteQName")
    message.remote_queue_manager = first.text("RemoteQMgrName")
    message.md = situations.native_descriptor(first)
    if len(headers) > 1 and headers[1].name == "MQMDE":
        second = headers[1]
        merged = mde.merge(message.md, second.raw, order=second.order)
        message.md = mqmd.with_described(merged, *second.follows)


def _merge(folders: dict[str, Folder], header: rfh2.Rfh2) -> None:
    codec = rfh2.name_value_codec(header.name_value_ccsid, header.order)
    for raw in header.folders:
        folder = _cached(raw, codec) if len(raw) <= _CACHED_FOLDER else _read(raw, codec)
        before = folders.get(folder.name)
        if before is not None:
            folder = Folder(folder.name, before.pairs + folder.pairs, folder.first | before.first)
        folders[folder.name] = folder


def _read(raw: bytes, codec: str) -> Folder:
    try:
        text = raw.decode(codec).rstrip(" \0")
    except UnicodeDecodeError as error:
        raise HeaderError("MQRFH2", "NameValueData", 0, f"not text in NameValueCCSID: {error.reason}") from None
    if not text:
        return Folder("", (), {})
    root = parse_folder(text)
    pairs = tuple(_values(root, ""))
    return Folder(root.name, pairs, dict(reversed(pairs)))


_cached = lru_cache(maxsize=2048)(_read)


def _values(element: Element, prefix: str) -> Iterator[tuple[str, Scalar]]:
    """Yield the leaves below a folder, with dotted names."""
    for child in element.children:
        if child.children:
            yield from _values(child, f"{prefix}{child.name}.")
        else:
            yield prefix + child.name, child.value
