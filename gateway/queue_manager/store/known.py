"""Byte strings that were met before, each once, by number; in C (`_known.c`) where there was a compiler at
installation. No input or output.

Whoever reads frames has the same few thousand heads again and again. `Known` says for each of them which it is, without
making an object of it: values are added in *rounds* (a chunk of messages), in which each has a *place*, counted from 0
in the order of first appearance, and between rounds they keep their *numbers* until `keep` forgets some. The Python
below answers the same and is what the tests compare the compiled type with.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import Protocol

from gateway.queue_manager.store.alike import unpack_in_python

Buffer = bytes | memoryview


class Known(Protocol):
    """See the module. Columns of numbers are bytes, of 32 bits each in the machine's order."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> int:
        """The bytes of all known values."""

    @property
    def generation(self) -> int:
        """How often `keep` was called: numbers of another generation mean nothing."""

    def begin(self) -> None:
        """A new round."""

    def add(self, bounds: Buffer, data: Buffer, /) -> bytes:
        """The places of values. Bounds: where in `data` each begins and the last one ends. ValueError: they do not."""

    def add_packed(self, packed: Buffer, most: int, /) -> bytes:
        """The places of values that `alike` has packed. ValueError if it has not, or they are longer than `most`."""

    def numbers(self) -> bytes:
        """The numbers of this round's values, by place."""

    def values(self) -> tuple[bytes, bytes]:
        """This round's values by place: bounds and data. ValueError if they are over 2 GiB."""

    def keep(self, numbers: Buffer, /) -> None:
        """Forget all but these, given in ascending order; they are numbered anew from 0, and the round ends."""


class KnownInPython:
    """The same without a compiler."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}
        self._places: dict[int, int] = {}
        self.size = 0
        self.generation = 0

    def __len__(self) -> int:
        return len(self._number)

    def begin(self) -> None:
        """A new round."""
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
        """The places of values that were packed."""
        return self.add(*unpack_in_python(packed, most))

    def numbers(self) -> bytes:
        """The numbers of this round's values."""
        return array("I", self._places).tobytes()

    def values(self) -> tuple[bytes, bytes]:
        """This round's values."""
        all_values = list(self._number)
        met = [all_values[number] for number in self._places]
        ends = list(accumulate(map(len, met), initial=0))
        if ends[-1] >= 1 << 31:
            raise ValueError("the values of a round are over 2 GiB")
        return array("I", ends).tobytes(), b"".join(met)

    def keep(self, numbers: Buffer, /) -> None:
        """Forget all but these."""
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


def known() -> Known:
    """One that knows nothing yet."""
    return _kind()


_kind: type[Known] = KnownInPython
try:
    import gateway.queue_manager.store._rows as compiled_rows
except ModuleNotFoundError:
    pass
else:
    _kind = compiled_rows.Known
