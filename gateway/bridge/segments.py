"""A message that is longer than its queue takes, as segments that MQ puts together again (MQGMO_COMPLETE_MSG).

All segments have the same GroupId and are put in one unit of work. Headers stay in the first one; the Format of the
others is that of the body, because they do not begin with a header. Encoding and CodedCharSetId are the same in all, as
a queue manager only puts together what agrees in them (2243, 2244).
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

from gateway.bridge.message import read_message
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.rules.feedback import Feedback

SEGMENT, LAST_SEGMENT = 2, 4  # MQMF_SEGMENT, MQMF_LAST_SEGMENT
_UNIT = 16
"""The length of all segments but the last is a multiple of this, so that no number and no UTF-16 character is cut."""
MAX_SEGMENTS = 1000
_OFFSET, _NOUGHT = slice(mqmd.AT_OFFSET, mqmd.AT_OFFSET + 4), bytes(4)
MD = mqmd.LENGTH


def segments(head: bytes, body: bytes, max_length: int, unique: bytes) -> list[tuple[bytes, bytes]]:
    """(head, body) of each segment of `head + body`. `unique`: bytes that, together with the data, make the GroupId
    unique. Raises Refused if there would be too many segments, or the headers do not fit into the first."""
    md, data = head[:MD], head[MD:] + body
    if len(data) <= max_length:
        return [(head, body)]
    message = read_message(md, data)
    size = max_length // _UNIT * _UNIT
    if size == 0 or message.body_at > size or len(data) > size * MAX_SEGMENTS:
        raise Refused(f"{len(data)} bytes do not fit into {MAX_SEGMENTS} segments of {max_length}", Feedback.TOO_LONG)
    group = md[mqmd.GROUP_ID]
    if group == bytes(24):
        group = b"MQGS" + hashlib.blake2b(unique + data, digest_size=20).digest()
    md = md[: mqmd.GROUP_ID.start] + group + md[mqmd.GROUP_ID.stop :]
    later = mqmd.with_format(md, message.described.format)
    cuts = [*range(0, len(data), size), len(data)]
    flags = mqmd.number(md, mqmd.AT_MSG_FLAGS)
    made = []
    for begin, end in pairwise(cuts):
        last = LAST_SEGMENT if end == len(data) else 0
        one = mqmd.with_number(later if begin else md, mqmd.AT_OFFSET, begin)
        made.append((mqmd.with_number(one, mqmd.AT_MSG_FLAGS, flags | SEGMENT | last), data[begin:end]))
    return made


def is_further(head: bytes) -> bool:
    """Whether a row is the second or a later segment of a message, and thus not a message of its own."""
    return head[_OFFSET] != _NOUGHT
