"""Reports that MQ applications have asked for about messages on their way to devices. Pure.

Confirmations of arrival and delivery are made by the queue manager. The gateway makes positive and negative action
notifications, exception and expiration reports. They are put in the unit of work of what they report, at most once
each, because the same unit takes the stored message they are made from.
"""

from __future__ import annotations

from gateway.bridge import reports
from gateway.broker import dead_letters
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.dead_letters import Undelivered
from gateway.broker.marks import Cause, Mark
from gateway.broker.publish.route import REPORT_POLICY
from gateway.mq.constants import MQRC_NOT_AUTHORIZED
from gateway.ports.batch import Address, Stored
from gateway.ports.state_queues import COMMANDS, holds_state
from gateway.rules.feedback import Feedback
from gateway.session.publication import Publication
from gateway.session.record import REPORTS, decode_publication
from gateway.session.session import Session


def put_report(context: Context, batch: Batch, report: reports.Report) -> None:
    """Put a report in the unit of work of what it reports. Whoever puts a message chooses its ReplyToQ, and what the
    report carries: it does not reach queues that only the gateway, or an administrator, may put on."""
    if holds_state(report.queue) or report.queue == COMMANDS:
        forged = Undelivered(
            report.head, report.body, MQRC_NOT_AUTHORIZED, report.queue, report.queue_manager, report.persistent
        )
        destination, row = dead_letters.put(context, batch, forged, context.scheduler.now())
        destination.mark(row, Mark(cause=Cause("_none", "not_authorized", -1)))
        return
    address = Address(report.queue, report.queue_manager, report.priority, report.persistent)
    batch.put(address, REPORT_POLICY, report.head, report.body)


class Reports:
    """Tells applications that asked for it what became of a message."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def positive(self, publication: Publication) -> None:
        """Report that the device has a message: PUBACK or PUBCOMP has come, or, at QoS 0, it has been sent."""
        if publication.report:
            self._put(reports.positive(publication.report, publication.payload))

    def negative(self, publication: Publication, why: Feedback) -> None:
        """Report that the device has refused a message, or can never have it."""
        if publication.report:
            self._put(reports.negative(publication.report, publication.payload))
            self._put(reports.exception(publication.report, publication.payload, why))

    def unanswered(self, session: Session) -> None:
        """Report, as a session ends, what it had only in memory and has not reached its device."""
        for item in session.outflow.waiting():
            if item.publication.report and item.token is None:
                self.negative(item.publication, Feedback.SESSION_ENDED)

    def forgotten(self, stored: Stored) -> None:
        """Report a stored message that is taken because its session ends."""
        if stored.data[1] & REPORTS:
            self.negative(decode_publication(stored.data)[0], Feedback.SESSION_ENDED)

    def expired(self, publication: Publication) -> None:
        """Report that a message expired before the device came."""
        if publication.report:
            self._put(reports.expired(publication.report, publication.payload))

    def undeliverable(self, md: bytes, data: bytes, reason: int) -> bool:
        """Report that a message from a queue can be delivered to nobody. Returns True if it asks to be discarded, not
        dead-lettered."""
        self._put(reports.exception(md, data, reason))
        self._put(reports.negative(md, data))
        return reports.discards(md)

    def handed_over(self, md: bytes, data: bytes) -> None:
        """Report that a message is stored for everybody it is for, where no single device answers for it."""
        self._put(reports.positive(md, data))

    def _put(self, report: reports.Report | None) -> None:
        if report is not None:
            put_report(self.context, self.context.batch, report)
