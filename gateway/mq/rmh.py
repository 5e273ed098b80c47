"""MQRMH, the reference message header: names an object that travels beside the message, in four strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout

FORMAT = b"MQHREF  "
FIXED_LENGTH = 108
STRINGS = ("SrcEnv", "SrcName", "DestEnv", "DestName")


class Names(NamedTuple):
    """Where the object is and where it should go: environments and names, as bytes of the header's character set."""

    src_env: bytes
    src_name: bytes
    dest_env: bytes
    dest_name: bytes


def build(names: Names, values: Mapping[str, layout.Value | str], *, order: str = "<", charset: str = "ascii") -> bytes:
    """The header with its strings behind the fixed part; lengths and offsets are filled in."""
    placed: dict[str, layout.Value | str] = dict(values)
    at = FIXED_LENGTH
    for name, raw in zip(STRINGS, names, strict=True):
        placed |= {f"{name}Length": len(raw), f"{name}Offset": at if raw else 0}
        at += len(raw)
    inside = b"".join(names)
    padding = -len(inside) % 4
    placed["StrucLength"] = FIXED_LENGTH + len(inside) + padding
    return layout.pack("MQRMH", placed, order=order, charset=charset) + inside + " ".encode(charset) * padding


def parse(raw: bytes, values: Mapping[str, layout.Value]) -> Names:
    """The strings of a header whose fixed part is `values` and whose bytes are `raw`."""
    return Names(*(_string(raw, values, name) for name in STRINGS))


def _string(raw: bytes, values: Mapping[str, layout.Value], name: str) -> bytes:
    length, offset = values[f"{name}Length"], values[f"{name}Offset"]
    assert isinstance(length, int)  # noqa: S101  the layout says so
    assert isinstance(offset, int)  # noqa: S101
    if length == 0:
        return b""
    if length < 0 or not FIXED_LENGTH <= offset <= len(raw) - length:
        where = layout.STRUCTURES["MQRMH"][f"{name}Offset"]
        raise HeaderError(
            "MQRMH", f"{name}Offset", where, f"{length} bytes from {offset} on lie outside the header's {len(raw)}"
        )
    return raw[offset : offset + length]
