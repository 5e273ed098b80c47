"""Frames to chunks: the columns of some ten thousand messages, bodies as one Arrow array, heads once each.

Offsets and bytes of a frame are an Arrow array as they lie in the file, packed heads once they are expanded; they are
copied once, when the frames of a chunk are joined. Which heads a chunk has is told by the numbers of `store.known`:
those that were met before are compared, not copied. Nothing here looks into a head or a body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.errors import StoreCorrupt
from gateway.pipeline.source.lookup import Run
from gateway.pipeline.source.segments import Segments, Use
from gateway.queue_manager.journal.decode import FrameHeader, Sections, expanded_length
from gateway.queue_manager.journal.layout import ONE, PACKED, Kind
from gateway.queue_manager.store.alike import MOST_TOGETHER
from gateway.queue_manager.store.known import Known, known
from gateway.queue_manager.store.place import ROW_BITS, ROW_MASK, slot_of
from gateway.queue_manager.store.unit import ID_LENGTH

CHUNK_BYTES = 32 * 1024 * 1024
_BINARY = {4: pa.binary(), 8: pa.large_binary()}
_INDEX_TYPES = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}


@dataclass(frozen=True, slots=True)
class Numbered:
    """The numbers of a chunk's heads among all that a reader knows."""

    among: Known
    generation: int
    numbers: np.ndarray[Any, Any]

    def still(self, among: Known) -> bool:
        """Whether they are those of this reader, and mean what they meant."""
        return self.among is among and self.generation == among.generation


@dataclass(slots=True)
class Chunk:
    """Columns of consecutive messages."""

    places: list[tuple[str, int, int]]
    """Queue, priority, rows: one entry for each run."""
    numbers: np.ndarray[Any, Any]
    put_micros: np.ndarray[Any, Any]
    heads: pa.BinaryArray
    """Distinct heads."""
    head_of: np.ndarray[Any, Any]
    """Which head each row has."""
    bodies: pa.BinaryArray
    msg_ids: np.ndarray[Any, Any] | None
    """rows x 24 bytes; NULs where the head or the number gives it."""
    correl_ids: np.ndarray[Any, Any] | None
    backouts: dict[int, int]
    numbered: Numbered | None = None

    @property
    def rows(self) -> int:
        """How many messages."""
        return len(self.numbers)


@dataclass(slots=True)
class _Part:
    """Some rows of one frame."""

    run: Run
    row: int
    frame: FrameHeader
    sections: Sections


def read_chunks(
    folder: Path,
    runs: Iterable[Run],
    uses: dict[int, Use],
    rows: int,
    backouts: dict[int, int] | None = None,
    heads: Known | None = None,
) -> Iterator[Chunk]:
    """The messages of `runs` in chunks of about `rows`. `heads`: those the reader knows, which is added to."""
    segments = Segments(folder, pinned=True)
    parts: list[_Part] = []
    have = size = 0
    for part in _parts(segments, runs, uses, rows):
        parts.append(part)
        have += part.run.rows
        size += expanded_length(part.frame, part.sections) * part.run.rows // max(1, part.frame.rows)
        if have >= rows or size >= CHUNK_BYTES:
            yield _joined(parts, backouts or {}, known() if heads is None else heads)
            parts, have, size = [], 0, 0
    if parts:
        yield _joined(parts, backouts or {}, known() if heads is None else heads)


def _parts(segments: Segments, runs: Iterable[Run], uses: dict[int, Use], most: int) -> Iterator[_Part]:
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


def _joined(parts: list[_Part], backouts: dict[int, int], among: Known) -> Chunk:
    counts = np.array([part.run.rows for part in parts])
    among.begin()
    head_of = _heads(parts, among)
    heads, numbered = met(among)
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
    """first, first + 1, ... for each part."""
    starts = np.array([part.run.first for part in parts], dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - before, counts)


def _put_times(parts: list[_Part], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The time of the frame, or the row's own where there is one."""
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


def _heads(parts: list[_Part], among: Known) -> np.ndarray[Any, Any]:
    """The place of each row's head among those of the chunk."""
    indexes: list[np.ndarray[Any, Any]] = []
    last = -1
    places: np.ndarray[Any, Any]
    for part in parts:
        if part.frame.sequence != last:
            places = np.frombuffer(_places(part, among), dtype=np.uint32)
            last = part.frame.sequence
        indexes.append(places[_index(part, Kind.HEAD_INDEX)])
    return np.concatenate(indexes).astype(np.int64)


def _places(part: _Part, among: Known) -> bytes:
    """The place of each head of a frame."""
    form, content = part.sections[Kind.HEADS]
    try:
        if form == PACKED:
            return among.add_packed(content, MOST_TOGETHER)
        width, bounds = part.sections[Kind.HEAD_OFFSETS]
        if width == 4:
            return among.add(bounds, content)
        return added(among, _binary(part.sections, Kind.HEAD_OFFSETS, Kind.HEADS))
    except ValueError as error:
        raise StoreCorrupt(f"frame {part.frame.sequence}: {error}") from error


def added(among: Known, heads: pa.BinaryArray) -> bytes:
    """The place of each value of a column."""
    _valid, bounds, data = heads.buffers()
    mine = memoryview(bounds)[4 * heads.offset : 4 * (heads.offset + len(heads) + 1)]
    return among.add(mine, memoryview(data) if data is not None else b"")


def met(among: Known) -> tuple[pa.BinaryArray, Numbered]:
    """The heads of the chunk that was added last, by their places."""
    bounds, data = among.values()
    heads = pa.Array.from_buffers(pa.binary(), len(bounds) // 4 - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return heads, Numbered(among, among.generation, np.frombuffer(among.numbers(), dtype=np.uint32))


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
