"""Frames: bytes to columns. Pure code. For a frame that is not whole `frame_at` returns None; a whole one that
contradicts itself raises StoreCorrupt.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, overload

from xxhash import xxh3_64_intdigest

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal.layout import (
    BACKOUT,
    CHECKED_FROM,
    FRAME,
    FRAME_LENGTH,
    FRAME_MAGIC,
    GROUP,
    LANE_DEFINITION,
    LANES,
    MOVE,
    ONE,
    PACKED,
    REMOVED,
    SECTION,
    STATE,
    TAKE,
    VERSION,
    Kind,
)
from gateway.queue_manager.store.index import LaneName, MoveRun, TokenRun
from gateway.queue_manager.store.packed_heads import MOST_TOGETHER, total_of, unpack
from gateway.queue_manager.store.unit import ID_LENGTH, NO_ID, Message


class FrameHeader(NamedTuple):
    """The fixed part of a frame."""

    flags: int
    salt: int
    sequence: int
    time: int
    first_number: int
    rows: int
    length: int
    sections: int


_header = FrameHeader._make


def header_at(data: memoryview, offset: int) -> FrameHeader | None:
    """The header at `offset`, if the bytes look like one and its length stays within the data. Does not check the
    sum."""
    header = header_alone(data, offset)
    return header if header is not None and offset + header.length <= len(data) else None


def header_alone(data: memoryview, offset: int) -> FrameHeader | None:
    """The header at `offset`, if the bytes look like one, whether or not the data end before the frame does."""
    if offset + FRAME_LENGTH > len(data):
        return None
    (_sum, magic, _v, flags, salt, sequence, time, first, rows, length, sections, _0, _1) = FRAME.unpack_from(
        data, offset
    )
    if magic != FRAME_MAGIC or length < FRAME_LENGTH:
        return None
    return FrameHeader(flags, salt, sequence, time, first, rows, length, sections)


def frame_at(data: memoryview, offset: int, salt: int, sequence: int | None = None) -> FrameHeader | None:
    """The header of a whole frame of this use of the segment, or None. Called for every frame that is read."""
    if offset + FRAME_LENGTH > len(data):
        return None
    checksum, magic, version, flags, its_salt, its_sequence, *more, _0, _1 = FRAME.unpack_from(data, offset)
    length = more[3]
    if magic != FRAME_MAGIC or its_salt != salt or (sequence is not None and its_sequence != sequence):
        return None
    end = offset + length
    if length < FRAME_LENGTH or end > len(data):
        return None
    if xxh3_64_intdigest(data[offset + CHECKED_FROM : end], salt) != checksum:
        return None
    if version != VERSION:
        raise StoreCorrupt(
            f"frame {its_sequence} has format version {version}, this program reads {VERSION}: "
            "use the release that wrote it"
        )
    return _header((flags, salt, its_sequence, *more))


Sections = dict[int, tuple[int, memoryview]]


def sections_of(data: memoryview, offset: int, header: FrameHeader) -> Sections:
    """The sections by kind, each with its form and content."""
    at = offset + FRAME_LENGTH
    begin = at + SECTION.size * header.sections
    sections: Sections = {}
    for kind, form, length in SECTION.iter_unpack(data[at:begin]):
        sections[kind] = form, data[begin : begin + length]
        begin += length + 7 & ~7
    if begin - offset != header.length:
        raise StoreCorrupt(f"frame {header.sequence}: its sections do not add up to its length")
    return sections


def expand_heads(sections: Sections, sequence: int) -> None:
    """Replace packed HEADS by the HEAD_OFFSETS and HEADS of frames whose heads are not packed. Called once for each
    frame."""
    form, content = sections.get(Kind.HEADS, (0, b""))
    if form != PACKED:
        return
    try:
        bounds, heads = unpack(content, MOST_TOGETHER)
    except ValueError as error:
        raise StoreCorrupt(f"frame {sequence}: {error}") from error
    sections[Kind.HEAD_OFFSETS] = 4, memoryview(bounds)
    sections[Kind.HEADS] = 0, memoryview(heads)


def expanded_length(header: FrameHeader, sections: Sections) -> int:
    """The most memory that the frame takes once its heads are expanded."""
    form, content = sections.get(Kind.HEADS, (0, b""))
    return header.length + (min(total_of(content), MOST_TOGETHER) if form == PACKED else 0)


def lanes_of(content: memoryview) -> Iterator[LaneName]:
    """The lanes that a section defines."""
    at = 0
    while at < len(content):
        priority, queue, key = LANE_DEFINITION.unpack_from(content, at)
        at += LANE_DEFINITION.size
        yield str(content[at : at + queue], "utf-8"), bytes(content[at + queue : at + queue + key]), 9 - priority
        at += queue + key


UNKNOWN: LaneName = ("?", b"", 9)
"""Stands for lanes whose definitions are lost, when a damaged journal is read."""


class LostLanes(list[LaneName]):
    """The lanes of a segment that is read in spite of damage; those whose definition is lost are UNKNOWN."""

    def __getitem__(self, number: Any) -> Any:
        return super().__getitem__(number) if number < len(self) else UNKNOWN


def _define(lanes: list[LaneName], content: memoryview, sequence: int) -> None:
    first, count = LANES.unpack_from(content)
    if isinstance(lanes, LostLanes):
        lanes.extend([UNKNOWN] * (first - len(lanes)))
    if first != len(lanes):
        raise StoreCorrupt(f"frame {sequence} defines lane {first} where {len(lanes)} is next")
    lanes.extend(lanes_of(content[LANES.size :]))
    if len(lanes) != first + count:
        raise StoreCorrupt(f"frame {sequence} defines {len(lanes) - first} lanes instead of {count}")


class Links(NamedTuple):
    """Everything in a frame except its rows."""

    groups: list[tuple[LaneName, int]]
    takes: list[TokenRun]
    moves: list[MoveRun]
    backouts: list[tuple[LaneName, int, int]]
    state: dict[bytes, bytes | None]


def links_of(sections: Sections, lanes: list[LaneName], sequence: int) -> Links:
    """Decode the links. Lanes that the frame defines are appended to `lanes`, those of its segment."""
    try:
        if Kind.LANES in sections:
            _define(lanes, sections[Kind.LANES][1], sequence)
        return Links(
            [(lanes[lane], rows) for lane, rows in GROUP.iter_unpack(_content(sections, Kind.GROUPS))],
            [
                TokenRun(lanes[lane], first, count)
                for lane, count, first in TAKE.iter_unpack(_content(sections, Kind.TAKES))
            ],
            [
                MoveRun(lanes[lane], lanes[to_lane], first, to_first, count)
                for lane, to_lane, first, to_first, count, _0 in MOVE.iter_unpack(_content(sections, Kind.MOVES))
            ],
            [
                (lanes[lane], number, count)
                for lane, count, number in BACKOUT.iter_unpack(_content(sections, Kind.BACKOUTS))
            ],
            dict(_state_of(_content(sections, Kind.STATE))),
        )
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"frame {sequence}: {error}") from error


def _content(sections: Sections, kind: Kind) -> memoryview:
    section = sections.get(kind)
    return section[1] if section else memoryview(b"")


def _state_of(content: memoryview) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0
    while at < len(content):
        key, _0, value = STATE.unpack_from(content, at)
        at += STATE.size
        name = bytes(content[at : at + key])
        at += key
        if value == REMOVED:
            yield name, None
        else:
            yield name, bytes(content[at : at + value])
            at += value


MSG_ID = slice(48, 72)
CORREL_ID = slice(72, 96)
"""Their places in an MQMD."""


class Rows(NamedTuple):
    """The rows of one frame, ready to be read; columns are None where no row has such a value."""

    time: int
    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    msg_ids: Sequence[bytes] | None
    correl_ids: Sequence[bytes] | None
    expiries: Sequence[int] | None
    put_times: Sequence[int] | None
    size: int

    @property
    def plain(self) -> bool:
        """Whether heads and bodies are everything there is."""
        return self.msg_ids is None and self.correl_ids is None and self.expiries is None and self.put_times is None

    def message(self, row: int, token: int, backout: int) -> Message:
        """The message of one row, with identifiers and times of its own in place of the shared ones."""
        head = self.heads[row]
        own = self.msg_ids[row] if self.msg_ids is not None else NO_ID
        if own != NO_ID:
            head = head[: MSG_ID.start] + own + head[MSG_ID.stop :]
        correlation = self.correl_ids[row] if self.correl_ids is not None else NO_ID
        if correlation != NO_ID:
            head = head[: CORREL_ID.start] + correlation + head[CORREL_ID.stop :]
        time = (self.put_times[row] or self.time) if self.put_times is not None else self.time
        expiry = self.expiries[row] if self.expiries is not None else 0
        return Message(token, head, self.bodies[row], time, backout, expiry)


class Values(Sequence[bytes]):
    """A column of byte strings as it is in the frame; values are cut out when they are asked for."""

    __slots__ = ("_bounds", "_data", "_index", "_width")

    def __init__(self, bounds: Sequence[int], data: bytes, index: Sequence[int] | None, width: int = 0) -> None:
        self._bounds = bounds
        self._data = data
        self._index = index
        self._width = width
        """The length of every value if all have the same: such a column is cut in one step."""

    def __len__(self) -> int:
        return len(self._bounds) - 1 if self._index is None else len(self._index)

    @overload
    def __getitem__(self, row: int) -> bytes: ...
    @overload
    def __getitem__(self, row: slice) -> list[bytes]: ...
    def __getitem__(self, row: int | slice) -> bytes | list[bytes]:
        bounds, data = self._bounds, self._data
        if isinstance(row, int):
            at = row if self._index is None else self._index[row]
            return data[bounds[at] : bounds[at + 1]]
        if self._index is None:
            begin, end, _step = row.indices(len(bounds) - 1)
            if self._width and begin < end:
                return list(_cutter(self._width, end - begin).unpack_from(data, begin * self._width))
            cuts = bounds[begin : end + 1]
            return [data[one:two] for one, two in pairwise(cuts)]
        cut = {at: data[bounds[at] : bounds[at + 1]] for at in set(self._index[row])}
        return [cut[at] for at in self._index[row]]


MOST_CUT = 4096
"""Up to this many values are cut in one step: the cutters are kept."""


@lru_cache(maxsize=128)
def _cutter(width: int, count: int) -> struct.Struct:
    return struct.Struct(f"{width}s" * count)


@lru_cache(maxsize=128)
def _even_bounds(code: str, width: int, count: int) -> bytes:
    return array(code, range(0, width * count + 1, width)).tobytes()


def _even_width(code: str, bounds: Sequence[int], content: bytes) -> int:
    """The length of every value, or 0 if they differ."""
    count = len(bounds) - 1
    if not 0 < count <= MOST_CUT:
        return 0
    width = bounds[1]
    return width if width and bounds[-1] == width * count and content == _even_bounds(code, width, count) else 0


class Same(Sequence[int]):
    """A column with one value for all rows."""

    __slots__ = ("_rows", "_value")

    def __init__(self, value: int, rows: int) -> None:
        self._value = value
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[int]: ...
    def __getitem__(self, row: int | slice) -> int | Sequence[int]:
        if isinstance(row, int):
            if not -self._rows <= row < self._rows:
                raise IndexError(row)
            return self._value
        return Same(self._value, len(range(*row.indices(self._rows))))


def rows_of(header: FrameHeader, sections: Sections) -> Rows:
    """Decode the rows of a whole frame."""
    rows, size = header.rows, expanded_length(header, sections)
    expand_heads(sections, header.sequence)
    try:
        bodies = _values(sections, Kind.BODY_OFFSETS, Kind.BODIES, Kind.BODY_INDEX)
        heads: Sequence[bytes] = _values(sections, Kind.HEAD_OFFSETS, Kind.HEADS, Kind.HEAD_INDEX)
        if len(bodies) == rows and Kind.HEAD_INDEX not in sections:
            heads = [heads[0]] * rows
        decoded = Rows(
            header.time, heads, bodies, _ids(sections, Kind.MSG_IDS), _ids(sections, Kind.CORREL_IDS),
            numbers_in(sections, Kind.EXPIRIES, rows), numbers_in(sections, Kind.PUT_TIMES, rows), size,
        )  # fmt: skip
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise StoreCorrupt(f"frame {header.sequence}: {error}") from error
    for column in decoded[1:7]:
        if column is not None and len(column) != rows:
            raise StoreCorrupt(f"frame {header.sequence}: a column of {len(column)} values for {rows} rows")
    return decoded


def _values(sections: Sections, offsets: Kind, data: Kind, index: Kind) -> Values:
    form, column = sections[offsets]
    code, content, values = "i" if form == 4 else "q", bytes(column), _whole(sections[data][1])
    bounds = array(code, content)
    numbers: array[int] | None = None
    if index in sections:
        form, column = sections[index]
        numbers = array({1: "B", 2: "H", 4: "I"}[form], bytes(column))
        if max(numbers, default=-1) >= len(bounds) - 1:
            raise IndexError("an index names a value that is not there")
    width = _even_width(code, bounds, content)
    return Values(bounds, values, numbers, width if bounds[-1] <= len(values) else 0)


def _whole(content: memoryview) -> bytes:
    """The content as bytes, without a copy if it is a bytes object already."""
    source = content.obj
    return source if type(source) is bytes and len(source) == len(content) else bytes(content)


def _ids(sections: Sections, kind: Kind) -> list[bytes] | None:
    section = sections.get(kind)
    if section is None:
        return None
    data = bytes(section[1])
    return [data[at : at + ID_LENGTH] for at in range(0, len(data), ID_LENGTH)]


def numbers_in(sections: Sections, kind: Kind, rows: int) -> Sequence[int] | None:
    """A column of unsigned 64-bit values; None if the frame has none."""
    section = sections.get(kind)
    if section is None:
        return None
    form, content = section
    if len(content) % 8 or (form == ONE and len(content) != 8):
        raise StoreCorrupt(f"a column of {len(content)} bytes for numbers of 8")
    values = array("Q", bytes(content))
    return Same(values[0], rows) if form == ONE else values
