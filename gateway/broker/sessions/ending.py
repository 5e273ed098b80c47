"""Sessions that end while their queue manager is far away. Pure.

What is stored for a session goes in the unit of work that ends it, so it has to be known by then: it is read first, and
the session ends when the answer is there. Until then it is a session like any other without a client, and a CONNECT of
that client waits; nobody else does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.sessions import wills
from gateway.broker.sessions.asking import ask
from gateway.errors import MQError
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, PAGE, stored_for
from gateway.session.registry import Ending, Waiter
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_AGAIN_SECONDS = 1.0
_FLAGS = 2
"""Bytes of a stored record up to its flags."""


class Endings:
    """See the module. One session is read at a time: after an outage many may be due."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.under_way = engine.sessions.ending
        self._line: deque[Ending] = deque()
        self._reading: Ending | None = None
        self._known: dict[Session, Iterable[Stored]] = {}
        """What is stored for sessions that may end now."""

    def ready(self, session: Session, again: Waiter) -> bool:
        """Whether a session without a client can end at once; if not, `again` is called when it can."""
        if self.engine.far is None or session in self._known or not (session.durable or session.stored):
            return True
        if session in self.under_way:
            self.join(session, again)
        else:
            ending = self.under_way[session] = Ending(session, again)
            self.engine.batch.after.append(partial(self._begin, ending))  # what it had under way is committed by then
        return False

    def join(self, session: Session, again: Waiter) -> None:
        """Have `again` called too when the session can end; somebody waits for it, so it is the next one. Those who
        have given up are forgotten."""
        ending = self.under_way[session]
        ending.add_waiter(again)
        if ending in self._line:
            self._line.remove(ending)
            self._line.appendleft(ending)

    def first(self, client_id: str, clean_start: bool, again: Waiter) -> bool:
        """Whether an earlier session of a client that comes has to end first and has not; `again` is called then."""
        engine = self.engine
        session = engine.sessions.get(client_id)
        if session is not None and session in self.under_way:
            self.join(session, again)
            return True
        anew = clean_start or (session is not None and session.untold)
        if session is not None and session.connection is not None and (anew or not session.expiry):
            engine.connecting.take_over(session.connection)
            session = engine.sessions.get(client_id)
        if session is None or session.connection is not None:
            return False
        return (anew or session.is_due(engine.now)) and not self.ready(session, again)

    def when_known(self, session: Session) -> None:
        """End a session that has lost its client, at once or when it is known what is stored for it."""
        if self.ready(session, Waiter(None, lambda: self._if_alone(session))):
            self.engine.connecting.end(session)
            return
        session.expiry, session.ends_at = 0, self.engine.now
        if session.durable:
            self.engine.connecting.persist(session)

    def _if_alone(self, session: Session) -> None:
        if not session.over and session.connection is None:
            self.engine.connecting.end(session)

    def due(self, session: Session) -> None:
        """Its expiry has passed: a delayed will is published no later than that [MQTT-3.1.2-8]."""
        if self.ready(session, Waiter(None, lambda: self._if_due(session))):
            self.engine.sys_topics.expired_clients += 1
            wills.fire(self.engine, session)
            self.engine.connecting.end(session)

    def _if_due(self, session: Session) -> None:
        if not session.over and session.is_due(self.engine.now):
            self.due(session)

    def stored(self, session: Session) -> Iterable[Stored]:
        """All that is stored for a session that ends now."""
        if session in self._known:
            return self._known[session]
        return stored_for(self.engine.queue_manager, session.key) if self.engine.far is None else ()

    def _begin(self, ending: Ending) -> None:
        self._line.append(ending)
        if self._reading is None:
            self._next()

    def _next(self) -> None:
        self._reading = self._line.popleft() if self._line else None
        if self._reading is not None:
            self._read(self._reading)

    def _read(self, ending: Ending) -> None:
        engine, key, last = self.engine, ending.session.key, ending.last
        ask(engine, lambda: engine.queue_manager.fetch(OUT, key, PAGE, last), partial(self._found, ending))

    def _found(self, ending: Ending, page: list[Stored] | MQError) -> None:
        if isinstance(page, MQError):  # it is away for the moment
            self.engine.scheduler.later(_AGAIN_SECONDS, lambda: self._read(ending))
            return
        for stored in page:
            ending.add(stored)
        if len(page) == PAGE:
            ending.last = page[-1].token
            self._read(ending)
            return
        self._next()
        session = ending.session
        del self.under_way[session]
        self._known[session] = ending.stored.values()
        try:
            for again in ending.waiters:
                again.call()
        finally:
            del self._known[session]
