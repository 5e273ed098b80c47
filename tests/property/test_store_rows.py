"""The compiled rows against the Python that does the same."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.queue_manager.store import rows
from gateway.queue_manager.store.unit import Message

COMPILED = rows.make_messages is not rows.messages_in_python
TOKENS = st.integers(0, (1 << 64) - 1)

pytestmark = pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")


def test_the_compiled_rows_are_there() -> None:
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@given(st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=40), TOKENS, st.integers())
def test_messages(columns: list[tuple[bytes, bytes]], token: int, time: int) -> None:
    token = min(token, (1 << 64) - 1 - len(columns))
    heads, bodies = [head for head, _ in columns], [body for _, body in columns]
    made = rows.make_messages(Message, heads, bodies, token, time)
    assert made == rows.messages_in_python(Message, heads, bodies, token, time)
    assert all(type(one) is Message for one in made)


@given(
    st.one_of(
        st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 1 << 63), st.integers(0, 40)),
        st.lists(st.integers(0, 8), max_size=6),
        st.lists(st.integers(-(1 << 70), 1 << 70), max_size=4),
    )
)
def test_runs_of_tokens(tokens: list[int]) -> None:
    if all(0 <= token < 1 << 64 for token in tokens):
        assert rows.one_run(tokens) is rows.one_run_in_python(tokens)
    else:
        assert rows.one_run(tokens) is False


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_offsets(values: list[bytes]) -> None:
    assert rows.offsets(values) == rows.offsets_in_python(values)


def test_offsets_that_do_not_fit() -> None:
    large = bytes(1 << 20)
    assert rows.offsets([large] * 2047) == rows.offsets_in_python([large] * 2047) is not None
    assert rows.offsets([large] * 2048) is rows.offsets_in_python([large] * 2048) is None


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_extents(values: list[bytes]) -> None:
    for sequence in (values, tuple(values)):
        assert rows.extent(sequence) == rows.extent_in_python(sequence)


CONTENTS = st.binary(max_size=40) | st.lists(st.binary(max_size=20), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), CONTENTS), max_size=12))
def test_sections_in_a_frame(sections: list[rows.Section]) -> None:
    length = rows.laid_length(sections)
    assert length % 8 == 0
    assert length == rows.laid_length_in_python(sections)
    compiled, plain = (bytearray(b"\xff" * (length + 16)) for _ in range(2))
    rows.lay_out(sections, memoryview(compiled)[8 : 8 + length])
    rows.lay_out_in_python(sections, memoryview(plain)[8 : 8 + length])
    assert compiled == plain
    assert compiled[:8] == compiled[8 + length :] == b"\xff" * 8
    for wrong in (length - 1, length + 1):
        with pytest.raises(ValueError, match=r"fill the buffer|different structures"):
            rows.lay_out(sections, memoryview(bytearray(max(wrong, 1))))


@given(st.lists(st.integers(0, 30), max_size=40))
def test_an_object_that_is_there_twice(chosen: list[int]) -> None:
    objects = [bytes(bytearray(b"alike" * 9)) for _ in range(31)]
    values = [objects[each] for each in chosen]
    assert rows.repeats(values) is rows.repeats_in_python(values) is (len(set(chosen)) < len(chosen))


@given(st.lists(st.sampled_from([b"a" * 10, b"b" * 10, bytes(bytearray(b"a" * 10))]), max_size=5))
def test_one_object(values: list[bytes]) -> None:
    assert rows.same(values) is rows.same_in_python(values)


@given(st.lists(st.sampled_from([b"", b"abc", b"abcd", b"xbcd", b"abxd"]), max_size=6), st.integers(0, 5), st.binary())
@example([b"abcd", b"xbcd"], 1, b"bc")
@example([b"abcd"], 3, b"")
@example([b"abcd"], 5, b"")
def test_values_that_agree(values: list[bytes], at: int, wanted: bytes) -> None:
    assert rows.agree(values, at, wanted) is rows.agree_in_python(values, at, wanted)


@given(st.lists(st.sampled_from([b"a", b"b", b"c" * 400, bytes(bytearray(b"c" * 400))]) | st.binary(), max_size=400))
def test_each_distinct_value_once(values: list[bytes]) -> None:
    assert rows.dictionary(values) == rows.dictionary_in_python(values)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12))
def test_runs_of_the_same_two_objects(chosen: list[tuple[int, int]]) -> None:
    queues, heads = ["A", "B", "C"], [bytes(bytearray(b"alike" * 9)) for _ in range(2)]
    one, other = [queues[queue] for queue, _ in chosen], [heads[head] for _, head in chosen]
    found = rows.runs(one, other)
    assert found == rows.runs_in_python(one, other)
    assert [queue for queue, _, count in found for _ in range(count)] == one
    assert all(first[0] is not second[0] or first[1] is not second[1] for first, second in pairwise(found))


@pytest.mark.parametrize("count", [255, 256, 257, 65_536, 65_537])
def test_numbers_of_distinct_values_are_as_wide_as_they_must(count: int) -> None:
    values = [b"%d" % number for number in range(count)] * 2
    assert rows.dictionary(values) == rows.dictionary_in_python(values)


@given(st.lists(st.binary(max_size=200), max_size=30), st.lists(st.integers(0, 29), max_size=60))
def test_values_that_nobody_has_asked_for_their_hash(texts: list[bytes], chosen: list[int]) -> None:
    values = [bytes(bytearray(texts[at])) for at in chosen if at < len(texts)]
    distinct, width, index = rows.dictionary(values)
    assert (distinct, width, index) == rows.dictionary_in_python(values)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rows.make_messages(Message, (b"",), [b""], 1, 1),  # type: ignore[arg-type]
        lambda: rows.make_messages(Message, [b""], [], 1, 1),
        lambda: rows.make_messages(int, [b""], [b""], 1, 1),  # type: ignore[arg-type]
        lambda: rows.make_messages(Message, [b""], [b""], -1, 1),
        lambda: rows.one_run(3),  # type: ignore[arg-type]
        lambda: rows.offsets(["text"]),  # type: ignore[list-item]
        lambda: rows.offsets(None),  # type: ignore[arg-type]
        lambda: rows.same(b""),  # type: ignore[arg-type]
        lambda: rows.agree([b""], -1, b""),
        lambda: rows.agree(["text"], 0, b""),  # type: ignore[list-item]
        lambda: rows.agree((b"",), 0, b""),  # type: ignore[arg-type]
        lambda: rows.runs(["A"], []),
        lambda: rows.runs(("A",), [b""]),  # type: ignore[arg-type]
        lambda: rows.dictionary((b"",)),  # type: ignore[arg-type]
        lambda: rows.dictionary([b"", "text"]),  # type: ignore[list-item]
        lambda: rows.extent(["text"]),  # type: ignore[list-item]
        lambda: rows.extent(3),  # type: ignore[arg-type]
        lambda: rows.repeats((b"",)),  # type: ignore[arg-type]
        lambda: rows.laid_length(((1, 2, b""),)),  # type: ignore[arg-type]
        lambda: rows.laid_length([(1, 2)]),  # type: ignore[list-item]
        lambda: rows.laid_length([(1, 2, "text")]),  # type: ignore[list-item]
        lambda: rows.laid_length([(1, 2, ["text"])]),  # type: ignore[list-item]
        lambda: rows.lay_out([(1, 2, "text")], memoryview(bytearray(16))),  # type: ignore[list-item]
        lambda: rows.lay_out([(1, 2, b"")], memoryview(bytes(8))),
        lambda: rows.lay_out([(1 << 16, 0, b"")], memoryview(bytearray(8))),
        lambda: rows.lay_out([(0, -1, b"")], memoryview(bytearray(8))),
    ],
)
def test_what_is_no_column_is_refused(call: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        call()  # type: ignore[operator]
