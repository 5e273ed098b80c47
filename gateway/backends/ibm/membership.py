"""One gateway among several on the same state queues: its lease, the others', and messages between them.

A thread with a connection of its own waits for messages, renews the lease and looks at those of the others. Whatever
takes many calls is interrupted to renew the lease: a gateway with much to do must not be taken for one that is gone. If
another gateway's lease has expired, this one takes over from it in one unit of work: its entry, and the marker of every
connection of its workers. Each unit of work of a gateway takes its worker's marker, so a gateway that was only slow or
cut off commits nothing more once another gateway has taken over from it; and as long as such a unit is open, none can.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from gateway.backends.ibm import mailbox
from gateway.backends.ibm.connection import Connection, state_put
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import NewId
from gateway.backends.ibm.leases import RENEWALS, Entry, Lease, Roster, decode, encode
from gateway.backends.ibm.mailbox import Mailbox
from gateway.backends.ibm.structures import get_options, key_of, match_md, msg_id_of
from gateway.backends.ibm.unit_of_work import Superseded, marker_key
from gateway.backends.ibm.unit_parts import largest
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import explain
from gateway.ports.ownership import READS, Message, entry_key, lease_key, message_key
from gateway.ports.state_queues import GATEWAYS, MARKERS
from gateway.queue_manager.journal import failpoint

_WAIT_MILLISECONDS, _SOON_MILLISECONDS = 500, 50
_BROWSE = mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES
_LOOK = _BROWSE | mq.MQGMO_ACCEPT_TRUNCATED_MSG
_FIRST = get_options(_LOOK | mq.MQGMO_BROWSE_FIRST, mq.MQMO_NONE)
_NEXT = get_options(_LOOK | mq.MQGMO_BROWSE_NEXT, mq.MQMO_NONE)
_TAKE_KEYED = get_options(_BROWSE | mq.MQGMO_SYNCPOINT, mq.MQMO_MATCH_CORREL_ID)
_ENTRY_LENGTH = 4096
"""More than an entry or a lease takes; of other messages no more is needed."""
_ALONE_LEASES = 2
"""For how many lengths of a lease a lease may be there without an entry."""


class Membership:
    """The lease of this gateway. `join` and `leave` are called by its owner; the rest happens in the thread."""

    def __init__(
        self,
        driver: Driver,
        settings: ConnectSettings,
        new_id: NewId,
        instance: str,
        workers: int,
        seconds: float,
        *,
        backoff: Backoff,
        told: Callable[[str], None],
        superseded: Callable[[str], None],
    ) -> None:
        """`superseded` is called once, in the thread, when this gateway has to end."""
        self.instance = instance
        self.seconds = seconds
        self.on_message: Callable[[Message], None] = lambda _message: None
        self.on_change: Callable[[], None] = lambda: None
        """This and the next are called in the thread."""
        self._driver = driver
        self._settings = settings
        self._new_id = new_id
        self._number = workers
        """The number of this thread's own marker."""
        self._own = Entry(instance, b"", workers + 1, reads=READS)
        self._roster = Roster(instance, seconds)
        self._backoff = backoff
        self._told = told
        self._superseded = superseded
        self._lock = threading.Lock()
        self._peers: frozenset[str] = frozenset()
        self._expired: tuple[str, ...] = ()
        self._known: frozenset[str] = frozenset()
        """All gateways that have an entry, also those that have a successor."""
        self._strangers: set[str] = set()
        """Gateways that have said hello and have not been seen on the queue yet."""
        self._reads: dict[str, int] = {}
        """What others read of what is put for them."""
        self._settled: set[str] = set()
        self._eldest = False
        """Whether what names no owner belongs to this gateway: no other one ran when it joined."""
        self._taken_over_at: dict[str, float] = {}
        self._welcomed: set[str] = set()
        self._connection: Connection | None = None
        self._missing_since = 0.0
        """When its own entry could not be seen for the first time; 0: it was there."""
        self._alone: dict[tuple[str, bytes], float] = {}
        """Gateways and MsgIds of leases without an entry, and since when there has been none."""
        self._due = self._renewal_due = 0.0
        self._mailbox = Mailbox(instance, self._deal_with)
        self._wait = min(_WAIT_MILLISECONDS, int(seconds * 1000 / (4 * RENEWALS)))
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="mq-membership", daemon=True)

    # Asked by the reactor

    def peers(self) -> frozenset[str]:
        """Returns every other gateway that may own a session."""
        with self._lock:
            return self._peers | self._strangers

    def knows(self, gateway: str) -> bool:
        """Returns whether a gateway has an entry, or has said hello."""
        with self._lock:
            return gateway in self._known or gateway in self._strangers

    def reads(self, gateway: str) -> int:
        """Returns what another gateway reads of what is put for it; 0 if it has not said so."""
        with self._lock:
            return self._reads.get(gateway, 0)

    def leases(self) -> dict[str, float]:
        """Returns for how many seconds each other gateway's lease has been unchanged."""
        return self._roster.ages(time.monotonic())

    def silence(self) -> float:
        """Returns for how many seconds the queue manager has answered nothing, if that is longer than a lease;
        otherwise 0."""
        seconds = self._roster.silence(time.monotonic())
        return seconds if seconds > self.seconds else 0.0

    def expired_owners(self) -> list[str]:
        """Returns the gateways whose successor this one is and that are still named as owners."""
        with self._lock:
            nobodys = [""] if self._eldest else []
            return nobodys + [owner for owner in self._expired if owner not in self._settled]

    def taken_over(self, owner: str) -> None:
        """Note that nothing that is stored names this owner any more."""
        with self._lock:
            if owner:
                self._settled.add(owner)
            else:
                self._eldest = False

    # Coming and going

    def join(self) -> None:
        """Take a lease and wait until everybody knows of it: from then on this gateway is asked before a device's
        session is given to anybody else. The workers have their markers. Raises MQError."""
        try:
            self._join()
        except Superseded as error:
            raise MQError(mq.MQRC_OBJECT_IN_USE, f"{error}: start again") from None

    def _join(self) -> None:
        connection = self._ready()
        connection.input(MARKERS)
        with suppress(MQError):  # it may not be allowed to ask
            self._mailbox.most = largest(int(connection.session.inquire("", mq.MQIA_MAX_UNCOMMITTED_MSGS)))
        self._put(connection, lease_key(self.instance), b"{}")
        self._exchange_marker(connection)
        self._put(connection, entry_key(self.instance), encode(self._own, socket.gethostname()))
        connection.session.commit()
        self._look(connection)
        begun = time.monotonic()
        until = begun + 3 * self.seconds + 5
        while strange := self.peers() - self._welcomed:
            if time.monotonic() > until:
                text = f"gateway {min(strange)} renews its lease and does not answer: end it, then start again"
                raise MQError(mq.MQRC_OBJECT_IN_USE, text)
            self._take_over_abandoned(connection, ended=time.monotonic() - begun > self.seconds)
            self._mailbox.read(connection, _SOON_MILLISECONDS)
            if time.monotonic() >= self._due:
                self._look(connection)
        living = [entry.instance for entry in self._entries(connection)[0] if not entry.successor]
        self._eldest = living[:1] == [self.instance]
        self.thread.start()

    def _take_over_abandoned(self, connection: Connection, *, ended: bool) -> None:
        """Take over from gateways that are seen there although nobody else is connected: they have stopped, and no
        lease has to be waited for. `ended`: their markers have been waited for, in case the queue manager was still
        backing out; now it is assumed that those that are not there have expired."""
        left = [
            entry for entry in self._entries(connection)[0] if entry.instance != self.instance and not entry.successor
        ]
        if left and int(connection.session.inquire(MARKERS, mq.MQIA_OPEN_INPUT_COUNT)) <= self._own.workers:
            for entry in left:
                self._take_over(connection, entry, ended=ended)
            self._note(self._roster.known(self._entries(connection)[0], time.monotonic()))

    def stop(self) -> None:
        """End after the wait in progress; `leave` does the rest."""
        self._stopping.set()

    def leave(self, *, settled: bool = True) -> None:
        """Say that this gateway has ended, so that others need not wait for its lease to expire. The thread has ended.
        Not `settled`: a unit of work of a worker may still be open, and what it has got cannot be seen; then the others
        wait until its markers are there."""
        with suppress(MQError, Superseded):
            if self._connection is not None and settled:
                self._renew(self._connection, b'{"over":true}')
                for peer in self.peers():
                    self._write(self._connection, peer, "left")
                self._connection.session.commit()
        self._drop()

    # The thread

    def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                connection = self._ready()
                if time.monotonic() >= self._due:
                    self._look(connection)
                self._mailbox.read(connection, self._wait, lambda: time.monotonic() >= self._renewal_due)
                self._roster.heard(time.monotonic())
                attempt = 0
            except Superseded as error:
                self._superseded(str(error))
                return
            except MQError as error:
                self._told(explain(error.reason, f"the lease of this gateway: {error}"))
                self._drop()
                self._stopping.wait(self._backoff.delay(attempt, random.random()))  # noqa: S311  jitter
                attempt += 1

    def _ready(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._driver.connect(self._settings), self._new_id)
            if self.thread.is_alive():
                self._connection.input(MARKERS)
                self._roster.interrupted()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.session.leave()

    def _look(self, connection: Connection) -> None:
        """Renew the lease, look at the others, and take over from those whose lease has expired."""
        now = time.monotonic()
        self._due = now + self.seconds / RENEWALS
        self._renewal_due = now
        self._stay(connection)
        self._tidy(connection, now)
        began = time.monotonic()
        entries, leases = self._entries(connection, partial(self._stay, connection))
        now = time.monotonic()
        self._check(entries, now)
        for entry in self._roster.expired(self._roster.known(entries, now), leases, began, now):
            ended = entry.instance in leases and leases[entry.instance].ended
            if self._take_over(connection, entry, ended=ended):
                entries, leases = self._entries(connection, partial(self._stay, connection))
        self._note(self._roster.known(entries, now))
        known = {entry.instance for entry in entries}
        self._remove_leases_alone(connection, {one: leases[one] for one in leases.keys() - known}, now)
        for peer in self.peers() - self._welcomed:
            self._write(connection, peer, "hello")
        connection.session.commit()

    def _remove_leases_alone(self, connection: Connection, leases: dict[str, Lease], now: float) -> None:
        """Remove leases without an entry: of gateways that stood still in a renewal, and committed it when the rest had
        been removed. Living gateways renew theirs, and one whose entry is being replaced has it again soon."""
        self._alone = {(name, lease.token): self._alone.get((name, lease.token), now) for name, lease in leases.items()}
        for (name, _), since in self._alone.items():
            if now - since > _ALONE_LEASES * self.seconds:
                self._take(connection, lease_key(name))

    def _check(self, entries: list[Entry], now: float) -> None:
        """Raise Superseded if this gateway's own entry names a successor, or is missing."""
        own = next((entry for entry in entries if entry.instance == self.instance), None)
        if own is not None and own.successor:
            raise Superseded(f"gateway {own.successor} has taken over from this one, which was not heard of in time")
        if own is not None:
            self._missing_since = 0.0
        elif not self._missing_since:
            self._missing_since = now
        elif now - self._missing_since > self.seconds:  # longer than an attempt to take over can hide it
            raise Superseded(f"the entry of this gateway ({self.instance}) is gone from {GATEWAYS}")

    def _tidy(self, connection: Connection, now: float) -> None:
        """Remove the entries of gateways from which everything was taken over long enough ago for all others to
        know."""
        with self._lock:
            settled = [name for name in self._settled if now - self._taken_over_at.get(name, 0.0) > self.seconds]
        for name in settled:
            # others may have put something for it until they knew
            mailbox.empty(connection, name, partial(self._stay, connection), self._mailbox.most)
            self._take(connection, entry_key(name))
            self._take(connection, lease_key(name))
        connection.session.commit()
        for name in settled:
            self._roster.forget(name)
            self._taken_over_at.pop(name, None)
        with self._lock:
            self._expired = tuple(name for name in self._expired if name not in settled)
            self._settled.difference_update(settled)

    def _stay(self, connection: Connection) -> None:
        """Renew the lease if it is time. No unit of work is open."""
        now = time.monotonic()
        self._roster.heard(now)
        if now >= self._renewal_due:
            self._renewal_due = now + self.seconds / RENEWALS
            self._renew(connection, b"{}")
            connection.session.commit()
            self._roster.heard(time.monotonic())

    def _renew(self, connection: Connection, body: bytes) -> None:
        """Renew the lease within the open unit of work. An earlier lease may be held by a unit that broke: then there
        are two for a while, and both are taken the next time."""
        while self._take(connection, lease_key(self.instance)) is not None:
            pass
        self._put(connection, lease_key(self.instance), body)

    def _take_over(self, connection: Connection, entry: Entry, *, ended: bool) -> bool:
        """Take over from a gateway whose lease has expired; exactly one gateway can. Returns False if another one does,
        or if it is too early."""
        if not self._take_all_of(connection, entry, ended=ended):
            connection.session.back()
            return False
        if not self._exchange_marker(connection):
            connection.session.back()  # another gateway is taking over from this one
            return False
        for older in self._entries(connection)[0]:
            if older.successor == entry.instance and self._take(connection, entry_key(older.instance)) is not None:
                self._put(connection, entry_key(older.instance), encode(older._replace(successor=self.instance)))
                self._taken_over_at[older.instance] = time.monotonic()
        self._put(connection, entry_key(entry.instance), encode(entry._replace(successor=self.instance)))
        failpoint.reach("owners.before-inherit")
        connection.session.commit()
        failpoint.reach("owners.after-inherit")
        self._taken_over_at[entry.instance] = time.monotonic()
        mailbox.empty(connection, entry.instance, partial(self._stay, connection), self._mailbox.most)
        self._told(f"gateway {entry.instance} has ended or is gone: its sessions are taken over")
        return True

    def _exchange_marker(self, connection: Connection) -> bool:
        """Replace this thread's own marker, which takes part in fencing a gateway off. Returns False if it was not
        there."""
        key = marker_key(self._number, self.instance)
        found = self._take(connection, key, MARKERS)
        connection.exchange(MARKERS, key, None, -1)
        return found is not None

    def _take_all_of(self, connection: Connection, entry: Entry, *, ended: bool) -> bool:
        """Take the markers of its workers, so that it can commit nothing more, and its entry as it was seen. Returns
        whether all of that was there."""
        keys = [marker_key(number, entry.instance) for number in range(entry.workers)]
        found = [self._take(connection, key, MARKERS) is not None for key in keys]
        if not ended and not all(found):
            return False
        return connection.get(connection.input(GATEWAYS), entry.token, GATEWAYS) is not None

    def _note(self, entries: list[Entry]) -> None:
        peers = frozenset(entry.owner for entry in entries) - {self.instance}
        expired = tuple(entry.instance for entry in entries if entry.successor == self.instance)
        with self._lock:
            self._strangers -= {entry.instance for entry in entries}
            changed = peers != self._peers or expired != self._expired
            self._peers, self._expired = peers, expired
            self._known = frozenset(entry.instance for entry in entries)
            known = {one: reads for one, reads in self._reads.items() if one in peers | self._strangers}
            self._reads = known | {entry.instance: entry.reads for entry in entries}
        self._welcomed &= self.peers()
        if changed:
            self.on_change()

    # Messages between gateways

    def _deal_with(self, connection: Connection, message: Message) -> None:
        """Deal with what another gateway says; what is put for it is committed by the caller."""
        kind, sender = message["kind"], message["from"]
        if kind == "hello":
            with self._lock:
                self._strangers.add(sender)
                self._reads.setdefault(sender, _number(message.get("reads")))
            self._welcomed.add(sender)  # it knows of this gateway
            self._write(connection, sender, "welcome")
            self.on_change()
        elif kind == "welcome":
            self._welcomed.add(sender)
        elif kind == "left":
            self._due = 0.0
        else:
            self.on_message(message)

    def _write(self, connection: Connection, to: str, kind: str) -> None:
        body = json.dumps({"kind": kind, "from": self.instance, "reads": READS}).encode()
        self._put(connection, message_key(to), body)

    # The queue

    def _put(self, connection: Connection, key: bytes, body: bytes) -> None:
        connection.put_run(state_put(GATEWAYS, key, body), asynchronous=False)

    def _take(self, connection: Connection, key: bytes, queue: str = GATEWAYS) -> tuple[bytes, bytes] | None:
        """Take the first message with this key, within the unit of work; returns its data and MsgId."""
        session = connection.session
        options = _TAKE_KEYED()
        answer = session.mqget(session.handle, connection.input(queue), match_md(correl_id=key), options, _ENTRY_LENGTH)
        if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
            return None
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(int(answer[-1]), f"taking from {queue}")
        return answer[0], msg_id_of(answer[1])

    def _entries(
        self, connection: Connection, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[list[Entry], dict[str, Lease]]:
        """Returns all entries that can be seen, and the leases by instance. `meanwhile` is called after each message,
        because there may be very many for others."""
        session, handle, options = connection.session, connection.browse(GATEWAYS), _FIRST
        entries: list[Entry] = []
        leases: dict[str, Lease] = {}
        while True:
            answer = session.mqget(session.handle, handle, match_md(), options(), _ENTRY_LENGTH)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                return entries, leases
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), f"looking at {GATEWAYS}")
            options = _NEXT
            token, key = msg_id_of(answer[1]), key_of(answer[1])
            if key != lease_key(self.instance):  # which is put behind all others when it is renewed
                meanwhile()
            if key.startswith(b"MQGB"):
                leases[key[4:16].hex()] = Lease(token, b"over" in answer[0])
            elif key.startswith(b"MQGL") and (entry := decode(token, answer[0])) is not None:
                entries.append(entry)


def _number(said: object) -> int:
    """Returns what a gateway says that it reads; earlier releases do not say anything."""
    return said if isinstance(said, int) else 0
