"""Frames of the MQI socket: split from any chunks, read within their bounds, and properties packed and unpacked."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mq import constants as mq
from gateway.mqi.fields import get_reply, put_reply
from gateway.mqi.wire import (
    HEADER,
    LONGEST_FRAME,
    FieldReader,
    FieldWriter,
    FrameError,
    Frames,
    Verb,
    decode_properties,
    encode_properties,
    outcome,
)
from gateway.ports.mqi import Got, Property, PutResult

TYPES = {
    mq.MQTYPE_BOOLEAN: st.booleans(),
    mq.MQTYPE_INT8: st.integers(-128, 127),
    mq.MQTYPE_INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    mq.MQTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    mq.MQTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    mq.MQTYPE_FLOAT32: st.floats(width=32, allow_nan=False),
    mq.MQTYPE_FLOAT64: st.floats(allow_nan=False),
    mq.MQTYPE_STRING: st.text(),
    mq.MQTYPE_BYTE_STRING: st.binary(),
    mq.MQTYPE_NULL: st.none(),
}
PROPERTIES = st.lists(
    st.sampled_from(sorted(TYPES)).flatmap(
        lambda kind: st.builds(
            Property, st.text("abc.xyz", min_size=1), TYPES[kind], st.just(kind), st.just(1), st.just(0), st.just(22)
        )
    )
)


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_whatever_the_chunks(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(HEADER.pack(len(body) + 4, verb, 0, number) + body for number, (verb, body) in enumerate(sent))
    frames, got = Frames(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        frames.add(stream[:size])
        stream = stream[size:]
        got += [(verb, body) for verb, _flags, _tag, body in frames.take()]
    assert got == sent
    assert frames.waiting() == 0


def test_answers_hold_what_a_reader_of_fields_finds() -> None:
    got = Got(b"m" * 364, b"data", 9, "QUEUE", 1, 2079, [], b"G", b"S", b"A", b"t" * 16)
    [(verb, flags, tag, body)] = taken(get_reply(3, got))
    reader = FieldReader(body)
    assert (verb, flags, tag) == (Verb.GET, 0, 3)
    assert (reader.number(), reader.number(), reader.fixed(364)) == (1, 2079, b"m" * 364)
    assert (reader.number(), reader.blob(), reader.text(), reader.fixed(4)) == (9, b"data", "QUEUE", b"GSA ")
    assert (reader.fixed(16), reader.number(), reader.blob()) == (b"t" * 16, 1, b"")
    reader.end()
    [(verb, _, tag, body)] = taken(put_reply(Verb.PUT1, 4, PutResult(b"m" * 364, "QUEUE", "QM1", 1, 2104)))
    reader = FieldReader(body)
    assert (verb, tag, reader.number(), reader.number()) == (Verb.PUT1, 4, 1, 2104)
    assert (reader.fixed(364), reader.text(), reader.text()) == (b"m" * 364, "QUEUE", "QM1")
    reader.end()
    assert taken(outcome(Verb.COMMIT, 5, 2, 2003)) == [(Verb.COMMIT, 0, 5, struct.pack("<ii", 2, 2003))]


def taken(answer: bytes) -> list[tuple[int, int, int, bytes]]:
    """Returns the frames of an answer."""
    frames = Frames()
    frames.add(answer)
    return list(frames.take())


@pytest.mark.parametrize("length", [0, 3, LONGEST_FRAME + 1, 0xFFFFFFFF])
def test_an_impossible_length_is_refused_from_the_header_alone(length: int) -> None:
    frames = Frames()
    frames.add(HEADER.pack(length, Verb.GET, 0, 0))
    with pytest.raises(FrameError):
        list(frames.take())


@given(st.binary(max_size=40), st.integers(-(1 << 31), (1 << 31) - 1))
def test_no_field_reaches_beyond_its_frame(rest: bytes, count: int) -> None:
    reader = FieldReader(struct.pack("<i", count) + rest)
    if 0 <= count <= len(rest):
        assert reader.blob() == rest[:count]
    else:
        with pytest.raises(FrameError):
            reader.blob()


def test_bytes_too_many_are_noticed() -> None:
    reader = FieldReader(b"\0" * 5)
    reader.number()
    with pytest.raises(FrameError):
        reader.end()


@given(PROPERTIES)
def test_properties_come_back(properties: list[Property]) -> None:
    expected = [one._replace(name=one.name.removeprefix("usr.")) for one in properties]
    assert decode_properties(encode_properties(properties)) == expected


@given(st.binary(max_size=80))
def test_any_bytes_are_properties_or_refused(data: bytes) -> None:
    try:
        decode_properties(data)
    except FrameError:
        return


def test_an_answer_says_its_outcome_first() -> None:
    frame = FieldWriter(Verb.OPEN, 7, 2, 2085).numbers(1).text("Q").frame()
    header = HEADER.pack(len(frame) - 4, Verb.OPEN, 0, 7)
    assert frame == header + struct.pack("<iiii", 2, 2085, 1, 1) + b"Q"
