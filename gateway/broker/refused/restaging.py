"""QoS 2 publications that local subscribers have had while their queue has to be waited for. Pure.

The copies are committed at once, with the batch that released the publication; its message is put some time later. A
kill in between must not let the next PUBREL hand it over once more: so its staged record is replaced, in the unit of
work of the copies, by one that says what is left to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.batch import Batch
from gateway.broker.publish.qos2 import put_record
from gateway.broker.publish.router import Router
from gateway.ports.batch import Token
from gateway.ports.state_queues import STAGED
from gateway.session.record import HANDED_OVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.marks import Released
    from gateway.broker.refused.parked import Parked
    from gateway.ports.batch import Scheduler
    from gateway.session.session import Session


class Release:
    """Where a publication stays that is released and cannot be set aside: staged, with nothing of it put. Its client is
    disconnected, and releases it again."""

    queue = STAGED

    def __init__(self, released: Released, restage: Callable[[Batch, Released], None]) -> None:
        self.released, self.restage = released, restage
        self.key = released[0].staged_key

    def leave(self, batch: Batch, _token: Token) -> None:
        """Undo it in the batch that was to set it aside."""
        for destination in list(batch.destinations.values()):
            rows = [row for row, released in destination.released.items() if released == self.released]
            if rows:
                batch.without(destination, rows)
        self.restage(batch, self.released)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """It waits for its client."""


def wait_for_queue(router: Router, batch: Batch, released: Released, parked: Parked) -> None:
    """Replace the staged record of a publication that was parked, in the batch with its subscribers' copies."""
    if batch.fanned.get(released) is None:
        return
    session, packet_id, token = released
    parked.batch.taken(STAGED, session.staged_key).remove(token)
    batch.take(STAGED, session.staged_key, token)

    def committed() -> None:
        anew = (session, packet_id, session.staged_tokens.pop(packet_id))
        holder = parked
        while released not in holder.released and holder.successor is not None:  # cut off meanwhile
            holder = holder.successor
        holder.batch.take(STAGED, session.staged_key, anew[2])
        holder.released[holder.released.index(released)] = anew
        holder.batch.rename_released(released, anew)
        keep_name(session, anew[2], name)

    name = _stage(router, batch, released)
    batch.after.append(committed)


def stage_again(router: Router, batch: Batch, released: Released) -> bool:
    """Stage a publication again for its client, who is disconnected, to release; False: no subscriber has had it."""
    if released not in batch.fanned:
        return False
    session, packet_id, _ = released
    publication = batch.fanned[released]
    if publication is None:
        return True  # done already: it has several destinations
    name = _stage(router, batch, released)
    batch.after.append(lambda: keep_name(session, session.staged_tokens.get(packet_id), name))
    publication.handed_over = True
    session.inbound[packet_id] = publication
    session.end_release(packet_id)
    return True


def _stage(router: Router, batch: Batch, released: Released) -> bytes:
    """Returns what markers may call it."""
    session, packet_id, _ = released
    publication, batch.fanned[released] = batch.fanned[released], None
    assert publication is not None  # noqa: S101 -- both callers have looked
    name = router.context.name_in_markers(released)
    put_record(router, batch, session, packet_id, publication, HANDED_OVER, name)
    return name


def keep_name(session: Session, token: Token, name: bytes) -> None:
    """Markers on targets may call a message so that is staged under this token now."""
    if name and token is not None:
        session.restored = session.restored or {}
        session.restored[token] = name
