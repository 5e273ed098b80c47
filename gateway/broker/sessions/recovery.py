"""Start-up: sessions, retained messages, half-done QoS 2 exchanges and wills are restored from the state queues.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.deliver.wide import Wide
from gateway.broker.publish import qos2
from gateway.broker.publish.retained import Retained
from gateway.broker.refused.restaging import keep_name
from gateway.broker.refused.set_aside import AWAY, Aside, aside_of
from gateway.broker.sessions.stored_records import Looked, Staged
from gateway.broker.sessions.subscriptions import SubscribeHandler
from gateway.broker.sessions.wills import Wills
from gateway.broker.targets import staged_name
from gateway.errors import NewerState, Refused, StoreError
from gateway.ports.batch import Stored
from gateway.ports.counters import UnitKind
from gateway.ports.state_queues import FAN_OUT, OUT, RETAINED, SESSIONS, STAGED, TOGETHER, WILLS, stored_for
from gateway.session.record import HANDED_OVER, decode_json, decode_publication, key_of
from gateway.session.session import NEVER, Session

_PASSING = (*AWAY, NewerState)
Row = TypeVar("Row")


class Owned(Protocol):
    """What recovery asks where several gateways share the state queues (see `Ownership`)."""

    def is_alone(self) -> bool:
        """Whether no other gateway may own a session."""

    def is_own(self, record: dict[str, Any]) -> bool:
        """Whether a stored session or will is this gateway's."""

    def is_nobodys(self, record: dict[str, Any]) -> bool:
        """Whether nothing but records is left of the owner of a stored session. It is this gateway's unless there is
        another one of the same client."""

    def claim(self, session: Session, record: dict[str, Any]) -> None:
        """Write this gateway as the owner into the record of a session that names another, or none."""

    def expired_owners(self) -> list[str]:
        """Gateways whose lease has expired and whose sessions and wills are this gateway's now."""

    def recovered(self, expired: list[str]) -> None:
        """Called when all that is this gateway's, and what these others left, has been recovered."""


class Found(NamedTuple):
    """What has been restored so far."""

    sessions: dict[bytes, Session]
    """The sessions, by key."""
    number: dict[str, int]
    """How many of each kind, for the log."""
    nobodys: dict[bytes, Stored]
    """The last record of each session of which nobody knows the owner, by key."""


class Recovery:
    """Restores sessions from their records."""

    def __init__(
        self, context: Context, retained: Retained, expiry: Expiry, subscribe: SubscribeHandler, wills: Wills,
        wide: Wide,
    ) -> None:  # fmt: skip
        self.context = context
        self.retained = retained
        self.expiry = expiry
        self.subscribe = subscribe
        self.wills = wills
        self.wide = wide
        self.on_read: Callable[[], None] = lambda: None
        """Told of each record that is read: there may be many, and IBM MQ is asked for each."""
        self._queue = SESSIONS
        """Where what is being read stands."""

    def _each(self, queue: str, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._queue = queue
            self.on_read()
            yield row

    def recover(self, owned: Owned | None) -> dict[str, int]:
        """Restore everything that is this gateway's; returns how much there was, for the log. Wills of connections that
        a kill had ended are queued. Raises StoreError if a newer gateway has left something."""
        try:
            return self._recover(owned)
        except NewerState as error:
            raise StoreError(
                f"what is stored on {self._queue} is not for this release: {error}. Start that release again, or "
                "restore a backup that this one has made (`mqgate restore`); if no newer one has run here, a program "
                f"has put there what is no record: `mqgate queue browse {self._queue}` shows it. Nothing was changed"
            ) from error

    def _recover(self, owned: Owned | None) -> dict[str, int]:
        context, manager = self.context, self.context.queue_manager
        expired = owned.expired_owners() if owned is not None else []
        found = Found({}, {"sessions": 0, "retained": 0, "staged": 0, "wills": 0, "orphans": 0}, {})
        alone, units = owned is None or owned.is_alone(), context.set_aside
        lost: dict[bytes, list[tuple[bytes, Stored]]] = {}
        for key, stored in self._each(SESSIONS, manager.load(SESSIONS)):
            call, aside = partial(self._session, owned, found, stored), partial(_aside, owned, SESSIONS, key, stored)
            if not units.run("session", key.hex(), call, aside, _PASSING):
                lost[key] = []
        for key, stored in found.nobodys.items():
            call, aside = partial(self._nobodys, owned, found, stored), partial(_aside, owned, SESSIONS, key, stored)
            if not units.run("session", key.hex(), call, aside, _PASSING):
                lost[key] = []
        for key, stored in self._each(RETAINED, manager.load(RETAINED)):
            self._record("retained", RETAINED, key, stored, partial(self._retained, found, stored))
        for key, stored in self._each(STAGED, manager.load(STAGED)):
            self._record("staged", STAGED, key, stored, partial(self._staged, found, lost, alone, key, stored))
        self._queue = FAN_OUT
        self.wide.recover(found.number)  # before the wills, which come behind it
        for key, stored in self._each(WILLS, manager.load(WILLS)):
            call, aside = partial(self._will, owned, found, key, stored), partial(_aside, owned, WILLS, key, stored)
            units.run("will", key.hex(), call, aside, _PASSING)
        for key, staged in lost.items():
            self._set_aside_with_session(key, staged)
        if owned is not None:
            owned.recovered(expired)
        context.counters.spool_recovered_messages += sum(found.number.values())
        return found.number

    def _record(self, what: UnitKind, queue: str, key: bytes, stored: Stored, call: Callable[[], object]) -> bool:
        """Handle a record as a unit: what nobody can read is set aside, but not what a newer gateway can read. Returns
        whether the record was handled."""
        aside = partial(aside_of, queue, key, stored)
        return self.context.set_aside.run(what, key.hex(), call, aside, _PASSING)

    def _session(self, owned: Owned | None, found: Found, stored: Stored) -> None:
        record = decode_json(stored.data)
        if owned is not None and owned.is_nobodys(record):
            key = key_of(record["client"])
            self._remove_older(key, found.nobodys.get(key))
            found.nobodys[key] = stored
        elif owned is None or owned.is_own(record):
            session = self.restore_session(record)
            if owned is not None:
                owned.claim(session, record)
            found.sessions[session.key] = session
            found.number["sessions"] += 1

    def _nobodys(self, owned: Owned | None, found: Found, stored: Stored) -> None:
        record = decode_json(stored.data)
        key = key_of(record["client"])
        if key in found.sessions:  # its client has begun anew since
            self._remove_older(key, stored)
        elif owned is None or owned.is_own(record):
            self._session(owned, found, stored)

    def _remove_older(self, key: bytes, stored: Stored | None) -> None:
        if stored is not None:
            self.context.batch.take(SESSIONS, key, stored.token)

    def _retained(self, found: Found, stored: Stored) -> None:
        self.retained.restore(decode_publication(stored.data)[0])
        found.number["retained"] += 1

    def _staged(
        self, found: Found, lost: dict[bytes, list[tuple[bytes, Stored]]], alone: bool, key: bytes, stored: Stored
    ) -> None:
        owner = key_of(qos2.read_staged(stored)[0].client_id) if key == TOGETHER else key
        session = found.sessions.get(owner)
        if session is not None:
            restore_staged(session, read_staged(stored))
            found.number["staged"] += 1
            if key != session.staged_key:
                self._stage_anew(session, key, stored)
        elif owner in lost:
            lost[owner].append((key, stored))
        else:
            found.number["orphans"] += 1
            if alone:  # its session had ended with the process: the client begins anew and sends it again
                self.context.batch.take(STAGED, key, stored.token)

    def _stage_anew(self, session: Session, key: bytes, stored: Stored) -> None:
        """Stage a message under the session's own key: an older gateway staged it under another, or one that shared the
        state queues."""
        batch, (publication, packet_id, known) = self.context.batch, qos2.read_named(stored)
        name = known or staged_name(key, stored.token)
        batch.take(STAGED, key, stored.token)
        del session.staged_tokens[packet_id]
        flags = HANDED_OVER if publication.handed_over else 0
        qos2.put_record(self.subscribe.router, batch, session, packet_id, publication, flags, name)
        batch.after.append(lambda: keep_name(session, session.staged_tokens.get(packet_id), name))

    def _will(self, owned: Owned | None, found: Found, key: bytes, stored: Stored) -> None:
        record = decode_json(stored.data)
        if owned is None or owned.is_own(record):
            self.wills.restore(found.sessions.get(key), key, record)
            found.number["wills"] += 1

    def _set_aside_with_session(self, key: bytes, staged: list[tuple[bytes, Stored]]) -> None:
        """Set aside what is stored for a session whose record is set aside, and what its client has staged, so that the
        client's next session does not find it, and a replay brings all of it back."""
        context, why = self.context, Refused("its session is set aside", 0)
        for where, stored in staged:
            context.set_aside.keep("staged", key.hex(), why, partial(aside_of, STAGED, where, stored))
        for stored in stored_for(context.queue_manager, key):
            context.set_aside.keep("stored", key.hex(), why, partial(aside_of, OUT, key, stored))

    def restore_session(self, record: dict[str, Any], looked: Looked | None = None) -> Session:
        """Restore a stored session, without its client. `looked`: what is stored for it, if that has been looked at."""
        context, session = self.context, Session.from_record(record)
        if record["connected"]:  # its connection ended with the process: the time runs from now
            session.ends_at = 0.0 if session.expiry == NEVER else context.now + session.expiry
        context.sessions.add(session)
        context.batch.undone_by(self._forget, session)
        for subscribed in list(session.subscriptions.values()):
            self.subscribe.add(session, subscribed.options, subscribed.identifier)
        if record.get("retained"):
            self.subscribe.owe(session, record["retained"])
            session.outflow.owes = True
        if looked is None:
            looked = Looked()
            if context.queue_manager.depth(OUT, session.key):
                looked.look(self._each(OUT, stored_for(context.queue_manager, session.key)))
        self._stored(session, looked)
        session.outflow.unfetched = session.stored > 0
        sent = context.limits.at(session.listener).max_inflight if record["connected"] else record["sent"]
        session.outflow.redelivered = min(sent, session.stored)  # what comes from now on has not been sent before
        if looked.count:
            session.outflow.resume_ids(end_of_ids(looked.ids) if looked.ids else 0)
        if session.ends_at:
            context.sessions.watch_until(session, session.ends_at)
        return session

    def _forget(self, session: Session) -> None:
        """Remove a session that could not be restored as a whole."""
        self.context.sessions.remove(session)
        self.context.stored.emptied(session)
        self.expiry.forget(session)
        self.subscribe.router.unsubscribe_all(session)

    def _stored(self, session: Session, looked: Looked) -> None:
        """Count what is stored for a session; what nobody can read is set aside."""
        unread = sum(
            not self._record("stored", OUT, session.key, stored, partial(decode_publication, stored.data))
            for stored in looked.unread
        )
        self.context.stored.added(session, looked.size, looked.count - unread)
        session.reports |= looked.reports
        if looked.expires:
            self.expiry.until(session, looked.expires)


def _aside(owned: Owned | None, queue: str, key: bytes, stored: Stored) -> Aside:
    """The record of a session or will that has failed, to be set aside. Raises Refused if it is not known to be this
    gateway's: other gateways read these queues too, and it stays for its owner."""
    if owned is not None and not owned.is_alone() and not owned.is_own(decode_json(stored.data)):
        raise Refused("another gateway may own it", 0)
    return aside_of(queue, key, stored)


def end_of_ids(used: set[int]) -> int:
    """The packet identifier given last. Stored messages were numbered one after the other, wrapping round at 65,535, so
    counting goes on where the widest gap begins."""
    ordered = sorted(used)
    gaps = zip(ordered, [*ordered[1:], ordered[0] + 0xFFFF], strict=True)
    return max(gaps, key=lambda gap: gap[1] - gap[0])[0]


def read_staged(stored: Stored) -> Staged:
    """Read a staged message."""
    return Staged(*qos2.read_named(stored), stored.token)


def restore_staged(session: Session, staged: Staged) -> None:
    """Restore a message that is between PUBREC and PUBREL."""
    publication, packet_id, name, token = staged
    session.inbound[packet_id] = publication
    session.staged_tokens[packet_id] = token
    session.restored = session.restored or {}
    session.restored[token] = name
