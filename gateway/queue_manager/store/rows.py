"""The loops over the rows of a batch, in C (`_rows.c`) where there was a compiler at installation. No input or output.

The Python below does the same; the tests compare the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import TypeVar

from gateway.queue_manager.store.unit import Message

_A = TypeVar("_A")
_B = TypeVar("_B")
Section = tuple[int, int, bytes | list[bytes]]
"""A section of a frame: kind, form, and content, which may be in pieces."""
_SECTION = Struct("<HHI")
_LONGEST = (1 << 32) - 1
_NEW, _MESSAGES, _ZEROS = tuple.__new__, repeat(Message), repeat(0)
"""Arguments of `map` that make a message of each row of a `zip` without a call into Python."""


def messages_in_python(
    kind: type[Message], heads: list[bytes], bodies: list[bytes], token: int, time: int, /
) -> list[Message]:
    """A message for each row, with tokens that count up."""
    del kind
    numbers = range(token, token + len(heads))
    columns = zip(numbers, heads, bodies, repeat(time, len(heads)), _ZEROS, _ZEROS, strict=False)
    return list(map(_NEW, _MESSAGES, columns))


def one_run_in_python(tokens: list[int], /) -> bool:
    """Whether the tokens are consecutive numbers; False if there is none."""
    return bool(tokens) and tokens == list(range(tokens[0], tokens[0] + len(tokens)))


def extent_in_python(values: Sequence[bytes], /) -> tuple[int, int]:
    """The total length of the values, and the length of the longest."""
    return sum(map(len, values)), max(map(len, values), default=0)


def repeats_in_python(values: list[bytes], /) -> bool:
    """Whether the same object occurs twice."""
    return len(set(map(id, values))) < len(values)


def offsets_in_python(values: list[bytes], /) -> bytes | None:
    """Arrow binary offsets of 32 bits, one more than there are values, from 0; None if they do not fit."""
    ends = list(accumulate(map(len, values), initial=0))
    return array("i", ends).tobytes() if ends[-1] < 1 << 31 else None


def same_in_python(values: list[bytes], /) -> bool:
    """Whether all values are the same object; there is at least one."""
    return len(set(map(id, values))) == 1


def agree_in_python(values: list[bytes], at: int, wanted: bytes, /) -> bool:
    """Whether all values have these bytes at this place."""
    end = at + len(wanted)
    return all(value[at:end] == wanted and len(value) >= end for value in values)


def laid_length_in_python(sections: list[Section], /) -> int:
    """How many bytes `lay_out` writes."""
    lengths = (len(content) if isinstance(content, bytes) else sum(map(len, content)) for *_, content in sections)
    return sum(_SECTION.size + -(-length // 8) * 8 for length in lengths)


def lay_out_in_python(sections: list[Section], buffer: memoryview, /) -> None:
    """Write the sections of a frame, which fill the buffer: kind, form and length of each, then the contents padded to
    multiples of 8. Raises ValueError for a content of more than 4 GiB."""
    contents = [content if isinstance(content, bytes) else b"".join(content) for *_, content in sections]
    if max(map(len, contents), default=0) > _LONGEST:
        raise ValueError("a section has at most 4 GiB")
    parts = [_SECTION.pack(kind, form, len(one)) for (kind, form, _), one in zip(sections, contents, strict=True)]
    for content in contents:
        parts += (content, bytes(-len(content) % 8))
    buffer[:] = b"".join(parts)


def dictionary_in_python(values: list[bytes], /) -> tuple[list[bytes], int, bytes]:
    """Each distinct value once; the width of a number, 1, 2 or 4 bytes; and the number of each row's value."""
    distinct = list(dict.fromkeys(values))
    number = {value: index for index, value in enumerate(distinct)}
    code = "B" if len(distinct) <= 1 << 8 else "H" if len(distinct) <= 1 << 16 else "I"
    index = array(code, map(number.__getitem__, values))
    return distinct, index.itemsize, index.tobytes()


def runs_in_python(one: list[_A], other: list[_B], /) -> list[tuple[_A, _B, int]]:
    """The runs of rows in which both lists keep the same two objects: these objects, and the number of rows. Raises
    ValueError if the lists differ in length."""
    if len(one) != len(other):
        raise ValueError("runs(list, list), of the same length")
    ends = [row for row in range(1, len(one)) if one[row] is not one[row - 1] or other[row] is not other[row - 1]] + [
        len(one)
    ] * bool(one)
    return [(one[end - 1], other[end - 1], end - first) for first, end in pairwise([0, *ends])]


make_messages: Callable[[type[Message], list[bytes], list[bytes], int, int], list[Message]] = messages_in_python
one_run: Callable[[list[int]], bool] = one_run_in_python
extent: Callable[[Sequence[bytes]], tuple[int, int]] = extent_in_python
repeats: Callable[[list[bytes]], bool] = repeats_in_python
offsets: Callable[[list[bytes]], bytes | None] = offsets_in_python
same: Callable[[list[bytes]], bool] = same_in_python
agree: Callable[[list[bytes], int, bytes], bool] = agree_in_python
runs = runs_in_python
dictionary: Callable[[list[bytes]], tuple[list[bytes], int, bytes]] = dictionary_in_python
laid_length: Callable[[list[Section]], int] = laid_length_in_python
lay_out: Callable[[list[Section], memoryview], None] = lay_out_in_python
with suppress(ModuleNotFoundError):
    import gateway.queue_manager.store._rows as compiled_rows

    make_messages, one_run = compiled_rows.messages, compiled_rows.one_run
    laid_length, lay_out = compiled_rows.laid_length, compiled_rows.lay_out
    extent, repeats, dictionary = compiled_rows.extent, compiled_rows.repeats, compiled_rows.dictionary
    runs = compiled_rows.runs
    offsets, same, agree = compiled_rows.offsets, compiled_rows.same, compiled_rows.agree


def compiled() -> bool:
    """Whether the compiled functions are used."""
    return same is not same_in_python
