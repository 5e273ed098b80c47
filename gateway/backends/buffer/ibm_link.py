"""The link to IBM MQ: one thread and one connection, made again whenever it breaks. Unlike a worker of the IBM backend
it answers at once when the connection breaks, because the buffer takes the units in progress.

The progress is a message without expiry on MQGATE.MARKERS, found by its key. It is taken and put again in every unit of
work, so it cannot be seen while such a unit is undecided: a new connection that sees it knows what the last one has
done.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable

from gateway.backends.buffer.link import Found, Verdict
from gateway.backends.ibm.connection import STALE_HANDLES, Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import NewId
from gateway.backends.ibm.requirements import dead_letter_queue
from gateway.backends.ibm.structures import get_options, match_md
from gateway.backends.ibm.unit_of_work import PutFailed, apply, has_volatile_puts
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.batch import Failure, Replace, Scheduler, Unit
from gateway.ports.state_queues import DEAD_LETTERS, MARKERS

HEARTBEAT_SECONDS = 5.0
"""How often an idle connection is checked, so that the state shown is true."""
_STOP_SECONDS = 10.0
_BROWSE = mq.MQGMO_BROWSE_FIRST | mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES
_BY_KEY = get_options(_BROWSE, mq.MQMO_MATCH_CORREL_ID)
_PROGRESS_LENGTH = 1 << 20

Work = Callable[[Connection], None]


class _InDoubt(MQError):
    """MQCMIT has failed with a reason that does not say what became of the unit: the progress tells, once the
    connection has been made again."""


class IbmLink:
    """Implements `Link`."""

    def __init__(
        self, driver: Driver, settings: ConnectSettings, scheduler: Scheduler, new_id: NewId,
        *, backoff: Backoff, attempted: Callable[[int], None] = lambda _reason: None,
    ) -> None:  # fmt: skip
        """`attempted` is called after each attempt to connect, in the reactor's thread, with 0 or the reason of the
        failure."""
        self._driver = driver
        self._settings = settings
        self._scheduler = scheduler
        self._new_id = new_id
        self._backoff = backoff
        self._attempted = attempted
        self.put_to: set[str] = set()
        """Queues to which messages were put since the start."""
        self._key = b""
        self._up: Callable[[Found], None] = lambda _found: None
        self._down: Callable[[str], None] = lambda _why: None
        self._work: deque[tuple[Work, Callable[[], None]]] = deque()
        """Work for the thread, and what is called instead when the connection is lost before it is done."""
        self._changed = threading.Condition()
        self._serving = False
        self._attempts = 0
        """Failed attempts to connect since a connection last worked."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mq-buffer", daemon=True)

    def start(self, key: bytes, up: Callable[[Found], None], down: Callable[[str], None]) -> None:
        """Begin to connect."""
        self._key, self._up, self._down = key, up, down
        self._thread.start()

    def stop(self) -> None:
        """Disconnect after the attempt in progress."""
        self._stopping.set()
        with self._changed:
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def rename(self, key: bytes) -> None:
        """Give the progress another name from now on."""
        self._key = key

    def look(self) -> None:
        """Read the progress again if there is a connection; otherwise the next connection does so."""
        self._add(self._look, lambda: None)

    def close_objects(self) -> None:
        """Close what is open, after the units that wait; what is used again is opened again."""
        self._add(lambda connection: connection.forget_objects(), lambda: None)

    def commit(self, unit: Unit, progress: bytes, told: Callable[[Verdict], None]) -> None:
        """Attempt once to commit the unit with the progress."""

        def lost() -> None:
            self._tell(lambda: told(Verdict(lost=True)))

        def work(connection: Connection) -> None:
            try:
                verdict = self._attempt(connection, unit, progress)
            except MQError:
                lost()
                raise
            self._tell(lambda: told(verdict))

        self._add(work, lost)

    def _add(self, work: Work, otherwise: Callable[[], None]) -> None:
        with self._changed:
            if self._serving:
                self._work.append((work, otherwise))
                self._changed.notify()
                return
        otherwise()

    def _tell(self, call: Callable[[], None]) -> None:
        if not self._stopping.is_set():
            self._scheduler.soon(call)

    # The thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._connect_and_serve()
            self._stopping.wait(self._backoff.delay(self._attempts, random.random()))  # noqa: S311  jitter
            self._attempts += 1

    def _connect_and_serve(self) -> None:
        """Serve one connection. What it leaves undone is backed out before the wait for the next one."""
        try:
            connection = Connection(self._driver.connect(self._settings), self._new_id)
        except MQError as error:
            self._say_down(error, connected=False)
            return
        connection.put_to = self.put_to
        try:
            self._serve(connection)
        except MQError as error:
            self._say_down(error, connected=True)
        finally:
            connection.session.leave()

    def _say_down(self, error: MQError, *, connected: bool) -> None:
        text = explain(error.reason, str(error))
        if not connected:
            self._tell(lambda: self._attempted(error.reason))
        self._tell(lambda: self._down(text))

    def _serve(self, connection: Connection) -> None:
        """Work until told to stop. Raises MQError if the connection breaks."""
        with self._changed:
            self._serving = True
        try:
            self._look(connection)
            self._attempts = 0
            self._tell(lambda: self._attempted(0))
            while not self._stopping.is_set():
                work = self._next()
                if work is None:
                    connection.session.inquire("", mq.MQCA_Q_MGR_NAME)
                else:
                    work(connection)
        finally:
            with self._changed:
                self._serving = False
                left, self._work = self._work, deque()
            for _, otherwise in left:
                otherwise()

    def _next(self) -> Work | None:
        with self._changed:
            if not self._work and not self._stopping.is_set():
                self._changed.wait(HEARTBEAT_SECONDS)
            return self._work.popleft()[0] if self._work else None

    def _look(self, connection: Connection) -> None:
        session = connection.session
        name = str(session.inquire("", mq.MQCA_Q_MGR_NAME))
        letters = dead_letter_queue(session) or DEAD_LETTERS
        most = max(1, int(session.inquire("", mq.MQIA_MAX_UNCOMMITTED_MSGS)) // 2)
        found = Found(name, letters, self._progress(connection), most)
        self._tell(lambda: self._up(found))

    def _progress(self, connection: Connection) -> bytes | None:
        session = connection.session
        handle = connection.browse(MARKERS)
        answer = session.mqget(session.handle, handle, match_md(correl_id=self._key), _BY_KEY(), _PROGRESS_LENGTH)
        if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
            return None
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(int(answer[-1]), f"looking at {MARKERS}")
        body: bytes = answer[0]
        return body

    # One attempt

    def _attempt(self, connection: Connection, unit: Unit, progress: bytes) -> Verdict:
        """Attempt with asynchronous puts, and if that is refused once more synchronously, which tells the run at fault.
        Raises MQError if the connection broke, or the unit is in doubt."""
        failure = None
        for asynchronous in (True, False):
            try:
                self._commit(connection, unit, progress, asynchronous=asynchronous)
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT or isinstance(error, _InDoubt):
                    raise
                connection.session.back()
                if error.reason in STALE_HANDLES:
                    connection.forget_objects()
                puts = error.puts if isinstance(error, PutFailed) else -1
                failure = Failure(puts, error.reason, explain(error.reason, str(error)))
            else:
                return Verdict()
        return Verdict([failure] if failure is not None else [])

    def _commit(self, connection: Connection, unit: Unit, progress: bytes, *, asynchronous: bool) -> None:
        can_status = self._driver.can_status
        apply(connection, unit, asynchronous=asynchronous, can_status=can_status)
        connection.replace(Replace(MARKERS, self._key, progress))
        volatile = asynchronous and can_status and has_volatile_puts([unit])
        if volatile and connection.session.asynchronous_failures():
            raise MQError(mq.MQRC_BACKED_OUT, "an asynchronous put failed")
        try:
            connection.session.commit()
        except MQError as error:
            raise error if error.reason == mq.MQRC_BACKED_OUT else _InDoubt(error.reason, str(error)) from None
