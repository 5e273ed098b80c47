"""A copy of a publication that is acknowledged whatever becomes of the copy. Pure.

Its publisher does not send it again, so a defect must not cost it. For a session that is stored it is set aside, or
stored as any other copy where the queue for that takes no more: it is tried again when the client comes back. A session
that is not stored ends with its connection, and what it was promised with it [MQTT-4.8.2-5]. If neither can be done the
process ends before anything of the batch is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.refused.set_aside import Aside
from gateway.broker.undo import Undo
from gateway.ports.state_queues import OUT
from gateway.session.record import SHARED, STORED_IDS, encode_prefix

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.deliver.fan_out import FanOut
    from gateway.broker.publish.route import Receiver
    from gateway.ports.batch import Scheduler, Token
    from gateway.session.publication import Publication
    from gateway.session.session import Session


class _StoredInstead:
    """Where a copy stays that cannot be set aside: among what is stored for its session."""

    queue = OUT

    def __init__(self, fan_out: FanOut, session: Session, head: bytes, body: bytes, size: int) -> None:
        self.fan_out, self.session, self.key = fan_out, session, session.key
        self.head, self.body, self.size = head, body, size

    def leave(self, batch: Batch, _token: Token) -> None:
        """Store it with the batch that was to set it aside, unless its session has ended meanwhile."""
        if self.session.ended:
            return
        puts = batch.state_puts(OUT, self.key)
        puts.heads.append(self.head)
        puts.bodies.append(self.body)
        batch.rows += 1
        self.fan_out.context.stored.added(self.session, self.size)
        batch.deliveries.append((self.session, None, puts, len(puts.heads) - 1, 1))

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """It is fetched when it can be sent."""


def copy_promised(fan_out: FanOut, receiver: Receiver, publication: Publication, share: str = "") -> bool:
    """Copy a publication that is acknowledged. Returns False if the session has no room, or has met a defect."""
    context, session = fan_out.context, receiver.session
    undo, qos = Undo(context.batch), min(publication.qos, receiver.qos)
    try:
        copied = fan_out.copy(receiver, publication, {}, share)
    except Exception as error:
        undo.take_back(context.batch)
        if not qos:
            context.set_aside.keep("stored", session.client_id, error)
        elif session.durable:
            kept = context.set_aside.keep(
                "stored", session.client_id, error, lambda: _aside(fan_out, receiver, publication, share)
            )
            if not kept:
                context.on_fatal(error)
                raise
        elif session.connection is not None:
            context.defect(session.connection, error)
        return False
    undo.keep()
    return copied


def _aside(fan_out: FanOut, receiver: Receiver, publication: Publication, share: str) -> Aside:
    """The copy as its session would have stored it."""
    session, qos = receiver.session, min(publication.qos, receiver.qos)
    retain = publication.retain and receiver.retain_as_published
    prefix = encode_prefix(publication, qos, retain, receiver.sub_ids, SHARED if share else 0)
    body = STORED_IDS[session.outflow.number()] + publication.payload
    size, head = len(publication.payload), fan_out.router.state_head(prefix)
    stored = _StoredInstead(fan_out, session, head, body, size)
    return Aside(b"", prefix + body, {"queue": OUT, "key": session.key}, (stored, None))
