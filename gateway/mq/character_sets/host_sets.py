"""Host sets of East Asia: EBCDICs in which SO (X'0E') begins characters of two bytes, and SI (X'0F') ends them.

Their tables are IBM's, in `host_chinese.py`, `host_taiwanese.py`, `host_japanese.py` and `host_korean.py`; a test
compares them with two other sources. A module of tables is imported when the first text in one of its sets is read or
written.
"""

from __future__ import annotations

import codecs
import re
import struct
import zlib
from base64 import b85decode
from functools import cache
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

SO, SI = b"\x0e", b"\x0f"
FIRST, LAST = 0x41, 0xFE
"""Both bytes of a character lie between these; X'4040' is the ideographic space."""
_MODULES = {
    930: "japanese", 939: "japanese", 1390: "japanese", 1399: "japanese", 933: "korean", 1364: "korean",
    935: "chinese", 1388: "chinese", 937: "taiwanese", 1371: "taiwanese",
}  # fmt: skip
PREFIX = "host_"
CODECS = {ccsid: f"{PREFIX}{ccsid}" for ccsid in _MODULES}
_NOTHING = "\ufffe"
"""Stands for no character in tables of single bytes, as Python has it."""


class Tables(NamedTuple):
    """One set, both ways."""

    single: str
    single_of: Any
    double: dict[int, str]
    double_of: dict[str, bytes]
    not_single: re.Pattern[str]
    """One or more characters that are not of one byte."""
    character: re.Pattern[str] | None
    """One character of a set in which some are written as two in Unicode."""


def unpacked(packed: str) -> bytes:
    """Returns what was compressed and written as text."""
    return zlib.decompress(b85decode(packed))


@cache
def tables_of(ccsid: int) -> Tables:
    """Returns the tables of a set."""
    held = import_module(f"gateway.mq.character_sets.host_{_MODULES[ccsid]}")
    single = unpacked(held.SINGLE[ccsid]).decode("utf-16-be")
    double: dict[int, str] = {0x4040: "\u3000"}
    for packed in held.DOUBLE[ccsid]:
        double |= _double_of(unpacked(packed))
    double |= {int(word[:4], 16): word[4:] for word in held.BEYOND.get(ccsid, "").split()}
    double_of = {double[code]: code.to_bytes(2, "big") for code in sorted(double)}  # of two codes the higher one
    ones = "".join(sorted(char for char in set(single) if char != _NOTHING))
    twos = [char for char in double_of if len(char) == 2]
    return Tables(
        single,
        codecs.charmap_build(single),
        double,
        double_of,
        re.compile(f"[^{re.escape(ones)}]+"),
        re.compile("|".join([*map(re.escape, twos), "."]), re.DOTALL) if twos else None,
    )


def _double_of(planes: bytes) -> dict[int, str]:
    """Two bytes to character: the high bytes of all, then the low ones, where 0 is none."""
    half, width = len(planes) // 2, LAST - FIRST + 1
    return {
        (FIRST + at // width) << 8 | FIRST + at % width: chr(high << 8 | low)
        for at, (high, low) in enumerate(zip(planes[:half], planes[half:], strict=True))
        if high or low
    }


class _Codec:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tables = tables_of(int(name.removeprefix(PREFIX)))

    # -- to text --

    def decode(self, raw: Buffer, errors: str = "strict") -> tuple[str, int]:
        whole, parts, at, shifted = bytes(raw), list[str](), 0, False
        while at < len(whole):
            stop = whole.find(SI if shifted else SO, at)
            stop = len(whole) if stop < 0 else stop
            while at < stop:
                try:
                    parts.append(self._doubles(whole, at, stop) if shifted else self._singles(whole, at, stop))
                    at = stop
                except UnicodeDecodeError as wrong:
                    if errors == "strict":
                        raise
                    before, handle = wrong.start, codecs.lookup_error(errors)
                    parts.append(self._doubles(whole, at, before) if shifted else self._singles(whole, at, before))
                    text, at = handle(wrong)
                    parts.append(str(text))
            at, shifted = stop + 1, not shifted
        return "".join(parts), len(whole)

    def _singles(self, whole: bytes, at: int, stop: int) -> str:
        try:
            return codecs.charmap_decode(whole[at:stop], "strict", self.tables.single)[0]
        except UnicodeDecodeError as wrong:
            begin = at + wrong.start
            raise UnicodeDecodeError(self.name, whole, begin, begin + 1, "no character") from None

    def _doubles(self, whole: bytes, at: int, stop: int) -> str:
        pairs, double = (stop - at) // 2, self.tables.double
        codes = struct.unpack_from(f">{pairs}H", whole, at)
        try:
            text = "".join(map(double.__getitem__, codes))
        except KeyError:
            begin = at + 2 * next(number for number, code in enumerate(codes) if code not in double)
            raise UnicodeDecodeError(self.name, whole, begin, begin + 2, "no character of two bytes") from None
        if (stop - at) % 2:
            raise UnicodeDecodeError(self.name, whole, stop - 1, stop, "half a character of two bytes")
        return text

    # -- from text --

    def encode(self, text: str, errors: str = "strict") -> tuple[bytes, int]:
        parts, at = list[bytes](), 0
        for run in self.tables.not_single.finditer(text):
            parts += [self._written(text[at : run.start()]), self._shifted(text, run.start(), run.end(), errors)]
            at = run.end()
        return b"".join([*parts, self._written(text[at:])]), len(text)

    def _written(self, text: str) -> bytes:
        return codecs.charmap_encode(text, "strict", self.tables.single_of)[0]

    def _shifted(self, text: str, at: int, end: int, errors: str) -> bytes:
        double_of, split = self.tables.double_of, self.tables.character
        parts = []
        while at < end:
            chars = text[at:end] if split is None else split.findall(text, at, end)
            known = list(takewhile(double_of.__contains__, chars))
            if known:
                parts.append(b"".join([SO, *map(double_of.__getitem__, known), SI]))
                at += sum(map(len, known))
            if at < end:
                wrong = UnicodeEncodeError(self.name, text, at, at + 1, "no character of this set")
                instead, at = codecs.lookup_error(errors)(wrong)  # "strict" raises it
                parts.append(instead if isinstance(instead, bytes) else self._written(instead))
        return b"".join(parts)


def _search(name: str) -> codecs.CodecInfo | None:
    if not name.startswith(PREFIX) or not name[len(PREFIX) :].isdigit() or int(name[len(PREFIX) :]) not in _MODULES:
        return None
    codec = _Codec(name)
    return codecs.CodecInfo(codec.encode, codec.decode, name=name)


codecs.register(_search)
