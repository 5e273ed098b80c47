"""Coded character set identifiers: which codec of Python's decodes them. Knows characters, no structures."""

from __future__ import annotations

_CODECS: dict[int, str] = {
    367: "ascii", 437: "cp437", 720: "cp720", 737: "cp737", 775: "cp775", 819: "iso8859-1", 850: "cp850", 852: "cp852",
    855: "cp855", 857: "cp857", 858: "cp858", 860: "cp860", 861: "cp861", 862: "cp862", 863: "cp863", 864: "cp864",
    865: "cp865", 866: "cp866", 869: "cp869", 874: "cp874", 37: "cp037", 273: "cp273", 424: "cp424", 500: "cp500",
    875: "cp875", 1026: "cp1026", 1140: "cp1140", 912: "iso8859-2", 913: "iso8859-3", 914: "iso8859-4",
    915: "iso8859-5", 1089: "iso8859-6", 813: "iso8859-7", 916: "iso8859-8", 920: "iso8859-9", 923: "iso8859-15",
    1208: "utf-8", 1250: "cp1250", 1251: "cp1251", 1252: "cp1252", 1253: "cp1253", 1254: "cp1254", 1255: "cp1255",
    1256: "cp1256", 1257: "cp1257", 1258: "cp1258", 1200: "utf-16-be", 1201: "utf-16-be", 1202: "utf-16-le",
    13488: "utf-16-be", 17584: "utf-16-be", 932: "cp932", 943: "cp932", 949: "cp949", 970: "euc_kr", 950: "cp950",
    936: "gbk", 1386: "gbk", 5488: "gb18030", 1392: "gb18030", 878: "koi8-r", 1168: "koi8-u", 5050: "euc_jp",
    954: "euc_jp", 33722: "euc_jp",
}  # fmt: skip
_EBCDIC_MARK = 0xC1  # the letter A


def codec_of(ccsid: int) -> str | None:
    """The name of the codec for a CCSID, or None when it is not known here."""
    return _CODECS.get(ccsid)


def is_ebcdic(raw: bytes) -> bool:
    """Whether a StrucId or Format is written in an EBCDIC: its letters lie where no ASCII character is."""
    return any(byte >= _EBCDIC_MARK for byte in raw)
