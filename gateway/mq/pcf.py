"""PCF, the format of commands, replies, events and statistics: MQCFH and its typed parameters, both byte orders.

Strings stay bytes with their CodedCharSetId, so that building a parsed message gives the same bytes; `Parameter.text`
decodes them. The meaning of an attribute is left to the command server and the reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout, pcf_span
from gateway.mq.character_sets.ccsid import UTF_16, codec_of

INTEGER, STRING, INTEGER_LIST, STRING_LIST, BYTE_STRING = 3, 4, 5, 6, 9
INTEGER_FILTER, STRING_FILTER, BYTE_STRING_FILTER = 13, 14, 15
GROUP, INTEGER64, INTEGER64_LIST = 20, 23, 25
STRUCTURE_OF_TYPE = {
    INTEGER: "MQCFIN",
    STRING: "MQCFST",
    INTEGER_LIST: "MQCFIL",
    STRING_LIST: "MQCFSL",
    BYTE_STRING: "MQCFBS",
    INTEGER_FILTER: "MQCFIF",
    STRING_FILTER: "MQCFSF",
    BYTE_STRING_FILTER: "MQCFBF",
    GROUP: "MQCFGR",
    INTEGER64: "MQCFIN64",
    INTEGER64_LIST: "MQCFIL64",
}
_UNALIGNED = 20
"""The length of an MQCFIN64 without the reserved number. This form is not documented, but is in use; it is read, and
kept as it is."""
MAX_LIST = 20_000
"""The most values of one list."""
MAX_DEPTH = 16
"""Groups nested deeper than this are refused; IBM's messages nest three deep."""

Value = int | bytes | tuple[int, ...] | tuple[bytes, ...]


@dataclass(slots=True)
class Parameter:
    """One parameter. `members` are the parameters of a group.

    `raw` is set by `parse` where the value alone would not give the same bytes; clear it when changing the value.
    """

    type: int
    parameter: int
    value: Value = 0
    ccsid: int = 0
    operator: int = 0
    members: list[Parameter] = field(default_factory=list)
    order: str = field(default="<", compare=False, repr=False)
    """The byte order of the message that the parameter is from or for: text in UTF-16 follows it."""
    raw: bytes = field(default=b"", repr=False)

    def text(self, message_ccsid: int = 1208) -> str:
        """Returns a string's text without padding."""
        assert isinstance(self.value, bytes)  # noqa: S101  asked of a string only
        return _decoded(self.value, self.ccsid or message_ccsid, self.order)

    def texts(self, message_ccsid: int = 1208) -> list[str]:
        """Returns the texts of a list of strings without padding."""
        assert isinstance(self.value, tuple)  # noqa: S101  asked of a list only
        return [
            _decoded(each, self.ccsid or message_ccsid, self.order) for each in self.value if isinstance(each, bytes)
        ]


def _decoded(raw: bytes, ccsid: int, order: str) -> str:
    return raw.decode(_codec(ccsid, order), "replace").rstrip(" \0")


def _codec(ccsid: int, order: str) -> str:
    return codec_of(ccsid, 1 if order == ">" else 2) or "utf-8"


class Message(NamedTuple):
    """One PCF message: MQCFH and its parameters."""

    type: int = 1
    command: int = 0
    parameters: Sequence[Parameter] = ()
    version: int = 1
    msg_seq_number: int = 1
    control: int = 1
    comp_code: int = 0
    reason: int = 0

    def find(self, parameter: int) -> Parameter | None:
        """Returns the first parameter with this identifier, without looking into groups; None if there is none."""
        return next((each for each in self.parameters if each.parameter == parameter), None)


def integer(parameter: int, value: int) -> Parameter:
    """Returns an MQCFIN."""
    return Parameter(INTEGER, parameter, value)


def integer64(parameter: int, value: int) -> Parameter:
    """Returns an MQCFIN64."""
    return Parameter(INTEGER64, parameter, value)


def integers(parameter: int, values: Iterable[int]) -> Parameter:
    """Returns an MQCFIL."""
    return Parameter(INTEGER_LIST, parameter, tuple(values))


def integers64(parameter: int, values: Iterable[int]) -> Parameter:
    """Returns an MQCFIL64."""
    return Parameter(INTEGER64_LIST, parameter, tuple(values))


def string(parameter: int, text: str, *, ccsid: int = 1208, size: int = 0) -> Parameter:
    """Returns an MQCFST, filled with blanks up to `size` (object names in replies have their full length)."""
    return Parameter(STRING, parameter, _encoded(text, ccsid, size), ccsid)


def strings(parameter: int, texts: Sequence[str], *, ccsid: int = 1208, size: int = 0) -> Parameter:
    """Returns an MQCFSL: every string has the length of the longest one, or `size`."""
    raw = [_encoded(text, ccsid, size) for text in texts]
    longest = max(map(len, raw), default=0)
    return Parameter(STRING_LIST, parameter, tuple(_filled(each, ccsid, longest) for each in raw), ccsid)


def byte_string(parameter: int, value: bytes) -> Parameter:
    """Returns an MQCFBS."""
    return Parameter(BYTE_STRING, parameter, value)


def integer_filter(parameter: int, operator: int, value: int) -> Parameter:
    """Returns an MQCFIF."""
    return Parameter(INTEGER_FILTER, parameter, value, operator=operator)


def string_filter(parameter: int, operator: int, text: str, *, ccsid: int = 1208) -> Parameter:
    """Returns an MQCFSF."""
    return Parameter(STRING_FILTER, parameter, _encoded(text, ccsid, 0), ccsid, operator)


def byte_string_filter(parameter: int, operator: int, value: bytes) -> Parameter:
    """Returns an MQCFBF."""
    return Parameter(BYTE_STRING_FILTER, parameter, value, operator=operator)


def group(parameter: int, members: Iterable[Parameter]) -> Parameter:
    """Returns an MQCFGR with its members."""
    return Parameter(GROUP, parameter, members=list(members))


def _encoded(text: str, ccsid: int, size: int) -> bytes:
    if ccsid > 0 and codec_of(ccsid) is None:
        raise HeaderError("MQCFST", "CodedCharSetId", 12, f"{ccsid} is not a known character set")
    return _filled(text.encode(_codec(ccsid, "<"), "replace"), ccsid, size)


def _filled(raw: bytes, ccsid: int, size: int) -> bytes:
    """Returns text filled with blanks up to a size; blanks of UTF-16 have two bytes."""
    blank = " ".encode(_codec(ccsid, "<"))
    return raw + blank * ((size - len(raw)) // len(blank))


_FIXED = {(name, order): layout.codec(name, 1, order) for name in STRUCTURE_OF_TYPE.values() for order in "<>"}
_CFH = {order: layout.codec("MQCFH", 1, order) for order in "<>"}


def build(message: Message, *, order: str = "<") -> bytes:
    """Returns the bytes of a whole message."""
    parts = [build_parameter(each, order=order) for each in message.parameters]
    head = (message.type, 36, message.version, message.command, message.msg_seq_number, message.control)
    return _CFH[order].pack(*head, message.comp_code, message.reason, len(parts)) + b"".join(parts)


def build_parameter(given: Parameter, *, order: str = "<") -> bytes:
    """Returns the bytes of one parameter, followed by the members of a group."""
    if given.raw:
        return given.raw
    try:
        head, rest = _parts(given, order)
        name = STRUCTURE_OF_TYPE[given.type]
        fixed = _FIXED[name, order]
        size = (fixed.size + len(rest) + 3) // 4 * 4
        inside = fixed.pack(given.type, size, given.parameter, *head) + rest.ljust(size - fixed.size, b"\0")
    except (struct.error, KeyError, TypeError) as wrong:
        why = f"parameter {given.parameter} of type {given.type} cannot hold {given.value!r}: {wrong}"
        raise HeaderError("MQCF", "Value", 0, why) from None
    return inside + b"".join(build_parameter(each, order=order) for each in given.members)


def _parts(given: Parameter, order: str) -> tuple[tuple[int, ...], bytes]:
    """Returns the fixed fields after Parameter, and the variable part."""
    value = given.value if given.order == order or given.ccsid not in UTF_16 else _swapped(given.value)
    if isinstance(value, int):
        if given.type == GROUP:
            return (len(given.members),), b""
        if given.type == INTEGER64:
            return (0, value), b""  # a reserved number aligns the value
        return ((given.operator, value) if given.type == INTEGER_FILTER else (value,)), b""
    if isinstance(value, bytes):
        return _string_head(given, len(value)), value
    if given.type == STRING_LIST:
        joined = b"".join(each for each in value if isinstance(each, bytes))
        return (given.ccsid, len(value), len(joined) // max(len(value), 1)), joined
    code = "q" if given.type == INTEGER64_LIST else "i"
    return (len(value),), struct.pack(f"{order}{len(value)}{code}", *value)


def _swapped(value: Value) -> Value:
    """Returns text in UTF-16 in the other byte order."""
    if isinstance(value, tuple):
        return tuple(_swapped(each) for each in value)  # type: ignore[return-value]
    if isinstance(value, int):
        return value
    swapped, even = bytearray(value), len(value) & -2
    swapped[0:even:2], swapped[1:even:2] = value[1:even:2], value[0:even:2]
    return bytes(swapped)


def _string_head(given: Parameter, size: int) -> tuple[int, ...]:
    if given.type == STRING:
        return given.ccsid, size
    if given.type == STRING_FILTER:
        return given.operator, given.ccsid, size
    return (given.operator, size) if given.type == BYTE_STRING_FILTER else (size,)


def parse(data: bytes, at: int = 0, *, order: str = "<") -> Message:
    """Read the message at `at`. Raises HeaderError."""
    pcf_span.length(data, at, order)
    kind, _, version, command, number, control, comp_code, reason, count = _CFH[order].unpack_from(data, at)
    parameters, _ = parse_parameters(data, at + 36, count, order=order)
    return Message(kind, command, parameters, version, number, control, comp_code, reason)


def parse_parameters(data: bytes, at: int, count: int, *, order: str = "<") -> tuple[list[Parameter], int]:
    """Returns `count` parameters from `at` on, and where they end."""
    pcf_span.parameters_end(data, at, count, order, "MQCFH", at)  # they are whole, and not too many
    return _parse_some(data, at, count, order, 0)


def _parse_some(data: bytes, at: int, count: int, order: str, depth: int) -> tuple[list[Parameter], int]:
    if depth > MAX_DEPTH:
        raise HeaderError("MQCFGR", "ParameterCount", at, f"groups nested more than {MAX_DEPTH} deep")
    found: list[Parameter] = []
    while len(found) < count:
        parameter, at, members = _parse_one(data, at, order)
        if members:
            parameter.members, at = _parse_some(data, at, members, order, depth + 1)
        found.append(parameter)
    return found, at


def _parse_one(data: bytes, at: int, order: str) -> tuple[Parameter, int, int]:
    """Returns one parameter without its members, where it ends, and how many members follow."""
    if len(data) - at < 16:
        raise HeaderError("MQCF", "StrucLength", at, "a parameter is missing: the data ends here")
    kind, size, identifier = struct.unpack_from(order + "iii", data, at)
    if not 16 <= size <= len(data) - at:
        raise HeaderError(
            "MQCF", "StrucLength", at + 4, f"{size} is not between 16 and the {len(data) - at} bytes there"
        )
    raw, name = data[at : at + size], STRUCTURE_OF_TYPE.get(kind, "")
    if kind == INTEGER64 and size == _UNALIGNED:
        return Parameter(kind, identifier, struct.unpack_from(order + "q", raw, 12)[0], raw=raw), at + size, 0
    if not name:
        return Parameter(kind, identifier, raw[12:], raw=raw), at + size, 0
    if size < _FIXED[name, order].size:
        why = f"{size} is less than the {_FIXED[name, order].size} of this structure"
        raise HeaderError(name, "StrucLength", at + 4, why)
    fields = _FIXED[name, order].unpack_from(raw)[3:]
    if kind == GROUP:
        return _group(identifier, fields[0], raw, data, at)
    parameter = _value(kind, identifier, fields, raw, at, order)
    parameter.order = order
    if build_parameter(parameter, order=order) != raw:
        parameter.raw = raw
    return parameter, at + size, 0


def _group(identifier: int, count: int, raw: bytes, data: bytes, at: int) -> tuple[Parameter, int, int]:
    end = at + len(raw)
    if not 0 <= count <= (len(data) - end) // 16:
        why = f"{count} parameters do not fit the {len(data) - end} bytes there"
        raise HeaderError("MQCFGR", "ParameterCount", at + 12, why)
    if len(raw) != 16:
        raise HeaderError("MQCFGR", "StrucLength", at + 4, f"{len(raw)} is not 16")
    return Parameter(GROUP, identifier), end, count


def _value(kind: int, identifier: int, fields: tuple[int, ...], raw: bytes, at: int, order: str) -> Parameter:
    if kind in {INTEGER, INTEGER64}:
        return Parameter(kind, identifier, fields[-1])
    if kind == INTEGER_FILTER:
        return Parameter(kind, identifier, fields[1], operator=fields[0])
    if kind in {INTEGER_LIST, INTEGER64_LIST}:
        return Parameter(kind, identifier, _numbers(kind, fields[0], raw, at, order))
    if kind == STRING_LIST:
        return Parameter(kind, identifier, _strings(fields[1], fields[2], raw, at), fields[0])
    value = _slice(raw, _FIXED[STRUCTURE_OF_TYPE[kind], order].size, fields[-1], at, "StringLength")
    ccsid = fields[-2] if kind in {STRING, STRING_FILTER} else 0
    return Parameter(kind, identifier, value, ccsid, fields[0] if kind in {STRING_FILTER, BYTE_STRING_FILTER} else 0)


def _slice(raw: bytes, begin: int, size: int, at: int, name: str) -> bytes:
    if not 0 <= size <= len(raw) - begin:
        raise HeaderError("MQCF", name, at, f"{size} does not fit the parameter's {len(raw) - begin} bytes")
    return raw[begin : begin + size]


def _check_list(count: int, at: int) -> None:
    if count > MAX_LIST:
        raise HeaderError("MQCF", "Count", at + 12, f"{count} values in one list; at most {MAX_LIST} are read")


def _numbers(kind: int, count: int, raw: bytes, at: int, order: str) -> tuple[int, ...]:
    width, code = (8, "q") if kind == INTEGER64_LIST else (4, "i")
    _check_list(count, at)
    inside = _slice(raw, 16, count * width, at, "Count")
    return struct.unpack(f"{order}{count}{code}", inside)


def _strings(count: int, size: int, raw: bytes, at: int) -> tuple[bytes, ...]:
    if count < 0 or size < 0 or (size == 0 and count > len(raw)):
        raise HeaderError("MQCFSL", "Count", at + 16, f"{count} strings of {size} bytes do not fit")
    _check_list(count, at)
    inside = _slice(raw, 24, count * size, at, "Count")
    return tuple(inside[n * size : (n + 1) * size] for n in range(count))
