"""Reports that MQ applications have asked for about messages on their way to devices. Pure.

Confirmations of arrival and delivery are the queue manager's. The gateway makes the positive and negative action
notification, exception and expiration: put in the unit of work of what they report, at most once each, because with it
the stored message they are made from is taken.
"""

from __future__ import annotations

from gateway.bridge import reports
from gateway.broker.batch import Batch
from gateway.broker.context import Context
from gateway.broker.publish.route import REPORT_POLICY
from gateway.ports.batch import Address, Stored
from gateway.rules.feedback import Feedback
from gateway.session.publication import Publication
from gateway.session.record import REPORTS, decode_publication
from gateway.session.session import Session


def put_report(batch: Batch, report: reports.Report) -> None:
    """Put a report in the unit of work of what it reports."""
    address = Address(report.queue, report.queue_manager, report.priority, report.persistent)
    batch.put(address, REPORT_POLICY, report.head, report.body)


class Reports:
    """Tells whoever asked what became of a message."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def positive(self, publication: Publication) -> None:
        """The device has it: PUBACK or PUBCOMP has come, or, at QoS 0, it is on the wire."""
        if publication.report:
            self._put(reports.positive(publication.report, publication.payload))

    def negative(self, publication: Publication, why: Feedback) -> None:
        """The device refused it, or can never have it."""
        if publication.report:
            self._put(reports.negative(publication.report, publication.payload))
            self._put(reports.exception(publication.report, publication.payload, why))

    def unanswered(self, session: Session) -> None:
        """A session ends: what it had only in memory has not reached its device."""
        for item in session.outflow.waiting():
            if item.publication.report and item.token is None:
                self.negative(item.publication, Feedback.SESSION_ENDED)

    def forgotten(self, stored: Stored) -> None:
        """A stored message is taken because its session ends."""
        if stored.data[1] & REPORTS:
            self.negative(decode_publication(stored.data)[0], Feedback.SESSION_ENDED)

    def expired(self, publication: Publication) -> None:
        """It expired before the device came."""
        if publication.report:
            self._put(reports.expired(publication.report, publication.payload))

    def undeliverable(self, md: bytes, data: bytes, reason: int) -> bool:
        """A message from a queue can be delivered to nobody. True: it asks to be discarded, not dead-lettered."""
        self._put(reports.exception(md, data, reason))
        self._put(reports.negative(md, data))
        return reports.discards(md)

    def handed_over(self, md: bytes, data: bytes) -> None:
        """It is stored for everybody it is for, and no single device answers for it."""
        self._put(reports.positive(md, data))

    def _put(self, report: reports.Report | None) -> None:
        if report is not None:
            put_report(self.context.batch, report)
