"""Frames: columns to bytes. Pure code; the caller decides where the frame goes and provides an aligned buffer.

The usual frame is a batch of small messages with few heads: a few passes over the columns in C, and nothing per row in
Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from gateway.errors import StoreError
from gateway.queue_manager.journal.decode import Links
from gateway.queue_manager.journal.layout import (
    BACKOUT,
    BLOCK,
    CHECKED_FROM,
    EACH,
    FRAME,
    FRAME_LENGTH,
    FRAME_MAGIC,
    GROUP,
    LANE_DEFINITION,
    LANES,
    MAX_FRAME,
    MOVE,
    ONE,
    PACKED,
    REMOVED,
    STATE,
    TAKE,
    VERSION,
    Kind,
)
from gateway.queue_manager.store.index import LaneName
from gateway.queue_manager.store.packed_heads import Packing, total_of
from gateway.queue_manager.store.replaced import links as links_of_replaced
from gateway.queue_manager.store.rows import Section, dictionary, laid_length, lay_out, offsets, repeats, same
from gateway.queue_manager.store.unit import Replaced

GROUPS, TAKES, HEADS, BODIES = Kind.GROUPS, Kind.TAKES, Kind.HEADS, Kind.BODIES
HEAD_OFFSETS, HEAD_INDEX, BODY_OFFSETS = Kind.HEAD_OFFSETS, Kind.HEAD_INDEX, Kind.BODY_OFFSETS
"""Kinds that nearly every frame has: a member of an enumeration costs as much as a call each time it is named."""
CHECKSUM = Struct("<Q")
WORTH_PACKING = 4
"""The fewest heads that are packed: fewer do not make a frame a block longer."""
ZEROS = memoryview(bytes(BLOCK))
"""What the last block of a frame is filled with."""
TOO_LARGE = "a unit of work may have at most {limit} {what}, this one has {found}: split it"


class Columns(NamedTuple):
    """The rows of a frame as parallel columns over all its groups; None where no row has such a value."""

    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    msg_ids: Sequence[bytes] | None = None
    correl_ids: Sequence[bytes] | None = None
    expiries: Sequence[int] | None = None
    put_times: Sequence[int] | None = None
    numbers: Sequence[int] | None = None
    shared: bool = False
    """Whether several rows may share a body. Within one lane that is not worth looking for."""


def encode_rows(columns: Columns, packing: Packing) -> tuple[list[Section], int]:
    """The sections that hold rows, and the length of the heads if they are packed (else 0)."""
    heads, packed = _heads(columns.heads, packing)
    sections = heads + _bodies(columns.bodies, shared=columns.shared)
    if columns.msg_ids is not None:
        sections.append((Kind.MSG_IDS, EACH, b"".join(columns.msg_ids)))
    if columns.correl_ids is not None:
        sections.append((Kind.CORREL_IDS, EACH, b"".join(columns.correl_ids)))
    if columns.expiries is not None:
        sections.append(_values(Kind.EXPIRIES, columns.expiries))
    if columns.put_times is not None:
        sections.append(_values(Kind.PUT_TIMES, columns.put_times))
    if columns.numbers is not None:
        sections.append(_values(Kind.NUMBERS, columns.numbers))
    return sections, packed


def _values(kind: Kind, values: Sequence[int]) -> Section:
    if kind is not Kind.NUMBERS and values[0] == values[-1] and len(set(values)) == 1:
        return kind, ONE, array("Q", values[:1]).tobytes()
    return kind, EACH, array("Q", values).tobytes()


def _bounds(kind: Kind, values: list[bytes]) -> Section:
    """Arrow binary offsets, one more than there are values, from 0: of 4 bytes, or of 8 where 4 are too few."""
    narrow = offsets(values)
    if narrow is not None:
        return kind, 4, narrow
    return kind, 8, array("q", accumulate(map(len, values), initial=0)).tobytes()


@lru_cache(maxsize=64)
def _one_head(head: bytes) -> list[Section]:
    """The sections of a frame whose rows all have this head; remembered, as the same heads are used again and again."""
    return [_bounds(HEAD_OFFSETS, [head]), (HEADS, 0, head)]


def _heads(heads: Sequence[bytes], packing: Packing) -> tuple[list[Section], int]:
    """Sections with each distinct head once, and the number of each row's head (none if there is only one head).
    Second: the length of all distinct heads if they are packed, else 0."""
    heads = heads if isinstance(heads, list) else list(heads)
    if same(heads):
        return _one_head(heads[0]), 0
    distinct, width, index = dictionary(heads)
    if len(distinct) == 1:
        return _one_head(heads[0]), 0
    index_section = HEAD_INDEX, width, index
    packed = packing.pack(distinct) if len(distinct) >= WORTH_PACKING else None
    if packed is not None:
        return [(HEADS, PACKED, packed), index_section], total_of(packed)
    return [_bounds(HEAD_OFFSETS, distinct), (HEADS, 0, distinct), index_section], 0


def _bodies(bodies: Sequence[bytes], *, shared: bool) -> list[Section]:
    """Sections with the bodies back to back. A body that several rows share (the same object) is written once, with an
    index."""
    sharing: Section | None = None
    if shared and isinstance(bodies, list) and repeats(bodies):
        by_identity = {id(body): body for body in bodies}
        number = {identity: index for index, identity in enumerate(by_identity)}
        index = array("I", [number[id(body)] for body in bodies])
        sharing = Kind.BODY_INDEX, index.itemsize, index.tobytes()
        bodies = list(by_identity.values())
    bodies = bodies if isinstance(bodies, list) else list(bodies)
    sections: list[Section] = [_bounds(BODY_OFFSETS, bodies), (BODIES, 0, bodies)]
    return [*sections, sharing] if sharing else sections


class LaneNumbers:
    """The numbers of the lanes that a segment has defined so far. Each segment defines the lanes it uses, and can be
    read without the others.

    Of many lanes only the last ones are remembered; an older one is defined again, under a new number.
    """

    REMEMBERED = 8192

    def __init__(self, defined: Sequence[LaneName] = ()) -> None:
        self.next = len(defined)
        self.known: dict[LaneName, int] = {name: number for number, name in enumerate(defined)}
        """The numbers of known lanes; `number` defines one that is not among them."""
        self._by_key: dict[tuple[str, int], dict[bytes, int]] = {}
        """Some of these numbers once more, by queue and rank."""
        self.fresh: list[LaneName] = []
        """The lanes that the frame being made defines."""

    def begin(self) -> int:
        """Begin a frame; returns the first number that it may define."""
        if len(self.known) > self.REMEMBERED:
            self.known, self._by_key = {}, {}
        self.fresh = []
        return self.next

    def number(self, name: LaneName) -> int:
        """The lane's number within the segment; defines it if it is new."""
        number = self.known.get(name)
        if number is None:
            number = self.known[name] = self.next
            self.fresh.append(name)
            self.next += 1
        return number

    def by_key(self, queue: str, rank: int) -> dict[bytes, int]:
        """Numbers of lanes of a queue by key, for the caller to complete with `number`: the keys of state records are
        many, and are found faster than names."""
        return self._by_key.setdefault((queue, rank), {})

    def take_back(self) -> None:
        """Drop the definitions of a frame that is not written."""
        for name in self.fresh:
            del self.known[name]
        self.next -= len(self.fresh)
        self.fresh, self._by_key = [], {}


def encode_links(links: Links, lanes: LaneNumbers, replaced: Sequence[Replaced] = ()) -> list[Section]:
    """The sections that name lanes, with definitions of those that are new in the segment. Rows and takes of replaced
    records come last."""
    first = lanes.begin()
    known, number = lanes.known.get, lanes.number
    sections: list[Section] = []
    groups = [GROUP.pack(known(name) or number(name), rows) for name, rows in links.groups]
    takes = [TAKE.pack(known(name) or number(name), count, at) for name, at, count in links.takes]
    for one in replaced:
        by_key = lanes.by_key(one.queue, one.rank)
        come, leave = links_of_replaced(one.queue, one.rank, one.keys, one.numbers, by_key, number)
        groups.append(come)
        takes.append(leave)
    if groups:
        sections.append((GROUPS, 0, b"".join(groups)))
    if takes:
        sections.append((TAKES, 0, b"".join(takes)))
    if links.moves:
        moves = [MOVE.pack(number(m.lane), number(m.to_lane), m.first, m.to_first, m.length, 0) for m in links.moves]
        sections.append((Kind.MOVES, 0, b"".join(moves)))
    if links.backouts:
        backouts = [BACKOUT.pack(number(name), count, at) for name, at, count in links.backouts]
        sections.append((Kind.BACKOUTS, 0, b"".join(backouts)))
    if links.state:
        sections.append((Kind.STATE, 0, _state(links.state)))
    if lanes.next > first:
        sections.append((Kind.LANES, 0, _definitions(first, lanes.fresh)))
    return sections


def _definitions(first: int, names: list[LaneName]) -> bytes:
    parts = [LANES.pack(first, len(names))]
    for queue, key, rank in names:
        encoded = queue.encode()
        parts += (LANE_DEFINITION.pack(9 - rank, len(encoded), len(key)), encoded, key)
    return b"".join(parts)


def _state(records: dict[bytes, bytes | None]) -> bytes:
    parts: list[bytes] = []
    for key, value in records.items():
        parts += (STATE.pack(len(key), 0, REMOVED if value is None else len(value)), key, value or b"")
    return b"".join(parts)


def frame_length(sections: list[Section]) -> int:
    """The length of a frame with these sections. Raises StoreError if they are too long for one."""
    length = FRAME_LENGTH + laid_length(sections)
    if length > MAX_FRAME:
        raise StoreError(TOO_LARGE.format(limit=MAX_FRAME, what="bytes", found=length))
    return length


def encode_frame(
    buffer: memoryview, sections: list[Section], length: int, flags: int, salt: int, sequence: int, time: int,
    first_number: int, rows: int,
) -> None:  # fmt: skip
    """Write a frame with these sections and this length into `buffer`, checksum included; the rest of its last block is
    zeroed."""
    FRAME.pack_into(
        buffer, 0, 0, FRAME_MAGIC, VERSION, flags, salt, sequence, time, first_number, rows, length, len(sections), 0, 0
    )
    lay_out(sections, buffer[FRAME_LENGTH:length])
    if length < len(buffer):
        buffer[length:] = ZEROS[: len(buffer) - length]
    CHECKSUM.pack_into(buffer, 0, xxh3_64_intdigest(buffer[CHECKED_FROM:length], seed=salt))
