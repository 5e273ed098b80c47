"""Wills: kept while a connection lives, published when it ends in disorder, waiting if their queue refuses them. Pure.

A will lies on a state queue until the unit of work that publishes it. If its queue refuses the message, the message is
parked and the rest of that unit goes on, retention and local subscribers included; what is still to be put then lies on
the state queue under a key of its own, so that a kill does not lose it and the session's next will has its place.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

from gateway.broker.context import Context
from gateway.broker.marks import WaitingWill
from gateway.broker.publish.publications import Publications
from gateway.broker.refused.set_aside import Aside, aside_of
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Will
from gateway.ports.batch import Stored
from gateway.ports.state_queues import WILLS
from gateway.session.connection import Publisher
from gateway.session.record import encode_json, key_of
from gateway.session.session import Session, will_from_record, will_record

REPLAYED = "replayed"
"""In a record: the will was set aside, and is published now under a key of its own."""
WAITING = "waiting"
"""In a record: only the message for the queue is still to come."""


class Wills:
    """The wills of connected clients, and those whose delay is running."""

    def __init__(self, context: Context, publications: Publications) -> None:
        self.context = context
        self.publications = publications
        self._numbers = count(1)

    def keep(self, session: Session, will: Will | None) -> None:
        """Keep a will on a state queue while the connection lives: it is published even after a kill [MQTT5-3.1.2-7].
        Without a will none is published [MQTT3-3.1.2-12]."""
        session.will = will
        if will is not None:
            record = self._record(session, will, prop.number(will.properties, prop.WILL_DELAY_INTERVAL))
            self.context.batch.replace(WILLS, session.key, encode_json(record))

    def schedule(self, session: Session) -> None:
        """Have a will published at once, after its delay, or when the session ends, whichever is first
        [MQTT-3.1.2-8]."""
        if session.will is None:
            return
        delay = prop.number(session.will.properties, prop.WILL_DELAY_INTERVAL)
        if delay and session.expiry:
            session.will_at = self.context.now + min(delay, session.expiry)
        else:
            self.fire(session)

    def fire(self, session: Session) -> None:
        """Publish the will, in the same unit of work that removes it from the state queue [MQTT-3.1.2-10]; if it cannot
        be published, it is set aside."""
        will = session.will
        if will is None:
            return
        fire, aside = partial(self._fire, session, will), partial(self._aside, session, will)
        self.context.set_aside.run("will", session.client_id, fire, aside)
        session.will, session.will_at = None, 0.0

    def _aside(self, session: Session, will: Will) -> Aside:
        """A will to be set aside: its record as it was stored when it was deposited."""
        return aside_of(WILLS, session.key, Stored(None, b"", encode_json(self._record(session, will, 0))))

    def _fire(self, session: Session, will: Will) -> None:
        self.context.batch.replace(WILLS, session.key, None)
        record = self._record(session, will, 0) | {WAITING: True}
        key = key_of(f"{session.client_id}\0{self.context.now!r} {next(self._numbers)}")  # no client has such a name
        self._publish(session, will, WaitingWill(key, encode_json(record)))

    def drop(self, session: Session) -> None:
        """Drop the will of a client that left in order [MQTT-3.1.2-10]."""
        if session.will is not None:
            session.will = None
            self.context.batch.replace(WILLS, session.key, None)

    def restore(self, session: Session | None, key: bytes, record: dict[str, Any]) -> None:
        """Restore a will that is still stored: it belongs to a connection that did not end in order, or had to wait for
        its queue."""
        context, batch = self.context, self.context.batch
        waited, anew = record.get(WAITING, False), record.get(REPLAYED, False)
        owner = (
            session if session is not None and not waited and not anew else Session(record["client"], record["version"])
        )
        owner.user = record["user"]
        if owner is not session:
            owner.listener = record.get("listener", "")
        will = owner.will = will_from_record(record)
        delay = record["delay"]
        if waited or anew:
            batch.replace(WILLS, key, None)
            later = encode_json(record | {WAITING: True})
            self._publish(owner, will, WaitingWill(key, later), handed_over=waited)
        elif delay and session is not None and session.expiry:
            session.will_at = context.now + min(delay, session.expiry)
            batch.replace(WILLS, key, encode_json(record | context.owner_of(session)))
            context.sessions.watch_until(session, session.will_at)
        else:
            self.fire(owner)

    def republish(self, key: bytes, record: dict[str, Any]) -> None:
        """Publish what was set aside, from its record on the state queue."""
        restore = partial(self.restore, None, key, record)
        aside = partial(aside_of, WILLS, key, Stored(None, b"", encode_json(record)))
        self.context.set_aside.run("will", record["client"], restore, aside)

    def _publish(self, session: Session, will: Will, waiting: WaitingWill, *, handed_over: bool = False) -> None:
        session.will, session.will_at = None, 0.0
        publisher = Publisher(session.listener, session.client_id, session.user, session.version)
        self.publications.publish_will(publisher, will, waiting, handed_over=handed_over)

    def _record(self, session: Session, will: Will, delay: int) -> dict[str, Any]:
        return will_record(session, will, delay) | self.context.owner_of(session)
