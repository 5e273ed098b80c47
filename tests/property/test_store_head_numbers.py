"""Head numbers: the compiled type and the one in Python answer the same, whatever is added and forgotten."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.queue_manager.store import packed_heads
from gateway.queue_manager.store.head_numbers import HeadNumbers, HeadNumbersInPython, new_head_numbers

KINDS = [HeadNumbersInPython, new_head_numbers]
MOST = 1 << 20
VALUES = st.lists(
    st.sampled_from([b"head of device %d" % n * 3 for n in range(9)]) | st.binary(max_size=90), max_size=30
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "packed", "begin", "keep"]), VALUES, st.integers(0, 2**30)), max_size=12
)


def bounds(values: list[bytes], begin: int = 0) -> bytes:
    return array("I", accumulate(map(len, values), initial=begin)).tobytes()


def read(round_of: HeadNumbers) -> list[bytes]:
    ends, data = round_of.values()
    places = array("I", ends)
    return [data[places[at] : places[at + 1]] for at in range(len(places) - 1)]


def done(to: HeadNumbers, step: tuple[str, list[bytes], int]) -> object:
    what, values, chance = step
    packed = packed_heads.PackingInPython().pack(values)
    if what == "packed" and packed is not None:
        return to.add_packed(packed, MOST)
    if what in ("add", "packed"):
        return to.add(bounds(values, 3), b"..." + b"".join(values) + b".")
    if what == "begin":
        return to.begin()
    return to.keep(array("I", [at for at in range(len(to)) if chance >> at % 30 & 1]).tobytes())


@given(STEPS)
def test_both_answer_the_same(steps: list[tuple[str, list[bytes], int]]) -> None:
    one, other = new_head_numbers(), HeadNumbersInPython()
    for step in steps:
        assert done(one, step) == done(other, step)
        assert (one.numbers(), one.values()) == (other.numbers(), other.values())
        assert (len(one), one.size, one.generation) == (len(other), other.size, other.generation)


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_are_found_again(kind: type[HeadNumbers]) -> None:
    values = [b"plant/site%d/dev%05d" % (n % 7, n) * 9 for n in range(5000)]
    table = kind()
    first = array("I", table.add(bounds(values), b"".join(values)))
    assert first.tolist() == list(range(5000))
    table.begin()
    backwards = values[::-1]
    packed = packed_heads.PackingInPython().pack(backwards)
    assert packed is not None
    assert array("I", table.add_packed(packed, MOST)).tolist() == list(range(5000))
    assert array("I", table.numbers()).tolist() == list(range(4999, -1, -1))
    assert read(table) == backwards
    table.keep(array("I", range(1, 5000, 2)).tobytes())
    assert (len(table), table.generation, table.numbers()) == (2500, 1, b"")
    table.add(bounds(values), b"".join(values))
    assert array("I", table.numbers()).tolist()[:4] == [2500, 0, 2501, 1]
    assert (len(table), table.size) == (5000, len(b"".join(values)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_is_refused(kind: type[HeadNumbers]) -> None:
    table = kind()
    table.add(bounds([b"a", b""]), b"a")
    for given_bounds in (b"", b"\0\0\0", array("I", [1, 0]).tobytes(), array("I", [0, 2]).tobytes()):
        with pytest.raises(ValueError, match="bounds"):
            table.add(given_bounds, b"a")
    for numbers in (b"\0", array("I", [1, 0]).tobytes(), array("I", [0, 0]).tobytes(), array("I", [2]).tobytes()):
        with pytest.raises(ValueError, match="numbers"):
            table.keep(numbers)
    for packed in (b"", b"\2\0\0\0\4\0\0\0\2\4abcd", b"\1\0\0\0\4\0\0\0\1\4abcd\0", b"\1\0\0\0\5\0\0\0\1\4abcd"):
        with pytest.raises(ValueError, match="packed"):
            table.add_packed(packed, MOST)
    with pytest.raises(ValueError, match="long"):
        table.add_packed(b"\1\0\0\0\5\0\0\0\1\5abcde", 4)
    with pytest.raises(TypeError):
        table.add(1, b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        table.add_packed(b"")  # type: ignore[call-arg]
    assert len(table) >= 2


@given(VALUES, st.data())
def test_nonsense_is_refused_by_both_or_read_alike(values: list[bytes], data: st.DataObject) -> None:
    packed = bytearray(packed_heads.PackingInPython().pack(values) or b"\1\0\0\0\4\0\0\0\1\4abcd")
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 4) | st.integers(0, 255))
    found = []
    for table in (new_head_numbers(), HeadNumbersInPython()):
        try:
            found.append((table.add_packed(bytes(packed), MOST), table.values()))
        except ValueError:
            found.append(None)
    assert found[0] == found[1]
