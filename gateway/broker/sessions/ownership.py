"""Several gateways on the same state queues: a session is one gateway's, and a device takes it along. Pure.

What is stored of a session or a will names its owner. A gateway knows the sessions it owns and touches no others.
Before it gives a session to a device that comes, it asks every other gateway: the owner closes the older connection
(0x8E) and signs the session over, in one unit of work with its answer. What a gateway that is gone has left comes as
heritage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.broker.sessions import recovery, wills
from gateway.broker.sessions.asking import ask
from gateway.errors import MQError
from gateway.mqtt import reasons
from gateway.mqtt.packets import Connect
from gateway.ports.access import Verdict
from gateway.ports.batch import Address, BatchQueueManager, Stored
from gateway.ports.ownership import Letter, Owners, letter_key
from gateway.ports.state_queues import GATEWAYS, SESSIONS, STAGED, WILLS, stored_for
from gateway.session.connection import AUTHENTICATING, Connection
from gateway.session.record import decode_json, encode_json, key_of
from gateway.session.session import Session, will_from_record, will_record

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_SLICE = 50
"""So many sessions are taken over before others get their batch."""
_AGAIN_SECONDS, _RETRY_SECONDS = 0.05, 1.0


class Claim:
    """A CONNECT that waits until no other gateway has the client's session."""

    __slots__ = ("connect", "connection", "number", "verdict", "waiting")

    def __init__(self, connection: Connection, connect: Connect, verdict: Verdict, number: int) -> None:
        self.connection = connection
        self.connect = connect
        self.verdict = verdict
        self.number = number
        self.waiting: set[str] = set()
        """Gateways that have not answered."""


class _Left(NamedTuple):
    """A session as it lies on the state queues."""

    record: dict[str, Any]
    rows: list[Stored]
    staged: list[Stored]
    wills: list[Stored]


_Loading = Generator[Callable[[], Any] | None, Any, None]


class Owning:
    """See the module."""

    def __init__(self, engine: Engine, owners: Owners) -> None:
        self.engine = engine
        self.owners = owners
        self.instance = owners.instance
        self._claims: dict[str, Claim] = {}
        self._number = 0
        self._loading: _Loading | None = None
        self._deferred: list[Letter] = []
        """Questions that cannot be answered yet."""
        self._receiving: set[str] = set()
        """Clients whose sessions are this gateway's and are being read."""
        self._settling: set[str] = set()
        """Heritage that is this gateway's once a batch is committed: not to be looked through again."""

    def attend(self) -> None:
        """From now on others are answered."""
        self.owners.attend(self.letter, self.changed)

    # What is written

    def name(self, session: Session) -> dict[str, Any]:
        """Whose it is, for its record."""
        return {"owner": self.instance, "epoch": session.epoch}

    def is_own(self, record: dict[str, Any]) -> bool:
        """Whether a stored session or will is this gateway's, or its heritage."""
        owner = record.get("owner", "")
        return owner == self.instance or owner in self.owners.heritage()

    def sign(self, session: Session, record: dict[str, Any]) -> None:
        """A session that was stored by another life or gateway says from now on whose it is."""
        if record.get("owner", "") == self.instance:
            return
        session.epoch = record.get("epoch", 0) + 1
        record = record | self.name(session)
        if record["connected"]:
            record |= {"connected": False, "since": self.engine.now, "sent": session.outflow.redelivered}
        self.engine.batch.replace(SESSIONS, session.key, encode_json(record))

    def settle(self, heritage: list[str]) -> None:
        """Once the open batch is committed, nothing of this heritage is left under its old name."""
        self._settling.update(heritage)
        self.engine.batch.after.append(lambda: self._settled(heritage))

    def _settled(self, heritage: list[str]) -> None:
        for owner in heritage:
            self.owners.settled(owner)
        self._settling.difference_update(heritage)
        self.owners.reached("taken-over")
        self._loading = None
        self.changed()

    # A device comes

    def holds_up(self, connection: Connection, connect: Connect, verdict: Verdict, client_id: str) -> bool:
        """Whether this CONNECT has to wait for an answer; then it goes on by itself."""
        if self.engine.sessions.get(client_id) is not None and client_id not in self._claims:
            return False
        if not self._busy and not self.owners.peers() and client_id not in self._receiving:
            return False
        older = self._claims.pop(client_id, None)
        if older is not None and older.connection is not connection:
            self._refuse(older.connection, "the same client connected again")
        self._number += 1
        claim = self._claims[client_id] = Claim(connection, connect, verdict, self._number)
        if not self._busy:
            self._ask(client_id, claim)
        return True

    def _ask(self, client_id: str, claim: Claim) -> None:
        claim.waiting = {*self.owners.peers()}
        for peer in claim.waiting:
            self._write(peer, {"kind": "ask", "client": client_id, "number": claim.number})

    def _go_on(self, client_id: str) -> None:
        if client_id not in self._receiving:  # else when that is over
            claim = self._claims.pop(client_id)
            self.engine.connecting.go_on(claim.connection, claim.connect, claim.verdict)

    def _refuse(self, connection: Connection, text: str) -> None:
        if connection.state == AUTHENTICATING:
            self.engine.connecting.refuse_connect(connection, reasons.SERVER_BUSY, text)

    # Letters

    def letter(self, letter: Letter) -> None:
        """Another gateway asks or answers."""
        self.engine.now = self.engine.scheduler.now()
        kind, client_id = letter["kind"], letter.get("client", "")
        if kind == "ask":
            self._asked(letter)
        elif kind == "yours":
            self._receiving.add(client_id)
            self._receive(client_id)
        elif kind in {"none", "wait"}:
            self._answered(letter, kind)
        self.engine.flush()

    def _answered(self, letter: Letter, kind: str) -> None:
        client_id = letter["client"]
        claim = self._claims.get(client_id)
        if claim is None or claim.number != letter["number"]:
            return
        if kind == "wait":  # the same client is connecting there too
            del self._claims[client_id]
            self._refuse(claim.connection, "the same client is connecting to another gateway")
            return
        claim.waiting.discard(letter["from"])
        if not claim.waiting:
            self._go_on(client_id)

    def _asked(self, letter: Letter) -> None:
        client_id, sender = letter["client"], letter["from"]
        session = self.engine.sessions.get(client_id)
        if session is not None and session.untold and not self._busy:
            session.expiry = 0  # nobody knows of it
        if not self._busy and session is not None and session.connection is not None and not session.expiry:
            self.engine.connecting.take_over(session.connection)  # and so it ends
        endings = self.engine.connecting.endings.under_way
        reading = client_id in self._receiving or session in endings
        if self._busy or reading or (session is not None and session.releasing):
            self._defer(letter)
            return
        self.owners.reached("asked")
        answer = {"kind": "none", "client": client_id, "number": letter["number"]}
        claim = self._claims.get(client_id)
        if claim is not None and claim.connection.state != AUTHENTICATING:
            del self._claims[client_id]
            claim = None
        if claim is not None and self.instance < sender:
            answer["kind"] = "wait"
        elif claim is not None:
            del self._claims[client_id]
            self._refuse(claim.connection, "the same client connected to another gateway")
        elif session is not None and self._give(session, sender):
            answer["kind"] = "yours"
        self._write(sender, answer)
        self.owners.reached("answered")

    def _defer(self, letter: Letter) -> None:
        if not self._deferred and not self._busy:
            self.engine.scheduler.later(_AGAIN_SECONDS, self._ask_again)
        self._deferred.append(letter)

    def _ask_again(self) -> None:
        letters, self._deferred = self._deferred, []
        for letter in letters:
            self.letter(letter)

    def _write(self, to: str, letter: Letter) -> None:
        head = self.engine.router.state_head(encode_json(letter | {"from": self.instance}))
        self.engine.batch.put(Address.state(GATEWAYS, letter_key(to)), head, b"")

    # Giving and taking

    def _give(self, session: Session, to: str) -> bool:
        """Sign it over in the open batch. False: it has ended with its connection."""
        engine = self.engine
        if session.connection is not None:
            engine.connecting.take_over(session.connection)
        if engine.sessions.get(session.client_id) is not session:
            return False
        owner = {"owner": to, "epoch": session.epoch + 1}
        record = session.to_record(engine.now) | owner
        if session.ends_at:
            record["since"] = session.ends_at - session.expiry
        engine.batch.replace(SESSIONS, session.key, encode_json(record))
        if session.will is not None:
            delay = max(0, int(session.will_at - engine.now))
            will = will_record(session, session.will, delay) | owner
            engine.batch.replace(WILLS, session.key, encode_json(will))
        self.forget(session)
        self.engine.counters.mqtt_sessions_signed_over += 1
        return True

    def forget(self, session: Session) -> None:
        """It is another gateway's now: nothing of it is touched any more."""
        engine = self.engine
        engine.subscribing.drop_all(session)
        engine.sessions.remove(session)
        engine.stored.emptied(session)
        engine.expiry.forget(session)
        engine.refill.pop(session, None)

    def _receive(self, client_id: str) -> None:
        """Read the session another gateway has signed over; a device may wait for it."""
        self.owners.reached("receiving")
        ask(self.engine, lambda: self._read(client_id), lambda found: self._received(client_id, found))

    def _read(self, client_id: str) -> _Left | None:
        for stored in self.engine.queue_manager.fetch(SESSIONS, key_of(client_id), 1):
            record = decode_json(stored.data)
            if record.get("owner") == self.instance:
                return self._left(record)
        return None

    def _left(self, record: dict[str, Any]) -> _Left:
        manager, key = self.engine.queue_manager, key_of(record["client"])
        staged, wills_ = manager.fetch(STAGED, key, 0xFFFF), manager.fetch(WILLS, key, 1)
        return _Left(record, list(stored_for(manager, key)), staged, wills_)

    def _received(self, client_id: str, left: _Left | MQError | None) -> None:
        if isinstance(left, MQError):  # it is away for the moment
            self.engine.scheduler.later(_RETRY_SECONDS, lambda: self._receive(client_id))
            return
        self._receiving.discard(client_id)
        if left is not None and self.engine.sessions.get(client_id) is None:
            self._restore_will(self._restore(left), left)
            self.engine.counters.mqtt_sessions_taken_over += 1
        self.owners.reached("received")
        if client_id in self._claims:
            self._go_on(client_id)

    def _restore(self, left: _Left) -> Session:
        session = recovery.restore_session(self.engine, left.record, left.rows)
        self.sign(session, left.record)
        for staged in left.staged:
            recovery.restore_staged(session, staged)
        return session

    def _restore_will(self, session: Session, left: _Left) -> None:
        """One whose delay had begun."""
        for stored in left.wills:
            record = decode_json(stored.data)
            session.will, session.will_at = will_from_record(record), self.engine.now + record["delay"]
            self.engine.sessions.watch_until(session, session.will_at)

    # Heritage

    @property
    def _busy(self) -> bool:
        """Whether sessions are being taken over: who owns what is not known as long as that takes."""
        return self._loading is not None or bool(self.owners.heritage())

    def changed(self) -> None:
        """Somebody has come or gone: take over what is this gateway's, then ask again for what is asked for."""
        self.engine.now = self.engine.scheduler.now()
        heritage = [owner for owner in self.owners.heritage() if owner not in self._settling]
        if self._loading is None and not self._settling:
            if heritage:
                self._loading = self._take_over(heritage)
                self._load()
            else:
                self._resume()
        self.engine.flush()

    def _load(self, found: Any = None) -> None:
        """The next step, with what the last one wanted to read."""
        assert self._loading is not None  # noqa: S101 -- begun by `changed`
        if isinstance(found, MQError):  # it is away: from the beginning when it is back; what is taken over stays
            self._loading = None
            self.engine.scheduler.later(_RETRY_SECONDS, self.changed)
            return
        try:
            read = self._loading.send(found)
        except StopIteration:
            self.engine.flush()
            return
        if read is not None:
            ask(self.engine, read, self._load)
        else:
            self.engine.flush()
            self.engine.scheduler.later(0.0, self._load)

    def _take_over(self, heritage: list[str]) -> _Loading:
        """What is to be read at each step; nothing where others get their batch."""
        engine = self.engine
        kept = yield lambda: list(engine.queue_manager.load(WILLS))
        sessions = iter(engine.queue_manager.load(SESSIONS))
        while some := (yield lambda: list(islice(sessions, _SLICE))):
            for _, stored in some:
                record = decode_json(stored.data)
                if record.get("owner", "") not in heritage or engine.sessions.get(record["client"]) is not None:
                    continue
                left = yield partial(self._left, record)
                if engine.sessions.get(record["client"]) is None:
                    self._restore(left)
                    engine.counters.mqtt_sessions_taken_over += 1
            if len(some) == _SLICE:
                self.owners.reached("slice")
            yield None
        for key, stored in kept:
            record = decode_json(stored.data)
            if record.get("owner", "") in heritage:
                session = engine.sessions.get(record["client"])
                wills.restore(engine, session, key, record)
        self.settle(heritage)
        self.owners.reached("signing")

    def _resume(self) -> None:
        for client_id, claim in list(self._claims.items()):
            if claim.connection.state != AUTHENTICATING:
                del self._claims[client_id]
            elif self.engine.sessions.get(client_id) is not None or not self.owners.peers():
                self._go_on(client_id)
            else:
                self._number += 1
                claim.number = self._number
                self._ask(client_id, claim)
        self._ask_again()


def owning_of(engine: Engine, queue_manager: BatchQueueManager) -> Owning | None:
    """None: the state queues are this gateway's alone."""
    if isinstance(queue_manager, Owners) and queue_manager.instance:
        return Owning(engine, queue_manager)
    return None
