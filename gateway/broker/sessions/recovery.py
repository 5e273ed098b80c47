"""Start-up: sessions, retained messages, half-done QoS 2 and wills come back from the state queues. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from gateway.broker.publish import qos2
from gateway.broker.sessions import wills
from gateway.broker.sessions.subscribing import Subscribing
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, RETAINED, SESSIONS, STAGED, WILLS, stored_for
from gateway.session.outflow import restored
from gateway.session.record import decode_json, decode_publication
from gateway.session.session import NEVER, Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


def recover(engine: Engine) -> dict[str, int]:
    """Bring everything back that is this gateway's; what was found, for the log. Queues wills of connections that a
    kill had ended."""
    found = {"sessions": 0, "retained": 0, "staged": 0, "wills": 0, "orphans": 0}
    owning = engine.owning
    heritage = owning.owners.heritage() if owning is not None else []
    alone = owning is None or not owning.owners.peers()
    by_key: dict[bytes, Session] = {}
    for _, stored in engine.queue_manager.load(SESSIONS):
        record = decode_json(stored.data)
        if owning is None or owning.is_own(record):
            session = restore_session(engine, record)
            by_key[session.key] = session
            found["sessions"] += 1
            if owning is not None:
                owning.sign(session, record)
    for _, stored in engine.queue_manager.load(RETAINED):
        publication, _, _, _ = decode_publication(stored.data)
        engine.retained.restore(publication)
        found["retained"] += 1
    for key, stored in engine.queue_manager.load(STAGED):
        if (staging := by_key.get(key)) is not None:
            restore_staged(staging, stored)
            found["staged"] += 1
            continue
        found["orphans"] += 1
        if alone:  # its session had ended with the process: the client begins anew and sends it again
            engine.batch.take(STAGED, key, stored.token)
    for key, stored in engine.queue_manager.load(WILLS):
        record = decode_json(stored.data)
        if owning is None or owning.is_own(record):
            wills.restore(engine, by_key.get(key), key, record)
            found["wills"] += 1
    if owning is not None:
        if heritage:
            owning.settle(heritage)
        owning.attend()
    engine.counters.spool_recovered_messages += sum(found.values())
    return found


def restore_session(engine: Engine, record: dict[str, Any], rows: Collection[Stored] | None = None) -> Session:
    """A stored session, without its client; `rows`: what is stored for it, where that is known."""
    session = Session.from_record(record)
    if record["connected"]:  # its connection ended with the process: the time runs from now
        session.ends_at = 0.0 if session.expiry == NEVER else engine.now + session.expiry
    engine.sessions.add(session)
    subscribing: Subscribing = engine.subscribing
    for subscribed in list(session.subscriptions.values()):
        subscribing.add(session, subscribed.options, subscribed.identifier)
    depth = engine.queue_manager.depth(OUT, session.key) if rows is None else len(rows)
    engine.stored.added(session, 0, depth)
    session.outflow.behind = session.stored > 0
    sent = engine.limits.at(session.listener).max_inflight if record["connected"] else record["sent"]
    session.outflow.redelivered = min(sent, session.stored)  # what comes from now on has not been sent before
    if session.stored:
        found = stored_for(engine.queue_manager, session.key) if rows is None else rows
        session.outflow.resume_ids(_last_id(engine, session, found))
    remaining = session.ends_at - engine.now if session.ends_at else 0.0
    if session.ends_at:
        session_expiry, session.expiry = session.expiry, max(0, int(remaining))
        engine.sessions.watch(session, engine.now)
        session.expiry = session_expiry
    return session


def _last_id(engine: Engine, session: Session, rows: Iterable[Stored]) -> int:
    """The packet id given last: counting goes on behind it."""
    used: set[int] = set()
    for stored in rows:
        item = restored(stored)
        used.add(item.packet_id)
        engine.expiry.watch(session, item.publication)
        engine.stored.added(session, len(item.publication.payload), 0)
    return end_of_ids(used)


def end_of_ids(used: set[int]) -> int:
    """The packet id given last: what is stored was numbered one after the other, round 65,535, so counting goes on
    where the widest gap begins."""
    ordered = sorted(used)
    gaps = zip(ordered, [*ordered[1:], ordered[0] + 0xFFFF], strict=True)
    return max(gaps, key=lambda gap: gap[1] - gap[0])[0]


def restore_staged(session: Session, stored: Stored) -> None:
    """A QoS 2 publication between PUBREC and PUBREL."""
    publication, packet_id = qos2.read_staged(stored)
    session.inbound[packet_id] = publication
    session.staged_tokens[packet_id] = stored.token
