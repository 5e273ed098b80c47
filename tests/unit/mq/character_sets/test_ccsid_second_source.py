"""The character sets that could not be compared with IBM's registered tables, against a second source: glibc's iconv.

What differs is listed here and decided; docs/reference/mq-conversion.md says the same in words. Where this machine's
iconv lacks a table, its comparison is skipped; what is decided is checked always.
"""

from __future__ import annotations

import ctypes
from itertools import product

import pytest

from gateway.mq.character_sets import ccsid

PUNCTUATION = {"815c": "―—", "8160": "～〜", "8161": "∥‖", "817c": "－−"}
"""Bytes, and the character here and in IBM's table: those of Windows, which Japanese systems exchange today."""
DECIDED = {
    (1026, "IBM1026"): {"9d": "¸˛", "bc": "¯—"},
    (943, "IBM943"): PUNCTUATION | {"1a": "\x1a\x1c", "1c": "\x1c\x7f", "7f": "\x7f\x1a", "eefa": "￤¦", "fa55": "￤¦"},
    (932, "CP932"): {},
    (936, "CP936"): {},
    (949, "CP949"): {},
    (954, "EUC-JP"): {"8fa2b7": "~～"},
    (970, "EUC-KR"): {},
    (1363, "CP949"): {},
    (1383, "EUC-CN"): {},
    (1386, "GBK"): {},
    (33722, "EUC-JP"): {"8fa2b7": "~～"},
}
"""By CCSID and iconv's name for it: characters that are not the same."""
ONLY_HERE = {
    (943, "IBM943"): {"80", "a0", "fd", "fe", "ff"},
    (932, "CP932"): {"80", "a0", "fd", "fe", "ff"},
}
"""Bytes that are characters here alone."""


class Iconv:
    """iconv(3) of the C library; its tables are shared objects that small systems do not have."""

    def __init__(self, name: str) -> None:
        self._libc = ctypes.CDLL(None)
        try:
            self._libc.iconv_open.restype = ctypes.c_void_p
        except AttributeError:
            pytest.skip("no iconv in this C library")
        self._descriptor = self._libc.iconv_open(b"UTF-16LE", name.encode())
        if self._descriptor in {None, ctypes.c_void_p(-1).value}:
            pytest.skip(f"iconv does not know {name} here")
        self._libc.iconv.argtypes = [ctypes.c_void_p] * 5
        self._libc.iconv.restype = ctypes.c_size_t

    def decoded(self, raw: bytes) -> str | None:
        self._libc.iconv(self._descriptor, None, None, None, None)
        source, target = ctypes.create_string_buffer(raw, len(raw)), ctypes.create_string_buffer(64)
        at, to = ctypes.c_void_p(ctypes.addressof(source)), ctypes.c_void_p(ctypes.addressof(target))
        left, room = ctypes.c_size_t(len(raw)), ctypes.c_size_t(64)
        pointers = [ctypes.byref(each) for each in (at, left, to, room)]
        failed = self._libc.iconv(self._descriptor, *pointers) == ctypes.c_size_t(-1).value
        return None if failed or left.value else target.raw[: 64 - room.value].decode("utf-16-le")

    def close(self) -> None:
        self._libc.iconv_close.argtypes = [ctypes.c_void_p]
        self._libc.iconv_close(self._descriptor)


def here(number: int, raw: bytes) -> str | None:
    try:
        return raw.decode(ccsid.codec_of(number))
    except UnicodeDecodeError:
        return None


def characters(number: int) -> list[bytes]:
    """Every sequence of bytes that is one character here."""
    single = [bytes([one]) for one in range(256)]
    if number == 1026:
        return single
    pairs = [bytes(pair) for pair in product(range(0x80, 256), range(0x30, 256))]
    triples = [bytes([0x8F, *pair]) for pair in product(range(0xA1, 0xFF), repeat=2)] if number in {954, 33722} else []
    return [raw for raw in [*single, *pairs, *triples] if len(here(number, raw) or "") == 1]


@pytest.mark.parametrize(("number", "name"), DECIDED, ids=str)
def test_against_iconv(number, name):
    iconv = Iconv(name)
    differ, alone = {}, set()
    for raw in characters(number):
        ours, theirs = here(number, raw), iconv.decoded(raw)
        if theirs is None:
            alone.add(raw.hex())
        elif ours != theirs:
            differ[raw.hex()] = ours + theirs
    iconv.close()
    assert differ == DECIDED[number, name]
    assert alone == ONLY_HERE.get((number, name), set())


@pytest.mark.parametrize(
    ("number", "raw", "character"),
    [(number, bytes.fromhex(raw), pair[0]) for (number, _), found in DECIDED.items() for raw, pair in found.items()],
)
def test_what_is_decided(number, raw, character):
    assert here(number, raw) == character


@pytest.mark.parametrize("number", [936, 1386])
def test_the_euro_sign_of_chinese_systems(number):
    codec = ccsid.codec_of(number)
    assert ccsid.converted(b"\x80 12,50 \xc4\xe3", codec, "utf-8") == ("€ 12,50 你".encode(), 0)
    assert ccsid.converted("€你".encode(), "utf-8", codec) == (b"\x80\xc4\xe3", 0)
    assert b"\x81\x80\x80".decode(codec) == b"\x81\x80".decode("gbk") + "€"


@pytest.mark.parametrize("number", [936, 1386])
def test_what_is_no_chinese_text_stays_that(number):
    codec = ccsid.codec_of(number)
    with pytest.raises(UnicodeDecodeError):
        b"a\xff".decode(codec)
    with pytest.raises(UnicodeDecodeError):
        b"\x80\x81".decode(codec)
    assert b"a\x80\xff".decode(codec, "replace") == "a€\ufffd"
    assert "€ñ".encode(codec, "replace") == b"\x80?"
    assert "€ñ".encode(codec, "ignore") == b"\x80"
    assert ccsid.converted("ñ€".encode(), "utf-8", codec) == (b"\x1a\x80", 1)


@pytest.mark.parametrize("number", sorted({number for number, _ in DECIDED} | {950, 1370, 1392, 5488}))
def test_every_character_comes_back(number):
    """There and back: but for characters that the table has twice."""
    codec = ccsid.codec_of(number)
    for raw in characters(number):
        text = raw.decode(codec)
        assert text.encode(codec).decode(codec) == text, raw.hex()
