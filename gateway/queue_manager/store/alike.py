"""Byte strings that are alike, packed: what they share is written once. In C (`_alike.c`); where there was no compiler
at installation nothing is packed, but what was is read. The Python below writes the same bytes and is what the tests
compare the compiled functions with. No input or output.

Heads of one rule differ in a topic's levels, a client and the lengths these make: a tenth of their bytes. One of them
becomes a *reference* and is written whole. Its *pattern* says which runs of it others have too; such another one is
written as the texts before, between and behind these runs. A value that misses some of a run makes the pattern
narrower from there on; one that has too little of any pattern is the next reference, or is written as it is. How much
is looked at for a value is bounded, whatever clients make of their topics.

What was learnt of one column serves for the next: there the first value that a known pattern fits is the reference.
Each column can be read by itself all the same. In time everything is forgotten, since patterns only become narrower.

Written are the count of the values and their bytes together (4 bytes each, little-endian), then for each value one of
the following. Numbers are of 7 bits a byte, the lowest first, with the highest bit set in all but the last; a text is
its length and its bytes.

    0 family runs (gap length)*   a pattern; does not count as a value. `gap` is from the end of the run before
    1 text                        a value that is the reference of the next family; its pattern is one run, the whole
    2 text                        a value
    3 + family  text*             a value of this family: a text more than its pattern has runs
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from struct import Struct, error
from typing import NamedTuple, Protocol

MOST_TOGETHER = 16 << 20
"""More bytes are not packed, and none that say they are more are unpacked."""
PATTERN, REFERENCE, PLAIN, FIRST_FAMILY = range(4)
MOST_FAMILIES, MOST_RUNS = 8, 32
SHORTEST = 4
"""A shorter run costs more than it saves."""
REACH, SHIFT, MOST_MISSED, MOST_LEARNT, LONGEST = 256, 96, 4, 64, 1 << 16
"""How far a run is looked for; how far apart two values may drift; runs not found at all; values of a column that are
learnt from; the longest of them."""
MOST_COLUMNS = 1024
"""Then what was learnt is forgotten."""
_BEGINNING = Struct("<II")

Runs = list[tuple[int, int]]
"""Begin and length of the parts of a reference that others have too."""


class Family(NamedTuple):
    """A reference and what others have of it."""

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
    """Where the runs are in the value, one behind the other; None if one is not."""
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


def _meet(text: bytes, one: int, end: int, value: bytes, other: int) -> tuple[int, int] | None:
    """The nearest places from which four bytes are the same: least shift of both together, then of the first."""
    for shift in range(SHIFT + 1):
        first, last = other + shift + SHORTEST - len(value), end - SHORTEST - one
        for a in range(max(0, first), min(shift, last) + 1):
            b = other + shift - a
            if text[one + a : one + a + SHORTEST] == value[b : b + SHORTEST]:
                return one + a, b
    return None


def _learn(family: Family, value: bytes) -> Family:
    """The family's runs as far as the value has them too."""
    text, learnt = family.text, Family(family.text, [])
    other = missed = 0
    for at, length in family.runs:
        one, end = at, at + length
        while missed < MOST_MISSED and len(learnt.runs) < MOST_RUNS and end - one >= SHORTEST:
            met = _meet(text, one, end, value, other)
            if met is None:
                missed += 1
                break
            one, other = met
            same = SHORTEST
            while one + same < end and other + same < len(value) and text[one + same] == value[other + same]:
                same += 1
            learnt.runs.append((one, same))
            one += same
            other += same
    return learnt


class PackingInPython:
    """Packs columns of values that are alike; what it has learnt of one it knows of the next."""

    def __init__(self) -> None:
        self._families: list[Family] = []
        self._recent = self._columns = 0
        self._begin()

    def _begin(self) -> None:
        """A column begins."""
        self._out: list[bytes] = []
        self._learnt = 0
        self._numbers: dict[int, int] = {}
        """Families that have a reference in this column, by the order of these."""
        self._announced: set[int] = set()
        """Those whose pattern has been written in this column."""

    def pack(self, values: list[bytes], /) -> bytes | None:
        """The values, with what they share written once; None: nothing is gained, or they are too long together."""
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
        self._add_unlike(value)

    def _add_member(self, number: int, value: bytes, places: list[int]) -> None:
        """A value that has the runs of a family at these places."""
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
        """The first value of a family in this column."""
        runs = [(place, length) for place, (_at, length) in zip(places, self._families[number].runs, strict=True)]
        self._families[number] = Family(value, runs)
        if runs == [(0, len(value))]:
            self._announced.add(number)
        self._numbers[number] = len(self._numbers)
        self._recent = number
        self._out += (bytes([REFERENCE]), _text(value))

    def _add_unlike(self, value: bytes) -> None:
        """A value that no pattern fits."""
        short = len(value) <= LONGEST
        if short and self._add_alike(value):
            return
        if not short or len(value) < SHORTEST or len(self._families) == MOST_FAMILIES:
            self._out += (bytes([PLAIN]), _text(value))
            return
        self._families.append(Family(value, [(0, len(value))]))
        self._add_reference(len(self._families) - 1, value, [0])

    def _add_alike(self, value: bytes) -> bool:
        """Whether it is like enough to those of a family to have the pattern changed for it."""
        families = self._families
        for n in range(len(families)):
            if self._learnt == MOST_LEARNT:
                return False
            self._learnt += 1
            number = (self._recent + n) % len(families)
            better = _learn(families[number], value)
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
    """Reads packed values; nothing is believed of them."""

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
        """Read this many, and nothing behind them."""
        for _ in range(count):
            value = self._one()
            self._room -= len(value)
            if self._room < 0:
                raise ValueError("packed values are longer than they say")
            self.values.append(value)
        if self._at != len(self._data) or self._room:
            raise ValueError("packed values are not as long as they say")


def unpack_in_python(packed: bytes | memoryview, most: int, /) -> tuple[bytes, bytes]:
    """Arrow binary offsets of 32 bits, and the values back to back. ValueError if that is not what was packed, or they
    are longer than `most`."""
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
    """How many bytes the values are together, as packed ones say."""
    return int.from_bytes(packed[4:8], "little")


class Packing(Protocol):
    """See `PackingInPython`."""

    def pack(self, values: list[bytes], /) -> bytes | None:
        """See there."""


class NoPacking:
    """Where there was no compiler: packing in Python would cost more than what is saved."""

    def pack(self, _values: list[bytes], /) -> bytes | None:
        """Never."""
        return None


new_packing: Callable[[], Packing] = NoPacking
unpack: Callable[[bytes | memoryview, int], tuple[bytes, bytes]] = unpack_in_python
try:
    import gateway.queue_manager.store._rows as compiled_rows
except ModuleNotFoundError:
    pass
else:
    new_packing, unpack = compiled_rows.Packing, compiled_rows.unpack
