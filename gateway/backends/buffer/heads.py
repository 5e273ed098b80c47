"""The heads of a record as bytes, each written once. What they have in common with each other, and in records of few
messages what they have in common with heads in general, is left out. Pure.

A form, then the heads: packed (1), deflated (2), or packed and then deflated (3). Packed is what `store.packed_heads`
makes of heads that are alike; of others it is their count, their lengths (32 bits each, little-endian) and their bytes.
Deflated is RFC 1951 with a window of 4 KiB and the dictionary below: for a device that publishes alone, the store has
one record for each message, which would be nearly all MQMD and folder names.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise

from gateway.queue_manager.store.packed_heads import MOST_TOGETHER, Packing, unpack

PACKED, DEFLATED = 1, 2
FEW_ROWS = 64
"""Heads of records with more messages than this are not deflated, which would cost more than it saves."""
MOST_DEFLATED = 1 << 16
"""Longer heads are not deflated, and nothing is inflated to more bytes."""
WINDOW = -12
LEVEL = 1
_IDS = bytes(52) + b" " * 108 + bytes(32) + b" " * 32
"""MQMD from MsgId to ApplIdentityData, not set."""
_ORIGIN = b"\6\0\0\0mqgate" + b" " * 42 + bytes(24) + b"\1\0\0\0" + bytes(8) + b"\xff\xff\xff\xff"
"""MQMD from PutApplType to OriginalLength."""
DICTIONARY = (
    b"<jms><Dst>queue:///</Dst><Tms></Tms><Dlv>2</Dlv></jms><mcd><Msd>jms_text</Msd></mcd>  </usr> dt='i8'> dt='r8'>"
    b" dt='boolean'></usr>  <qos dt='i4'>0</qos><qos dt='i4'>2</qos>"
    b"RFH \2\0\0\0\x11\1\0\0\x22\2\0\0\xb8\4\0\0MQSTR   \0\0\0\0\xb8\4\0\0 \0\0\0"
    b"RFH \2\0\0\0\x34\1\0\0\x22\2\0\0\xb8\4\0\0        \0\0\0\0\xb8\4\0\0 \0\0\0<mcd><Msd>jms_bytes</Msd></mcd> "
    b"L\0\0\0<usr><device></device></usr>  $\0\0\0<mqps><Top></Top></mqps>p\0\0\0<mqtt><clientId></clientId>"
    b"<qos dt='i4'>1</qos><gateway></gateway><msgId dt='i4'>"
    b"MD  \2\0\0\0\0\0\0\0\x08\0\0\0\xff\xff\xff\xff\0\0\0\0\x22\2\0\0\xb8\4\0\0MQSTR   \0\0\0\0\0\0\0\0"
    b"MD  \2\0\0\0\0\0\0\0\x08\0\0\0\xff\xff\xff\xff\0\0\0\0\x22\2\0\0\xb8\4\0\0MQHRF2  \0\0\0\0\1\0\0\0"
) + _IDS + _ORIGIN  # fmt: skip
"""The dictionary. It is part of the format and never changes. What is likeliest comes last."""
_COUNT = struct.Struct("<I")


def write(heads: list[bytes], rows: int, packing: Packing) -> bytes | None:
    """Returns the packed or deflated heads of a record with `rows` messages; None if that would not be shorter."""
    packed = packing.pack(heads) if len(heads) > 1 else None
    if rows <= FEW_ROWS and heads:
        form, plain = (0, _plain(heads)) if packed is None else (PACKED, packed)
        small = _deflated(plain) if len(plain) <= MOST_DEFLATED else plain
        if len(small) < len(plain):
            return bytes([form | DEFLATED]) + small
    return None if packed is None else bytes([PACKED]) + packed


def _plain(heads: list[bytes]) -> bytes:
    return struct.pack(f"<{len(heads) + 1}I", len(heads), *map(len, heads)) + b"".join(heads)


def _deflated(data: bytes) -> bytes:
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW, 5, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
    return stream.compress(data) + stream.flush()


def read(data: bytes) -> list[bytes]:
    """Returns the heads that `write` has written. Raises ValueError if the bytes are not what it writes."""
    form, content = data[0], data[1:]
    if form not in {PACKED, DEFLATED, PACKED | DEFLATED}:
        raise ValueError(f"heads have form {form}")
    if form & DEFLATED:
        content = _inflated(content)
    if not form & PACKED:
        return _parted(content)
    bounds, heads = unpack(content, MOST_TOGETHER)
    return _cut(heads, struct.unpack(f"={len(bounds) // 4}I", bounds))


def _inflated(data: bytes) -> bytes:
    stream = zlib.decompressobj(WINDOW, DICTIONARY)
    try:
        content = stream.decompress(data, MOST_DEFLATED)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof or stream.unused_data:
        raise ValueError("deflated heads do not end where they should")
    return content


def _parted(content: bytes) -> list[bytes]:
    count: int = _COUNT.unpack_from(content)[0]
    if count > len(content) // 4:
        raise ValueError("more heads than there can be")
    lengths = struct.unpack_from(f"<{count}I", content, 4)
    bounds = list(accumulate(lengths, initial=4 + 4 * count))
    if bounds[-1] != len(content):
        raise ValueError("heads are not as long as they say")
    return _cut(content, bounds)


def _cut(content: bytes, bounds: Sequence[int]) -> list[bytes]:
    return [content[begin:end] for begin, end in pairwise(bounds)]
