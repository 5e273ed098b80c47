"""How far a PCF message reaches: its header and as many parameters as it announces, whatever they mean."""

from __future__ import annotations

import struct

from gateway.errors import HeaderError

_HEADER = {order: struct.Struct(order + "9i") for order in "<>"}
_PARAMETER = {order: struct.Struct(order + "4i") for order in "<>"}
_GROUP = 20
MAX_PARAMETERS = 10_000
"""The most parameters of one message, members of groups included. Queue managers send some thousands at most."""
_SHORTEST = 16
"""Every parameter structure has at least this many bytes."""


def length(data: bytes, at: int, order: str) -> int:
    """Returns the number of bytes from `at` to the end of the last parameter."""
    if len(data) - at < 36:
        raise HeaderError("MQCFH", "StrucLength", at, f"the data ends after {len(data) - at} bytes of 36")
    size, count = (values := _HEADER[order].unpack_from(data, at))[1], values[8]
    if size != 36:
        raise HeaderError("MQCFH", "StrucLength", at + 4, f"{size} is not 36: is the byte order right?")
    return parameters_end(data, at + 36, count, order, "MQCFH", at + 32) - at


def parameters_end(data: bytes, at: int, count: int, order: str, structure: str, counted_at: int) -> int:
    """Returns where the last of `count` parameters ends; the members of groups are counted by their groups."""
    if not 0 <= count <= (len(data) - at) // _SHORTEST:
        raise HeaderError(
            structure, "ParameterCount", counted_at, f"{count} parameters do not fit the {len(data) - at} bytes there"
        )
    read = _PARAMETER[order].unpack_from
    seen = 0
    while count:
        seen += 1
        if seen > MAX_PARAMETERS:
            why = f"more than {MAX_PARAMETERS} parameters in one message: send several"
            raise HeaderError(structure, "ParameterCount", counted_at, why)
        if len(data) - at < _SHORTEST:
            raise HeaderError("MQCF", "StrucLength", at, f"{count} parameters are missing: the data ends here")
        kind, size, _, members = read(data, at)
        if not _SHORTEST <= size <= len(data) - at:
            raise HeaderError(
                "MQCF", "StrucLength", at + 4, f"{size} is not between 16 and the {len(data) - at} bytes there"
            )
        at += size
        count -= 1
        if kind == _GROUP:
            count += max(members, 0)
    return at
