"""Chunks as an Arrow stream and back: what a gateway hands to executors on other hosts. Any Arrow reader can read it.

Heads travel once a batch as a dictionary and are decoded by whoever reads, so that serving costs the gateway a copy of
the bytes and no more.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.pipeline.source.chunks import Chunk

ID = pa.binary(24)
SCHEMA = pa.schema(
    [
        pa.field("queue", pa.dictionary(pa.int32(), pa.string())),
        pa.field("priority", pa.int8()),
        pa.field("seq", pa.int64()),
        pa.field("put_micros", pa.int64()),
        pa.field("head", pa.dictionary(pa.int32(), pa.binary())),
        pa.field("body", pa.binary()),
        pa.field("msg_id", ID),
        pa.field("correl_id", ID),
        pa.field("backout_count", pa.int32()),
    ]
)


def stream_bytes(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """The stream in parts as they are made: nothing but the current chunk is held."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for chunk in chunks:
            writer.write_batch(to_batch(chunk))
            yield _drained(sink)
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


def read_stream(source: Any) -> Iterator[Chunk]:
    """Chunks from a file-like source of such a stream."""
    with pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from_batch(batch)


def to_batch(chunk: Chunk) -> pa.RecordBatch:
    """One chunk."""
    counts = [rows for _, _, rows in chunk.places]
    names = list(dict.fromkeys(queue for queue, _, _ in chunk.places))
    numbers = np.repeat(np.array([names.index(queue) for queue, _, _ in chunk.places], dtype=np.int32), counts)
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names, pa.string())),
            pa.array(np.repeat(np.array([priority for _, priority, _ in chunk.places], dtype=np.int8), counts)),
            pa.array(chunk.numbers),
            pa.array(chunk.put_micros),
            pa.DictionaryArray.from_arrays(pa.array(chunk.head_of.astype(np.int32)), chunk.heads),
            chunk.bodies,
            _own(chunk.msg_ids, chunk.rows),
            _own(chunk.correl_ids, chunk.rows),
            _backouts(chunk),
        ],
        schema=SCHEMA,
    )


def _own(ids: Any, rows: int) -> pa.Array:
    if ids is None:
        return pa.nulls(rows, ID)
    return pa.Array.from_buffers(ID, rows, [None, pa.py_buffer(np.ascontiguousarray(ids))])


def _backouts(chunk: Chunk) -> pa.Array:
    if not chunk.backouts:
        return pa.nulls(chunk.rows, pa.int32())
    return pa.array([chunk.backouts.get(number) for number in chunk.numbers.tolist()], pa.int32())


def from_batch(batch: pa.RecordBatch) -> Chunk:
    """One chunk again."""
    queues, heads = batch.column("queue"), batch.column("head")
    names, priorities = queues.dictionary.to_pylist(), batch.column("priority").to_numpy()
    numbers = batch.column("seq").to_numpy()
    places = _places(queues.indices.to_numpy(), priorities, names)
    counts = batch.column("backout_count")
    backouts = {}
    if counts.null_count < len(counts):
        pairs = zip(numbers.tolist(), counts.to_pylist(), strict=True)
        backouts = {number: count for number, count in pairs if count}
    return Chunk(
        places,
        numbers,
        batch.column("put_micros").to_numpy(),
        heads.dictionary,
        heads.indices.to_numpy().astype(np.int64),
        batch.column("body"),
        _ids(batch.column("msg_id")),
        _ids(batch.column("correl_id")),
        backouts,
    )


def _places(indexes: Any, priorities: Any, names: list[str]) -> list[tuple[str, int, int]]:
    """Stretches of rows with the same queue and priority."""
    changes = np.flatnonzero((np.diff(indexes) != 0) | (np.diff(priorities) != 0)) + 1
    starts = [0, *changes.tolist()]
    ends = [*changes.tolist(), len(indexes)]
    return [
        (names[indexes[begin]], int(priorities[begin]), end - begin) for begin, end in zip(starts, ends, strict=True)
    ]


def _ids(column: pa.Array) -> Any:
    if column.null_count:
        return None
    return np.frombuffer(column.buffers()[1], dtype=np.uint8)[24 * column.offset :][: 24 * len(column)].reshape(-1, 24)
