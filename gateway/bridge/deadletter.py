"""Dead letters: a message behind an MQDLH that says why it is one and which queue it was for; and how to undo that.

MsgId, CorrelId, persistence and context stay those of the message. Reasons are MQRCs, MQFBs or the gateway's own
(`Feedback`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from gateway.mq import mqmd
from gateway.mq.headers import dlh
from gateway.mq.situations import from_dead_letter

NATIVE, UTF_8 = 546, 1208
_NAME = 48
_CUT = re.compile(r"mqgate: ([0-9]{1,10}) bytes cut")
MD = mqmd.LENGTH
_DESCRIBED = slice(mqmd.AT_ENCODING, mqmd.FORMAT.stop)
"""Encoding, CodedCharSetId and Format of the data, which an MQDLH has in the same form."""


class DeadLetter(NamedTuple):
    """What to put on the dead-letter queue."""

    head: bytes
    """Descriptor and MQDLH."""
    body: bytes


def build(
    head: bytes,
    body: bytes,
    *,
    reason: int,
    queue: str,
    queue_manager: str = "",
    now: float,
    max_length: int | None = None,
) -> DeadLetter:
    """The dead letter of `head + body` (the descriptor and the first part of the data, and the rest of the data).

    `max_length` is the longest message data that the dead-letter queue takes, MQDLH included: what is longer is cut
    off, and the MQDLH says so in PutApplName, which everything that shows dead letters also shows.
    """
    data = head[MD:] + body
    room = len(data) if max_length is None else max(max_length - dlh.LENGTH, 0)
    cut = max(len(data) - room, 0)
    return DeadLetter(_head(head[:MD], reason, queue, queue_manager, now, cut), data[:room])


@lru_cache(maxsize=16)
def _head(md: bytes, reason: int, queue: str, queue_manager: str, now: float, cut: int) -> bytes:
    """Descriptor and MQDLH; thousands of messages that are refused together share them, and a frame stores them
    once."""
    before, after = _header(reason, queue, queue_manager, now, cut)
    header = before + md[_DESCRIBED] + after
    md = mqmd.with_described(md, NATIVE, UTF_8, dlh.FORMAT)
    return mqmd.with_expiry(md, -1) + header  # a dead letter must not go unseen


@lru_cache(maxsize=16)
def _header(reason: int, queue: str, queue_manager: str, now: float, cut: int) -> tuple[bytes, bytes]:
    """The parts of an MQDLH before and after what it says about the data, in which descriptors may differ."""
    moment = datetime.fromtimestamp(now, UTC)
    header = dlh.build(
        reason,
        queue.encode()[:_NAME].decode("utf-8", "ignore"),
        queue_manager.encode()[:_NAME].decode("utf-8", "ignore"),
        mqmd.build(),
        put_appl_name=f"mqgate: {cut} bytes cut" if cut else "mqgate",
        put_date=moment.strftime("%Y%m%d"),
        put_time=moment.strftime("%H%M%S") + f"{moment.microsecond // 10_000:02}",
    )
    return mqmd.split(header, dlh.DESCRIBED)


def cut_bytes(header: dlh.Dlh) -> int:
    """How many bytes were cut off a message when it became a dead letter."""
    found = _CUT.fullmatch(header.put_appl_name.strip())
    return int(found[1]) if found is not None else 0


def strip(md: bytes, data: bytes) -> tuple[dlh.Dlh, bytes, bytes]:
    """(header, descriptor, data) of the original message; the descriptor describes the data again.

    Raises HeaderError if the message does not begin with an MQDLH, whose byte order and character set the descriptor
    gives.
    """
    revived = from_dead_letter(md, data)
    return revived.header, revived.md, revived.data
