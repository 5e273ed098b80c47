"""MQRMH, the reference message header: names an object that travels separately from the message, in four strings."""

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


def parse(raw: bytes, values: Mapping[str, layout.Value]) -> Names:
    """Returns the strings of a header whose fixed part is `values` and whose bytes are `raw`."""
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
