"""Messages that are longer than their queue takes, where the rule says `too_long: segment`. Pure."""

from __future__ import annotations

import hashlib

from gateway.mq import grouping, mqmd
from gateway.ports.batch import MQMD_LENGTH

SEGMENTATION_ALLOWED = 1  # MQMF_SEGMENTATION_ALLOWED


def cut(head: bytes, body: bytes, longest: int, now: float) -> list[tuple[bytes, bytes]]:
    """(head, body) of each segment; MQMGO_COMPLETE_MSG puts them together again. MQError when that cannot be done.

    The group is named by what is in the message and when it was cut: unique without a source of randomness in here.
    """
    md, data = head[:MQMD_LENGTH], head[MQMD_LENGTH:] + body
    flags = mqmd.number(md, mqmd.AT_MSG_FLAGS) | SEGMENTATION_ALLOWED
    group = b"MQGS" + hashlib.blake2b(data + repr(now).encode(), digest_size=20).digest()
    return grouping.segments(mqmd.with_number(md, mqmd.AT_MSG_FLAGS, flags), data, longest, group_id=group)
