"""Small functions on Arrow and numpy columns that the decoders share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.pipeline.decode.columns import MessageColumn, arrow_type
from gateway.pipeline.decode.heads import Head
from gateway.pipeline.journal.chunks import Chunk
from gateway.ports.batch import MQMD_LENGTH

Array: TypeAlias = Any
"""A numpy array; numpy is an extra that type checkers need not have."""
WHOLE = 2**31 - 1
"""The end given to `binary_slice` to take everything that is left."""


def head_column(column: MessageColumn, heads: Sequence[Head]) -> pa.Array:
    """A column with one value for each head."""
    kind = arrow_type(column.kind)
    if column.name == "properties":
        return pa.array([list(head.properties) for head in heads], kind)
    return pa.array([head.values.get(column.name) for head in heads], kind)


def override(ids: Array, own: Array | None) -> None:
    """Replace identifiers by a row's own where these are not all NUL."""
    if own is not None and own.any():
        rows = own.any(axis=1)
        ids[rows] = own[rows]


def identifiers(ids: Array) -> pa.Array:
    """Identifiers, as rows x 24 bytes, as an Arrow column."""
    offsets = np.arange(0, 24 * len(ids) + 1, 24, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(ids))]
    )


def groups(values: Array) -> Iterator[tuple[int, Array]]:
    """Each distinct value with the rows that have it."""
    for value in np.unique(values):
        yield int(value), np.flatnonzero(values == value)


def in_place(parts: list[pa.Array], order: list[Array]) -> pa.Array:
    """One column from parts and the rows that each part belongs to."""
    rows = np.concatenate(order)
    if len(parts) == 1 and (np.diff(rows) > 0).all():
        return parts[0]
    back = np.empty(len(rows), dtype=np.int64)
    back[rows] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(back))


def whole_data(chunk: Chunk, rows: Array) -> pa.Array:
    """The message data of rows: the head after the descriptor, and the body."""
    index = pa.array(chunk.head_of[rows])
    inside = pc.binary_slice(chunk.heads, MQMD_LENGTH, WHOLE).take(index)
    bodies = chunk.bodies if len(rows) == chunk.rows else chunk.bodies.take(pa.array(rows))
    return pc.binary_join_element_wise(inside, bodies, b"")


def front(data: pa.Array, lengths: Array) -> pa.Array:
    """The beginning of each value, as many bytes as its length says."""
    if len(lengths) and lengths.min() == lengths.max():
        return pc.binary_slice(data, 0, int(lengths[0]))
    parts, order = [], []
    for length, rows in groups(lengths):
        parts.append(pc.binary_slice(data.take(pa.array(rows)), 0, length))
        order.append(rows)
    return in_place(parts, order)


def single(values: pa.Array) -> Any:
    """A column that has the same value (or null) for all heads, as a scalar; maps stay columns."""
    if pa.types.is_map(values.type) or len(values) == 0:
        return values
    distinct = values.unique()
    return distinct[0] if len(distinct) == 1 else values


def spread(values: Any, index: pa.Array) -> pa.Array:
    """A column over heads, or a scalar, as a column over rows."""
    return repeated(values, len(index)) if isinstance(values, pa.Scalar) else values.take(index)


def repeated(value: Any, rows: int) -> pa.Array:
    """A column with one value for all rows."""
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)
