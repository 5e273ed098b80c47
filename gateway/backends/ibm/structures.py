"""MQMD, MQPMO, MQGMO and MQOD as the extensions need them: packed, and a new object each time.

An extension writes the answer into the bytes that it was given. Joining two parts makes a new object at the price of a
copy; a template handed over twice would carry the first call's answer into the second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

from gateway.mq import constants as mq
from gateway.mq.layout import LITTLE, STRUCTURES, codec, defaults, pack

MD_LENGTH = 364
NO_ID = bytes(24)
_MSG_ID, _CORREL_ID, _BEHIND_IDS = 48, 72, 96
MSG_ID = slice(_MSG_ID, _CORREL_ID)
_PRIORITY = 40
_GROUP_ID, _BEHIND_SEQUENCE = 324, 352
_IDENTITY = slice(196, 272)
_FEEDBACK, _FEEDBACK_FIRST = 20, 65536
_KEY_BITS, _KEY_MASK = 5, 31
_I4 = struct.Struct("<i")
_CLASSES = struct.Struct("<2i")

DEFAULT_MD = pack("MQMD", {}, version=2)
_PMO, _GMO = STRUCTURES["MQPMO"], STRUCTURES["MQGMO"]


def fresh(template: bytes) -> Callable[[], bytes]:
    """Returns a function that makes a new copy of `template` at each call."""
    half = len(template) // 2
    first, second = template[:half], template[half:]
    return lambda: first + second


def put_options(options: int) -> Callable[[], bytes]:
    """Returns a function that makes an MQPMO of the version that every supported client level has."""
    return fresh(codec("MQPMO", 3, LITTLE).pack(*_changed("MQPMO", 3, Options=options)))


def get_options(options: int, match: int, wait_milliseconds: int = 0) -> Callable[[], bytes]:
    """Returns a function that makes an MQGMO of version 4, so that properties do not come as a header unless asked
    for."""
    values = _changed("MQGMO", 4, Options=options, MatchOptions=match, WaitInterval=wait_milliseconds)
    return fresh(codec("MQGMO", 4, LITTLE).pack(*values))


def _changed(name: str, version: int, **values: int) -> list[int | bytes]:
    """Returns the values of a structure in order, some of them changed; for structures whose fields are all single
    values."""
    names = [field.name for field in STRUCTURES[name].fields_of(version)]
    return [values.get(field, default) for field, default in zip(names, defaults(name, version), strict=True)]


def object_descriptor(queue: str, queue_manager: str = "", *, topic_pointer: int = 0, topic_length: int = 0) -> bytes:
    """Returns an MQOD of version 4 for a queue, or for a topic string at an address that the caller keeps alive."""
    values: dict[str, int | bytes | tuple[int, ...]] = {
        "ObjectName": queue.encode(),
        "ObjectQMgrName": queue_manager.encode(),
    }
    if topic_pointer:
        text = struct.pack("<Qiiii", topic_pointer, 0, topic_length, topic_length, 1208)
        values = {"ObjectType": mq.MQOT_TOPIC, "ObjectString": text}
    return pack("MQOD", values, version=4)


def keyed_md(head: bytes, priority: int, persistent: bool, msg_id: bytes, key: bytes) -> bytes:
    """Returns the descriptor of a state message: its key is the CorrelId; Feedback says how long key and head were.

    MQ does not distinguish head and body, and pads a short CorrelId; the lengths restore both. The application range of
    Feedback is free for a datagram's own use.
    """
    own = _FEEDBACK_FIRST + ((len(head) - MD_LENGTH) << _KEY_BITS | min(len(key), 24))
    classes = _CLASSES.pack(priority, persistent)
    front = head[:_FEEDBACK] + _I4.pack(own) + head[_FEEDBACK + 4 : _PRIORITY]
    return b"".join((front, classes, msg_id, key.ljust(24, b"\0")[:24], head[_BEHIND_IDS:MD_LENGTH]))


def head_length_of(md: bytes) -> int:
    """Returns how much of a state message's data belonged to its head."""
    own: int = _I4.unpack_from(md, _FEEDBACK)[0] - _FEEDBACK_FIRST
    return max(own, 0) >> _KEY_BITS


def key_of(md: bytes) -> bytes:
    """Returns the key of a state message."""
    own: int = _I4.unpack_from(md, _FEEDBACK)[0] - _FEEDBACK_FIRST
    return md[_CORREL_ID : _CORREL_ID + (own & _KEY_MASK if own >= 0 else 24)]


def plain_md(head: bytes, priority: int, persistent: bool) -> tuple[bytes, bytes]:
    """Returns the descriptor of an application message in two parts, which are joined to a new object for each call;
    the identifiers are those of the head."""
    return head[:_PRIORITY] + _CLASSES.pack(priority, persistent), head[_MSG_ID:MD_LENGTH]


def match_md(msg_id: bytes = NO_ID, correl_id: bytes = NO_ID) -> bytes:
    """Returns the descriptor of a get that asks for these identifiers."""
    return b"".join((DEFAULT_MD[:_MSG_ID], msg_id, correl_id.ljust(24, b"\0")[:24], DEFAULT_MD[_BEHIND_IDS:]))


def group_md(group: bytes, sequence: int) -> bytes:
    """Returns the descriptor of a get that asks for a message by its place in a group."""
    return DEFAULT_MD[:_GROUP_ID] + group + _I4.pack(sequence) + DEFAULT_MD[_BEHIND_SEQUENCE:]


@cache
def state_md(expiry: int) -> bytes:
    """Returns the head of a state message of the backend's own; it is never handed to a call directly."""
    return pack("MQMD", {"Expiry": expiry}, version=2)


def msg_id_of(md: bytes) -> bytes:
    """Returns the MsgId."""
    return md[MSG_ID]


def correl_id_of(md: bytes) -> bytes:
    """Returns the CorrelId."""
    return md[_CORREL_ID:_BEHIND_IDS]


def has_identity(head: bytes) -> bool:
    """Whether the head says whose message it is (UserIdentifier, AccountingToken, ApplIdentityData); if none of them is
    set, the queue manager uses the connection's."""
    return bool(head[_IDENTITY].strip(b" \0"))
