"""Headers and descriptors the gateway reads and never makes itself, built for tests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.mq import layout, mqmd
from gateway.mq.headers import mde
from gateway.mq.headers.rmh import FIXED_LENGTH, STRINGS, Names
from gateway.mq.headers.xqh import LENGTH as XQH_LENGTH
from gateway.mq.headers.xqh import Xqh
from gateway.mq.headers.xqh import parse as parse_xqh
from gateway.mq.situations import HEADER_CCSID, MQENC_NATIVE

_RFH_FIXED_LENGTH = 32
_RFH_FIXED = {order: layout.codec("MQRFH", 1, order) for order in "<>"}
_NEEDS_QUOTES = re.compile(r'[ "\0]|^$')


def rfh(
    pairs: Iterable[tuple[str, str]],
    *,
    encoding: int = 546,
    coded_char_set_id: int = 1208,
    format_name: bytes = b"        ",
    flags: int = 0,
    order: str = "<",
    codec: str = "utf-8",
) -> bytes:
    """An MQRFH with these names and values; the string is padded with blanks to a multiple of four."""
    text = " ".join(_quoted(word) for pair in pairs for word in pair)
    raw = text.encode(codec)
    raw += " ".encode(codec)[:1] * (-len(raw) % 4)
    values = (b"RFH ".decode().encode(codec), 1, _RFH_FIXED_LENGTH + len(raw), encoding, coded_char_set_id)
    return _RFH_FIXED[order].pack(*values, format_name.decode().ljust(8).encode(codec), flags) + raw


def _quoted(word: str) -> str:
    doubled = word.replace('"', '""')
    return f'"{doubled}"' if _NEEDS_QUOTES.search(word) else word


def rmh(names: Names, values: Mapping[str, layout.Value | str], *, order: str = "<", charset: str = "ascii") -> bytes:
    """An MQRMH with its strings behind the fixed part; lengths and offsets are filled in."""
    placed: dict[str, layout.Value | str] = dict(values)
    at = FIXED_LENGTH
    for name, raw in zip(STRINGS, names, strict=True):
        placed |= {f"{name}Length": len(raw), f"{name}Offset": at if raw else 0}
        at += len(raw)
    inside = b"".join(names)
    padding = -len(inside) % 4
    placed["StrucLength"] = FIXED_LENGTH + len(inside) + padding
    return layout.pack("MQRMH", placed, order=order, charset=charset) + inside + " ".encode(charset) * padding


def unwrap_xqh(data: bytes, at: int = 0) -> tuple[Xqh, bytes, int]:
    """Header, the original descriptor as version 2, and where its data begins (an MQMDE goes into the descriptor).

    For messages in our own form: little-endian, ASCII names. Foreign ones go through chain.py.
    """
    header = parse_xqh(data, at)
    end = at + XQH_LENGTH
    if header.md[mqmd.FORMAT] == mde.FORMAT:
        return header, mde.merge(header.md, data, end), end + mde.LENGTH
    return header, mqmd.version_2(header.md), end


def with_extension(md: bytes, data: bytes) -> tuple[bytes, bytes]:
    """The message as a program with a version-1 descriptor gets it: version-2 fields in an MQMDE where needed."""
    if not mde.is_needed(md):
        return md, data
    plain = mqmd.with_described(md, MQENC_NATIVE, HEADER_CCSID, mde.FORMAT)
    return plain[: mqmd.GROUP_ID.start] + mqmd.NO_VERSION_2_FIELDS, mde.build(md) + data
