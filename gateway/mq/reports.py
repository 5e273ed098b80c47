"""Replies and reports: the descriptor and data of a message about another one, as the Report field asks for them."""

from __future__ import annotations

from gateway.mq import mqmd
from gateway.mq.constants import (
    MQMT_REPLY,
    MQMT_REPORT,
    MQRO_DISCARD_MSG,
    MQRO_PASS_CORREL_ID,
    MQRO_PASS_DISCARD_AND_EXPIRY,
    MQRO_PASS_MSG_ID,
)

PARTIAL_DATA = 100
"""Bytes of the original a report WITH_DATA carries."""
_KINDS = {
    "exception": 0x1000000,
    "expiration": 0x200000,
    "coa": 0x100,
    "cod": 0x800,
}


def identifiers(md: bytes) -> tuple[bytes, bytes]:
    """MsgId and CorrelId of an answer to `md`; a MsgId of NULs asks for a new one."""
    report = mqmd.number(md, mqmd.AT_REPORT)
    msg_id = md[mqmd.MSG_ID] if report & MQRO_PASS_MSG_ID else bytes(24)
    return msg_id, md[mqmd.CORREL_ID if report & MQRO_PASS_CORREL_ID else mqmd.MSG_ID]


def reply(md: bytes) -> bytes:
    """The descriptor of a reply to a request: identifiers, priority and persistence from it, data the caller's."""
    msg_id, correl_id = identifiers(md)
    report, expiry = _passed(md)
    return mqmd.build(
        msg_type=MQMT_REPLY,
        msg_id=msg_id,
        correl_id=correl_id,
        report=report,
        expiry=expiry,
        priority=mqmd.number(md, mqmd.AT_PRIORITY),
        persistence=mqmd.number(md, mqmd.AT_PERSISTENCE),
    )


def _passed(md: bytes) -> tuple[int, int]:
    report = mqmd.number(md, mqmd.AT_REPORT)
    if not report & MQRO_PASS_DISCARD_AND_EXPIRY:
        return 0, -1
    return report & MQRO_DISCARD_MSG, mqmd.number(md, mqmd.AT_EXPIRY)


def wants(md: bytes, kind: str) -> bool:
    """Whether the sender asked for a report of this kind: exception, expiration, coa or cod."""
    return bool(mqmd.number(md, mqmd.AT_REPORT) & _KINDS[kind])


def report(md: bytes, data: bytes, kind: str, feedback: int) -> tuple[bytes, bytes]:
    """The report on a message: descriptor (context is the putting queue manager's) and the data asked for."""
    answer = mqmd.patch(reply(md), msg_type=MQMT_REPORT, feedback=feedback)
    described = answer[: mqmd.DESCRIBED.start] + md[mqmd.DESCRIBED] + answer[mqmd.DESCRIBED.stop :]
    # The two bits above each kind's own ask for some of the data, for all of it.
    asked = mqmd.number(md, mqmd.AT_REPORT) // _KINDS[kind]
    return described, data if asked & 4 else data[:PARTIAL_DATA] if asked & 2 else b""
