"""Exception reports about messages of devices that could not be put. Pure.

Such a message has no MsgId yet: the queue manager gives it one when it is put. The report has to name it, so it gets
one here, which its dead letter then has, too.
"""

from __future__ import annotations

import hashlib

from gateway.bridge import reports
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.deliver.reports import put_report
from gateway.mq import mqmd
from gateway.ports.batch import MQMD_LENGTH

_OURS, _NONE = b"MQGX", bytes(24)


class ExceptionReports:
    """Puts them, in the unit of work of what becomes of the message."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._made = 0
        """It makes the identifiers of equal messages differ."""

    def put(self, batch: Batch, head: bytes, body: bytes, reason: int) -> bytes:
        """Report a message, where it asks for it. Its head, with the identifier that the report names."""
        if not reports.wants_exception(head):
            return head
        if head[mqmd.MSG_ID] == _NONE:
            head = mqmd.with_msg_id(head, self._identifier(body))
        report = reports.exception(head[:MQMD_LENGTH], head[MQMD_LENGTH:] + body, reason)
        if report is not None:
            put_report(self.context, batch, report)
        return head

    def _identifier(self, body: bytes) -> bytes:
        self._made += 1
        manager, now = self.context.queue_manager.name, self.context.scheduler.now()
        unique = f"{manager} {self.context.instance} {now!r} {self._made} ".encode()
        return _OURS + hashlib.blake2b(unique + body, digest_size=20).digest()
