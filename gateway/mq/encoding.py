"""Numeric encodings: integers, packed decimals and floating point, each with a form of its own (MQENC_).

0x222 is this machine, 0x111 a big-endian IEEE one, 0x311 z/OS; any mixture occurs. Headers have integers only; the
values of properties and user data may have all three.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq.constants import (
    MQENC_DECIMAL_NORMAL,
    MQENC_DECIMAL_REVERSED,
    MQENC_FLOAT_IEEE_NORMAL,
    MQENC_FLOAT_IEEE_REVERSED,
    MQENC_FLOAT_S390,
    MQENC_INTEGER_NORMAL,
    MQENC_INTEGER_REVERSED,
)


class Encoding(NamedTuple):
    """The three parts of an Encoding."""

    integer: int
    decimal: int
    floating: int

    @classmethod
    def of(cls, value: int) -> Encoding:
        """An Encoding field taken apart."""
        return cls(value & 0xF, value & 0xF0, value & 0xF00)

    @property
    def value(self) -> int:
        """The parts as one field."""
        return self.integer | self.decimal | self.floating

    @property
    def is_known(self) -> bool:
        """Whether every part is a form known here (undefined, 0, is not)."""
        return (
            self.integer in {MQENC_INTEGER_NORMAL, MQENC_INTEGER_REVERSED}
            and self.decimal in {MQENC_DECIMAL_NORMAL, MQENC_DECIMAL_REVERSED}
            and self.floating in {MQENC_FLOAT_IEEE_NORMAL, MQENC_FLOAT_IEEE_REVERSED, MQENC_FLOAT_S390}
        )


def byte_order(encoding: int) -> str:
    """The order of integers as struct has it; little-endian, as here, when nothing is said."""
    return ">" if encoding & 0xF == MQENC_INTEGER_NORMAL else "<"


def read_integer(raw: bytes, encoding: int) -> int:
    """A signed integer of any length."""
    return int.from_bytes(raw, "big" if byte_order(encoding) == ">" else "little", signed=True)


def write_integer(value: int, size: int, encoding: int) -> bytes:
    """A signed integer of `size` bytes."""
    return value.to_bytes(size, "big" if byte_order(encoding) == ">" else "little", signed=True)


def read_float(raw: bytes, encoding: int) -> float:
    """A floating-point number of 4 or 8 bytes: IEEE in either order, or the hexadecimal form of S/390."""
    form = encoding & 0xF00
    if form == MQENC_FLOAT_S390:
        return _read_hexadecimal(raw)
    value: float = struct.unpack(_ieee(len(raw), form), raw)[0]
    return value


def write_float(value: float, size: int, encoding: int) -> bytes:
    """A floating-point number of 4 or 8 bytes; what the form cannot hold raises HeaderError."""
    form = encoding & 0xF00
    try:
        return _write_hexadecimal(value, size) if form == MQENC_FLOAT_S390 else struct.pack(_ieee(size, form), value)
    except OverflowError:
        raise HeaderError(
            "MQENC", "Encoding", 0, f"{value!r} does not fit {size} bytes in encoding {encoding:#x}"
        ) from None


def _ieee(size: int, form: int) -> str:
    return (">" if form == MQENC_FLOAT_IEEE_NORMAL else "<") + {4: "f", 8: "d"}[size]


def _read_hexadecimal(raw: bytes) -> float:
    # Sign, exponent of 16 biased by 64, fraction behind the point.
    fraction = int.from_bytes(raw[1:], "big") / (1 << 8 * (len(raw) - 1))
    return math.copysign(math.ldexp(fraction, 4 * ((raw[0] & 0x7F) - 64)), -1 if raw[0] & 0x80 else 1)


def _write_hexadecimal(value: float, size: int) -> bytes:
    if not math.isfinite(value):
        raise OverflowError
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    if not value:
        return bytes([sign]) + bytes(size - 1)
    mantissa, exponent = math.frexp(abs(value))
    sixteens = -(-exponent // 4)
    bits = 8 * (size - 1)
    fraction = round(math.ldexp(mantissa, exponent - 4 * sixteens + bits))
    if fraction >> bits:  # rounded up to one whole
        fraction, sixteens = fraction >> 4, sixteens + 1
    if sixteens + 64 < 0:
        return bytes(size)
    if sixteens + 64 > 127:
        raise OverflowError
    return bytes([sign | (sixteens + 64)]) + fraction.to_bytes(size - 1, "big")


_SIGNS = {0xA: 1, 0xB: -1, 0xC: 1, 0xD: -1, 0xE: 1, 0xF: 1}


def read_decimal(raw: bytes, encoding: int) -> int:
    """A packed decimal: two digits a byte, the sign in the last half byte."""
    text = (raw if encoding & 0xF0 == MQENC_DECIMAL_NORMAL else raw[::-1]).hex()
    sign = _SIGNS.get(int(text[-1], 16))
    if sign is None or not text[:-1].isdecimal():
        raise HeaderError("MQENC", "Encoding", 0, f"{raw.hex()} is not a packed decimal in encoding {encoding:#x}")
    return sign * int(text[:-1])


def write_decimal(value: int, size: int, encoding: int) -> bytes:
    """A packed decimal of `size` bytes; too many digits raise HeaderError."""
    digits = str(abs(value)).rjust(2 * size - 1, "0")
    if len(digits) > 2 * size - 1:
        raise HeaderError("MQENC", "Encoding", 0, f"{value} has more digits than {size} bytes hold")
    raw = bytes.fromhex(digits + ("d" if value < 0 else "c"))
    return raw if encoding & 0xF0 == MQENC_DECIMAL_NORMAL else raw[::-1]
