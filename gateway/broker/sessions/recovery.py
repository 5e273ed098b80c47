"""Start-up: sessions, retained messages, half-done QoS 2 and wills come back from the state queues. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.publish import qos2
from gateway.broker.publish.retained import Retained
from gateway.broker.sessions.subscriptions import SubscribeHandler
from gateway.broker.sessions.wills import Wills
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, RETAINED, SESSIONS, STAGED, WILLS, stored_for
from gateway.session.outflow import restored
from gateway.session.record import decode_json, decode_publication
from gateway.session.session import NEVER, Session


class Owned(Protocol):
    """What recovery asks where several gateways share the state queues (see `Ownership`)."""

    def is_alone(self) -> bool:
        """Whether no other gateway may own a session."""

    def is_own(self, record: dict[str, Any]) -> bool:
        """Whether a stored session or will is this gateway's."""

    def claim(self, session: Session, record: dict[str, Any]) -> None:
        """Write into a session's record that this gateway is its owner, where it says otherwise."""

    def expired_owners(self) -> list[str]:
        """Gateways whose lease has expired and whose sessions and wills are this gateway's now."""

    def recovered(self, expired: list[str]) -> None:
        """All that is this gateway's has been recovered, with what these others left."""


class Recovery:
    """Brings sessions back from their records."""

    def __init__(
        self, context: Context, retained: Retained, expiry: Expiry, subscribe: SubscribeHandler, wills: Wills
    ) -> None:
        self.context = context
        self.retained = retained
        self.expiry = expiry
        self.subscribe = subscribe
        self.wills = wills

    def recover(self, owned: Owned | None) -> dict[str, int]:
        """Bring everything back that is this gateway's; how much there was, for the log. Queues wills of connections
        that a kill had ended."""
        context, load = self.context, self.context.queue_manager.load
        expired = owned.expired_owners() if owned is not None else []
        number = {"sessions": 0, "retained": 0, "staged": 0, "wills": 0, "orphans": 0}
        alone = owned is None or owned.is_alone()
        by_key: dict[bytes, Session] = {}
        for _, stored in load(SESSIONS):
            record = decode_json(stored.data)
            if owned is None or owned.is_own(record):
                session = self.restore_session(record)
                by_key[session.key] = session
                number["sessions"] += 1
                if owned is not None:
                    owned.claim(session, record)
        for _, stored in load(RETAINED):
            publication, _, _, _ = decode_publication(stored.data)
            self.retained.restore(publication)
            number["retained"] += 1
        for key, stored in load(STAGED):
            if (staging := by_key.get(key)) is not None:
                restore_staged(staging, stored)
                number["staged"] += 1
                continue
            number["orphans"] += 1
            if alone:  # its session had ended with the process: the client begins anew and sends it again
                context.batch.take(STAGED, key, stored.token)
        for key, stored in load(WILLS):
            record = decode_json(stored.data)
            if owned is None or owned.is_own(record):
                self.wills.restore(by_key.get(key), key, record)
                number["wills"] += 1
        if owned is not None:
            owned.recovered(expired)
        context.counters.spool_recovered_messages += sum(number.values())
        return number

    def restore_session(self, record: dict[str, Any], rows: Collection[Stored] | None = None) -> Session:
        """A stored session, without its client; `rows`: what is stored for it, where that is known."""
        context, session = self.context, Session.from_record(record)
        if record["connected"]:  # its connection ended with the process: the time runs from now
            session.ends_at = 0.0 if session.expiry == NEVER else context.now + session.expiry
        context.sessions.add(session)
        for subscribed in list(session.subscriptions.values()):
            self.subscribe.add(session, subscribed.options, subscribed.identifier)
        depth = context.queue_manager.depth(OUT, session.key) if rows is None else len(rows)
        context.stored.added(session, 0, depth)
        session.outflow.unfetched = session.stored > 0
        sent = context.limits.at(session.listener).max_inflight if record["connected"] else record["sent"]
        session.outflow.redelivered = min(sent, session.stored)  # what comes from now on has not been sent before
        if session.stored:
            found = stored_for(context.queue_manager, session.key) if rows is None else rows
            session.outflow.resume_ids(self._last_id(session, found))
        remaining = session.ends_at - context.now if session.ends_at else 0.0
        if session.ends_at:
            session_expiry, session.expiry = session.expiry, max(0, int(remaining))
            context.sessions.watch(session, context.now)
            session.expiry = session_expiry
        return session

    def _last_id(self, session: Session, rows: Iterable[Stored]) -> int:
        """The packet id given last: counting goes on from there."""
        used: set[int] = set()
        for stored in rows:
            item = restored(stored)
            used.add(item.packet_id)
            self.expiry.watch(session, item.publication)
            self.context.stored.added(session, len(item.publication.payload), 0)
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
