"""Parts that the frames of several verbs share: descriptors, lists of numbers, puts and runs of puts, answers.

`server_protocol.py` knows what each verb does, `wire.py` how a field lies in a frame. Does no I/O.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from gateway.mq import constants as mq
from gateway.mqi.wire import OUTCOME, FieldReader, Verb, decode_properties, encode_properties
from gateway.ports.mqi import Got, ObjectDescriptor, PutOptions, PutResult

MD_LENGTH = 364
OPEN_PAIR = struct.Struct("<2i")
_PUT_FIELDS = struct.Struct("<3i")
_PUT_SAME = struct.Struct("<4i")
_PUT_MD = _PUT_SAME.size
_PUT_PROPERTIES = _PUT_MD + MD_LENGTH
_PUT_DATA = _PUT_PROPERTIES + 8
"""Offsets in a put: of the descriptor, of the lengths of properties and data, and of the data."""
_PUT_ANSWER = struct.Struct(OUTCOME.format + "364s")
"""The beginning of the answer to a put: its outcome and the descriptor; the names follow."""
_GET_ANSWER = struct.Struct(OUTCOME.format + "364sii")
"""The beginning of the answer to a get: its outcome, the descriptor, the length of the message, and that of the data
that follows."""
_GET_END = struct.Struct("<4c16sii")
"""The part behind the data and the name of the queue: states of group and segment, token, whether there are properties,
and their length."""
_LENGTH = struct.Struct("<i")
_GET = int(Verb.GET)
_CHARACTER_LENGTHS = {mq.MQCA_Q_DESC: 64, mq.MQCA_Q_MGR_DESC: 64, 2023: 64}
"""Lengths of the character attributes that MQSET may change (2023: trigger data); every other one has 48."""


class PutRun:
    """Consecutive asynchronous puts without properties, on the same handle with the same options."""

    __slots__ = ("_start", "bodies", "mds")

    def __init__(self) -> None:
        self._start = b""
        self.mds: list[bytes] = []
        self.bodies: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self.bodies)

    @property
    def fields(self) -> tuple[int, int, int, int]:
        """Handle, options, context handle and publication level of the puts."""
        return _PUT_SAME.unpack(self._start)

    def add(self, body: bytes) -> bool:
        """Add the put of a frame's body; returns False if it does not belong to the run."""
        start = body[:_PUT_MD]
        if start != self._start:
            if self.bodies:
                return False
            self._start = start
        if len(body) < _PUT_DATA or OPEN_PAIR.unpack_from(body, _PUT_PROPERTIES) != (0, len(body) - _PUT_DATA):
            return False
        self.mds.append(body[_PUT_MD:_PUT_PROPERTIES])
        self.bodies.append(body[_PUT_DATA:])
        return True


def read_descriptor(reader: FieldReader) -> ObjectDescriptor:
    """Read the object descriptor of an MQOPEN or MQPUT1."""
    kind = reader.number()
    name, queue_manager, dynamic = reader.text(), reader.text(), reader.text()
    alternate, string, selection = reader.text(), reader.text(), reader.text()
    return ObjectDescriptor(name, queue_manager, kind, dynamic, alternate, string, selection)


def read_numbers(reader: FieldReader) -> list[int]:
    """Read a counted list of MQLONGs."""
    count = reader.number()
    return list(struct.unpack(f"<{max(count, 0)}i", reader.fixed(4 * count)))


def read_put(reader: FieldReader) -> tuple[bytes, PutOptions, bytes]:
    """Read the fields of a put after its target: descriptor, options and data."""
    flags, context, level = reader.numbers(_PUT_FIELDS)
    md, packed, data = reader.fixed(MD_LENGTH), reader.blob(), reader.blob()
    reader.end()
    properties = decode_properties(packed) if packed else ()
    return md, PutOptions(flags, context, properties, publication_level=level), data


def put_reply(verb: int, tag: int, put: PutResult) -> bytes:
    """Returns the answer to MQPUT and MQPUT1."""
    names = _counted(put.resolved_name) + _counted(put.resolved_queue_manager)
    length = _PUT_ANSWER.size + len(names)
    return _PUT_ANSWER.pack(length - 4, verb, 0, tag, put.comp_code, put.reason, put.md) + names


@lru_cache(maxsize=1024)
def _counted(name: str) -> bytes:
    """Returns a name as a field; cached, because the same few are asked for again and again."""
    encoded = name.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def get_reply(tag: int, got: Got) -> bytes:
    """Returns the answer to MQGET."""
    name, data = _counted(got.resolved_name), got.data
    properties = encode_properties(got.properties) if got.properties else b""
    length = _GET_ANSWER.size + len(data) + len(name) + _GET_END.size + len(properties)
    start = _GET_ANSWER.pack(
        length - 4, _GET, 0, tag, got.comp_code, got.reason, got.md, got.length, len(data)
    )  # fmt: skip
    end = _GET_END.pack(
        got.group_status, got.segment_status, got.segmentation, b" ", got.token, got.properties is not None,
        len(properties),
    )  # fmt: skip
    return b"".join((start, data, name, end, properties))


def cut_characters(selectors: list[int], characters: bytes) -> list[bytes]:
    """Split the character attributes of MQSET, one for each selector of a character attribute."""
    found, at = [], 0
    for selector in selectors:
        if mq.MQCA_FIRST <= selector <= mq.MQCA_LAST:
            length = _CHARACTER_LENGTHS.get(selector, 48)
            found.append(characters[at : at + length])
            at += length
    return found
