"""The stored messages of a session on their way back into memory, a page at a time, as they were stored. Pure.

A queue manager that is far away is asked, and the page is sent on when it is there. What is stored meanwhile is not in
memory either: it is behind the page, and the next question finds it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from gateway.broker.sessions.asking import ask
from gateway.errors import MQError
from gateway.ports.batch import Stored, Token
from gateway.ports.state_queues import OUT
from gateway.session.outflow import Item
from gateway.session.record import Decoding
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_PAGE = 200
_AGAIN_SECONDS = 1.0


def more(engine: Engine, session: Session, out: list[bytes]) -> bool:
    """Fetch what the window has room for; whether there is more to be sent, or fetched, at once."""
    outflow = session.outflow
    if outflow.fetching:
        return False
    if engine.far is not None:
        _ask(engine, session)
        return False
    try:
        page = engine.queue_manager.fetch(OUT, session.key, _PAGE, outflow.last_token)
    except MQError:
        _later(engine, session)
        return False
    take_in(engine, session, page, engine.being_taken(OUT, session.key), out)
    return outflow.behind or bool(outflow.pending)  # a page may hold nothing that can be sent


def _later(engine: Engine, session: Session) -> None:
    """It is away: try again, unless the client has gone meanwhile."""
    outflow, visits = session.outflow, session.outflow.visits
    outflow.fetching = True  # nobody else has to try

    def again() -> None:
        if outflow.visits == visits:
            outflow.fetching = False
            engine.now = engine.scheduler.now()
            engine.refill[session] = None
            engine.flush()

    engine.scheduler.later(_AGAIN_SECONDS, again)


def _ask(engine: Engine, session: Session) -> None:
    """Ask for the next page."""
    outflow, manager = session.outflow, engine.queue_manager
    outflow.fetching, outflow.missed = True, False
    after, visits, going = outflow.last_token, outflow.visits, engine.being_taken(OUT, session.key)

    def answered(page: list[Stored] | MQError) -> None:
        connection = session.connection
        if outflow.visits != visits or connection is None:
            return
        outflow.fetching = False
        if isinstance(page, MQError):
            _later(engine, session)
            return
        out: list[bytes] = []
        take_in(engine, session, page, going | engine.being_taken(OUT, session.key), out)
        if out:
            engine.send_all(connection, out)
        if page or outflow.missed:
            engine.refill[session] = None
        # what is stored after the look is not offered, and what is being committed may have been seen already
        outflow.behind = outflow.behind or outflow.missed or engine.stores_for(session)

    ask(engine, lambda: manager.fetch(OUT, session.key, _PAGE, after), answered)


def take_in(engine: Engine, session: Session, page: list[Stored], going: Container[Token], out: list[bytes]) -> None:
    """The next stored messages of a session. One released before a restart goes on with PUBREL."""
    outflow = session.outflow
    decoding, allowed = Decoding(), None
    offered: list[Item] = []
    for stored in page:
        outflow.last_token = stored.token
        if stored.token in going:
            continue
        item = engine.delivery.restore(stored, decoding)
        under_way = outflow.inflight.get(item.packet_id)
        if under_way is not None and under_way.token in {None, stored.token}:
            continue
        topic = item.publication.topic
        if not item.released and topic is not allowed:
            if not engine.delivery.allowed(session, item):
                continue
            allowed = topic
        if outflow.redelivered:
            outflow.redelivered -= 1
            item.dup = True
        if item.released:
            outflow.inflight[item.packet_id] = item
            outflow.sent_token = stored.token
            out.append(outflow.pubrel(item.packet_id, again=True))
        else:
            offered.append(item)
    if offered:
        outflow.pending.extend(offered)
    outflow.behind = len(page) == _PAGE
