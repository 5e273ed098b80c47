"""Stored messages of devices that are away, when their time is over: taken from the session's queue and reported. Pure.

Nothing waits for the device to come back and find its queue full of what it will never be sent [MQTT-3.3.2-5].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.sessions.asking import ask, stored_for
from gateway.errors import MQError
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


class Expiry:
    """When the next stored message of each session expires."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._due: dict[Session, float] = {}
        self._looking = False

    def watch(self, session: Session, publication: Publication) -> None:
        """A message was stored for the session."""
        if publication.expires:
            self._until(session, publication.expires)

    def forget(self, session: Session) -> None:
        """It is not this gateway's any more."""
        self._due.pop(session, None)

    def tick(self, now: float) -> None:
        """Look at the sessions whose next message is due; a connected client's are looked at when they are sent."""
        endings = self.engine.connecting.endings.under_way
        for session in [session for session, due in self._due.items() if due <= now]:
            if self._looking:
                return
            if session.over:
                self._due.pop(session, None)
            elif session.connection is None and session not in endings and not self._look(session):
                return

    def _look(self, session: Session) -> bool:
        """False: the queue manager is away."""
        engine, visits, due = self.engine, session.outflow.visits, self._due.pop(session)
        there = self._looking = True

        def answered(rows: list[Stored] | MQError) -> None:
            nonlocal there
            self._looking, there = False, not isinstance(rows, MQError)
            alone = session.outflow.visits == visits and session not in engine.connecting.endings.under_way
            if isinstance(rows, MQError) or not alone:
                self._until(session, due)  # the next tick tries again
            elif not session.over:
                self._sweep(session, rows)
            if engine.far is not None and there:
                self.tick(engine.now)

        ask(engine, lambda: list(stored_for(engine.queue_manager, session.key)), answered)
        return there

    def _until(self, session: Session, due: float) -> None:
        self._due[session] = min(due, self._due.get(session, due))

    def _sweep(self, session: Session, rows: list[Stored]) -> None:
        now = self.engine.now
        earliest = 0.0
        for stored, publication in self._waiting(session, rows):
            if not publication.expired(now):
                if publication.expires:
                    earliest = min(earliest or publication.expires, publication.expires)
                continue
            self.engine.turn.take(OUT, session.key, stored.token)
            self.engine.delivery.waiting.taken(session, len(publication.payload))
            self.engine.counters.messages_dropped["_none", "expired"] += 1
            self.engine.delivery.reporting.expired(publication)
        if earliest:
            self._until(session, earliest)

    def _waiting(self, session: Session, rows: list[Stored]) -> list[tuple[Stored, Publication]]:
        """What was never sent: what was may have arrived, and is the client's to acknowledge."""
        engine, outflow = self.engine, session.outflow
        known = {item.token for item in outflow.inflight.values()} | engine.being_taken(OUT, session.key)
        sent, begun = outflow.redelivered, outflow.last_token is None
        found: list[tuple[Stored, Publication]] = []
        for stored in rows:
            if begun and sent:
                sent -= 1
            elif begun and stored.token not in known:
                item = engine.delivery.restore(stored)
                if not item.released:
                    found.append((stored, item.publication))
            begun = begun or stored.token == outflow.last_token
        return found
