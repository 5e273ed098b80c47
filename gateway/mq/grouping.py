"""The descriptor of a message that was in segments (the fifth of the five modifications)."""

from __future__ import annotations

from gateway.mq import mqmd
from gateway.mq.constants import MQMF_LAST_MSG_IN_GROUP, MQMF_LAST_SEGMENT, MQMF_MSG_IN_GROUP, MQMF_SEGMENT

SEGMENTED = MQMF_SEGMENT | MQMF_LAST_SEGMENT


def reassembled(first: bytes, original_length: int = -1) -> bytes:
    """Returns the descriptor of the whole message, made from that of its first segment; `original_length` where data is
    missing."""
    flags = mqmd.number(first, mqmd.AT_MSG_FLAGS) & ~SEGMENTED
    whole = mqmd.with_number(mqmd.with_number(first, mqmd.AT_OFFSET, 0), mqmd.AT_MSG_FLAGS, flags)
    whole = mqmd.with_number(whole, mqmd.AT_ORIGINAL_LENGTH, original_length)
    if not flags & (MQMF_MSG_IN_GROUP | MQMF_LAST_MSG_IN_GROUP):
        whole = mqmd.patch(whole, group_id=bytes(24), msg_seq_number=1)
    return whole
