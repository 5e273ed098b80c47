"""Payloads and headers of a chunk's messages where the headers end in the body, with the packet identifier: in C
(`_parts.c`) where there was a compiler at installation, otherwise with Arrow's functions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.pipeline.decode.arrays import WHOLE, Array, front, groups, in_place

PACKET_ID_CLOSE = b"</msgId></mqtt>"
_compiled: Any = None
with suppress(ModuleNotFoundError):
    import gateway.pipeline.decode._parts as compiled_parts

    _compiled = compiled_parts


def payloads(bodies: pa.Array, skips: Array) -> pa.Array | None:
    """Bodies without their first bytes; None unless these bytes are a packet identifier in all bodies."""
    if _compiled is None or not skips.any():
        return payloads_by_arrow(bodies, skips)
    found = _compiled.payloads(*_column(bodies), np.ascontiguousarray(skips, dtype=np.int64))
    return None if found is None else _array(*found)


def headers(heads: pa.Array, head_of: Array, bodies: pa.Array, skips: Array) -> pa.Array:
    """The head of each row, by its number, with the first bytes of its body after it."""
    if _compiled is None:
        return headers_by_arrow(heads, head_of, bodies, skips)
    numbers = np.ascontiguousarray(head_of, dtype=np.int32)
    return _array(*_compiled.headers(*_column(heads), numbers, *_column(bodies), skips.astype(np.int64)))


def _column(values: pa.Array) -> tuple[memoryview, Any]:
    _valid, bounds, data = values.buffers()
    mine = memoryview(bounds)[4 * values.offset : 4 * (values.offset + len(values) + 1)]
    return mine, b"" if data is None else data


def _array(bounds: bytes, data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) // 4 - 1, buffers)


# ---- the same with Arrow


def payloads_by_arrow(bodies: pa.Array, skips: Array) -> pa.Array | None:
    """The same as `payloads`."""
    if not skips.any():
        return bodies
    if skips.min() == skips.max():
        skip = int(skips[0])
        return pc.binary_slice(bodies, skip, WHOLE) if only_packet_ids(pc.binary_slice(bodies, 0, skip)) else None
    parts, order = [], []
    for skip, rows in groups(skips):
        some = bodies if len(rows) == len(bodies) else bodies.take(pa.array(rows))
        if skip and not only_packet_ids(pc.binary_slice(some, 0, skip)):
            return None
        parts.append(pc.binary_slice(some, skip, WHOLE) if skip else some)
        order.append(rows)
    return in_place(parts, order)


def headers_by_arrow(heads: pa.Array, head_of: Array, bodies: pa.Array, skips: Array) -> pa.Array:
    """The same as `headers`."""
    return pc.binary_join_element_wise(heads.take(pa.array(head_of)), front(bodies, skips), b"")


def only_packet_ids(tails: pa.Array) -> bool:
    """Whether each of these ends of headers holds nothing but the packet identifier."""
    try:
        left = pc.ascii_trim(tails.cast(pa.string()), characters="0123456789 ")
    except pa.ArrowInvalid:
        return False
    return bool(pc.unique(left).to_pylist() == [PACKET_ID_CLOSE.decode()])
