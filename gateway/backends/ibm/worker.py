"""One thread and its connection: takes units from its queue, commits them together, reconnects, and finds out what
became of a commit whose answer was lost.

Waiting units are committed in one MQCMIT as long as they stay well within MAXUMSGS. If a batch is refused, its units
are repeated one by one with synchronous puts, so that only the one at fault is reported.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from gateway.backends.ibm import calls
from gateway.backends.ibm.calls import Carried
from gateway.backends.ibm.connection import STALE_HANDLES, Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import NewId
from gateway.backends.ibm.no_syncpoint_puts import NoSyncpointPuts, refusal
from gateway.backends.ibm.posted_units import AROUND, PostedUnits
from gateway.backends.ibm.unit_of_work import (
    TAKEN_OVER,
    Marker,
    PutFailed,
    Superseded,
    apply,
    has_volatile_puts,
    rows_of,
)
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.batch import Failure, Outcome, Token, Unit
from gateway.ports.state_queues import MARKERS

MAX_ROWS = 2000
"""The most uncommitted messages of a batch: a fifth of what a queue manager allows by default (MAXUMSGS 10000)."""
RENEW_SECONDS = 24 * 3600.0
"""How often a worker without work commits its marker: once a day, long before it expires."""
_LOOK_AGAIN = 0.2

_NOTHING = Unit()
"""Wakes a worker that has no unit to commit."""

Finished = Callable[[Unit, Outcome], None]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before connecting again: doubling, with jitter, so that replicas do not all come back at the
    same time."""

    first: float = 1.0
    longest: float = 30.0

    def delay(self, attempt: int, chance: float) -> float:
        """Returns the seconds before attempt number `attempt` (from 0); `chance` from 0 to 1 spreads it over half its
        length."""
        full: float = min(self.longest, self.first * 2.0 ** min(attempt, 16))
        return full * (0.5 + chance / 2)


class Worker:
    """A thread that commits units on a connection of its own. `finished` is called in that thread."""

    def __init__(
        self,
        driver: Driver,
        settings: ConnectSettings,
        marker: Marker,
        new_id: NewId,
        finished: Finished,
        *,
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
        attempted: Callable[[int], None] = lambda _reason: None,
        superseded: Callable[[str], None] = lambda _text: None,
        gone: Callable[[str, int], None] = lambda _queue, _count: None,
    ) -> None:
        """`gone` is called with a consumed queue and how many of its messages were no longer there in a unit of work
        that is committed. `told` gets one line at each loss and at each return of the connection, `attempted` the
        reason of each attempt to connect again (0: it worked). `superseded` is called when nothing is committed any
        more: another gateway has taken over, or the thread was ended by a defect."""
        self._superseded = superseded
        self._gone = gone
        self._driver = driver
        self._settings = settings
        self._marker = marker
        self._new_id = new_id
        self._finished = finished
        self._no_syncpoint_puts = NoSyncpointPuts(finished, can_status=driver.can_status)
        self._backoff = backoff or Backoff()
        self._told = told
        self._attempted = attempted
        self._units: SimpleQueue[Unit | None] = SimpleQueue()
        """Units that wait; None ends the worker. A condition variable would wake the thread twice for a unit."""
        self._to_close: SimpleQueue[Callable[[], None]] = SimpleQueue()
        """What to call once open objects have been closed, for those who want that."""
        self._deferred: Unit | None = None
        """A unit taken from the queue that was too large for the batch before it."""
        self.put_to: set[str] = set()
        """Queues that this worker has put to since the start."""
        self._carrier = found = calls.carrier(driver)
        self._posted_units = None if found is None else PostedUnits(found, marker, can_status=driver.can_status)
        self.outstanding = 0
        """Units that were submitted and not concluded; used only by the reactor."""
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self.most_rows = MAX_ROWS
        """Waiting units are committed together up to this many messages."""
        self.connected = False
        self.calls = 0
        self.thread = threading.Thread(target=self._run, name="mq-worker", daemon=True)

    def start(self, connection: Connection | None = None) -> None:
        """Begin, with a connection that was made already or with one of its own."""
        if connection is not None:
            self._adopt(connection)
        self.thread.start()

    def post(self, unit: Unit) -> int:
        """In the reactor's thread: commit the unit without Python if nothing is before it. Returns POSTED: collect its
        outcome; THROUGH: it is committed; LEFT: submit it."""
        if self.outstanding or self._posted_units is None:
            return calls.LEFT
        posted = self._posted_units.post(unit, self._connection)
        self.outstanding += posted != calls.LEFT
        return posted

    def submit(self, unit: Unit) -> None:
        """Have the unit committed; called in the reactor's thread."""
        self.outstanding += 1
        self._units.put(unit)
        if self._posted_units is not None:
            self._posted_units.wake()

    def close_objects(self, closed: Callable[[], None]) -> None:
        """Close what is open, after the units that wait; what is used again is opened again. Called in the reactor's
        thread, where `closed` has to lead to `concluded`."""
        self.outstanding += 1
        self._to_close.put(closed)
        self._units.put(_NOTHING)
        if self._posted_units is not None:
            self._posted_units.wake()

    def concluded(self) -> None:
        """The outcome of a unit has reached the reactor's thread."""
        self.outstanding -= 1

    def tell(self, descriptor: int) -> None:
        """From now on outcomes may be told by writing to this descriptor; `collect` is called then."""
        if self._posted_units is not None:
            self._posted_units.tell(descriptor)

    def collect(self) -> Unit | None:
        """In the reactor's thread: returns the posted unit, if it is committed."""
        return None if self._posted_units is None else self._posted_units.collect()

    def stop(self) -> None:
        """Commit what waits if the queue manager answers, then end; the caller joins the thread."""
        self._stopping.set()
        self._units.put(None)
        if self._posted_units is not None:
            self._posted_units.wake()

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, and no unit of work of its is open."""
        return not self.thread.is_alive() and self._marker.offered is None

    # The thread

    def _run(self) -> None:
        if self._posted_units is not None:
            self._posted_units.begin()
        try:
            while (batch := self._next()) is not None:
                self._commit_batch([unit for unit in batch if unit is not _NOTHING])
                self._close_objects()
        except Exception as error:  # noqa: BLE001 -- without this thread nobody would be answered any more
            self._drop_connection()
            self._superseded(str(error) if isinstance(error, Superseded) else f"a defect stopped commits: {error!r}")
            return
        if self._connection is not None:
            with suppress(MQError):
                self._marker.remove(self._connection)
        self._drop_connection()

    def _next(self) -> list[Unit] | None:
        """Returns the units that wait, up to the limit; an empty list if the marker has to be renewed; None to end."""
        try:
            unit = self._deferred or self._wait()
        except Empty:
            return []
        self._deferred = None
        batch: list[Unit] = []
        rows = 0
        while unit is not None:
            rows += rows_of(unit)
            if batch and rows > self.most_rows:
                self._deferred = unit
                return batch
            batch.append(unit)
            try:
                unit = self._units.get_nowait()
            except Empty:
                return batch
        if batch:
            self._units.put(None)  # these first, then the end
        return batch or None

    def _wait(self) -> Unit | None:
        """Returns the next unit; an empty one if the marker is due, None to end."""
        if self._posted_units is None:
            return self._units.get(timeout=RENEW_SECONDS)
        while True:
            with suppress(Empty):
                return self._units.get_nowait()
            late, unit, carried = self._posted_units.wait(RENEW_SECONDS)
            if unit is not None and carried is None:
                self._finished(unit, Outcome())
            elif unit is not None:
                self._commit_batch([unit], carried)
            if late:
                raise Empty

    def _close_objects(self) -> None:
        """Close what is open, and tell those who wait for that."""
        while not self._to_close.empty():
            closed = self._to_close.get()
            if self._connection is not None:
                self._connection.forget_objects()
            closed()

    def _commit_batch(self, batch: list[Unit], carried: Carried | None = None) -> None:
        left = self._attempt(batch, carried)
        while left:
            left = self._attempt(left)

    def _attempt(self, batch: list[Unit], carried: Carried | None = None) -> list[Unit]:
        """Commit the batch, or the part of it that can be; returns the units to be tried again. `carried`: the calls
        were made already."""
        try:
            connection = self._ready()
            if carried is None:
                connection = self._resolve_in_doubt(connection)
                if self._no_syncpoint_puts.place(connection, batch) and not batch:
                    return []
            done = self._try_together(connection, batch, carried)
            if done is not None:
                return done
            return self._one_by_one(connection, batch)
        except _Stopped:
            for unit in batch:
                self._finished(unit, Outcome([Failure(-1, 2203, "the gateway is stopping and MQ does not answer")]))
            return []
        except MQError as error:
            if action_for(error.reason) is Action.RECONNECT:
                self._lost(error)
                return batch
            self._drop_connection()
            self._marker.settle(committed=False)
            return self._refuse(batch, error)

    def _resolve_in_doubt(self, connection: Connection) -> Connection:
        """If the outcome of the last unit is not known, wait until it is: until the queue manager has backed it out,
        the messages it took are invisible and would seem to be deleted."""
        if self._marker.offered is None:
            return connection
        self._resolve_commit()
        return self._ready()

    def _refuse(self, batch: list[Unit], error: MQError) -> list[Unit]:
        for unit in batch:
            self._finished(unit, Outcome([Failure(-1, error.reason, explain(error.reason, str(error)))]))
        return []

    def _try_together(self, connection: Connection, batch: list[Unit], carried: Carried | None) -> list[Unit] | None:
        """Commit all units in one commit; returns those to be tried again, or None if the queue manager refuses and
        each has to be tried alone."""
        try:
            if carried is None and self._posted_units is not None:
                carried = self._posted_units.carry(connection, batch)
            if carried is None:
                tokens = self._apply(connection, batch, asynchronous=True)
            else:
                self._check(carried)
                tokens = carried.of_units(batch)
        except MQError as error:
            if action_for(error.reason) is Action.RECONNECT:
                raise
            self._undo(connection, error)
            return None
        committed = self._commit(connection.session.commit if carried is None else carried.check_commit)
        if committed is None:
            return None
        if not committed:
            return batch
        self._tell_gone(connection)
        for unit, mine in zip(batch, tokens, strict=True):
            self._succeed(unit, mine)
        return []

    def _one_by_one(self, connection: Connection, batch: list[Unit]) -> list[Unit]:
        """Commit each unit alone and synchronously. A finished unit leaves `batch`; returns what has to be tried
        again."""
        if self._driver.can_status:
            connection.session.asynchronous_failures()  # those of the batch, not of a later unit
        while batch:
            unit, failure = batch[0], None
            try:
                tokens = self._apply(connection, [unit], asynchronous=False)
                committed = self._commit(connection.session.commit)
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT:
                    raise
                self._undo(connection, error)
                failure = self._failure(connection, unit, error)
            if failure is None and committed is False:
                return batch
            if failure is None and committed is None:
                failure = Failure(-1, 2003, explain(2003))
            del batch[0]
            if failure is None:
                self._tell_gone(connection)
                self._succeed(unit, tokens[0])
            else:
                self._finished(unit, Outcome([failure]))
        return batch

    @staticmethod
    def _failure(connection: Connection, unit: Unit, error: MQError) -> Failure:
        if isinstance(error, PutFailed):
            return refusal(connection, unit.puts[error.puts], error, error.puts)
        return Failure(-1, error.reason, explain(error.reason, str(error)))

    def _undo(self, connection: Connection, error: MQError) -> None:
        """Back out what a refused unit has done so far."""
        connection.session.back()
        self._marker.settle(committed=False)
        if error.reason in STALE_HANDLES:
            connection.forget_objects()

    def _apply(self, connection: Connection, batch: Sequence[Unit], *, asynchronous: bool) -> list[list[list[Token]]]:
        can_status = self._driver.can_status
        connection.gone.clear()
        self._marker.advance(connection)
        tokens = [apply(connection, unit, asynchronous=asynchronous, can_status=can_status) for unit in batch]
        self.calls += 1
        if asynchronous and can_status and has_volatile_puts(batch) and connection.session.asynchronous_failures():
            raise MQError(2003, "an asynchronous put failed")
        return tokens

    def _check(self, carried: Carried) -> None:
        """Raise what the single calls before the commit would have raised."""
        self.calls += AROUND + sum(map(len, carried.ids))
        if carried.stage == calls.MARKER_GONE:
            raise Superseded(TAKEN_OVER)
        carried.check_puts(MARKERS)

    def _commit(self, commit: Callable[[], None]) -> bool | None:
        """Commit. Returns True: committed; None: refused, and nothing of it happened; False: the connection broke and
        the unit was backed out.

        If the answer is lost, or says neither, the marker tells; until it can be read nothing else is done.
        """
        try:
            commit()
        except MQError as error:
            if error.reason == mq.MQRC_BACKED_OUT:
                self._marker.settle(committed=False)
                return None
            if action_for(error.reason) is not Action.RECONNECT:
                return self._resolve_refused(error)
            self._lost(error)
            return self._resolve_commit()
        self._marker.settle(committed=True)
        return True

    def _resolve_refused(self, error: MQError) -> bool | None:
        """Settle a unit after MQCMIT has failed with a reason that does not say what became of it: it may be committed,
        or still be open, so that what is put next would be committed with it."""
        self._told(explain(error.reason, str(error)))
        try:
            self._ready().session.back()
        except MQError as again:
            self._lost(again)
        return self._resolve_commit() or None

    def _resolve_commit(self) -> bool:
        while True:
            try:
                verdict = self._marker.verdict(self._ready())
            except MQError as error:
                if action_for(error.reason) is not Action.RECONNECT:
                    raise
                self._lost(error)
                continue
            if verdict is not None:
                self._marker.settle(committed=verdict)
                return verdict
            if self._stopping.wait(_LOOK_AGAIN):
                raise _Stopped

    def _tell_gone(self, connection: Connection) -> None:
        for queue, count in connection.gone.items():
            self._gone(queue, count)
        connection.gone.clear()

    def _succeed(self, unit: Unit, tokens: Sequence[list[Token]]) -> None:
        for puts, mine in zip(unit.puts, tokens, strict=True):
            puts.tokens = mine
        self._finished(unit, Outcome())

    # The connection

    def _ready(self) -> Connection:
        """Returns the connection, made again as often as it takes. Raises MQError if the settings are at fault."""
        attempt = 0
        while self._connection is None:
            try:
                self._connect()
                self._attempted(0)
            except MQError as error:
                self._drop_connection()
                self._attempted(error.reason)
                if action_for(error.reason) is not Action.RECONNECT:
                    self._told(explain(error.reason, str(error)))
                delay = self._backoff.delay(attempt, random.random())  # noqa: S311  jitter, not secrecy
                if self._stopping.wait(delay):
                    raise _Stopped from None
                attempt += 1
        return self._connection

    def _connect(self) -> None:
        session = self._driver.connect(self._settings)
        self._adopt(Connection(session, self._new_id))
        self._told(f"connected to {self._settings.name or 'the queue manager'}")

    def _adopt(self, connection: Connection) -> None:
        connection.carrier = self._carrier
        self.put_to |= connection.put_to
        connection.put_to = self.put_to
        self._connection = connection
        if self._marker.offered is None:
            self._marker.begin(connection)
        self.connected = True

    def _lost(self, error: MQError) -> None:
        self.connected = False  # whoever is told looks at this
        self._told(explain(error.reason, str(error)))
        self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self.connected = False
        if connection is not None:
            self.calls += connection.calls
            connection.session.leave()


class _Stopped(Exception):
    """The gateway is stopping and MQ does not answer: the units in progress cannot be finished."""
