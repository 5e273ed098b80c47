"""gateway.mqtt.primitives: the data representations, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MalformedPacket
from gateway.mqtt import primitives as p


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (64, "40"),
        (127, "7F"),
        (128, "8001"),
        (321, "C102"),  # the seed's own example says 82 41, which its algorithm reads as 8,322
        (8322, "8241"),
        (16383, "FF7F"),
        (16384, "808001"),
        (2097151, "FFFF7F"),
        (2097152, "80808001"),
        (268435455, "FFFFFF7F"),
    ],
)
def test_variable_byte_integers(value, encoded):
    raw = bytes.fromhex(encoded)
    assert p.encode_varint(value) == raw
    assert p.decode_varint(b"?" + raw + b"?", 1) == (value, 1 + len(raw))


@given(st.integers(0, p.MAX_REMAINING_LENGTH))
def test_variable_byte_integers_come_back(value):
    assert p.decode_varint(p.encode_varint(value), 0)[0] == value


@pytest.mark.parametrize("encoded", ["", "80", "FFFFFF", "FFFFFFFF", "FFFFFFFF7F", "8000", "FF8000"])
def test_variable_byte_integers_refused_mqtt_1_5_5_1(encoded):
    with pytest.raises(MalformedPacket):
        p.decode_varint(bytes.fromhex(encoded), 0)


def test_too_large_for_a_variable_byte_integer():
    with pytest.raises(ValueError, match="268435456"):
        p.encode_varint(p.MAX_REMAINING_LENGTH + 1)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_integers(size):
    decode = {1: p.decode_u8, 2: p.decode_u16, 4: p.decode_u32}[size]
    encode = {1: p.encode_u8, 2: p.encode_u16, 4: p.encode_u32}[size]
    largest = 256**size - 1
    assert decode(encode(largest), 0) == (largest, size)
    assert decode(b"?" + encode(1) + b"?", 1) == (1, 1 + size)
    with pytest.raises(MalformedPacket):
        decode(bytes(size), 1)


@pytest.mark.parametrize("text", ["", "a/b", "é", "\ufeff", "\U0001f600", "\x01", "\uffff", "a" * 65535])
def test_strings_come_back(text):
    assert p.decode_string(p.encode_string(text) + b"?", 0) == (text, 2 + len(text.encode()))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\0\x01\0", "U\\+0000"),
        (b"\0\x03\xed\xa0\x80", "UTF-8"),
        (b"\0\x02\xc0\x80", "UTF-8"),
        (b"\0\x02a", "announces"),
        (b"\0", "two byte"),
    ],
)
def test_strings_refused_mqtt_1_5_4(raw, says):
    with pytest.raises(MalformedPacket, match=says):
        p.decode_string(raw, 0)


def test_strings_too_long():
    with pytest.raises(ValueError, match="65536"):
        p.encode_string("a" * 65536)


@given(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.just("v")))
def test_pairs_come_back(pair):
    assert p.decode_pair(p.encode_pair(pair), 0)[0] == pair


def test_block():
    assert p.encode_block(b"x" * 128) == b"\x80\x01" + b"x" * 128


@pytest.mark.parametrize("text", ["", "a b", "é", "\ufeff", "\U0001f600", "\ufffd", "\u00a0"])
def test_names_may_have(text):
    assert not p.has_control(text)


@pytest.mark.parametrize(
    "text", ["\0", "a\x01", "\x1f", "\x7f", "\x80", "\x9f", "\ufdd0", "\ufffe", "\uffff", "\U0010ffff"]
)
def test_names_may_not_have(text):
    assert p.has_control(text)
