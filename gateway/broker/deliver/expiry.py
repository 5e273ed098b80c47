"""What expires while it is stored: messages for devices that are away, and requests of devices that no application has
answered. Pure.

An expired message is taken off the session's queue and reported: it takes no room until the device comes back
[MQTT-3.3.2-5]. A request that says how long it lives (MQTT 5 message expiry) is kept that long, others for a week.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from math import inf

from gateway.bridge.request import Request
from gateway.broker.context import Context
from gateway.broker.deliver.reports import Reports
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, REQUESTS, stored_for
from gateway.session.outflow import restored
from gateway.session.publication import Publication
from gateway.session.session import Session

EVERY = 3600.0
"""Seconds between two looks at the requests."""
PASSED = 1000
"""Sessions with nothing due that are passed over in one step: a hundred thousand may have messages that expire."""
REQUESTS_AT_ONCE = 200
"""Requests that are read before others get their turn."""
LONGEST = 7 * 86_400
GRACE = 60
"""Seconds an answer may be late: clocks differ."""

Requested = Iterator[tuple[bytes, Stored]]


class Expiry:
    """Knows when the next stored message of each session expires, and takes expired messages off their queues."""

    def __init__(self, context: Context, reports: Reports) -> None:
        self.context = context
        self.reports = reports
        self._due: dict[Session, float] = {}
        self._looking = False
        self._ahead: Iterator[Session] = iter(())
        """The sessions that are still to be looked at, of those that had something to expire when the look began."""
        self._under_way: set[Session] = set()
        """Sessions whose messages are being looked at."""

    def watch(self, session: Session, publication: Publication) -> None:
        """Note that a message was stored for a session."""
        if publication.expires:
            self.until(session, publication.expires)

    def forget(self, session: Session) -> None:
        """Forget a session that is another gateway's now."""
        self._due.pop(session, None)

    def tick(self, now: float) -> Iterator[None]:
        """Look at the sessions whose next message is due, one at each step, passing over the others; the messages of a
        connected client are looked at when they are sent. While a remote queue manager is asked about one, those behind
        it wait: the answer goes on with them, so that each is passed over once however many are due."""
        if self._looking:
            return
        self._ahead = iter(list(self._due))
        yield from self._go_on(now)

    def _go_on(self, now: float) -> Iterator[None]:
        for number, session in enumerate(self._ahead):
            is_due = self._due.get(session, inf) <= now
            if is_due or number % PASSED == 0:
                yield
            if not is_due:
                continue
            if session.ended:
                self._due.pop(session, None)
            elif self._is_away(session) and session not in self._under_way and not self._look(session):
                return
            if self._looking:
                return

    def _is_away(self, session: Session) -> bool:
        return session.connection is None and session not in self.context.sessions.ending

    def _look(self, session: Session) -> bool:
        """Look at what is stored for a session. Returns False if the queue manager is away."""
        context, visits, due = self.context, session.outflow.connects, self._due.pop(session, 0.0)
        there = self._looking = True

        def answered(rows: Iterable[Stored] | MQError) -> None:
            nonlocal there
            self._looking, there = False, not isinstance(rows, MQError)
            if isinstance(rows, MQError) or session.outflow.connects != visits or session in context.sessions.ending:
                self.until(session, due)  # the next tick tries again
            elif not session.ended:
                work = partial(self._take_expired, session, rows, due)
                context.slices.run(f"expired messages of {session.key.hex()}", work)
            if context.remote_reads is not None and there:
                context.slices.run("expiry", partial(self._go_on, context.now))

        def read() -> Iterable[Stored]:
            rows = stored_for(context.queue_manager, session.key)
            return rows if context.remote_reads is None else list(rows)

        context.ask(read, answered)
        return there

    def until(self, session: Session, due: float) -> None:
        """Note that something stored for a session expires at `due`."""
        self._due[session] = min(due, self._due.get(session, due))

    def _take_expired(self, session: Session, rows: Iterable[Stored], due: float) -> Iterator[None]:
        """Take a session's expired messages, looking at one message at each step, as long as the client stays away."""
        context, visits = self.context, session.outflow.connects
        earliest = 0.0
        self._under_way.add(session)
        try:
            for found in self._not_sent(session, rows):
                yield
                if session.outflow.connects != visits or not self._is_away(session) or session.ended:
                    earliest = due
                    break
                if found is None:
                    continue
                stored, publication = found
                if not publication.expired(context.now):
                    if publication.expires:
                        earliest = min(earliest or publication.expires, publication.expires)
                    continue
                context.batch.take(OUT, session.key, stored.token)
                context.stored.taken(session, len(publication.payload))
                context.counters.messages_dropped["_none", "expired"] += 1
                self.reports.expired(publication)
        except MQError:  # the next tick tries again
            earliest = due
        finally:
            self._under_way.discard(session)
        if earliest and not session.ended:
            self.until(session, earliest)

    def _not_sent(self, session: Session, rows: Iterable[Stored]) -> Iterator[tuple[Stored, Publication] | None]:
        """The stored messages that were never sent; None for one that was, as it may have arrived, and is the client's
        to acknowledge."""
        outflow = session.outflow
        known = {item.token for item in outflow.items()} | self.context.being_taken(OUT, session.key)
        sent, begun = outflow.redelivered, outflow.last_token is None
        for stored in rows:
            found: tuple[Stored, Publication] | None = None
            if begun and sent:
                sent -= 1
            elif begun and stored.token not in known:
                item = restored(stored)
                if not item.released:
                    found = stored, item.publication
            begun = begun or stored.token == outflow.last_token
            yield found


class Requests:
    """Looks through the stored requests now and then, and forgets those that have expired."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._next = 0.0
        self._pages = 0
        """How many pages have been looked at since the process began."""

    def tick(self, now: float) -> None:
        """Forget the requests that have expired."""
        if now < self._next:
            return
        self._next = now + EVERY
        self.context.ask(lambda: iter(self.context.queue_manager.load(REQUESTS)), self._read)

    def _read(self, requests: Requested | MQError) -> None:
        """Read the next requests."""
        if not isinstance(requests, MQError):  # it is away: nothing is in a hurry
            self.context.ask(lambda: list(islice(requests, REQUESTS_AT_ONCE)), partial(self._loaded, requests))

    def _loaded(self, requests: Requested, some: list[tuple[bytes, Stored]] | MQError) -> None:
        if some and not isinstance(some, MQError):
            self._pages += 1
            self.context.slices.run(f"requests {self._pages}", lambda: self._forget_expired(requests, some))

    def _forget_expired(self, requests: Requested, some: list[tuple[bytes, Stored]]) -> Iterator[None]:
        """Look at one request at each step, then go on to the next page."""
        for key, stored in some:
            yield
            self.context.set_aside.record("stored", REQUESTS, key, stored, partial(self._forget, key, stored))
        self.context.scheduler.later(0.0, lambda: self._read(requests))

    def _forget(self, key: bytes, stored: Stored) -> None:
        """Forget a request unless it may still be answered."""
        expiry, put = Request.decode(stored.data).expiry or LONGEST, _put_at(stored.md)
        if put and put + min(expiry, LONGEST) + GRACE < self.context.now:
            self.context.batch.replace(REQUESTS, key, None)


def _put_at(md: bytes) -> float:
    """PutDate and PutTime as seconds since the epoch; 0 if there are none."""
    text = mqmd.text(md, mqmd.PUT_DATE) + mqmd.text(md, mqmd.PUT_TIME)
    if len(text) < 14 or not text[:14].isdecimal():
        return 0.0
    try:
        return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
