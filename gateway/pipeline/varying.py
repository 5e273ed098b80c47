"""Headers that differ in every message: read by a compiled pattern, row by row only where no pattern fits.

A template is made from a sample: what is the same in all of it stands in the pattern as it is, values that differ are
captured. One pass of the pattern over a column then does what decoding each header would.
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
from gateway.mq import chain
from gateway.pipeline.arrays import WHOLE, Array, front, groups, head_column, in_place, whole_data
from gateway.pipeline.chunks import Chunk
from gateway.pipeline.columns import Column, arrow_type
from gateway.pipeline.heads import UNSHOWN, Head, decode_head, folders_of, head_of, leaves, typed_value
from gateway.ports.batch import MQMD_LENGTH

Found = dict[str, Any]
SAMPLE = 48
DESCRIBED = slice(24, 40)
"""Encoding, CodedCharSetId and Format in the descriptor."""
MAX_TEMPLATES = 8
FIXED = 36
_LEAF = re.compile(rb"<([^\s<>/]+)([^<>]*)>([^<]*)</\1>")
_NIL = re.compile(rb"xsi:nil")


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that differs: where it goes."""

    group: str
    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """One shape of an MQRFH2."""

    pattern: str
    slots: tuple[Slot, ...]
    sample: Head
    """Decoded from the row the template was made of: constant values are read off it."""
    measured: tuple[int, ...]
    """Folders whose length differs: groups l0, l1, ... are what is said, f0, f1, ... the folders."""


def decode_varying(chunk: Chunk, columns: Sequence[Column], rows: Array) -> Found:
    """The columns of `rows` (all of a chunk) that depend on headers, with `_heads` for identifiers and times."""
    data = whole_data(chunk, rows)
    lengths = header_lengths(data)
    fits = np.flatnonzero((lengths >= FIXED) & (lengths <= pc.binary_length(data).to_numpy()))
    parts: list[tuple[Array, Found]] = []
    left = np.setdiff1d(rows, fits, assume_unique=True)
    if len(fits) > SAMPLE:
        matched, unmatched = _by_template(chunk, columns, data, lengths, fits)
        parts += matched
        left = np.sort(np.concatenate([left, unmatched]))
    else:
        left = rows
    if len(left):
        parts.append((left, _one_by_one(chunk, columns, data, left)))
    return _joined(columns, parts)


def header_lengths(data: pa.Array) -> Array:
    """StrucLength where an MQRFH2 in our byte order begins the data, otherwise -1."""
    long_enough = pc.greater_equal(pc.binary_length(data), FIXED).to_numpy(zero_copy_only=False)
    starts = pc.starts_with(data, pattern="RFH ").to_numpy(zero_copy_only=False)
    lengths = np.full(len(data), -1, dtype=np.int64)
    usable = np.flatnonzero(long_enough & starts)
    if len(usable):
        four = pc.binary_slice(data.take(pa.array(usable)), 8, 12)
        lengths[usable] = np.frombuffer(b"".join(four.to_pylist()), dtype="<i4")
    return lengths


# ---- row by row


def _one_by_one(chunk: Chunk, columns: Sequence[Column], data: pa.Array, rows: Array) -> Found:
    """The slow way, which reads everything: chains of several headers, damaged ones, other byte orders."""
    heads: list[Head] = []
    payloads: list[bytes] = []
    descriptors = pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).to_pylist()
    for row in rows.tolist():
        whole = data[row].as_py()
        decoded = decode_head(descriptors[chunk.head_of[row]], whole)
        heads.append(decoded)
        payloads.append(whole[decoded.body_at :])
    found: Found = {column.name: head_column(column, heads) for column in columns if column.part == "head"}
    found["payload"] = pa.array(payloads, pa.binary())
    found["_heads"] = heads, np.arange(len(heads))
    return found


# ---- by template


def _by_template(
    chunk: Chunk, columns: Sequence[Column], data: pa.Array, lengths: Array, rows: Array
) -> tuple[list[tuple[Array, Found]], Array]:
    """Rows that a template fits, and those that none does."""
    mds = pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).take(pa.array(chunk.head_of[rows])).dictionary_encode()
    md_of = np.zeros(chunk.rows, dtype=np.int64)
    md_of[rows] = mds.indices.to_numpy()
    descriptors = mds.dictionary.to_pylist()
    headers = front(data.take(pa.array(rows)), lengths[rows])
    parts: list[tuple[Array, Found]] = []
    for _ in range(MAX_TEMPLATES):
        if not len(rows):
            break
        first = descriptors[md_of[rows[0]]]
        template = make_template(headers, first)
        if template is None:
            break
        values = pc.extract_regex(headers, template.pattern)
        described = np.array([md[DESCRIBED] == first[DESCRIBED] for md in descriptors])
        good = fitting(values, template) & described[md_of[rows]]
        if not good.any():
            break
        chosen = rows[good]
        used, indexes = np.unique(md_of[chosen], return_inverse=True)
        known = _Descriptors([descriptors[number] for number in used], indexes)
        found = _columns(template, columns, values.filter(pa.array(good)), known)
        if found is None:
            break
        found["payload"] = behind(data, lengths, chosen)
        parts.append((chosen, found))
        rows, headers = rows[~good], headers.filter(pa.array(~good))
    return parts, rows


def fitting(values: pa.StructArray, template: Template) -> Array:
    """Rows that match and hold no entity, which a pattern cannot resolve."""
    good = values.is_valid().to_numpy(zero_copy_only=False)
    for slot in template.slots:
        plain = pc.invert(pc.match_substring(values.field(slot.group), "&")).to_numpy(zero_copy_only=False)
        good &= plain.astype(bool)
    for number in template.measured:
        rows = np.flatnonzero(good)
        good[rows] = lengths_agree(values.field(f"l{number}"), values.field(f"f{number}"), pa.array(rows))
    return good


def lengths_agree(said: pa.Array, folders: pa.Array, rows: pa.Array) -> Array:
    """Whether NameValueLength is the length of the folder behind it."""
    numbers = np.frombuffer(said.take(rows).buffers()[2] or b"", dtype="<i4", count=len(rows))
    return numbers == pc.binary_length(folders.take(rows)).to_numpy()


def behind(data: pa.Array, lengths: Array, rows: Array) -> pa.Array:
    """The payloads."""
    parts, order = [], []
    for length, at in groups(lengths[rows]):
        parts.append(pc.binary_slice(data.take(pa.array(rows[at])), length, WHOLE))
        order.append(at)
    return in_place(parts, order)


def make_template(headers: pa.Array, md: bytes) -> Template | None:
    """The pattern for headers like the first one; None when its shape cannot be a pattern."""
    first = headers[0].as_py()
    leaves_of_first = _shape(first, md)
    if leaves_of_first is None:
        return None
    constant = _constant(first, leaves_of_first, headers)
    parts = [r"(?s)^RFH " + _escaped(first[4:8]) + ".{4}" + _escaped(first[12:FIXED])]
    slots: list[Slot] = []
    measured: list[int] = []
    for number, (begin, end) in enumerate(_folder_spans(first)):
        inside = [leaf for leaf in leaves_of_first if begin <= leaf[0][0] < end]
        if all((folder, name) in constant for _, folder, name in inside):
            parts.append(_escaped(first[begin - 4 : end]))
        else:
            measured.append(number)
            folder_pattern = _folder_pattern(first[:end], begin, inside, constant, slots)
            parts.append(f"(?P<l{number}>.{{4}})(?P<f{number}>{folder_pattern})")
    return Template("".join(parts) + "$", tuple(slots), decode_head(md, first), tuple(measured))


def _folder_pattern(header: bytes, at: int, inside: Leaves, constant: set[tuple[str, str]], slots: list[Slot]) -> str:
    """One folder: constant text as it is, values that differ captured, blanks at the end."""
    parts = []
    for (begin, end), folder, name in inside:
        parts.append(_escaped(header[at:begin]))
        at = end
        if (folder, name) in constant:
            parts.append(_escaped(header[begin:end]))
        elif (folder, name) in UNSHOWN and not typed_value(folder, name, "0"):
            parts.append("[^<]*")
        else:
            slots.append(Slot(f"s{len(slots)}", folder, name))
            parts.append(f"(?P<{slots[-1].group}>[^<]*)")
    return "".join(parts) + _escaped(header[at:].rstrip(b" \0")) + r"[ \x00]*"


Leaves = list[tuple[tuple[int, int], str, str]]
"""Where the value stands, folder and name."""


def _shape(header: bytes, md: bytes) -> Leaves | None:
    """The values of one header with their places; None for what a pattern cannot do."""
    try:
        walked = chain.walk(md, header)
        if [each.name for each in walked.headers] != ["MQRFH2"] or _NIL.search(header):
            return None
        named = [
            (folder.name, ".".join(path)) for folder in folders_of(walked.headers[0]) for path, _ in leaves(folder)
        ]
    except HeaderError:
        return None
    places = [found.span(3) for found in _LEAF.finditer(header, FIXED)]
    if len(places) != len(named) or len(set(named)) != len(named):
        return None
    return [(place, *name) for place, name in zip(places, named, strict=True)]


def _folder_spans(header: bytes) -> list[tuple[int, int]]:
    spans, at = [], FIXED
    while at < len(header):
        size = int.from_bytes(header[at : at + 4], "little")
        spans.append((at + 4, at + 4 + size))
        at += 4 + size
    return spans


def _constant(first: bytes, found: Leaves, headers: pa.Array) -> set[tuple[str, str]]:
    """Values that are the same in all of a sample: they stand in the pattern as they are."""
    step = max(1, len(headers) // SAMPLE)
    sample = [headers[at].as_py() for at in range(0, len(headers), step)]
    constant = set()
    for place, folder, name in found:
        tag = name.rpartition(".")[2].encode()
        element = b">" + first[place[0] : place[1]] + b"</" + tag + b">"
        if all(element in other for other in sample):
            constant.add((folder, name))
    return constant


def _escaped(raw: bytes) -> str:
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in raw)


# ---- the columns of rows that a template fits


@dataclass(frozen=True, slots=True)
class _Descriptors:
    """The distinct descriptors of some rows."""

    distinct: list[bytes]
    of_row: Array


def _columns(
    template: Template, columns: Sequence[Column], values: pa.StructArray, known: _Descriptors
) -> Found | None:
    sample = template.sample
    heads = [head_of(md, dict(sample.values), sample.properties, sample.body_at) for md in known.distinct]
    found: Found = {"_heads": (heads, known.of_row)}
    index = pa.array(known.of_row)
    for column in columns:
        if column.part == "head" and column.name != "properties":
            found[column.name] = head_column(column, heads).take(index)
    try:
        captured = {slot: values.field(slot.group).cast(pa.string()) for slot in template.slots}
        _typed(found, captured, columns)
        if any(column.name == "properties" for column in columns):
            found["properties"] = _properties(template, captured, len(values))
    except pa.ArrowInvalid:
        return None
    return found


_TYPED_SLOTS = {
    ("mqps", "Top"): "topic",
    ("mqtt", "clientId"): "client_id",
    ("mqtt", "contentType"): "content_type",
    ("mqtt", "qos"): "qos",
    ("mqps", "Ret"): "retain",
    ("usr", "received"): "recv_ts",
}


def _typed(found: Found, captured: dict[Slot, pa.Array], columns: Sequence[Column]) -> None:
    wanted = {column.name: column for column in columns}
    for slot, texts in captured.items():
        name = _TYPED_SLOTS.get((slot.folder, slot.name))
        if name not in wanted:
            continue
        if name == "retain":
            found[name] = pc.is_in(texts, pa.array(["1", "true"]))
        elif name == "recv_ts" and pc.all(pc.utf8_is_digit(texts)).as_py():
            found[name] = pc.multiply(texts.cast(pa.int64()), 1000).cast(arrow_type("timestamp"))
        else:
            found[name] = texts.cast(arrow_type(wanted[name].kind))


def _properties(template: Template, captured: dict[Slot, pa.Array], rows: int) -> pa.MapArray:
    """The map column: constant values once, captured ones as they are, brought into order by one take."""
    own = {shown_name(slot): texts for slot, texts in captured.items() if (slot.folder, slot.name) not in UNSHOWN}
    names = [name for name, _ in template.sample.properties]
    constant = [None if name in own else value for name, value in template.sample.properties]
    items = [pa.array(constant, pa.string())]
    index = np.empty((rows, len(names)), dtype=np.int64)
    base = len(names)
    for at, name in enumerate(names):
        if name in own:
            items.append(own[name])
            index[:, at] = np.arange(base, base + rows)
            base += rows
        else:
            index[:, at] = at
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), rows)))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names), pa.int32())
    values = pa.concat_arrays(items).take(pa.array(index.reshape(-1)))
    return pa.MapArray.from_arrays(offsets, keys, values).cast(arrow_type("map"))


def shown_name(slot: Slot) -> str:
    """The property's name: usr by itself, others with their folder."""
    return slot.name if slot.folder == "usr" else f"{slot.folder}.{slot.name}"


def _joined(columns: Sequence[Column], parts: list[tuple[Array, Found]]) -> Found:
    """The parts as one set of columns in the order of rows."""
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
