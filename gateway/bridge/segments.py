"""A message that is longer than its queue takes, as segments that MQ puts together again (MQGMO_COMPLETE_MSG).

All segments carry the same GroupId and go in one unit of work. Headers stay in the first one; the others are described
as the body is.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

from gateway.bridge.message import read_message
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.rules.feedback import Feedback

SEGMENT, LAST_SEGMENT, IN_GROUP = 2, 4, 8  # MQMF_SEGMENT, MQMF_LAST_SEGMENT, MQMF_MSG_IN_GROUP
_UNIT = 16
"""Segments but the last are multiples of this, so that no number or UTF-16 character is cut."""
MAX_SEGMENTS = 1000
MD = mqmd.LENGTH


def segments(head: bytes, body: bytes, max_length: int, unique: bytes) -> list[tuple[bytes, bytes]]:
    """(head, body) of each segment of `head + body`. `unique`: bytes that make the GroupId one of its own."""
    md, data = head[:MD], head[MD:] + body
    if len(data) <= max_length:
        return [(head, body)]
    message = read_message(md, data)
    size = max_length // _UNIT * _UNIT
    if size == 0 or message.body_at > size or len(data) > size * MAX_SEGMENTS:
        raise Refused(f"{len(data)} bytes do not fit {max_length} in {MAX_SEGMENTS} segments", Feedback.TOO_LONG)
    group = md[mqmd.GROUP_ID]
    if group == bytes(24):
        group = hashlib.blake2b(unique, digest_size=24).digest()
    md = md[: mqmd.GROUP_ID.start] + group + md[mqmd.GROUP_ID.stop :]
    described = message.described
    later = mqmd.with_described(md, described.encoding, described.ccsid, described.format)
    cuts = [*range(0, len(data), size), len(data)]
    flags = mqmd.number(md, mqmd.AT_MSG_FLAGS)
    made = []
    for begin, end in pairwise(cuts):
        last = LAST_SEGMENT if end == len(data) else 0
        one = mqmd.with_number(later if begin else md, mqmd.AT_OFFSET, begin)
        made.append((mqmd.with_number(one, mqmd.AT_MSG_FLAGS, flags | SEGMENT | last), data[begin:end]))
    return made


def segment_run(
    heads: list[bytes], bodies: list[bytes], max_length: int, unique: bytes
) -> tuple[list[bytes], list[bytes], bool]:
    """Columns of messages with those that are too long cut into segments, and whether all of them fit now.

    What cannot be segmented (headers longer than a segment) stays as it is.
    """
    new_heads: list[bytes] = []
    new_bodies: list[bytes] = []
    fits = True
    for number, (head, body) in enumerate(zip(heads, bodies, strict=True)):
        try:
            made = segments(head, body, max_length, b"%b %d" % (unique, number))
        except Refused:
            made, fits = [(head, body)], False
        new_heads += [one for one, _ in made]
        new_bodies += [one for _, one in made]
    return new_heads, new_bodies, fits
