"""How connections and sessions end. Pure.

What is stored for a session is taken in the unit of work that ends it, so it has to be known by then. Where the queue
manager is remote it is read first, and the session ends when the answer arrives. Until then it is a session like any
other without a client, and a CONNECT of that client waits; nobody else does.

What a member of shared subscriptions has not acknowledged when its session ends is given to another member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.deliver.reports import Reports
from gateway.broker.publish.kept_routes import emptied
from gateway.broker.publish.qos2 import StagedRuns
from gateway.broker.publish.route import Shared
from gateway.broker.publish.router import Router
from gateway.broker.put_off import PutOff
from gateway.broker.refused.parking import Parking
from gateway.broker.sessions.connack import Connacks
from gateway.broker.sessions.wills import Wills
from gateway.errors import MQError, ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.topics import is_shared, split_shared
from gateway.ports.batch import Listing, Stored
from gateway.ports.counters import DisconnectReason
from gateway.ports.state_queues import OUT, PAGE, SESSIONS, STAGED, stored_for
from gateway.routing.trie import FilterTrie
from gateway.session.connection import AUTHENTICATING, CLOSED, ONLINE, Connection
from gateway.session.outflow import restored
from gateway.session.publication import Publication
from gateway.session.record import is_shared_copy
from gateway.session.registry import Ending, Waiter
from gateway.session.session import Session

_AGAIN_SECONDS = 1.0
_STOPPING = "the gateway is stopping"
GIVING_SECONDS = 0.01
"""Time in one turn for giving what ended sessions leave to other members of their shared subscriptions."""

Unacknowledged = tuple[str, Publication]
"""The shared subscription that a message came through, and the message."""


class Endings:
    """Ends connections and sessions. Stored messages are read for one session at a time: after an outage many may be
    due."""

    def __init__(
        self,
        context: Context,
        router: Router,
        fan_out: FanOut,
        reports: Reports,
        staged_runs: StagedRuns,
        parking: Parking,
        wills: Wills,
        connacks: Connacks,
        put_off: PutOff,
    ) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.reports = reports
        self.staged_runs = staged_runs
        self.parking = parking
        self.wills = wills
        self.connacks = connacks
        self.put_off = put_off
        self.give_elsewhere: Callable[[str, Publication], None] = lambda _name, _publication: None
        """Gives what was for a member of a shared subscription to a member at another gateway."""
        self.is_in_hand: Callable[[Connection], bool] = lambda _connection: False
        """Whether something of a connection has been read in this very moment; set by the hub."""
        self.expired_clients = 0
        """Sessions that have expired since the process began."""
        self._left: deque[deque[Unacknowledged]] = deque()
        """What ended sessions leave in memory to other members of shared subscriptions, by session."""
        self._to_read: deque[Ending] = deque()
        self._reading: Ending | None = None
        self._known: dict[Session, Iterable[Stored]] = {}
        """What is stored for sessions that are ending at this moment."""

    # -- connections --

    def disconnect(self, connection: Connection, packet: Any) -> None:
        """Take a client's DISCONNECT: its will is not published if it leaves in order [MQTT-3.14.4-3]; any other
        reason, errors included, leaves the will to be published [MQTT-3.1.2-8]."""
        context, session, record = self.context, connection.session, packet[1]
        if connection.state == ONLINE:
            wanted = record.properties.get(prop.SESSION_EXPIRY_INTERVAL)
            if isinstance(wanted, int):
                if session.expiry == 0 and wanted:
                    context.protocol_error(
                        connection, ProtocolError("Session Expiry Interval set at DISCONNECT, 0 at CONNECT")
                    )
                    return
                session.expiry = min(wanted, context.limits.session_expiry_max)
            if record.reason == reasons.SUCCESS:
                self.wills.drop(session)
                context.overruns.forget(session.client_id)
        self._close_when_committed(connection)

    def _close_when_committed(self, connection: Connection) -> None:
        """End a connection whose client has sent DISCONNECT. What that changes (no will, its session's expiry) is
        durable before the socket closes, so that what a client concludes from the close stays true even if the gateway
        is killed."""
        connection.close_reason = "normal"
        self.context.write(connection)
        connection.leaving = not self.parking.withholds(connection)
        self.ended(connection, "normal")
        self.context.close_when_committed(connection)

    def leave(self, connection: Connection) -> None:
        """Close a connection because the gateway stops."""
        if connection.state == AUTHENTICATING:  # no DISCONNECT before CONNACK [MQTT-3.14.0-1]
            self.connacks.refuse(connection, reasons.SERVER_UNAVAILABLE, _STOPPING)
        else:
            self.hand_back(connection, "draining", _STOPPING)

    def hand_back(self, connection: Connection, why: DisconnectReason, text: str) -> None:
        """Close a connection and tell 5.0 clients to come back elsewhere; what they have published is still
        acknowledged."""
        context = self.context
        moved = context.limits.server_reference
        reason = reasons.USE_ANOTHER_SERVER if moved else reasons.SERVER_SHUTTING_DOWN
        if any(connection in one.replies for one in (context.running, *context.waiting)):
            context.batch.after.append(lambda: context.refuse(connection, reason, why, text))
        else:
            context.refuse(connection, reason, why, text)

    def must_release_first(self, session: Session) -> bool:
        """Whether a PUBREL of the session is not committed yet. What it releases may still be parked, and is then put
        from here: it must not be released elsewhere as well. As the client is elsewhere by now, its connection here is
        closed and releases nothing more."""
        if not self.context.being_taken(STAGED, session.staged_key):
            return bool(session.releasing)
        if session.connection is not None:
            self.take_over(session.connection)
        return True

    def is_heard(self, connection: Connection | None) -> bool:
        """Whether all that the client of a connection has sent so far is taken, except for packets that take many
        turns."""
        if connection is None:
            return True
        unread = connection.link.unread() or self.is_in_hand(connection)
        return not (connection.early or unread or self.put_off.is_behind(connection))

    def take_over(self, older: Connection) -> None:
        """Close the older connection of a client that connects again [MQTT5-3.1.4-3]."""
        self.context.refuse(older, reasons.SESSION_TAKEN_OVER, "taken_over", "the same client connected again")

    def ended(self, connection: Connection, why: DisconnectReason) -> None:
        """Note that a connection has ended, for whatever reason: only now may its session end [MQTT-4.1.0-1]
        [MQTT3-4.1.0-2]."""
        context = self.context
        if connection.state == CLOSED:
            return
        was_online = connection.state == ONLINE
        connection.state = CLOSED
        context.sessions.asked(connection)
        context.keep_of_stranger(connection, 0)
        connection.early.clear()
        connection.exchange = connection.refusal = None
        connection.out.clear()
        if not connection.leaving:
            context.behind_connack(connection)
        context.connections.discard(connection)
        connection.caches = emptied(context, connection.caches)
        self.parking.forget(connection)
        self.connacks.forget(connection)
        context.counters.mqtt_disconnects[connection.link.listener, why] += 1
        if connection.leaving and not connection.connack_sent:
            context.batch.after.append(partial(context.on_end, connection, why))  # it is told of its beginning first
        else:
            context.on_end(connection, why)
        session = connection.session
        if not was_online or session.connection is not connection:
            return
        session.connection = None
        session.outflow.drop_memory()
        self.wills.schedule(session)
        if session.expiry == 0:
            self.wills.fire(session)
            self.end_when_read(session)
        else:
            context.sessions.watch(session, context.now)
            context.persist(session)

    def forget(self, connection: Connection) -> None:
        """Remove a connection whose ending met a defect. Its session stays as it is stored, and counts at the next
        start as that of a client that has gone away."""
        connection.state = CLOSED
        self.context.set_aside.run("call", "who asks", lambda: self.context.sessions.asked(connection))
        self.context.keep_of_stranger(connection, 0)
        connection.out.clear()
        self.context.behind_connack(connection)
        self.context.connections.discard(connection)
        connection.caches = emptied(self.context, connection.caches)
        session = connection.session
        if session.connection is connection:
            session.connection = None
            if not session.durable:
                self.context.sessions.remove(session)

    # -- sessions --

    def end(self, session: Session) -> None:
        """End a session: nothing of it is kept but what it had retained [MQTT3-3.1.2-7] [MQTT5-4.1.0-2]."""
        context, batch = self.context, self.context.batch
        left = deque(self._unacknowledged(session))
        session.ended, session.outflow.retained = True, None
        self.unsubscribe_all(session)
        context.sessions.remove(session)
        for token in session.staged_tokens.values():
            batch.take(STAGED, session.staged_key, token)
        self.staged_runs.ended(session)
        if session.durable:
            batch.replace(SESSIONS, session.key, None)
        if session.durable or session.stored:  # what was stored while it was durable is taken too
            self._take_stored(session)
        if session.durable:  # in the unit of work that takes them
            self._give_to_others(left, inf)
        elif left:
            self._left.append(left)
            if len(self._left) == 1:
                self._give_some()

    def unsubscribe_all(self, session: Session) -> None:
        """Remove all subscriptions of a session."""
        self.router.unsubscribe_all(session)
        session.subscriptions.clear()

    def _take_stored(self, session: Session) -> None:
        """Take everything that is stored for a session off its queue."""
        context, batch = self.context, self.context.batch
        being_taken = context.being_taken(OUT, session.key)
        manager, far = context.queue_manager, context.remote_reads is not None
        if not (session.reports or far) and isinstance(manager, Listing):  # there may be gigabytes of it
            tokens = manager.tokens(OUT, session.key)
            batch.taken(OUT, session.key).extend(token for token in tokens if token not in being_taken)
            context.stored.emptied(session)
            return
        for stored in self._stored(session):
            if stored.token not in being_taken:
                batch.take(OUT, session.key, stored.token)
                self.reports.forgotten(stored)
        context.stored.emptied(session)

    def tick(self) -> Iterator[None]:
        """Publish wills and end sessions that are due, one session at each step."""
        context = self.context
        for session in context.sessions.due(context.now):
            if session.will_at and session.will_at <= context.now:
                self.wills.fire(session)
            if session.ends_at and session.ends_at <= context.now:
                context.set_aside.run("session", session.client_id, partial(self.expire, session))
            yield

    def expire(self, session: Session) -> None:
        """End a session whose expiry has passed: a delayed will is published no later than that [MQTT-3.1.2-8]."""
        if self._ready(session, Waiter(None, lambda: self._expire_if_due(session))):
            self.expired_clients += 1
            self.wills.fire(session)
            self.end(session)

    def _expire_if_due(self, session: Session) -> None:
        if not session.ended and session.is_due(self.context.now):
            self.expire(session)

    # -- what is stored for a session is read before it ends --

    def must_end_first(self, client_id: str, clean_start: bool, waiter: Waiter) -> bool:
        """Whether an earlier session of a client that connects has to end first and has not; the waiter is called when
        it has."""
        context, session = self.context, self.context.sessions.get(client_id)
        if session is not None and session in context.sessions.ending:
            self._wait(session, waiter)
            return True
        anew = clean_start or (session is not None and session.unconfirmed)
        if session is not None and session.connection is not None and (anew or not session.expiry):
            self.take_over(session.connection)
            session = context.sessions.get(client_id)
        if session is None or session.connection is not None:
            return False
        return (anew or session.is_due(context.now)) and not self._ready(session, waiter)

    def end_when_read(self, session: Session) -> None:
        """End a session that has lost its client: at once, or when what is stored for it is known."""
        if self._ready(session, Waiter(None, lambda: self._end_if_alone(session))):
            self.end(session)
            return
        session.expiry, session.ends_at = 0, self.context.now
        if session.durable:
            self.context.persist(session)

    def _end_if_alone(self, session: Session) -> None:
        if not session.ended and session.connection is None:
            self.end(session)

    def _ready(self, session: Session, waiter: Waiter) -> bool:
        """Whether a session without a client can end at once; if not, the waiter is called when it can."""
        context = self.context
        if context.remote_reads is None or session in self._known or not (session.durable or session.stored):
            return True
        if session in context.sessions.ending:
            self._wait(session, waiter)
        else:
            ending = context.sessions.ending[session] = Ending(session, waiter)
            context.batch.after.append(partial(self._begin, ending))  # what it had under way is committed by then
        return False

    def _wait(self, session: Session, waiter: Waiter) -> None:
        """Add a waiter for a session that is to be read; that session is read next."""
        ending = self.context.sessions.ending[session]
        ending.add_waiter(waiter)
        if ending in self._to_read:
            self._to_read.remove(ending)
            self._to_read.appendleft(ending)

    def _stored(self, session: Session) -> Iterable[Stored]:
        """All that is stored for a session that ends now."""
        if session in self._known:
            return self._known[session]
        context = self.context
        return stored_for(context.queue_manager, session.key) if context.remote_reads is None else ()

    def _begin(self, ending: Ending) -> None:
        self._to_read.append(ending)
        if self._reading is None:
            self._next()

    def _next(self) -> None:
        self._reading = self._to_read.popleft() if self._to_read else None
        if self._reading is not None:
            self._read(self._reading)

    def _read(self, ending: Ending) -> None:
        context, key, last = self.context, ending.session.key, ending.last
        context.ask(lambda: context.queue_manager.fetch(OUT, key, PAGE, last), partial(self._take_page, ending))

    def _take_page(self, ending: Ending, page: list[Stored] | MQError) -> None:
        if isinstance(page, MQError):  # it is away for the moment
            self.context.scheduler.later(_AGAIN_SECONDS, lambda: self._read(ending))
            return
        for stored in page:
            ending.add(stored)
        if len(page) == PAGE:
            ending.last = page[-1].token
            self._read(ending)
            return
        self._next()
        session = ending.session
        del self.context.sessions.ending[session]
        self._known[session] = ending.stored.values()
        try:
            for waiter in ending.waiters:
                waiter.call()
        finally:
            del self._known[session]

    # -- shared subscriptions --

    def _unacknowledged(self, session: Session) -> list[Unacknowledged]:
        """What came to an ending session through shared subscriptions and was not acknowledged. A QoS 2 message that
        was sent may have arrived, and is given to nobody else [MQTT-4.8.2-5]."""
        self.reports.unanswered(session)
        filters = {name for name in session.subscriptions if is_shared(name)}
        if not filters:
            return []
        outflow = session.outflow
        left = [(item.share, item.publication) for item in outflow.items() if item.share and item.qos == 1]
        left += [
            (item.share, item.publication) for item in outflow.pending_items() if item.share and item.token is None
        ]
        if session.durable:
            left += self._stored_unacknowledged(session, filters)
        return left

    def _stored_unacknowledged(self, session: Session, filters: set[str]) -> list[Unacknowledged]:
        known = {item.token for item in session.outflow.items()} | self.context.being_taken(OUT, session.key)
        left: list[Unacknowledged] = []
        shares: FilterTrie[str] = FilterTrie()
        for name in filters:
            shares.put(split_shared(name)[1].split("/"), name)
        by_topic: dict[bytes, str] = {}
        for stored in self._stored(session):
            if stored.token in known or not is_shared_copy(stored.data):
                continue
            item = restored(stored)
            topic = item.publication.topic
            if topic not in by_topic:  # which of the session's shared subscriptions such a copy belongs to
                by_topic[topic] = next(iter(shares.match(topic.decode())), "")
            if by_topic[topic] and not item.released:
                left.append((by_topic[topic], item.publication))
        return left

    def _give_some(self) -> None:
        """Give away some of what was left in memory. In slices, so that of many members that leave together none is
        given what the next one to leave would have to pass on."""
        context = self.context
        context.now = context.scheduler.now()
        until = context.scheduler.monotonic() + GIVING_SECONDS
        while self._left and context.scheduler.monotonic() <= until:
            self._give_to_others(self._left[0], until)
            if not self._left[0]:
                self._left.popleft()
        if self._left:
            context.scheduler.later(0.0, self._give_on)

    def _give_on(self) -> None:
        self._give_some()
        self.context.flush()

    def _give_to_others(self, left: deque[Unacknowledged], until: float) -> None:
        """Give messages to another member of the same shared subscription, if there is one; as many as there is time
        for."""
        monotonic = self.context.scheduler.monotonic
        others: dict[tuple[str, bytes], Shared | None] = {}
        while left and monotonic() <= until:
            name, publication = left.popleft()
            way = name, publication.topic
            if way not in others:
                group = self.router.subscriptions.group(name)
                others[way] = None if group is None else self.router.shared(group, publication.topic.decode())
            shared = others[way]
            if shared is not None:
                self.fan_out.copy_to_member(shared, publication, {})
            else:
                self.give_elsewhere(name, publication)
