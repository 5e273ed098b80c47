"""Coded character set identifiers: which codec decodes each of them, and the conversion of text from one to another.

Python has most of the codecs. The Latin EBCDICs it lacks are made here from their differences to CCSID 37 (IBM's
registered code pages; the tests compare them with independent tables). The host sets of East Asia, with characters of
one and two bytes, are in `host_sets.py`. This module knows characters, but no structures.
"""

from __future__ import annotations

import codecs
from functools import cache
from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.mq.character_sets import host_sets
from gateway.mq.constants import MQRC_NOT_CONVERTED, MQRC_SOURCE_CCSID_ERROR, MQRC_TARGET_CCSID_ERROR

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_CODECS: dict[int, str] = {
    37: "cp037", 367: "ascii", 424: "cp424", 437: "cp437", 500: "cp500", 720: "cp720", 737: "cp737", 775: "cp775",
    813: "iso8859-7", 819: "iso8859-1", 850: "cp850", 852: "cp852", 855: "cp855", 857: "cp857", 858: "cp858",
    860: "cp860", 861: "cp861", 862: "cp862", 863: "cp863", 864: "cp864", 865: "cp865", 866: "cp866", 869: "cp869",
    874: "cp874", 875: "cp875", 878: "koi8-r", 912: "iso8859-2", 913: "iso8859-3", 914: "iso8859-4",
    915: "iso8859-5", 916: "iso8859-8", 920: "iso8859-9", 921: "iso8859-13", 923: "iso8859-15", 932: "cp932",
    936: "gbk_euro", 943: "cp932", 949: "cp949", 950: "cp950", 954: "euc_jp", 970: "euc_kr", 1026: "cp1026",
    1051: "hp-roman8", 1089: "iso8859-6", 1140: "cp1140", 1168: "koi8-u", 1201: "utf-16-be", 1202: "utf-16-le",
    1208: "utf-8", 1250: "cp1250", 1251: "cp1251", 1252: "cp1252", 1253: "cp1253", 1254: "cp1254", 1255: "cp1255",
    1256: "cp1256", 1257: "cp1257", 1258: "cp1258", 1363: "cp949", 1370: "cp950", 1383: "gb2312", 1386: "gbk_euro",
    1392: "gb18030", 5346: "cp1250", 5347: "cp1251", 5348: "cp1252", 5349: "cp1253", 5350: "cp1254", 5351: "cp1255",
    5352: "cp1256", 5353: "cp1257", 5354: "cp1258", 5488: "gb18030", 33722: "euc_jp",
}  # fmt: skip
UTF_8, CCSID_UTF_8 = "utf-8", 1208
UTF_16 = frozenset({1200, 13488, 17584})
"""The character sets that are written in the byte order of the Encoding beside them."""

# Code point and character where a code page differs from CCSID 37 (whose own table is Python's cp037).
_EBCDIC = {
    273: "43{ 4AÄ 4F! 59~ 5AÜ 5F^ 63[ 6Aö 7C§ A1ß B0¢ B5@ BA¬ BB| C0ä CC¦ D0ü DC} E0Ö EC\\ FC]",
    277: "47} 4A# 4F! 5A¤ 5BÅ 5F^ 67$ 6Aø 70¦ 7BÆ 7CØ 80@ 9C{ 9E[ 9F] A1ü B0¢ BA¬ BB| C0æ D0å DC~",
    278: "43{ 47} 4A§ 4F! 51` 5A¤ 5BÅ 5F^ 63# 67$ 6Aö 71\\ 79é 7BÄ 7CÖ 9F] A1ü B0¢ B5[ BA¬ BB| C0ä CC¦ D0å DC~ E0É EC@",
    280: "44{ 48\\ 4A° 4F! 51] 54} 58~ 5Aé 5F^ 6Aò 79ù 7B£ 7C§ 90[ A1ì B0¢ B1# B5@ BA¬ BB| C0à CD¦ D0è DD` E0ç",
    284: "49¦ 4A[ 5A] 69# 6Añ 7BÑ A1¨ B0¢ BA^ BB! BD~",
    285: "4A$ 5B£ A1¯ B0¢ B1[ BA^ BC~",
    297: "44@ 48\\ 4A° 4F! 51{ 54} 5A§ 5F^ 6Aù 79µ 7B£ 7Cà 90[ A0` A1¨ B0¢ B1# B5] BA¬ BB| BD~ C0é D0è DD¦ E0ç",
    500: "4A[ 4F! 5A] 5F^ B0¢ BA¬ BB|",
    871: "4AÞ 4F! 5AÆ 5FÖ 79ð 7CÐ 8C` 8E{ 9C} 9E] A1ö AC@ AE[ B0¢ BA¬ BB| BE\\ C0þ CC~ D0æ E0´ EC^",
    1047: "5F^ AD[ B0¬ BAÝ BB¨ BD]",
    924: "4AÝ 5F^ 6AŠ 9Dž 9F€ AD[ B0¢ B7Œ B8œ B9Ÿ BA¬ BBš BD] BEŽ",
}
# The same code pages with the euro sign, which took the place of the currency sign.
_EURO = {
    1141: (273, "9F€"), 1142: (277, "5A€"), 1143: (278, "5A€"), 1144: (280, "9F€"), 1145: (284, "9F€"),
    1146: (285, "9F€"), 1147: (297, "9F€"), 1148: (500, "9F€"), 1149: (871, "9F€"),
}  # fmt: skip
_OWN = (set(_EBCDIC) | set(_EURO)) - set(_CODECS)
_CODECS |= {ccsid: f"ebcdic_{ccsid}" for ccsid in sorted(_OWN)} | host_sets.CODECS


def _differences(ccsid: int) -> str:
    if ccsid in _EURO:
        base, euro = _EURO[ccsid]
        return f"{_EBCDIC[base]} {euro}"
    return _EBCDIC[ccsid]


@cache
def _euro_or(errors: str) -> str:
    """Returns the name of an error handler for a GBK that has the euro sign at X'80', as IBM and Windows do; any other
    error is handled as `errors` says."""
    otherwise, name = codecs.lookup_error(errors), f"mqgate.euro.{errors}"

    def handle(wrong: UnicodeError) -> tuple[str | bytes, int]:
        if isinstance(wrong, UnicodeDecodeError) and wrong.object[wrong.start] == _EURO_BYTE:
            return "€", wrong.start + 1
        if isinstance(wrong, UnicodeEncodeError) and wrong.object[wrong.start] == "€":
            return bytes([_EURO_BYTE]), wrong.start + 1
        return otherwise(wrong)

    codecs.register_error(name, handle)
    return name


def _gbk_with_euro() -> codecs.CodecInfo:
    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        return text.encode("gbk", _euro_or(errors)), len(text)

    def decode(raw: Buffer, errors: str = "strict") -> tuple[str, int]:
        whole = bytes(raw)
        return whole.decode("gbk", _euro_or(errors)), len(whole)

    return codecs.CodecInfo(encode, decode, name=_GBK)


_GBK, _EURO_BYTE = "gbk_euro", 0x80


def _search(name: str) -> codecs.CodecInfo | None:
    """Our code pages under their names, for Python's own `encode` and `decode`."""
    if name == _GBK:
        return _gbk_with_euro()
    if not name.startswith("ebcdic_") or not name[7:].isdigit() or int(name[7:]) not in _OWN:
        return None
    table = list(bytes(range(256)).decode("cp037"))
    for word in _differences(int(name[7:])).split(" "):
        table[int(word[:2], 16)] = word[2:]
    decoding = "".join(table)
    encoding = codecs.charmap_build(decoding)

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        return codecs.charmap_encode(text, errors, encoding)

    def decode(raw: Buffer, errors: str = "strict") -> tuple[str, int]:
        return codecs.charmap_decode(raw, errors, decoding)

    return codecs.CodecInfo(encode, decode, name=name)


codecs.register(_search)


def codec_of(ccsid: int, encoding: int = 1) -> str | None:
    """Returns the codec for a CCSID (`encoding` gives UTF-16 its byte order); None if it is not known here."""
    if ccsid in UTF_16:
        return "utf-16-le" if encoding & 15 == 2 else "utf-16-be"
    return _CODECS.get(ccsid)


def known() -> tuple[int, ...]:
    """Returns every CCSID that can be converted, in ascending order."""
    return tuple(sorted({*_CODECS, *UTF_16}))


@cache
def is_ebcdic_codec(codec: str) -> bool:
    """Whether a codec is an EBCDIC."""
    return "A".encode(codec) == b"\xc1"


@cache
def is_single_byte(codec: str) -> bool:
    """Whether every one of the 256 bytes is a character (ASCII has 128 only)."""
    return codec == "hp-roman8" or codec.startswith(("ebcdic", "iso8859", "koi8")) or _is_single_byte_page(codec)


def _is_single_byte_page(codec: str) -> bool:
    return codec.startswith("cp") and codec not in {"cp932", "cp949", "cp950"}


@cache
def can_be_a_header(codec: str) -> bool:
    """Whether names in it are one byte per character, as MQ requires for the characters of headers."""
    return len("A".encode(codec)) == 1


def is_ebcdic(raw: bytes) -> bool:
    """Whether a StrucId or Format is written in an EBCDIC: its letters lie where no ASCII character is."""
    return any(byte >= 0xC1 for byte in raw)


def source_codec(ccsid: int, encoding: int) -> str:
    """Returns the codec to read with. Raises MQError 2111 if there is none."""
    codec = codec_of(ccsid, encoding)
    if codec is None:
        raise MQError(MQRC_SOURCE_CCSID_ERROR, f"CCSID {ccsid} of the message is not known here", 1)
    return codec


def target_codec(ccsid: int, encoding: int) -> str:
    """Returns the codec to write with. Raises MQError 2115 if there is none."""
    codec = codec_of(ccsid, encoding)
    if codec is None:
        raise MQError(MQRC_TARGET_CCSID_ERROR, f"CCSID {ccsid} asked for is not known here", 1)
    return codec


def converted(raw: bytes, source: str, target: str) -> tuple[bytes, int]:
    """Returns text converted from one codec to another, and how many characters had to be substituted.

    EBCDIC new lines become line feeds on the way out of EBCDIC, as queue managers convert them by default. Bytes that
    are not a character raise MQError 2119.
    """
    text = decoded(raw, source, target)
    try:
        return text.encode(target), 0
    except UnicodeEncodeError:
        return _substituted(text, target)


def decoded(raw: bytes, source: str, target: str = UTF_8) -> str:
    """Returns text that is in one codec and will be in another, with new lines as in the latter. Raises MQError 2119 if
    it is not valid in its codec."""
    text = _decoded(raw, source)
    return text.replace("\x85", "\n") if is_ebcdic_codec(source) and not is_ebcdic_codec(target) else text


def says_another(ccsid: int) -> bool:
    """Whether a CCSID names another character set than UTF-8, the one of text without a CCSID (0 and below)."""
    return ccsid > 0 and ccsid != CCSID_UTF_8


def _decoded(raw: bytes, codec: str) -> str:
    try:
        return raw.decode(codec)
    except UnicodeDecodeError as wrong:
        if is_single_byte(codec):
            return "".join(map(_single_byte_table(codec).__getitem__, raw))
        why = f"byte {wrong.start} is not a character of {codec}: {wrong.reason}"
        raise MQError(MQRC_NOT_CONVERTED, why, 1) from None


@cache
def _single_byte_table(codec: str) -> str:
    """Returns all 256 characters; a byte that is undefined stands for the control character of its number, as IBM has
    it."""
    return "".join(bytes([n]).decode(codec, "ignore") or chr(n) for n in range(256))


def _substituted(text: str, codec: str) -> tuple[bytes, int]:
    mark = b"\x3f" if is_ebcdic_codec(codec) else "\ufffd".encode(codec) if codec.startswith("utf") else b"\x1a"
    holes = _holes(codec) if is_single_byte(codec) else {}
    parts, count = [], 0
    for char in text:
        try:
            parts.append(char.encode(codec))
        except UnicodeEncodeError:
            hole = holes.get(char)
            count += hole is None
            parts.append(hole or mark)
    written = b"".join(parts)
    return written.replace(host_sets.SI + host_sets.SO, b"") if codec.startswith(host_sets.PREFIX) else written, count


@cache
def _holes(codec: str) -> dict[str, bytes]:
    table = _single_byte_table(codec)
    return {table[n]: bytes([n]) for n in range(256) if not bytes([n]).decode(codec, "ignore")}
