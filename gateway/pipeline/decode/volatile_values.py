"""Heads that differ only in values of fixed length, such as the time of receipt: the values are cut out as columns.

What is left repeats from message to message, as other heads do. Which values differ is learnt from a sample and kept
while it fits. A value is found by its opening tag and masked; whether it was the right value shows when the masked head
is decoded, so a wrong guess costs time but never gives a wrong row. Rows without the tags stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.pipeline.decode.arrays import WHOLE, Array
from gateway.pipeline.decode.columns import arrow_type
from gateway.pipeline.decode.heads import Head
from gateway.pipeline.decode.varying_headers import (
    FIRST_FOLDER,
    LESS,
    ElementName,
    Shape,
    ShapedRows,
    is_shown,
    received_times,
    shape_of,
    shown_name,
)
from gateway.pipeline.journal.chunks import Chunk, seen_heads
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager.store.head_numbers import new_head_numbers

SAMPLE = 64
LEAST_ALIKE = 8
"""The fewest rows of one shape that tell which of its values differ."""
SHAPES = 3
MASK = b"~"
AMPERSAND = 38
FOLDERS = MQMD_LENGTH + FIRST_FOLDER


@dataclass(frozen=True, slots=True)
class VolatileValue:
    """An element whose value differs in every message, its opening tag, and the length of its values."""

    element: ElementName
    literal: bytes
    length: int

    @property
    def mask(self) -> str:
        """What replaces the value."""
        return (MASK * self.length).decode()


@dataclass(frozen=True, slots=True)
class Cut:
    """The values of one element that were cut out, and the rows they were cut out of."""

    volatile: VolatileValue
    rows: Array
    values: pa.Array


@dataclass(frozen=True, slots=True)
class Masked:
    """A chunk whose heads repeat, and what was cut out of them."""

    chunk: Chunk
    cuts: list[Cut]


class VolatileValues:
    """The volatile values that have been learnt so far."""

    def __init__(self) -> None:
        self._learnt: list[VolatileValue] = []

    def apply(self, chunk: Chunk) -> Masked | None:
        """The chunk with fewer heads; None if cutting values out does not reduce their number."""
        found = _masked(chunk, self._learnt) if self._learnt else None
        if found is None:
            self._learnt = find_volatile(chunk)
            found = _masked(chunk, self._learnt) if self._learnt else None
        return found


def find_volatile(chunk: Chunk) -> list[VolatileValue]:
    """The elements whose values in a sample nearly all differ and all have one length."""
    rows = np.unique(np.linspace(0, chunk.rows - 1, SAMPLE).astype(np.int64))
    heads = chunk.heads.take(pa.array(chunk.head_of[rows])).to_pylist()
    bodies = chunk.bodies.take(pa.array(rows)).to_pylist()
    whole = [_header(head, body) for head, body in zip(heads, bodies, strict=True)]
    left = [at for at, header in enumerate(whole) if header]
    found: dict[bytes, VolatileValue] = {}
    for _ in range(SHAPES):
        if len(left) < LEAST_ALIKE:
            break
        shape = shape_of(whole[left[0]], heads[left[0]][:MQMD_LENGTH])
        alike = _differing(shape, [whole[at] for at in left], found) if shape is not None else {0}
        left = [at for number, at in enumerate(left) if number not in alike]
    return list(found.values())


def _header(head: bytes, body: bytes) -> bytes:
    """The whole MQRFH2 of a message, from its head and body; empty when there is none."""
    data = head[MQMD_LENGTH:] + body
    length = int.from_bytes(data[8:12], "little", signed=True)
    return data[:length] if data[:4] == b"RFH " and 36 <= length <= len(data) else b""


def _differing(shape: Shape, headers: Sequence[bytes], found: dict[bytes, VolatileValue]) -> set[int]:
    """Add the volatile values of headers of this shape to `found`; returns the numbers of the headers that have the
    shape."""
    elements = {tag.element: tag.literal for tag in shape.tags if tag.element is not None}
    matched = ShapedRows(shape, pa.array(headers, pa.binary()), set(elements))
    rows = set(matched.rows.tolist())
    if len(rows) >= LEAST_ALIKE:
        for element, literal in elements.items():
            lengths = matched.lengths(element)
            fixed = int(lengths.min()) == int(lengths.max()) > 0
            if fixed and is_shown(element) and len(matched.raw(element).unique()) * 2 > len(rows):
                found[literal] = VolatileValue(element, literal, int(lengths[0]))
    return rows | {0}


def _masked(chunk: Chunk, volatile: Sequence[VolatileValue]) -> Masked | None:
    offsets, data = _buffers(chunk.heads)
    folders = pc.binary_slice(chunk.heads, FOLDERS, WHOLE)  # searching costs by the byte
    cuts = [cut for each in volatile if (cut := _cut_out(folders, offsets, data, each)) is not None]
    if not cuts:
        return None
    head_numbers = new_head_numbers()
    places = np.frombuffer(head_numbers.add(memoryview(offsets).cast("B"), memoryview(data)), dtype=np.uint32)
    if len(head_numbers) * 2 > len(chunk.heads):
        return None
    heads, _numbers = seen_heads(head_numbers)
    head_of = places[chunk.head_of].astype(np.int64)
    return Masked(replace(chunk, heads=heads, head_of=head_of, numbered=None), _of_rows(chunk, cuts))


def _buffers(heads: pa.BinaryArray) -> tuple[Array, Array]:
    """Offsets and bytes of a column; the bytes are a copy that may be written to."""
    offsets = np.frombuffer(heads.buffers()[1], dtype=np.int32)[heads.offset : heads.offset + len(heads) + 1]
    data = np.frombuffer(heads.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].copy()
    return offsets - offsets[0], data


def _cut_out(folders: pa.BinaryArray, offsets: Array, data: Array, volatile: VolatileValue) -> Cut | None:
    """Mask the value in every head that has a value of this length after the tag."""
    at = pc.find_substring(folders, volatile.literal).to_numpy()
    length, tag = volatile.length, len(volatile.literal)
    begin = offsets[:-1] + FOLDERS + at + tag
    rows = np.flatnonzero((at >= 0) & (begin + length < offsets[1:]))
    rows = rows[data[begin[rows] + length] == LESS]
    if not len(rows):
        return None
    items = np.ndarray((len(data) - length + 1,), f"V{length}", buffer=data, strides=(1,))
    values = items[begin[rows]].view(np.uint8).reshape(-1, length)
    plain = ~((values == LESS) | (values == AMPERSAND)).any(axis=1)
    rows, values = rows[plain], np.ascontiguousarray(values[plain])
    items[begin[rows]] = np.void(MASK * length)
    ends = np.arange(0, length * len(rows) + 1, length, dtype=np.int32)
    texts = pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(values)])
    return Cut(volatile, rows, texts)


def _of_rows(chunk: Chunk, cuts: Sequence[Cut]) -> list[Cut]:
    """The cuts by row instead of by head."""
    result = []
    for cut in cuts:
        place = np.full(len(chunk.heads), -1, dtype=np.int64)
        place[cut.rows] = np.arange(len(cut.rows))
        of_row = place[chunk.head_of]
        rows = np.flatnonzero(of_row >= 0)
        values = cut.values if len(rows) == len(cut.values) and _ascending(of_row[rows]) else None
        taken = values if values is not None else cut.values.take(pa.array(of_row[rows]))
        result.append(Cut(cut.volatile, rows, taken))
    return result


def _ascending(numbers: Array) -> bool:
    return bool((np.diff(numbers) > 0).all())


def restored(found: dict[str, Any], masked: Masked, heads: Sequence[Head], of_row: Array) -> bool:
    """Put the values back into the columns. Returns False if it is not certain where they belong. `heads`: the decoded
    masked heads; `of_row`: the number of each row's head among them."""
    try:
        for cut in masked.cuts:
            if not _put_back(found, cut, heads, of_row):
                return False
    except pa.ArrowInvalid:  # not UTF-8, or not a time
        return False
    return True


def _put_back(found: dict[str, Any], cut: Cut, heads: Sequence[Head], of_row: Array) -> bool:
    volatile, name = cut.volatile, shown_name(cut.volatile.element)
    texts = cut.values.cast(pa.string())
    used = of_row[cut.rows]
    place = np.full(len(heads), -1, dtype=np.int64)
    for number in np.unique(used).tolist():
        names = [shown for shown, value in heads[number].properties if shown != name or value == volatile.mask]
        place[number] = names.index(name) if name in names else -1
    if (place[used] < 0).any():
        return False
    if "properties" in found:
        found["properties"] = _with_items(found["properties"], cut.rows, place[used], texts)
    if "recv_ts" in found and (volatile.element.folder, volatile.element.name) == ("usr", "received"):
        found["recv_ts"] = _with_values(found["recv_ts"], cut.rows, received_times(texts))
    return True


def _with_items(maps: pa.MapArray, rows: Array, place: Array, texts: pa.Array) -> pa.MapArray:
    """The maps with `texts` as the values at one place of each of `rows`."""
    offsets = maps.offsets.to_numpy()
    items = maps.items.slice(offsets[0], offsets[-1] - offsets[0])
    keys = maps.keys.slice(offsets[0], offsets[-1] - offsets[0])
    mask = np.zeros(len(items), dtype=bool)
    mask[offsets[rows] - offsets[0] + place] = True
    values = pc.replace_with_mask(items, pa.array(mask), texts)
    return pa.MapArray.from_arrays(pa.array(offsets - offsets[0]), keys, values).cast(arrow_type("map"))


def _with_values(column: pa.Array, rows: Array, values: pa.Array) -> pa.Array:
    if len(rows) == len(column):
        return values
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), values)
