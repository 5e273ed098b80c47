"""Wills: kept while a connection lives, published when it ends in disorder, waiting where their queue refuses. Pure.

A will lies on a state queue until the unit of work that publishes it. If its queue refuses, its message is parked and
the rest of that unit goes on, retention and local subscribers included; what is still to be put then lies on the state
queue under a key of its own, so that a kill does not lose it and the session's next will has its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker.batch import WaitingWill
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Will
from gateway.ports.state_queues import WILLS
from gateway.session.connection import Publisher
from gateway.session.record import encode_json, key_of
from gateway.session.session import Session, will_from_record, will_record

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

WAITING = "waiting"
"""Says in a record that only the message for the queue is still to come."""


def keep(engine: Engine, session: Session, will: Will | None) -> None:
    """The will lies on a state queue while the connection lives: it is published even after a kill. [MQTT5-3.1.2-7]
    Without one none is published [MQTT3-3.1.2-12]."""
    session.will = will
    if will is not None:
        engine.batch.replace(WILLS, session.key, encode_json(_record(engine, session, _delay_of(session))))


def schedule(engine: Engine, session: Session) -> None:
    """A will is due at once, or after its delay, or when the session ends, whichever is first [MQTT-3.1.2-8]."""
    if session.will is None:
        return
    delay = _delay_of(session)
    if delay and session.expiry:
        session.will_at = engine.now + min(delay, session.expiry)
    else:
        fire(engine, session)


def fire(engine: Engine, session: Session) -> None:
    """Publish the will, in the same unit of work that forgets it [MQTT-3.1.2-10]."""
    if session.will is None:
        return
    engine.batch.replace(WILLS, session.key, None)
    record = _record(engine, session, 0) | {WAITING: True}
    key = key_of(f"{session.client_id}\0{engine.now!r}")  # no client has such a name
    _publish(engine, session, WaitingWill(key, encode_json(record)))


def drop(engine: Engine, session: Session) -> None:
    """The client left in order [MQTT-3.1.2-10]."""
    if session.will is not None:
        session.will = None
        engine.batch.replace(WILLS, session.key, None)


def restore(engine: Engine, session: Session | None, key: bytes, record: dict[str, Any]) -> None:
    """A will that is still stored belongs to a connection that did not end in order, or had to wait for its queue."""
    waited = record.get(WAITING, False)
    owner = session if session is not None and not waited else Session(record["client"], record["version"])
    owner.user = record["user"]
    if owner is not session:
        owner.listener = record.get("listener", "")
    owner.will = will_from_record(record)
    delay = record["delay"]
    if waited:
        engine.batch.replace(WILLS, key, None)
        _publish(engine, owner, WaitingWill(key, encode_json(record)), handed_over=True)
    elif delay and session is not None and session.expiry:
        session.will_at = engine.now + min(delay, session.expiry)
        if engine.owning is not None:
            record |= engine.owning.name(session)
        engine.batch.replace(WILLS, key, encode_json(record))
        engine.sessions.watch_until(session, session.will_at)
    else:
        fire(engine, owner)


def _publish(engine: Engine, session: Session, waiting: WaitingWill, *, handed_over: bool = False) -> None:
    will, session.will, session.will_at = session.will, None, 0.0
    assert will is not None  # noqa: S101 -- the callers have looked
    publisher = Publisher(session.listener, session.client_id, session.user, session.version)
    engine.publications.publish_will(publisher, will, waiting, handed_over=handed_over)


def _delay_of(session: Session) -> int:
    delay = session.will.properties.get(prop.WILL_DELAY_INTERVAL, 0) if session.will is not None else 0
    return delay if isinstance(delay, int) else 0


def _record(engine: Engine, session: Session, delay: int) -> dict[str, Any]:
    assert session.will is not None  # noqa: S101 -- the callers have looked
    record = will_record(session, session.will, delay)
    return record | engine.owning.name(session) if engine.owning is not None else record
