"""What expires while it is stored: messages for devices that are away, and requests of devices that no application has
answered. Pure.

An expired message is taken from the session's queue and reported: it does not take room until the device comes back
[MQTT-3.3.2-5]. A request that says how long it lives (MQTT 5 message expiry) is kept that long, others for a week.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.bridge.request import Request
from gateway.broker.context import Context
from gateway.broker.deliver.reports import Reports
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, REQUESTS, stored_for
from gateway.session.outflow import restored
from gateway.session.publication import Publication
from gateway.session.session import Session

EVERY = 3600.0
"""Seconds between two looks at the requests."""
LONGEST = 7 * 86_400
GRACE = 60
"""Seconds an answer may be late: clocks differ."""


class Expiry:
    """When the next stored message of each session expires."""

    def __init__(self, context: Context, reports: Reports) -> None:
        self.context = context
        self.reports = reports
        self._due: dict[Session, float] = {}
        self._looking = False

    def watch(self, session: Session, publication: Publication) -> None:
        """A message was stored for the session."""
        if publication.expires:
            self._until(session, publication.expires)

    def forget(self, session: Session) -> None:
        """It is another gateway's now."""
        self._due.pop(session, None)

    def tick(self, now: float) -> None:
        """Look at the sessions whose next message is due; a connected client's are looked at when they are sent."""
        ending = self.context.sessions.ending
        for session in [session for session, due in self._due.items() if due <= now]:
            if self._looking:
                return
            if session.ended:
                self._due.pop(session, None)
            elif session.connection is None and session not in ending and not self._look(session):
                return

    def _look(self, session: Session) -> bool:
        """False: the queue manager is away."""
        context, visits, due = self.context, session.outflow.connects, self._due.pop(session)
        there = self._looking = True

        def answered(rows: list[Stored] | MQError) -> None:
            nonlocal there
            self._looking, there = False, not isinstance(rows, MQError)
            alone = session.outflow.connects == visits and session not in context.sessions.ending
            if isinstance(rows, MQError) or not alone:
                self._until(session, due)  # the next tick tries again
            elif not session.ended:
                self._take_expired(session, rows)
            if context.remote_reads is not None and there:
                self.tick(context.now)

        context.ask(lambda: list(stored_for(context.queue_manager, session.key)), answered)
        return there

    def _until(self, session: Session, due: float) -> None:
        self._due[session] = min(due, self._due.get(session, due))

    def _take_expired(self, session: Session, rows: list[Stored]) -> None:
        context, now = self.context, self.context.now
        earliest = 0.0
        for stored, publication in self._not_sent(session, rows):
            if not publication.expired(now):
                if publication.expires:
                    earliest = min(earliest or publication.expires, publication.expires)
                continue
            context.batch.take(OUT, session.key, stored.token)
            context.stored.taken(session, len(publication.payload))
            context.counters.messages_dropped["_none", "expired"] += 1
            self.reports.expired(publication)
        if earliest:
            self._until(session, earliest)

    def _not_sent(self, session: Session, rows: list[Stored]) -> list[tuple[Stored, Publication]]:
        """What was never sent: what was may have arrived, and is the client's to acknowledge."""
        outflow = session.outflow
        known = {item.token for item in outflow.inflight.values()} | self.context.being_taken(OUT, session.key)
        sent, begun = outflow.redelivered, outflow.last_token is None
        found: list[tuple[Stored, Publication]] = []
        for stored in rows:
            if begun and sent:
                sent -= 1
            elif begun and stored.token not in known:
                item = restored(stored)
                if not item.released:
                    found.append((stored, item.publication))
            begun = begun or stored.token == outflow.last_token
        return found


class Requests:
    """Looks through the stored requests now and then."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._next = 0.0

    def tick(self, now: float) -> None:
        """Forget the requests that have expired."""
        if now < self._next:
            return
        self._next = now + EVERY
        self.context.ask(lambda: list(self.context.queue_manager.load(REQUESTS)), self._forget_expired)

    def _forget_expired(self, requests: list[tuple[bytes, Stored]] | MQError) -> None:
        if isinstance(requests, MQError):  # it is away: nothing is in a hurry
            return
        for key, stored in requests:
            expiry = Request.decode(stored.data).expiry or LONGEST
            put = _put_at(stored.md)
            if put and put + min(expiry, LONGEST) + GRACE < self.context.now:
                self.context.batch.replace(REQUESTS, key, None)


def _put_at(md: bytes) -> float:
    """PutDate and PutTime as seconds since the epoch; 0 where there are none."""
    text = mqmd.text(md, mqmd.PUT_DATE) + mqmd.text(md, mqmd.PUT_TIME)
    if len(text) < 14 or not text[:14].isdecimal():
        return 0.0
    try:
        return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
