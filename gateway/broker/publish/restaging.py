"""QoS 2 publications that local subscribers have had while their queue has to be waited for. Pure.

The subscribers' copies are committed at once, with the turn that released the publication; its message is put some time
later. A kill in between must not let the next PUBREL hand it over once more: so its staged record is replaced, in the
unit of work of the copies, by one that says what is left to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.turn import Turn
from gateway.ports.state_queues import STAGED
from gateway.session.record import HANDED_OVER, encode_prefix

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.refused.parking import Parked
    from gateway.broker.turn import Released


def wait_for_queue(engine: Engine, turn: Turn, released: Released, parked: Parked) -> None:
    """The publication's row has gone from this turn to what is parked; so has the take of its staged record."""
    if turn.fanned.get(released) is None:
        return
    session, packet_id, token = released
    parked.turn.taken(STAGED, session.key).remove(token)
    turn.take(STAGED, session.key, token)

    def committed() -> None:
        anew = (session, packet_id, session.staged_tokens.pop(packet_id))
        parked.turn.take(STAGED, session.key, anew[2])
        parked.released[parked.released.index(released)] = anew
        for rows in parked.turn.released.values():
            rows.update({row: anew for row, one in rows.items() if one == released})

    _stage(engine, turn, released)
    turn.after.append(committed)


def stage_again(engine: Engine, turn: Turn, released: Released) -> bool:
    """The publication is to be released anew by its client, who is disconnected; False: nobody has had it."""
    if released not in turn.fanned:
        return False
    session, packet_id, _ = released
    publication = turn.fanned[released]
    if publication is None:
        return True  # one with several destinations is met more than once
    _stage(engine, turn, released)
    publication.handed_over = True
    session.inbound[packet_id] = publication
    session.releasing.discard(packet_id)
    return True


def _stage(engine: Engine, turn: Turn, released: Released) -> None:
    session, packet_id, _ = released
    publication, turn.fanned[released] = turn.fanned[released], None
    assert publication is not None  # noqa: S101 -- both callers have looked
    puts, ids = turn.staging(session)
    ids.append(packet_id)
    prefix = encode_prefix(publication, 2, publication.retain, (), HANDED_OVER)
    puts.heads.append(engine.router.state_head(prefix))
    puts.bodies.append(packet_id.to_bytes(2, "little") + publication.payload)
    turn.rows += 1
