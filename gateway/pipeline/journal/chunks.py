"""Chunks: the columns of some ten thousand messages, read from frames, and sent and received as an Arrow stream.

Offsets and bytes of a frame become an Arrow array where they lie in the mapped file (packed heads once they are
unpacked); they are copied once, when the frames of a chunk are joined. Each head is kept once, and heads are told apart
by the numbers of `store.head_numbers`, so that one seen before is compared and not copied. No head or body is decoded
here.

The stream is what a gateway sends to executors on other hosts, and any Arrow reader can read it. A batch carries its
heads as a dictionary and the reader decodes them, so that serving costs the gateway no more than copying the bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.errors import StoreCorrupt
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.journal.lookup import MessageRun
from gateway.pipeline.journal.segments import Segments, SegmentUse
from gateway.queue_manager.journal.decode import FrameHeader, Sections, expanded_length
from gateway.queue_manager.journal.layout import ONE, PACKED, Kind
from gateway.queue_manager.store.head_numbers import HeadNumbers, new_head_numbers
from gateway.queue_manager.store.packed_heads import MOST_TOGETHER
from gateway.queue_manager.store.place import ROW_BITS, ROW_MASK, slot_of
from gateway.queue_manager.store.unit import ID_LENGTH

CHUNK_BYTES = 32 * 1024 * 1024
_BINARY = {4: pa.binary(), 8: pa.large_binary()}
_INDEX_TYPES = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}


@dataclass(frozen=True, slots=True)
class NumberedHeads:
    """The numbers of a chunk's heads among all that a reader has seen."""

    head_numbers: HeadNumbers
    generation: int
    numbers: np.ndarray[Any, Any]

    def valid_for(self, head_numbers: HeadNumbers) -> bool:
        """Whether the numbers belong to this reader and are still valid."""
        return self.head_numbers is head_numbers and self.generation == head_numbers.generation


@dataclass(slots=True)
class Chunk:
    """Columns of consecutive messages."""

    places: list[tuple[str, int, int]]
    """Queue, priority and number of rows of each run."""
    numbers: np.ndarray[Any, Any]
    put_micros: np.ndarray[Any, Any]
    heads: pa.BinaryArray
    """Distinct heads."""
    head_of: np.ndarray[Any, Any]
    """Which head each row has."""
    bodies: pa.BinaryArray
    msg_ids: np.ndarray[Any, Any] | None
    """rows x 24 bytes; NUL where the identifier is in the head or follows from the number."""
    correl_ids: np.ndarray[Any, Any] | None
    backouts: dict[int, int]
    numbered: NumberedHeads | None = None

    @property
    def rows(self) -> int:
        """The number of messages."""
        return len(self.numbers)


@dataclass(slots=True)
class _Part:
    """A run and the frame it lies in."""

    run: MessageRun
    row: int
    frame: FrameHeader
    sections: Sections


def read_chunks(
    folder: Path,
    runs: Iterable[MessageRun],
    uses: dict[int, SegmentUse],
    rows: int,
    backouts: dict[int, int] | None = None,
    heads: HeadNumbers | None = None,
) -> Iterator[Chunk]:
    """The messages of `runs` in chunks of about `rows`. `heads`: the heads that the reader has seen, to which new ones
    are added."""
    segments = Segments(folder, pinned=True)
    parts: list[_Part] = []
    have = size = 0
    for part in _parts(segments, runs, uses, rows):
        parts.append(part)
        have += part.run.rows
        size += expanded_length(part.frame, part.sections) * part.run.rows // max(1, part.frame.rows)
        if have >= rows or size >= CHUNK_BYTES:
            yield _joined(parts, backouts or {}, new_head_numbers() if heads is None else heads)
            parts, have, size = [], 0, 0
    if parts:
        yield _joined(parts, backouts or {}, new_head_numbers() if heads is None else heads)


def _parts(segments: Segments, runs: Iterable[MessageRun], uses: dict[int, SegmentUse], most: int) -> Iterator[_Part]:
    """Runs with their frames, cut to at most `most` rows; a frame is checked once for neighbouring runs."""
    known = -1
    frame: FrameHeader
    sections: Sections
    for run in runs:
        number = run.place >> ROW_BITS
        if number != known:
            frame, sections = segments.frame_of_place(uses[slot_of(number)], number)
            known = number
        row = run.place & ROW_MASK
        if run.rows <= most:
            yield _Part(run, row, frame, sections)
            continue
        for begin in range(0, run.rows, most):
            piece = run._replace(first=run.first + begin, rows=min(most, run.rows - begin))
            yield _Part(piece, row + begin, frame, sections)


def _joined(parts: list[_Part], backouts: dict[int, int], head_numbers: HeadNumbers) -> Chunk:
    counts = np.array([part.run.rows for part in parts])
    head_numbers.begin()
    head_of = _heads(parts, head_numbers)
    heads, numbered = seen_heads(head_numbers)
    return Chunk(
        [(part.run.queue, part.run.priority, part.run.rows) for part in parts],
        _numbers(parts, counts),
        _put_times(parts, counts),
        heads,
        head_of,
        _concat([_bodies(part) for part in parts]),
        _ids(parts, Kind.MSG_IDS),
        _ids(parts, Kind.CORREL_IDS),
        backouts,
        numbered,
    )


def _numbers(parts: list[_Part], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Message numbers: first, first + 1, ... for each part."""
    starts = np.array([part.run.first for part in parts], dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)


def _put_times(parts: list[_Part], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Put times: the row's own, or the time of its frame."""
    times = np.repeat(np.array([part.frame.time for part in parts], dtype=np.int64), counts)
    at = 0
    for part in parts:
        found = part.sections.get(Kind.PUT_TIMES)
        if found is not None:
            form, content = found
            own = np.frombuffer(content, dtype=np.int64)
            own = own[:1] if form == ONE else own[part.row : part.row + part.run.rows]
            here = times[at : at + part.run.rows]
            np.copyto(here, own, where=own != 0)
        at += part.run.rows
    return times


def _heads(parts: list[_Part], head_numbers: HeadNumbers) -> np.ndarray[Any, Any]:
    """The place of each row's head among the heads of the chunk."""
    indexes: list[np.ndarray[Any, Any]] = []
    last = -1
    places: np.ndarray[Any, Any]
    for part in parts:
        if part.frame.sequence != last:
            places = np.frombuffer(_places(part, head_numbers), dtype=np.uint32)
            last = part.frame.sequence
        indexes.append(places[_index(part, Kind.HEAD_INDEX)])
    return np.concatenate(indexes).astype(np.int64)


def _places(part: _Part, head_numbers: HeadNumbers) -> bytes:
    """The place of each head of a frame."""
    form, content = part.sections[Kind.HEADS]
    try:
        if form == PACKED:
            return head_numbers.add_packed(content, MOST_TOGETHER)
        width, bounds = part.sections[Kind.HEAD_OFFSETS]
        if width == 4:
            return head_numbers.add(bounds, content)
        return places_of(head_numbers, _binary(part.sections, Kind.HEAD_OFFSETS, Kind.HEADS))
    except ValueError as error:
        raise StoreCorrupt(f"frame {part.frame.sequence}: {error}") from error


def places_of(head_numbers: HeadNumbers, heads: pa.BinaryArray) -> bytes:
    """The place of each value of a column."""
    _valid, bounds, data = heads.buffers()
    mine = memoryview(bounds)[4 * heads.offset : 4 * (heads.offset + len(heads) + 1)]
    return head_numbers.add(mine, memoryview(data) if data is not None else b"")


def seen_heads(head_numbers: HeadNumbers) -> tuple[pa.BinaryArray, NumberedHeads]:
    """The heads of the chunk that was added last, by their places."""
    bounds, data = head_numbers.values()
    heads = pa.Array.from_buffers(pa.binary(), len(bounds) // 4 - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return heads, NumberedHeads(
        head_numbers, head_numbers.generation, np.frombuffer(head_numbers.numbers(), dtype=np.uint32)
    )


def _index(part: _Part, kind: Kind) -> np.ndarray[Any, Any]:
    """The rows' entries of an index column; zeros when there is none."""
    found = part.sections.get(kind)
    if found is None:
        return np.zeros(part.run.rows, dtype=np.uint8)
    width, content = found
    return np.frombuffer(content, _INDEX_TYPES[width], part.run.rows, part.row * width)


def _bodies(part: _Part) -> pa.BinaryArray:
    values = _binary(part.sections, Kind.BODY_OFFSETS, Kind.BODIES)
    if Kind.BODY_INDEX in part.sections:
        return values.take(pa.array(_index(part, Kind.BODY_INDEX)))
    return values.slice(part.row, part.run.rows)


def _binary(sections: Sections, offsets: Kind, data: Kind) -> pa.BinaryArray:
    """A column of bytes as it lies in the file."""
    width, content = sections[offsets]
    buffers = [None, pa.py_buffer(content), pa.py_buffer(sections[data][1])]
    array = pa.Array.from_buffers(_BINARY[width], len(content) // width - 1, buffers)
    return array if width == 4 else array.cast(pa.binary())


def _concat(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _ids(parts: list[_Part], kind: Kind) -> np.ndarray[Any, Any] | None:
    """Identifiers of rows that have their own; None when no row of the chunk has."""
    if not any(kind in part.sections for part in parts):
        return None
    columns = []
    for part in parts:
        found = part.sections.get(kind)
        if found is None:
            columns.append(np.zeros((part.run.rows, ID_LENGTH), dtype=np.uint8))
        else:
            ids = np.frombuffer(found[1], dtype=np.uint8).reshape(-1, ID_LENGTH)
            columns.append(ids[part.row : part.row + part.run.rows])
    return np.concatenate(columns)


# ---- as an Arrow stream

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
    """Chunks as the parts of a stream; only the current chunk is held in memory."""
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


_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream."""


class _Received:
    """A stream that remembers its last bytes: Arrow's reader takes a stream that breaks off between two batches for a
    whole one."""

    closed = False

    def __init__(self, source: Any) -> None:
        self._source = source
        self.last = b""

    def read(self, size: int) -> bytes:
        """Read as a file does."""
        data: bytes = self._source.read(size)
        self.last = (self.last + data[-len(_END) :])[-len(_END) :]
        return data

    def close(self) -> None:
        """Does nothing: whoever has opened the source closes it."""


def read_stream(source: Any) -> Iterator[Chunk]:
    """Chunks from a stream in a file-like object. Raises QueueUnreachable if it breaks off: what is missing would be
    taken for landed, and purged."""
    received = _Received(source)
    try:
        with pa.ipc.open_stream(received) as reader:
            for batch in reader:
                yield from_batch(batch)
    except (pa.ArrowInvalid, OSError, HTTPException) as error:
        raise QueueUnreachable(f"the messages broke off while they were read ({error}): they are read again") from error
    if received.last != _END:
        raise QueueUnreachable("the messages broke off between two parts of them: they are read again")


def to_batch(chunk: Chunk) -> pa.RecordBatch:
    """A chunk as a record batch of the stream."""
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
    """The chunk of a record batch."""
    queues, heads = batch.column("queue"), batch.column("head")
    names, priorities = queues.dictionary.to_pylist(), batch.column("priority").to_numpy()
    numbers = batch.column("seq").to_numpy()
    places = _places_of_rows(queues.indices.to_numpy(), priorities, names)
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
        _ids_of(batch.column("msg_id")),
        _ids_of(batch.column("correl_id")),
        backouts,
    )


def _places_of_rows(indexes: Any, priorities: Any, names: list[str]) -> list[tuple[str, int, int]]:
    """Queue, priority and number of each run of consecutive rows that share them."""
    changes = np.flatnonzero((np.diff(indexes) != 0) | (np.diff(priorities) != 0)) + 1
    starts = [0, *changes.tolist()]
    ends = [*changes.tolist(), len(indexes)]
    return [
        (names[indexes[begin]], int(priorities[begin]), end - begin) for begin, end in zip(starts, ends, strict=True)
    ]


def _ids_of(column: pa.Array) -> Any:
    if column.null_count:
        return None
    return np.frombuffer(column.buffers()[1], dtype=np.uint8)[24 * column.offset :][: 24 * len(column)].reshape(-1, 24)
