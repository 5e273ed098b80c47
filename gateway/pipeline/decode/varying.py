"""Headers that differ in every message: read a column at a time by their shape, row by row only where none fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from gateway.pipeline.decode.heads import MICROS_FROM, MILLIS_FROM, UNSHOWN, Head, decode_head, head_of
from gateway.pipeline.decode.shapes import Matched, Slot, shape_of
from gateway.pipeline.source.chunks import Chunk
from gateway.pipeline.source.columns import Column, arrow_type
from gateway.ports.batch import MQMD_LENGTH

Found = dict[str, Any]
LEAST = 32
"""Fewer rows are not worth a shape."""
DESCRIBED = slice(24, 40)
"""Encoding, CodedCharSetId and Format in the descriptor."""
MAX_SHAPES = 8
FIXED = 36


def decode_varying(chunk: Chunk, columns: Sequence[Column], rows: Array) -> Found:
    """The columns of `rows` (all of a chunk) that depend on headers, with `_heads` for identifiers and times."""
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


# ---- by shape


def _by_shape(
    chunk: Chunk, columns: Sequence[Column], data: pa.Array, lengths: Array, rows: Array
) -> tuple[list[tuple[Array, Found]], Array]:
    """Rows that a shape fits, and those that none does."""
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
        read = {slot for slot in shape.slots if is_read(slot, wanted)}
        matched = Matched(shape, headers, read)
        good = np.zeros(len(rows), dtype=bool)
        good[matched.rows] = True
        if not good.all() or not described.all():
            good &= described
            matched = Matched(shape, headers.filter(pa.array(good)), read)
        if not good.any():
            break
        chosen = rows[good]
        used, indexes = np.unique(md_of[chosen], return_inverse=True)
        known = _Descriptors([descriptors[number] for number in used], indexes)
        found = _columns(matched, columns, known)
        if found is None:
            break
        found["payload"] = behind(data, lengths, chosen)
        parts.append((chosen, found))
        rows, headers = rows[~good], headers.filter(pa.array(~good))
    return parts, rows


def behind(data: pa.Array, lengths: Array, rows: Array) -> pa.Array:
    """The payloads."""
    parts, order = [], []
    for length, at in groups(lengths[rows]):
        parts.append(pc.binary_slice(data.take(pa.array(rows[at])), length, WHOLE))
        order.append(at)
    return in_place(parts, order)


# ---- the columns of rows that a shape fits


@dataclass(frozen=True, slots=True)
class _Descriptors:
    """The distinct descriptors of some rows."""

    distinct: list[bytes]
    of_row: Array


def _columns(matched: Matched, columns: Sequence[Column], known: _Descriptors) -> Found | None:
    """The columns; None when a value is not what its column holds."""
    sample = matched.shape.sample
    heads = [head_of(md, dict(sample.values), sample.properties, sample.body_at) for md in known.distinct]
    found: Found = {"_heads": (heads, known.of_row)}
    index = pa.array(known.of_row)
    names = {column.name: column for column in columns if column.part == "head"}
    captured: dict[Slot, pa.Array] = {}
    try:
        for slot in matched.shape.slots:
            if slot in matched.read:
                captured[slot] = matched.text(slot)
        _typed(found, captured, columns)
        if "properties" in names:
            found["properties"] = _properties(sample, captured, len(matched.rows))
    except pa.ArrowInvalid:
        return None
    for name, column in names.items():
        if name not in found:
            found[name] = spread(single(head_column(column, heads)), index)
    return found


def is_read(slot: Slot, names: set[str]) -> bool:
    """Whether a value goes into one of these columns."""
    return ("properties" in names and is_shown(slot)) or _TYPED_SLOTS.get((slot.folder, slot.name)) in names


def is_shown(slot: Slot) -> bool:
    """Whether the value is one of the properties."""
    return slot.folder != "mcd" and (slot.folder, slot.name) not in UNSHOWN


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
        elif name == "recv_ts":
            found[name] = received_times(texts)
        else:
            found[name] = texts.cast(arrow_type(wanted[name].kind))


def received_times(texts: pa.Array) -> pa.Array:
    """A column of times as `heads.moment` reads one: ISO 8601 with its zone, or a number whose size says its unit.
    ArrowInvalid for anything else."""
    if not pc.all(pc.utf8_is_digit(texts)).as_py():
        return texts.cast(arrow_type("timestamp"))
    numbers = texts.cast(pa.int64())
    factors = pc.if_else(pc.greater(numbers, MICROS_FROM), 1, pc.if_else(pc.greater(numbers, MILLIS_FROM), 1000, 10**6))
    return pc.multiply(numbers, factors).cast(arrow_type("timestamp"))


def _properties(sample: Head, captured: dict[Slot, pa.Array], rows: int) -> pa.MapArray:
    """The map column: values of one property behind one another, brought into the order of rows by one take."""
    own = {shown_name(slot): texts for slot, texts in captured.items() if is_shown(slot)}
    names = [name for name, _ in sample.properties]
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), rows)))
    index = (np.arange(len(names)) * rows)[None, :] + np.arange(rows)[:, None]
    items = [own[name] for name in names] or [pa.array([], pa.string())]
    values = pa.concat_arrays(items).take(pa.array(index.reshape(-1)))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names), pa.int32())
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
