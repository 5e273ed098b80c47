"""The shape of an MQRFH2: the same tags in the same order, values that differ. A whole column is read by it at once.

The positions of all tags of all rows are one numpy matrix; tags, lengths and padding are compared column by column, and
values are cut out without looking at a row. A row that is not exactly of the shape is left to the slow way, so
nothing is accepted here that the header codec would refuse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gateway.errors import HeaderError
from gateway.mq import chain
from gateway.pipeline.decode.arrays import Array
from gateway.pipeline.decode.heads import Head, decode_head, folders_of, leaves

FIRST_FOLDER = 40
"""36 fixed bytes and the length of the first folder."""
MAX_PADDING = 64
LESS, SLASH, AMPERSAND = 60, 47, 38
BLANK = np.isin(np.arange(256), (32, 0))
_NIL = re.compile(rb"xsi:nil")


@dataclass(frozen=True, slots=True)
class Slot:
    """A value: its folder and its name within it."""

    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag with the text behind it that never differs."""

    literal: bytes
    slot: Slot | None
    """The value that follows it."""
    opens: bool
    """It begins a folder."""
    closes: bool
    """It ends one: padding and the next length follow."""


@dataclass(frozen=True, slots=True)
class Shape:
    """See the module."""

    fixed: bytes
    """The first 36 bytes; StrucLength in them does not count."""
    tags: tuple[Tag, ...]
    sample: Head

    @property
    def slots(self) -> list[Slot]:
        """The values in order."""
        return [tag.slot for tag in self.tags if tag.slot is not None]


def shape_of(header: bytes, md: bytes) -> Shape | None:
    """The shape of one header; None when it has none that can be compared."""
    names = _names(header, md)
    if names is None:
        return None
    starts = [at for at in range(FIRST_FOLDER, len(header) - 1) if header[at] == LESS and header[at + 1] >= SLASH]
    tags: list[Tag] = []
    depth, ends = 0, [*starts[1:], len(header)]
    for begin, end in zip(starts, ends, strict=True):
        tag = header[begin : header.find(b">", begin, end) + 1]
        if not tag or tag.endswith(b"/>"):
            return None
        closing = tag.startswith(b"</")
        opens, depth = depth == 0, depth + (-1 if closing else 1)
        leaf = not closing and header.startswith(b"</", end)
        if leaf and not names:
            return None
        if leaf:
            tags.append(Tag(tag, names.pop(0), opens=opens, closes=False))
        else:
            literal = tag if depth == 0 else header[begin:end]
            tags.append(Tag(literal, None, opens=opens, closes=depth == 0))
    return None if names or depth else Shape(header[:36], tuple(tags), decode_head(md, header))


def _names(header: bytes, md: bytes) -> list[Slot] | None:
    """The values of one header in order; None for what has no plain shape."""
    try:
        walked = chain.walk(md, header)
        if (
            [each.name for each in walked.headers] != ["MQRFH2"]
            or walked.headers[0].order != "<"
            or _NIL.search(header)
        ):
            return None
        folders = [(folder.name, leaves(folder)) for folder in folders_of(walked.headers[0])]
    except HeaderError:
        return None
    names = [Slot(folder, ".".join(path)) for folder, found in folders for path, _ in found]
    return names if len(set(names)) == len(names) else None


class Matched:
    """Rows of a column that have a shape, and their values."""

    def __init__(self, shape: Shape, headers: pa.Array, read: set[Slot]) -> None:
        self.shape = shape
        self.read = read
        """The values that will be asked for: those are checked to be UTF-8 then, the others here."""
        offsets = np.frombuffer(headers.buffers()[1], dtype=np.int32)[
            headers.offset : headers.offset + len(headers) + 1
        ]
        room = max(len(tag.literal) for tag in shape.tags) + MAX_PADDING
        whole = np.frombuffer(headers.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
        self._bytes = np.concatenate([whole, np.zeros(room, dtype=np.uint8)])
        begins = offsets[:-1].astype(np.int64) - offsets[0]
        ends = offsets[1:].astype(np.int64) - offsets[0]
        self.rows = self._place(begins, ends)
        self._begins, self._ends = begins[self.rows], ends[self.rows]
        self._spans: dict[Slot, tuple[Array, Array]] = {}
        for check in (self._fixed_part, self._tags, self._folders, self._values):
            self._keep(check())

    def _place(self, begins: Array, ends: Array) -> Array:
        """The rows with the right number of tags; where these stand becomes a matrix."""
        is_tag = (self._bytes[:-1] == LESS) & (self._bytes[1:] >= SLASH)
        tags = np.flatnonzero(is_tag)
        row_of = np.searchsorted(ends, tags, side="right")
        tags = tags[tags - begins[np.minimum(row_of, len(begins) - 1)] >= FIRST_FOLDER]
        first = np.searchsorted(tags, begins)
        count = len(self.shape.tags)
        rows = np.flatnonzero(np.searchsorted(tags, ends) - first == count)
        self._at = [tags[first[rows] + number] for number in range(count)]
        return rows

    def _keep(self, good: Array) -> None:
        if good.all():
            return
        self.rows, self._at = self.rows[good], [positions[good] for positions in self._at]
        self._begins, self._ends = self._begins[good], self._ends[good]
        self._spans = {slot: (begin[good], length[good]) for slot, (begin, length) in self._spans.items()}

    def _same(self, positions: Array, literal: bytes) -> Array:
        """Whether these bytes stand there."""
        return self._items(f"S{len(literal)}", len(literal))[positions] == literal

    def _items(self, dtype: str, size: int) -> Array:
        """The bytes as overlapping items, one from each position on."""
        return np.ndarray((len(self._bytes) - size + 1,), dtype, buffer=self._bytes, strides=(1,))

    def _fixed_part(self) -> Array:
        fixed = self.shape.fixed
        return self._same(self._begins, fixed[:8]) & self._same(self._begins + 12, fixed[12:])

    def _tags(self) -> Array:
        good = np.ones(len(self.rows), dtype=bool)
        for number, tag in enumerate(self.shape.tags):
            begin = self._at[number]
            good &= self._same(begin, tag.literal)
            end = self._at[number + 1] if number + 1 < len(self.shape.tags) else self._ends
            length = end - begin - len(tag.literal)
            if tag.slot is not None:
                self._spans[tag.slot] = begin + len(tag.literal), length
                good &= length >= 0
            elif not tag.closes:
                good &= length == 0
        return good

    def _folders(self) -> Array:
        """NameValueLength of each folder, and nothing but blanks between them."""
        good = np.ones(len(self.rows), dtype=bool)
        opening = [number for number, tag in enumerate(self.shape.tags) if tag.opens]
        closing = [number for number, tag in enumerate(self.shape.tags) if tag.closes]
        for at, (first, last) in enumerate(zip(opening, closing, strict=True)):
            begin = self._at[first]
            end = self._at[opening[at + 1]] - 4 if at + 1 < len(opening) else self._ends
            said = self._items("<i4", 4)[begin - 4]
            good &= said == end - begin
            if at == 0:
                good &= begin == self._begins + FIRST_FOLDER
            good &= self._blank(self._at[last] + len(self.shape.tags[last].literal), end)
        return good

    def _blank(self, begin: Array, end: Array) -> Array:
        length = end - begin
        good = (length >= 0) & (length <= MAX_PADDING)
        for at in range(int(length[good].max(initial=0))):
            some = np.flatnonzero(good & (length > at))
            good[some] = BLANK[self._bytes[begin[some] + at]]
        return good

    def _values(self) -> Array:
        """No value holds markup: an entity is for the slow way, a tag would be an error."""
        good = np.ones(len(self.rows), dtype=bool)
        if not len(self.rows):
            return good
        following = np.append(self._bytes[1:], np.uint8(0))
        markup = np.flatnonzero((self._bytes == AMPERSAND) | ((self._bytes == LESS) & (following < SLASH)))
        foreign = np.flatnonzero(self._bytes >= 128)
        for slot, (begin, length) in self._spans.items():
            for places in (markup,) if slot in self.read else (markup, foreign):
                if len(places):
                    good &= np.searchsorted(places, begin) == np.searchsorted(places, begin + length)
        return good

    def lengths(self, slot: Slot) -> Array:
        """How many bytes each value of a slot has."""
        return self._spans[slot][1]

    def raw(self, slot: Slot) -> pa.Array:
        """The values of a slot as bytes."""
        begin, length = self._spans[slot]
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
        index = np.repeat(begin - offsets[:-1], length) + np.arange(int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes[index])]
        return pa.Array.from_buffers(pa.binary(), len(length), buffers)

    def text(self, slot: Slot) -> pa.Array:
        """The values of a slot; ArrowInvalid when one is not UTF-8."""
        return self.raw(slot).cast(pa.string())
