"""Shared subscriptions whose member leaves: what it has not taken goes to another one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.mqtt.topics import SHARE_PREFIX, is_shared
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT
from gateway.session.outflow import restored
from gateway.session.publication import Publication
from gateway.session.record import is_shared_copy
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

Orphan = tuple[str, Publication]
"""The shared subscription a message came through, and the message."""


def orphans(engine: Engine, session: Session, rows: Callable[[Session], Iterable[Stored]]) -> list[Orphan]:
    """What came to an ending session through shared subscriptions and was not acknowledged. A QoS 2 message that was
    sent may have arrived, and goes to nobody else [MQTT-4.8.2-5]."""
    engine.reports.unanswered(session)
    filters = {name for name in session.subscriptions if is_shared(name)}
    if not filters:
        return []
    outflow = session.outflow
    found = [(item.share, item.publication) for item in outflow.inflight.values() if item.share and item.qos == 1]
    found += [(item.share, item.publication) for item in outflow.pending if item.share and item.token is None]
    if session.durable:
        found += _stored(engine, session, filters, rows(session))
    return found


def _stored(engine: Engine, session: Session, filters: set[str], rows: Iterable[Stored]) -> list[Orphan]:
    known = {item.token for item in session.outflow.inflight.values()} | engine.being_taken(OUT, session.key)
    found: list[Orphan] = []
    for stored in rows:
        if stored.token in known or not is_shared_copy(stored.data):
            continue
        item = restored(stored)
        share = _share_of(engine, item.publication, filters)
        if share and not item.released:
            found.append((share, item.publication))
    return found


def _share_of(engine: Engine, publication: Publication, filters: set[str]) -> str:
    """Which of the session's shared subscriptions a stored copy belongs to."""
    groups = engine.router.subscriptions.match(publication.topic.decode()).groups
    names = (f"{SHARE_PREFIX}{group.name}/{group.filter}" for group in groups)
    return next((name for name in names if name in filters), "")


def hand_over(engine: Engine, left: list[Orphan]) -> None:
    """To another member of the same shared subscription, if there is one."""
    for name, publication in left:
        topic = publication.topic.decode()
        for group in engine.router.subscriptions.match(topic).groups:
            shared = engine.router.shared(group, topic)
            if shared.name == name:
                engine.fan_out.copy_to_member(shared, publication, {})
