"""Reports the gateway owes to MQ applications about messages on their way to devices. Pure.

Confirmations of arrival and delivery are the queue manager's. Ours are the positive and negative action notification,
exception and expiration: put in the unit of work of what they report, at most once each, because with it the stored
message they are made from is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.bridge import reports
from gateway.broker.refused.failures import put_report
from gateway.ports.batch import Stored
from gateway.rules.feedback import Feedback
from gateway.session.publication import Publication
from gateway.session.record import REPORTS, decode_publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


class Reporting:
    """What became of a message, told to whoever asked."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def positive(self, publication: Publication) -> None:
        """The device has it: PUBACK or PUBCOMP (QoS 0: it is on the wire)."""
        if publication.report:
            self._put(reports.positive(publication.report, publication.payload))

    def negative(self, publication: Publication, why: Feedback) -> None:
        """The device refused it, or can never have it."""
        if publication.report:
            self._put(reports.negative(publication.report, publication.payload))
            self._put(reports.exception(publication.report, publication.payload, why))

    def unanswered(self, session: Session) -> None:
        """A session is over: what it had in memory only has not reached its device."""
        for item in session.outflow.waiting():
            if item.publication.report and item.token is None:
                self.negative(item.publication, Feedback.SESSION_ENDED)

    def forgotten(self, stored: Stored) -> None:
        """A stored message goes with its session."""
        if stored.data[1] & REPORTS:
            self.negative(decode_publication(stored.data)[0], Feedback.SESSION_ENDED)

    def expired(self, publication: Publication) -> None:
        """Its time was over before the device came."""
        if publication.report:
            self._put(reports.expired(publication.report, publication.payload))

    def undeliverable(self, md: bytes, data: bytes, reason: int) -> bool:
        """A message from a queue that leads nowhere. True: it asks to be discarded, not dead-lettered."""
        self._put(reports.exception(md, data, reason))
        self._put(reports.negative(md, data))
        return reports.discards(md)

    def handed_over(self, md: bytes, data: bytes) -> None:
        """It is stored for everybody it is for, and no single device answers for it."""
        self._put(reports.positive(md, data))

    def _put(self, made: reports.Report | None) -> None:
        if made is not None:
            put_report(self.engine.turn, made)
