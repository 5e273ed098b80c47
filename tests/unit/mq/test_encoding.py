"""Numbers in IBM's encodings: the three parts separately, there and back, and published bit patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import HeaderError
from gateway.mq import encoding
from gateway.mq.encoding import Encoding

S390 = 785


@pytest.mark.parametrize(
    ("value", "parts"),
    [(546, (2, 0x20, 0x200)), (273, (1, 0x10, 0x100)), (785, (1, 0x10, 0x300)), (0x112, (2, 0x10, 0x100))],
)
def test_parts(value, parts):
    assert Encoding.of(value) == parts
    assert Encoding.of(value).value == value
    assert Encoding.of(value).is_known


def test_undefined_is_not_known():
    assert not Encoding.of(0).is_known
    assert encoding.byte_order(0) == "<"


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (1.0, "41100000"),
        (-118.625, "c276a000"),
        (0.0, "00000000"),
        (0.5, "40800000"),
        (16.0, "42100000"),
        (-0.0, "80000000"),
    ],
)
def test_hexadecimal_floating_point(value, raw):
    assert encoding.write_float(value, 4, S390).hex() == raw
    assert encoding.read_float(bytes.fromhex(raw), S390) == value


@given(st.floats(min_value=-1e70, max_value=1e70).filter(lambda value: not value or abs(value) > 1e-70))
def test_hexadecimal_keeps_fifteen_digits(value):
    back = encoding.read_float(encoding.write_float(value, 8, S390), S390)
    assert back == pytest.approx(value, rel=1e-15)


@given(st.floats(allow_nan=False), st.sampled_from([546, 273]))
def test_ieee_is_exact(value, form):
    assert encoding.read_float(encoding.write_float(value, 8, form), form) == value


@pytest.mark.parametrize("value", [1e80, float("inf"), float("nan")])
def test_what_hexadecimal_cannot_hold(value):
    with pytest.raises(HeaderError):
        encoding.write_float(value, 8, S390)


def test_rounding_up_to_a_whole():
    assert encoding.write_float(1 - 2.0**-30, 4, S390).hex() == "41100000"
    assert encoding.write_float(1e-100, 8, S390) == bytes(8)


@given(st.integers(-(10**7) + 1, 10**7 - 1), st.sampled_from([546, 273]))
def test_packed_decimals(value, form):
    assert encoding.read_decimal(encoding.write_decimal(value, 4, form), form) == value


def test_packed_decimal_bytes():
    assert encoding.write_decimal(-123, 2, 273).hex() == "123d"
    assert encoding.write_decimal(-123, 2, 546).hex() == "3d12"
    for bad in ("12", "1a3c"):
        with pytest.raises(HeaderError):
            encoding.read_decimal(bytes.fromhex(bad), 273)
    with pytest.raises(HeaderError):
        encoding.write_decimal(1234, 2, 273)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([546, 273]))
def test_integers(value, form):
    assert encoding.read_integer(encoding.write_integer(value, 4, form), form) == value
