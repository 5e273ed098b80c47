"""A table that gives each distinct head a number; in C (`_head_numbers.c`) where there was a compiler at installation.
No input or output.

A reader of frames meets the same few thousand heads again and again. The table gives the number of each head without
making a bytes object of it. Values are added in *rounds* (one for each chunk of messages): within a round each distinct
value has a *place*, counted from 0 in the order of first appearance. Between rounds values keep their *numbers* until
`keep` drops some. The Python below gives the same answers; the tests compare the two.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Protocol

from gateway.queue_manager.store.packed_heads import unpack_in_python

Buffer = bytes | memoryview


class HeadNumbers(Protocol):
    """The table. Columns of numbers are bytes, 32 bits for each number in the machine's order."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> int:
        """The total bytes of all values."""

    @property
    def generation(self) -> int:
        """How often `keep` was called: numbers from another generation mean nothing."""

    def begin(self) -> None:
        """Begin a round."""

    def add(self, bounds: Buffer, data: Buffer, /) -> bytes:
        """The places of these values. Bounds: where in `data` each value begins, and where the last one ends. Raises
        ValueError if they are not valid."""

    def add_packed(self, packed: Buffer, most: int, /) -> bytes:
        """The places of the values of a packed column (`packed_heads.py`). Raises ValueError if it is damaged, or
        longer than `most`."""

    def numbers(self) -> bytes:
        """The numbers of this round's values, by place."""

    def values(self) -> tuple[bytes, bytes]:
        """This round's values by place: bounds and data. Raises ValueError if they are over 2 GiB."""

    def keep(self, numbers: Buffer, /) -> None:
        """Drop all values except those with these ascending numbers, which are numbered anew from 0; the round ends."""


class HeadNumbersInPython:
    """The table where there is no compiled one."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}
        self._places: dict[int, int] = {}
        self.size = 0
        self.generation = 0

    def __len__(self) -> int:
        return len(self._number)

    def begin(self) -> None:
        """Begin a round."""
        self._places = {}

    def _place(self, value: bytes) -> int:
        number = self._number.get(value)
        if number is None:
            number = self._number[value] = len(self._number)
            self.size += len(value)
        return self._places.setdefault(number, len(self._places))

    def add(self, bounds: Buffer, data: Buffer, /) -> bytes:
        """The places of values that lie back to back."""
        if len(bounds) < 4 or len(bounds) % 4:
            raise ValueError("bounds of values are numbers of 4 bytes, one more than there are values")
        whole, found = bytes(data), array("I")
        for begin, end in pairwise(array("I", bytes(bounds))):
            if not begin <= end <= len(whole):
                raise ValueError("bounds of values do not ascend")
            found.append(self._place(whole[begin:end]))
        return found.tobytes()

    def add_packed(self, packed: Buffer, most: int, /) -> bytes:
        """The places of the values of a packed column."""
        return self.add(*unpack_in_python(packed, most))

    def numbers(self) -> bytes:
        """The numbers of this round's values."""
        return array("I", self._places).tobytes()

    def values(self) -> tuple[bytes, bytes]:
        """This round's values."""
        all_values = list(self._number)
        values = [all_values[number] for number in self._places]
        ends = list(accumulate(map(len, values), initial=0))
        if ends[-1] >= 1 << 31:
            raise ValueError("the values of a round are over 2 GiB")
        return array("I", ends).tobytes(), b"".join(values)

    def keep(self, numbers: Buffer, /) -> None:
        """Drop all values except these."""
        if len(numbers) % 4:
            raise ValueError("numbers to keep have 4 bytes")
        wanted = array("I", bytes(numbers)).tolist()
        if any(one >= two for one, two in pairwise(wanted)) or (wanted and wanted[-1] >= len(self)):
            raise ValueError("numbers to keep are known ones and ascend")
        all_values = list(self._number)
        self._number = {all_values[number]: place for place, number in enumerate(wanted)}
        self.size = sum(map(len, self._number))
        self.generation += 1
        self.begin()


def new_head_numbers() -> HeadNumbers:
    """An empty table."""
    return _kind()


_kind: type[HeadNumbers] = HeadNumbersInPython
with suppress(ModuleNotFoundError):
    import gateway.queue_manager.store._rows as compiled_rows

    _kind = compiled_rows.HeadNumbers
