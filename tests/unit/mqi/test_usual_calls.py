"""The calls that most programs make, read from a chunk in one step: Python and C agree with the reader of single
frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqi import usual_calls
from gateway.mqi.usual_calls import usual_call_in_python
from gateway.mqi.wire import HEADER, Verb

IN_C = pytest.importorskip("gateway.mqi._sockets").usual_call
NUMBER = st.integers(-(1 << 31), (1 << 31) - 1)
MD = st.binary(min_size=364, max_size=364)
BOTH = pytest.mark.parametrize("read", [usual_call_in_python, IN_C], ids=["python", "c"])


def frame(verb: int, body: bytes, tag: int = 7, flags: int = 0) -> bytes:
    return HEADER.pack(len(body) + 4, verb, flags, tag) + body


def put_body(numbers: list[int], md: bytes, data: bytes, properties: bytes = b"") -> bytes:
    counted = struct.pack("<i", len(properties)) + properties + struct.pack("<i", len(data)) + data
    return struct.pack("<4i", *numbers) + md + counted


def get_body(numbers: list[int], token: bytes, md: bytes) -> bytes:
    return struct.pack("<7i", *numbers) + token + md


def test_it_is_compiled_where_it_should_be() -> None:
    assert usual_calls.usual_call is IN_C


@BOTH
@given(numbers=st.lists(NUMBER, min_size=4, max_size=4), md=MD, data=st.binary(max_size=50), tag=st.integers(0, 65535))
def test_a_put_is_read(read, numbers, md, data, tag) -> None:
    assert read(frame(Verb.PUT, put_body(numbers, md, data), tag)) == (Verb.PUT, tag, (*numbers, md, data))


@BOTH
@given(numbers=st.lists(NUMBER, min_size=7, max_size=7), token=st.binary(min_size=16, max_size=16), md=MD)
def test_a_get_is_read_unless_its_buffer_is_negative(read, numbers, token, md) -> None:
    made = read(frame(Verb.GET, get_body(numbers, token, md)))
    *asked, _version, size = numbers
    assert made == (None if size < 0 else (Verb.GET, 7, (*asked, size, token, md)))


@BOTH
def test_a_commit_has_no_fields(read) -> None:
    assert read(frame(Verb.COMMIT, b"", 65535)) == (Verb.COMMIT, 65535, ())


@BOTH
def test_the_rest_is_left_to_others(read) -> None:
    put = frame(Verb.PUT, put_body([1, 2, 3, 4], bytes(364), b"data"))
    get = frame(Verb.GET, get_body([1, 2, 3, 4, 0, 2, 100], bytes(16), bytes(364)))
    others = [
        b"", put[:7], put[:-1], put + b"x", put + get, get[:-1], frame(Verb.COMMIT, b"x"), frame(Verb.BACK_OUT, b""),
        frame(Verb.PUT, put_body([1, 2, 3, 4], bytes(364), b"data"), flags=1),
        frame(Verb.PUT, put_body([1, 2, 3, 4], bytes(364), b"data", b"properties")),
        frame(Verb.PUT, b"short"), frame(Verb.GET, b"short"),
        HEADER.pack(0xFFFFFFFF, Verb.COMMIT, 0, 1), HEADER.pack(3, Verb.COMMIT, 0, 1)[:7],
    ]  # fmt: skip
    assert [read(chunk) for chunk in others] == [None] * len(others)


MADE = st.builds(
    frame, st.sampled_from([Verb.PUT, Verb.GET, Verb.COMMIT, Verb.OPEN]),
    st.one_of(
        st.binary(max_size=20),
        st.builds(put_body, st.lists(NUMBER, min_size=4, max_size=4), MD, st.binary(max_size=8), st.binary(max_size=3)),
        st.builds(get_body, st.lists(NUMBER, min_size=7, max_size=7), st.binary(min_size=16, max_size=16), MD),
    ),
    st.integers(0, 65535), st.integers(0, 1),
)  # fmt: skip


@given(MADE, st.integers(-3, 3), st.integers(0, 420), st.integers(0, 255))
def test_both_say_the_same_of_any_bytes(chunk: bytes, cut: int, at: int, byte: int) -> None:
    damaged = (chunk[:cut] if cut < 0 else chunk + bytes(cut))[:at] + bytes([byte]) + chunk[at + 1 :]
    for one in (chunk, damaged):
        assert usual_call_in_python(one) == IN_C(one)
