"""Stored messages of devices that are away, when their time is over: taken from the session's queue and reported. Pure.

Nothing waits for the device to come back and find its queue full of what it will never be sent [MQTT-3.3.2-5].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.ports.batch import Stored, Token
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

OUT = "MQGATE.OUT"
_PAGE = 500


class Expiry:
    """When the next stored message of each session expires."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._due: dict[Session, float] = {}

    def watch(self, session: Session, publication: Publication) -> None:
        """A message was stored for the session."""
        if publication.expires:
            self._due[session] = min(publication.expires, self._due.get(session, publication.expires))

    def forget(self, session: Session) -> None:
        """It is not this gateway's any more."""
        self._due.pop(session, None)

    def tick(self, now: float) -> None:
        """Look at the sessions whose next message is due; a connected client's are looked at when they are sent."""
        for session in [session for session, due in self._due.items() if due <= now]:
            if session.over:
                del self._due[session]
            elif session.connection is None:
                try:
                    self._sweep(session, now)
                except MQError:  # the queue manager is away: the next look tries again
                    return

    def _sweep(self, session: Session, now: float) -> None:
        earliest = 0.0
        for stored, publication in self._waiting(session):
            if not publication.expired(now):
                if publication.expires:
                    earliest = min(earliest or publication.expires, publication.expires)
                continue
            self.engine.turn.take(OUT, session.key, stored.token)
            self.engine.delivery.waiting.taken(session, len(publication.payload))
            self.engine.counters.messages_dropped["_none", "expired"] += 1
            self.engine.delivery.reporting.expired(publication)
        if earliest:
            self._due[session] = earliest
        else:
            self._due.pop(session, None)

    def _waiting(self, session: Session) -> list[tuple[Stored, Publication]]:
        """What was never sent: what was may have arrived, and is the client's to acknowledge."""
        engine, outflow = self.engine, session.outflow
        known = {item.token for item in outflow.inflight.values()} | engine.being_taken(OUT, session.key)
        sent, begun = outflow.redelivered, outflow.last_token is None
        found: list[tuple[Stored, Publication]] = []
        last: Token | None = None
        while page := engine.queue_manager.fetch(OUT, session.key, _PAGE, last):
            for stored in page:
                if begun and sent:
                    sent -= 1
                elif begun and stored.token not in known:
                    item = engine.delivery.restore(stored)
                    if not item.released:
                        found.append((stored, item.publication))
                begun = begun or stored.token == outflow.last_token
            last = page[-1].token
        return found
