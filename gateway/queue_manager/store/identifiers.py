"""Messages by MsgId, CorrelId or GroupId: fingerprints of the identifiers of one queue and key. No input or output.

An index is built when it is first asked for, and puts add to it. Takes leave their entries in it: a caller that looks
up an identifier checks that the message is there. Stale entries are removed when they outnumber the others, or when
they come first: messages with one identifier are got one after the other. A fingerprint costs about 110 bytes for each
message.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from xxhash import xxh3_64_intdigest

from gateway.queue_manager.store.unit import NO_ID

FIELDS = {"msg_id": slice(48, 72), "correl_id": slice(72, 96), "group_id": slice(324, 348)}
"""Where the identifiers lie in an MQMD."""
FINGERPRINT = (1 << 60) - 1
"""60 bits: two digits of a Python integer instead of three."""
SWEEP_AT = 1024
Batch = tuple[int, Sequence[bytes], Sequence[bytes] | None]
"""First number, heads, and the column of ids that replace those in the heads."""


def fingerprint(identifier: bytes) -> int:
    """The number by which an identifier is indexed. Different identifiers may have the same fingerprint."""
    return xxh3_64_intdigest(identifier) & FINGERPRINT


class Numbers:
    """The numbers of several messages with one fingerprint, ascending."""

    __slots__ = ("_begin", "_numbers")

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = array("Q", sorted(numbers))
        self._begin = 0
        """Numbers before this index belong to messages that are gone."""

    def __len__(self) -> int:
        return len(self._numbers) - self._begin

    def __iter__(self) -> Iterator[int]:
        return self.after(-1)

    def add(self, number: int) -> bool:
        """Add a number; returns False if it is there already."""
        numbers = self._numbers
        if number > numbers[-1]:  # as nearly always
            numbers.append(number)
            return True
        at = bisect_left(numbers, number, self._begin)
        if at < len(numbers) and numbers[at] == number:
            return False
        numbers.insert(at, number)
        return True

    def after(self, number: int) -> Iterator[int]:
        """The numbers above this one; they must not change meanwhile."""
        numbers = self._numbers
        begin = self._begin if number < 0 else bisect_right(numbers, number, self._begin)
        return (numbers[at] for at in range(begin, len(numbers)))

    def pass_over(self, holds: Callable[[int], bool]) -> int:
        """Forget the first numbers whose messages are gone; returns how many they were."""
        numbers, before = self._numbers, self._begin
        while self._begin < len(numbers) and not holds(numbers[self._begin]):
            self._begin += 1
        passed = self._begin - before
        if self._begin > SWEEP_AT and 2 * self._begin > len(numbers) > self._begin:
            del numbers[: self._begin]
            self._begin = 0
        return passed


class FieldIndex:
    """Maps each fingerprint to one number, or to several."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.where = FIELDS[field]
        self.entries = 0
        self._numbers: dict[int, int | Numbers] = {}

    def add(self, first: int, heads: Sequence[bytes], own: Sequence[bytes] | None) -> None:
        """Add messages numbered from `first` on, with their heads and, where the column exists, the identifiers that
        replace those in the heads."""
        where = self.where
        shared: dict[int, bytes] = {}
        for at, head in enumerate(heads):
            identifier = own[at] if own is not None else NO_ID
            if identifier == NO_ID:
                identifier = shared.get(id(head)) or shared.setdefault(id(head), head[where])
            if identifier != NO_ID:
                self._add_one(fingerprint(identifier), first + at)

    def _add_one(self, mark: int, number: int) -> None:
        numbers = self._numbers.get(mark)
        if numbers is None:
            self._numbers[mark] = number
        elif isinstance(numbers, Numbers):
            self.entries += numbers.add(number)
            return
        elif numbers == number:
            return
        else:
            self._numbers[mark] = Numbers((numbers, number))
        self.entries += 1

    def find(self, identifier: bytes, holds: Callable[[int], bool]) -> tuple[int, ...] | Numbers:
        """Numbers of messages that may have this identifier, ascending. `holds` says whether a message is there."""
        mark = xxh3_64_intdigest(identifier) & FINGERPRINT
        numbers = self._numbers.get(mark)
        if numbers is None:
            return ()
        if isinstance(numbers, int):
            return (numbers,)
        self.entries -= numbers.pass_over(holds)
        if numbers:
            return numbers
        del self._numbers[mark]
        return ()

    def sweep(self, depth: int, holds: Callable[[int], bool]) -> None:
        """Remove the entries of messages that are gone, if most are."""
        if self.entries < SWEEP_AT + 2 * depth:
            return
        kept: dict[int, int | Numbers] = {}
        self.entries = 0
        for mark, numbers in self._numbers.items():
            living = [number for number in ((numbers,) if isinstance(numbers, int) else numbers) if holds(number)]
            if living:
                kept[mark] = living[0] if len(living) == 1 else Numbers(living)
                self.entries += len(living)
        self._numbers = kept


class QueueIdentifiers:
    """The indexes of one queue and key, one for each field that was searched."""

    def __init__(self) -> None:
        self.fields: dict[str, FieldIndex] = {}
        self._begun: dict[str, tuple[FieldIndex, int]] = {}
        """Indexes that are not complete, each with the token up to which it is."""

    def build(self, field: str, following: Callable[[int], Iterable[tuple[int, Batch]]], most: int) -> bool:
        """Continue the index of a field over the messages that are there, with about `most` of them; returns whether it
        is complete. `following` gives the batches behind a token, each with the token of its last message."""
        index, reached = self._begun.get(field) or (FieldIndex(field), -1)
        added = 0
        for last, (first, heads, own) in following(reached):
            if added >= most:
                self._begun[field] = index, reached
                return False
            index.add(first, heads, own)
            added, reached = added + len(heads), last
        self._begun.pop(field, None)
        self.fields[field] = index
        return True

    def __iter__(self) -> Iterator[FieldIndex]:
        """The indexes to which new messages are added: all of them."""
        yield from self.fields.values()
        for index, _ in self._begun.values():
            yield index
