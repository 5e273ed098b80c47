"""The audit trail of a running gateway: each act is a line of the log, and a message on MQGATE.AUDIT."""

from __future__ import annotations

import time

from gateway.app.reports import log_lines
from gateway.net.calls import Act
from gateway.observe import logs
from gateway.people.audit import Waiting, message_of, record
from gateway.ports.batch import BatchQueueManager, Outcome, Puts, Unit
from gateway.ports.state_queues import AUDIT

log = logs.get("mqgate")


class AuditTrail:
    """Writes the audit trail, one unit of work at a time: acts that come meanwhile are in the next one. Called in the
    reactor's thread."""

    def __init__(self, queue_manager: BatchQueueManager, keep: float) -> None:
        self.keep = keep
        """How many seconds records are kept; 0: none are put."""
        self._queue_manager = queue_manager
        self._waiting = Waiting()
        self._under_way = False
        self._well = True

    def add(self, act: Act) -> None:
        """Record an act."""
        log_lines.audit(act)
        if self.keep:
            self._waiting.add(record(*act, time.time()), time.monotonic())
            self._put()

    def _put(self) -> None:
        if self._under_way or not len(self._waiting):
            return
        self._under_way = True
        messages = [message_of(one, self.keep) for one in self._waiting.take()]
        heads, bodies = [md for md, _ in messages], [body for _, body in messages]
        self._queue_manager.submit(Unit([Puts(AUDIT, heads=heads, bodies=bodies)]), self._done)

    def _done(self, unit: Unit, outcome: Outcome) -> None:
        del unit
        self._under_way = False
        if outcome.failures and self._well:
            why = f"{outcome.failures[0].text}; acts are in the log only: on IBM MQ run deploy/mq/state.mqsc again"
            log.warning("audit_queue", f"{AUDIT} takes nothing: {why}")
        elif not outcome.failures and not self._well:
            log.info("audit_queue", f"{AUDIT} takes records again")
        self._well = not outcome.failures
        self._put()
