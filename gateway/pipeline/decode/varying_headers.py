"""Headers that differ in every message: decoded a column at a time by their shape, row by row where none fits.

The shape of an MQRFH2 is its tags and their order; the values differ. The positions of all tags of all rows are one
numpy matrix: tags, lengths and padding are compared, and values cut out, column by column. A row that is not exactly of
the shape is decoded by itself, so nothing is accepted here that the header codec would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.errors import HeaderError
from gateway.mq.headers import chain
from gateway.pipeline.decode.arrays import (
    WHOLE,
    Array,
    front,
    groups,
    head_column,
    in_place,
    single,
    spread,
    whole_data,
)
from gateway.pipeline.decode.columns import MessageColumn, arrow_type
from gateway.pipeline.decode.heads import (
    FIRST_MICROS,
    LAST_MICROS,
    MICROS_FROM,
    MILLIS_FROM,
    UNSHOWN,
    Head,
    decode_head,
    folders_of,
    head_of,
    leaves,
)
from gateway.pipeline.journal.chunks import Chunk
from gateway.ports.batch import MQMD_LENGTH

FIRST_FOLDER = 40
"""36 fixed bytes and the length of the first folder."""
MAX_PADDING = 64
LESS, SLASH, AMPERSAND = 60, 47, 38
BLANK = np.isin(np.arange(256), (32, 0))
_NIL = re.compile(rb"xsi:nil")


@dataclass(frozen=True, slots=True)
class ElementName:
    """An element of an MQRFH2 that has a value: its folder and its name within the folder."""

    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag, with the text up to the next tag where that never differs."""

    literal: bytes
    element: ElementName | None
    """The element whose value follows."""
    opens: bool
    """Whether it begins a folder."""
    closes: bool
    """Whether it ends a folder: padding and the next NameValueLength follow."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The tags of an MQRFH2 in their order, and the decoded header that they were taken from."""

    fixed: bytes
    """The first 36 bytes. StrucLength in them may differ."""
    tags: tuple[Tag, ...]
    sample: Head

    @property
    def elements(self) -> list[ElementName]:
        """The elements with values, in order."""
        return [tag.element for tag in self.tags if tag.element is not None]


def shape_of(header: bytes, md: bytes) -> Shape | None:
    """The shape of one header; None if other headers could not be compared with it."""
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


def _names(header: bytes, md: bytes) -> list[ElementName] | None:
    """The elements with values of one header, in order; None unless it is a single plain MQRFH2."""
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
    names = [ElementName(folder, ".".join(path)) for folder, found in folders for path, _ in found]
    return names if len(set(names)) == len(names) else None


class ShapedRows:
    """The rows of a column of headers that have a shape, and their values."""

    def __init__(self, shape: Shape, headers: pa.Array, read: set[ElementName]) -> None:
        self.shape = shape
        self.read = read
        """The elements that `text` is called for, which checks that they are UTF-8. The others are checked here."""
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
        self._spans: dict[ElementName, tuple[Array, Array]] = {}
        for check in (self._fixed_part, self._tags, self._folders, self._values):
            self._keep(check())

    def _place(self, begins: Array, ends: Array) -> Array:
        """The rows with the right number of tags; sets the matrix of tag positions."""
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
        self._spans = {element: (begin[good], length[good]) for element, (begin, length) in self._spans.items()}

    def _same(self, positions: Array, literal: bytes) -> Array:
        """Whether `literal` is at each position."""
        return self._items(f"S{len(literal)}", len(literal))[positions] == literal

    def _items(self, dtype: str, size: int) -> Array:
        """The bytes as overlapping items, one at each position."""
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
            if tag.element is not None:
                self._spans[tag.element] = begin + len(tag.literal), length
                good &= length >= 0
            elif not tag.closes:
                good &= length == 0
        return good

    def _folders(self) -> Array:
        """Whether each NameValueLength is right and only blanks are between folders."""
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
        """Whether no value holds markup: entities are left to the header codec, and a tag would be an error."""
        good = np.ones(len(self.rows), dtype=bool)
        if not len(self.rows):
            return good
        following = np.append(self._bytes[1:], np.uint8(0))
        markup = np.flatnonzero((self._bytes == AMPERSAND) | ((self._bytes == LESS) & (following < SLASH)))
        foreign = np.flatnonzero(self._bytes >= 128)
        for element, (begin, length) in self._spans.items():
            for places in (markup,) if element in self.read else (markup, foreign):
                if len(places):
                    good &= np.searchsorted(places, begin) == np.searchsorted(places, begin + length)
        return good

    def lengths(self, element: ElementName) -> Array:
        """The length of each value of an element, in bytes."""
        return self._spans[element][1]

    def raw(self, element: ElementName) -> pa.Array:
        """The values of an element as bytes."""
        begin, length = self._spans[element]
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
        index = np.repeat(begin - offsets[:-1], length) + np.arange(int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes[index])]
        return pa.Array.from_buffers(pa.binary(), len(length), buffers)

    def text(self, element: ElementName) -> pa.Array:
        """The values of an element as text. Raises ArrowInvalid if one is not UTF-8."""
        return self.raw(element).cast(pa.string())


Found = dict[str, Any]
LEAST = 32
"""The fewest rows that are decoded by shape; fewer are decoded one by one."""
DESCRIBED = slice(24, 40)
"""Encoding, CodedCharSetId and Format in the descriptor."""
MAX_SHAPES = 8
FIXED = 36


def decode_varying(chunk: Chunk, columns: Sequence[MessageColumn], rows: Array) -> Found:
    """The columns of `rows` (all rows of a chunk) that come from headers, with `_heads` for identifiers and times."""
    data = whole_data(chunk, rows)
    lengths = header_lengths(data)
    fits = np.flatnonzero((lengths >= FIXED) & (lengths <= pc.binary_length(data).to_numpy()))
    parts: list[tuple[Array, Found]] = []
    left = np.setdiff1d(rows, fits, assume_unique=True)
    if len(fits) > LEAST:
        matched, unmatched = _by_shape(chunk, columns, data, lengths, fits)
        parts += matched
        left = np.sort(np.concatenate([left, unmatched]))
    else:
        left = rows
    if len(left):
        parts.append((left, _one_by_one(chunk, columns, data, left)))
    return _joined(columns, parts)


def header_lengths(data: pa.Array) -> Array:
    """StrucLength where the data begins with a little-endian MQRFH2, otherwise -1."""
    long_enough = pc.greater_equal(pc.binary_length(data), FIXED).to_numpy(zero_copy_only=False)
    starts = pc.starts_with(data, pattern="RFH ").to_numpy(zero_copy_only=False)
    lengths = np.full(len(data), -1, dtype=np.int64)
    usable = np.flatnonzero(long_enough & starts)
    if len(usable):
        four = pc.binary_slice(data.take(pa.array(usable)), 8, 12)
        lengths[usable] = np.frombuffer(b"".join(four.to_pylist()), dtype="<i4")
    return lengths


# ---- row by row


def _one_by_one(chunk: Chunk, columns: Sequence[MessageColumn], data: pa.Array, rows: Array) -> Found:
    """Decode each row by itself: chains of several headers, damaged ones, big-endian ones."""
    heads: list[Head] = []
    bodies: list[bytes] = []
    descriptors = pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).to_pylist()
    for row in rows.tolist():
        whole = data[row].as_py()
        decoded = decode_head(descriptors[chunk.head_of[row]], whole)
        heads.append(decoded)
        bodies.append(whole[decoded.body_at :])
    found: Found = {column.name: head_column(column, heads) for column in columns if column.part == "head"}
    found["payload"] = pa.array(bodies, pa.binary())
    found["_heads"] = heads, np.arange(len(heads))
    return found


# ---- by shape


def _by_shape(
    chunk: Chunk, columns: Sequence[MessageColumn], data: pa.Array, lengths: Array, rows: Array
) -> tuple[list[tuple[Array, Found]], Array]:
    """The columns of rows by shape, and the rows that fit none."""
    mds = pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).take(pa.array(chunk.head_of[rows])).dictionary_encode()
    md_of = np.zeros(chunk.rows, dtype=np.int64)
    md_of[rows] = mds.indices.to_numpy()
    descriptors = mds.dictionary.to_pylist()
    headers = front(data.take(pa.array(rows)), lengths[rows])
    parts: list[tuple[Array, Found]] = []
    wanted = {column.name for column in columns}
    for _ in range(MAX_SHAPES):
        if not len(rows):
            break
        first = descriptors[md_of[rows[0]]]
        shape = shape_of(headers[0].as_py(), first)
        if shape is None:
            break
        described = np.array([md[DESCRIBED] == first[DESCRIBED] for md in descriptors])[md_of[rows]]
        read = {element for element in shape.elements if is_read(element, wanted)}
        matched = ShapedRows(shape, headers, read)
        good = np.zeros(len(rows), dtype=bool)
        good[matched.rows] = True
        if not good.all() or not described.all():
            good &= described
            matched = ShapedRows(shape, headers.filter(pa.array(good)), read)
        if not good.any():
            break
        chosen = rows[good]
        used, indexes = np.unique(md_of[chosen], return_inverse=True)
        known = _Descriptors([descriptors[number] for number in used], indexes)
        found = _columns(matched, columns, known)
        if found is None:
            break
        found["payload"] = payloads(data, lengths, chosen)
        parts.append((chosen, found))
        rows, headers = rows[~good], headers.filter(pa.array(~good))
    return parts, rows


def payloads(data: pa.Array, lengths: Array, rows: Array) -> pa.Array:
    """The data after the headers."""
    parts, order = [], []
    for length, at in groups(lengths[rows]):
        parts.append(pc.binary_slice(data.take(pa.array(rows[at])), length, WHOLE))
        order.append(at)
    return in_place(parts, order)


# ---- the columns of rows that a shape fits


@dataclass(frozen=True, slots=True)
class _Descriptors:
    """The distinct descriptors of some rows, and which of them each row has."""

    distinct: list[bytes]
    of_row: Array


def _columns(matched: ShapedRows, columns: Sequence[MessageColumn], known: _Descriptors) -> Found | None:
    """The columns of rows of one shape; None if a value does not fit its column."""
    sample = matched.shape.sample
    heads = [head_of(md, dict(sample.values), sample.properties, sample.body_at) for md in known.distinct]
    found: Found = {"_heads": (heads, known.of_row)}
    index = pa.array(known.of_row)
    names = {column.name: column for column in columns if column.part == "head"}
    captured: dict[ElementName, pa.Array] = {}
    try:
        for element in matched.shape.elements:
            if element in matched.read:
                captured[element] = matched.text(element)
        _typed(found, captured, columns)
        if "properties" in names:
            found["properties"] = _properties(sample, captured, len(matched.rows))
    except pa.ArrowInvalid:
        return None
    for name, column in names.items():
        if name not in found:
            found[name] = spread(single(head_column(column, heads)), index)
    return found


def is_read(element: ElementName, names: set[str]) -> bool:
    """Whether an element's value goes into one of these columns."""
    return ("properties" in names and is_shown(element)) or _TYPED_ELEMENTS.get((element.folder, element.name)) in names


def is_shown(element: ElementName) -> bool:
    """Whether an element goes into the column `properties`."""
    return element.folder != "mcd" and (element.folder, element.name) not in UNSHOWN


_TYPED_ELEMENTS = {
    ("mqps", "Top"): "topic",
    ("mqtt", "clientId"): "client_id",
    ("mqtt", "contentType"): "content_type",
    ("mqtt", "qos"): "qos",
    ("mqps", "Ret"): "retain",
    ("usr", "received"): "recv_ts",
}


def _typed(found: Found, captured: dict[ElementName, pa.Array], columns: Sequence[MessageColumn]) -> None:
    wanted = {column.name: column for column in columns}
    for element, texts in captured.items():
        name = _TYPED_ELEMENTS.get((element.folder, element.name))
        if name not in wanted:
            continue
        if name == "retain":
            found[name] = pc.is_in(pc.utf8_trim_whitespace(texts), pa.array(["1", "true"]))
        elif name == "qos":
            found[name] = _qualities(pc.utf8_trim_whitespace(texts))
        elif name == "recv_ts":
            found[name] = received_times(texts)
        else:
            found[name] = texts.cast(arrow_type(wanted[name].kind))


def _qualities(texts: pa.Array) -> pa.Array:
    """A column of qualities of service; null for what is not one."""
    known = pc.is_in(texts, pa.array(["0", "1", "2"]))
    return pc.if_else(known, texts, pa.scalar(None, pa.string())).cast(pa.int8())


def received_times(texts: pa.Array) -> pa.Array:
    """A column of times as `heads.moment` reads each: ISO 8601 with its zone, or a number whose size tells its unit.
    Raises ArrowInvalid for anything else."""
    if not pc.all(pc.utf8_is_digit(texts)).as_py():
        return _in_range(texts.cast(arrow_type("timestamp")))
    numbers = texts.cast(pa.int64())
    factors = pc.if_else(pc.greater(numbers, MICROS_FROM), 1, pc.if_else(pc.greater(numbers, MILLIS_FROM), 1000, 10**6))
    return _in_range(pc.multiply(numbers, factors).cast(arrow_type("timestamp")))


def _in_range(times: pa.Array) -> pa.Array:
    least, most = pc.min_max(times.cast(pa.int64())).values()
    if least.is_valid and not FIRST_MICROS <= least.as_py() <= most.as_py() <= LAST_MICROS:
        raise pa.ArrowInvalid("a time outside the years 1 to 9999")
    return times


def _properties(sample: Head, captured: dict[ElementName, pa.Array], rows: int) -> pa.MapArray:
    """The map column: the values are concatenated by property and brought into the order of rows by one take."""
    own = {shown_name(element): texts for element, texts in captured.items() if is_shown(element)}
    names = [name for name, _ in sample.properties]
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), rows)))
    index = (np.arange(len(names)) * rows)[None, :] + np.arange(rows)[:, None]
    items = [own[name] for name in names] or [pa.array([], pa.string())]
    values = pa.concat_arrays(items).take(pa.array(index.reshape(-1)))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, values).cast(arrow_type("map"))


def shown_name(element: ElementName) -> str:
    """The name of a property: without its folder if that is usr."""
    return element.name if element.folder == "usr" else f"{element.folder}.{element.name}"


def _joined(columns: Sequence[MessageColumn], parts: list[tuple[Array, Found]]) -> Found:
    """The columns of all parts, in the order of rows."""
    if len(parts) == 1 and (np.diff(parts[0][0]) > 0).all():
        return parts[0][1]
    order = [rows for rows, _ in parts]
    names = [column.name for column in columns if column.part == "head"] + ["payload"]
    joined: Found = {name: in_place([found[name] for _, found in parts], order) for name in names}
    heads: list[Head] = []
    indexes = []
    for _, found in parts:
        some, index = found["_heads"]
        indexes.append(index + len(heads))
        heads += some
    numbers = np.concatenate(indexes)
    placed = np.empty_like(numbers)
    placed[np.concatenate(order)] = numbers
    joined["_heads"] = heads, placed
    return joined
