"""Columns of similar byte strings, packed: what they share is written once. In C (`_packed_heads.c`); where there was
no compiler at installation columns are not packed, but packed ones are read. The Python below writes the same bytes;
the tests compare the two. No input or output.

Heads of one rule differ in a topic's levels, a client and the lengths these make: a tenth of their bytes. One head
becomes a *reference* and is written whole. The *pattern* of its *family* says which runs of it the other members have
too; a member is written as the texts before, between and after these runs. A value that lacks a part of a run narrows
the pattern from there on; a value that has too little of every pattern becomes the next reference, or is written whole.
How much is compared for a value is bounded, whatever topics clients choose.

Patterns are kept from one column to the next: there the first value that a pattern fits is the reference of its family.
Each column can be read by itself all the same. Every so many columns all patterns are dropped, since they only become
narrower.

A column begins with the count of its values and their length together (4 bytes each, little-endian), then has one of
the following for each value. Numbers are of 7 bits a byte, the lowest first, with the highest bit set in all but the
last; a text is its length and its bytes.

    0 family runs (gap length)*   a pattern; does not count as a value. `gap` is from the end of the run before
    1 text                        a value that is the reference of the next family; its pattern is one run, the whole
    2 text                        a value
    3 + family  text*             a value of this family: a text more than its pattern has runs
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from struct import Struct, error
from typing import NamedTuple, Protocol

MOST_TOGETHER = 16 << 20
"""Columns of more bytes are not packed, and columns that claim to have more are not unpacked."""
PATTERN, REFERENCE, PLAIN, FIRST_FAMILY = range(4)
MOST_FAMILIES, MOST_RUNS = 8, 32
SHORTEST = 4
"""The shortest run: a shorter one costs more than it saves."""
REACH, SHIFT, MOST_MISSED, MOST_NARROWED, LONGEST = 256, 96, 4, 64, 1 << 16
"""How far a run is searched for; how far two values may be shifted against each other; runs that may be missing; how
many values of a column patterns are narrowed for; the longest of them."""
MOST_COLUMNS = 1024
"""The number of columns after which the patterns are dropped."""
_BEGINNING = Struct("<II")

Runs = list[tuple[int, int]]
"""Begin and length of the parts of a reference that others have too."""


class Family(NamedTuple):
    """A reference, and the runs of it that the other members have."""

    text: bytes
    runs: Runs


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(value: bytes) -> bytes:
    return _number(len(value)) + value


def _places(family: Family, value: bytes) -> list[int] | None:
    """The places of the runs in the value, in order; None if one is missing."""
    places: list[int] = []
    begin = 0
    for at, length in family.runs:
        found = value.find(family.text[at : at + length], begin, begin + REACH + length)
        if found < 0:
            return None
        places.append(found)
        begin = found + length
    return places


def _gaps(family: Family, value: bytes, places: list[int]) -> bytes:
    out: list[bytes] = []
    begin = 0
    for place, (_at, length) in zip(places, family.runs, strict=True):
        out.append(_text(value[begin:place]))
        begin = place + length
    return b"".join(out) + _text(value[begin:])


def _next_common(text: bytes, one: int, end: int, value: bytes, other: int) -> tuple[int, int] | None:
    """The nearest places from which four bytes are the same: those with the least shift of both together, then of the
    first. None if there are none."""
    for shift in range(SHIFT + 1):
        first, last = other + shift + SHORTEST - len(value), end - SHORTEST - one
        for a in range(max(0, first), min(shift, last) + 1):
            b = other + shift - a
            if text[one + a : one + a + SHORTEST] == value[b : b + SHORTEST]:
                return one + a, b
    return None


def _narrowed(family: Family, value: bytes) -> Family:
    """The family with its runs cut to what the value has of them."""
    text, narrowed = family.text, Family(family.text, [])
    other = missed = 0
    for at, length in family.runs:
        one, end = at, at + length
        while missed < MOST_MISSED and len(narrowed.runs) < MOST_RUNS and end - one >= SHORTEST:
            common = _next_common(text, one, end, value, other)
            if common is None:
                missed += 1
                break
            one, other = common
            same = SHORTEST
            while one + same < end and other + same < len(value) and text[one + same] == value[other + same]:
                same += 1
            narrowed.runs.append((one, same))
            one += same
            other += same
    return narrowed


class PackingInPython:
    """Packs columns of similar values, and keeps its patterns from one column to the next."""

    def __init__(self) -> None:
        self._families: list[Family] = []
        self._recent = self._columns = 0
        self._begin()

    def _begin(self) -> None:
        """Begin a column."""
        self._out: list[bytes] = []
        self._narrowings = 0
        self._numbers: dict[int, int] = {}
        """The numbers that families have in this column, in the order of their references."""
        self._announced: set[int] = set()
        """Families whose pattern has been written in this column."""

    def pack(self, values: list[bytes], /) -> bytes | None:
        """The packed column; None if nothing is gained, or the values are too long together."""
        total = sum(map(len, values))
        if total > MOST_TOGETHER:
            return None
        if self._columns == MOST_COLUMNS:
            self._families, self._recent, self._columns = [], 0, 0
        self._columns += 1
        self._begin()
        for value in values:
            self._add(value)
        packed = _BEGINNING.pack(len(values), total) + b"".join(self._out)
        return packed if len(packed) < total else None

    def _add(self, value: bytes) -> None:
        families = self._families
        for n in range(len(families)):
            number = (self._recent + n) % len(families)
            places = _places(families[number], value)
            if places is not None:
                self._add_member(number, value, places)
                return
        self._add_unfitting(value)

    def _add_member(self, number: int, value: bytes, places: list[int]) -> None:
        """Add a value of a family, which has the runs at these places."""
        self._recent = number
        if number not in self._numbers:
            self._add_reference(number, value, places)
            return
        family = self._families[number]
        if number not in self._announced:
            self._announced.add(number)
            self._out.append(_pattern(self._numbers[number], family.runs))
        self._out += (bytes([FIRST_FAMILY + self._numbers[number]]), _gaps(family, value, places))

    def _add_reference(self, number: int, value: bytes, places: list[int]) -> None:
        """Add the first value of a family in this column."""
        runs = [(place, length) for place, (_at, length) in zip(places, self._families[number].runs, strict=True)]
        self._families[number] = Family(value, runs)
        if runs == [(0, len(value))]:
            self._announced.add(number)
        self._numbers[number] = len(self._numbers)
        self._recent = number
        self._out += (bytes([REFERENCE]), _text(value))

    def _add_unfitting(self, value: bytes) -> None:
        """Add a value that fits no pattern."""
        short = len(value) <= LONGEST
        if short and self._add_similar(value):
            return
        if not short or len(value) < SHORTEST or len(self._families) == MOST_FAMILIES:
            self._out += (bytes([PLAIN]), _text(value))
            return
        self._families.append(Family(value, [(0, len(value))]))
        self._add_reference(len(self._families) - 1, value, [0])

    def _add_similar(self, value: bytes) -> bool:
        """Add a value if it is similar enough to a family to narrow that one's pattern for it; returns whether it
        was."""
        families = self._families
        for n in range(len(families)):
            if self._narrowings == MOST_NARROWED:
                return False
            self._narrowings += 1
            number = (self._recent + n) % len(families)
            better = _narrowed(families[number], value)
            kept, longer = sum(length for _at, length in better.runs), max(len(better.text), len(value))
            if 8 * kept >= 7 * longer if len(families) < MOST_FAMILIES else 2 * kept >= longer:
                places = _places(better, value)
                if places is None:
                    return False
                families[number] = better
                self._announced.discard(number)
                self._add_member(number, value, places)
                return True
        return False


def _pattern(number: int, runs: Runs) -> bytes:
    out, end = [bytes([PATTERN, number, len(runs)])], 0
    for at, length in runs:
        out += (_number(at - end), _number(length))
        end = at + length
    return b"".join(out)


class _Unpacking:
    """Reads a packed column without trusting it."""

    def __init__(self, packed: bytes, most: int) -> None:
        self._data = packed
        self._at = _BEGINNING.size
        self._families: list[Family] = []
        self.values: list[bytes] = []
        self._room = most

    def _number(self) -> int:
        value = 0
        for shift in range(0, 28, 7):
            one = self._data[self._at]
            self._at += 1
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
        raise ValueError("a number of packed values is too long")

    def _text(self) -> bytes:
        length = self._number()
        begin = self._at
        self._at += length
        if self._at > len(self._data):
            raise ValueError("packed values end too early")
        return self._data[begin : self._at]

    def _pattern(self) -> None:
        number, runs = self._data[self._at], self._data[self._at + 1]
        self._at += 2
        family = self._families[number]
        if runs > MOST_RUNS:
            raise ValueError("a pattern of packed values is not one")
        end, found = 0, []
        for _ in range(runs):
            at = end + self._number()
            end = at + self._number()
            found.append((at, end - at))
        if end > len(family.text):
            raise ValueError("a pattern of packed values is longer than its reference")
        self._families[number] = Family(family.text, found)

    def _one(self) -> bytes:
        while self._data[self._at] == PATTERN:
            self._at += 1
            self._pattern()
        kind = self._data[self._at]
        self._at += 1
        if kind < FIRST_FAMILY:
            value = self._text()
            if kind == REFERENCE:
                if len(self._families) == MOST_FAMILIES:
                    raise ValueError("packed values have too many references")
                self._families.append(Family(value, [(0, len(value))]))
            return value
        family = self._families[kind - FIRST_FAMILY]
        parts: list[bytes] = []
        for at, length in family.runs:
            parts += (self._text(), family.text[at : at + length])
        return b"".join([*parts, self._text()])

    def all(self, count: int) -> None:
        """Read this many values, which must be all of the column."""
        for _ in range(count):
            value = self._one()
            self._room -= len(value)
            if self._room < 0:
                raise ValueError("packed values are longer than they say")
            self.values.append(value)
        if self._at != len(self._data) or self._room:
            raise ValueError("packed values are not as long as they say")


def unpack_in_python(packed: bytes | memoryview, most: int, /) -> tuple[bytes, bytes]:
    """Arrow binary offsets of 32 bits, and the values back to back. Raises ValueError if the column is damaged, or the
    values are longer than `most` together."""
    data = bytes(packed)
    try:
        count, total = _BEGINNING.unpack_from(data)
        if total > most or count > len(data) - _BEGINNING.size:
            raise ValueError("packed values are too long together, or too many")
        unpacking = _Unpacking(data, total)
        unpacking.all(count)
    except (IndexError, error) as problem:
        raise ValueError("packed values end too early") from problem
    ends = accumulate(map(len, unpacking.values), initial=0)
    return b"".join(end.to_bytes(4, "little") for end in ends), b"".join(unpacking.values)


def total_of(packed: bytes | memoryview) -> int:
    """The total length of the values, as the packed column states it."""
    return int.from_bytes(packed[4:8], "little")


class Packing(Protocol):
    """A packer of columns: `_rows.Packing`, `PackingInPython` or `NoPacking`."""

    def pack(self, values: list[bytes], /) -> bytes | None:
        """The packed column, or None if it is to be written as it is."""


class NoPacking:
    """Packs nothing, where there is no compiler: packing in Python would cost more than it saves."""

    def pack(self, _values: list[bytes], /) -> bytes | None:
        """None: columns are written as they are."""
        return None


new_packing: Callable[[], Packing] = NoPacking
unpack: Callable[[bytes | memoryview, int], tuple[bytes, bytes]] = unpack_in_python
with suppress(ModuleNotFoundError):
    import gateway.queue_manager.store._rows as compiled_rows

    new_packing, unpack = compiled_rows.Packing, compiled_rows.unpack
