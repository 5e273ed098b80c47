"""A consumed queue of a target: a thread and a connection of its own, with one unit of work at a time.

Messages are got under syncpoint and handed to the reactor; the unit of work stays open until the reactor says that they
are dealt with. If the connection is lost before that, the queue manager backs them out, and they come again. Which of
them have been dealt with nevertheless is not known here (`broker.deliver.target_queues`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from gateway.backends.ibm.connection import FIRST_LENGTH, STALE_HANDLES, Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import NewId
from gateway.backends.ibm.reader import backout_of, open_subscription, subscription_key
from gateway.backends.ibm.structures import NO_ID, get_options, match_md
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.batch import Puts, Scheduler, Stored, Token
from gateway.ports.sources import Backout
from gateway.ports.state_queues import SUBSCRIPTIONS
from gateway.ports.targets import Origin, Taker
from gateway.queue_manager.journal import failpoint

MOST, MOST_BYTES = 200, 4 << 20
"""The most messages of one unit of work, and bytes of their data."""
_WAIT_MILLISECONDS = 1000
"""The length of one wait; also the longest time that stopping takes."""
_AGAIN_SECONDS = 10.0
"""How long to wait before trying a queue again that is missing, or must not be got from."""
_ASIDE_SECONDS = 1.0
"""How long to wait before putting a message again to a back-out queue that has refused it."""
_STOP_SECONDS = 5.0
_GET = mq.MQGMO_SYNCPOINT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_PROPERTIES_FORCE_MQRFH2


class _Order(NamedTuple):
    """What the reactor wants from the thread; one without a call tells it to end."""

    call: Callable[[_Life], None] | None


class _Life:
    """One connection, with its queue open."""

    def __init__(self, connection: Connection, origin: Origin) -> None:
        self.connection = connection
        queue, self.key, match = origin.queue, NO_ID, mq.MQMO_NONE
        if origin.topic:
            queue, self.key, match = SUBSCRIPTIONS, subscription_key(origin.subscription), mq.MQMO_MATCH_CORREL_ID
            open_subscription(connection, origin.subscription, origin.topic, queue, self.key)
        self.queue = queue
        self.handle = connection.input(queue)
        self._match = match
        self.messages: list[Stored] = []
        """The messages of the open unit of work."""
        self.handed_over = False
        """Whether the reactor has them, and will conclude the unit of work."""
        self.works = False
        """Whether messages were got from the queue."""
        self._can_whole = True
        self._whole(mq.MQGMO_COMPLETE_MSG)

    def _whole(self, option: int) -> None:
        """Have messages in segments got as one, if the queue manager can do that."""
        options = _GET | option
        self._waiting = get_options(options | mq.MQGMO_WAIT, self._match, _WAIT_MILLISECONDS)
        self._at_once = get_options(options | mq.MQGMO_NO_WAIT, self._match)

    def backout(self) -> Backout:
        """Returns BOTHRESH and BOQNAME; none if it is not a local queue."""
        return backout_of(self.connection.session.inquire, self.queue)

    def fill(self) -> bool:
        """Get what is there, waiting a moment for the first message. Returns whether there is something."""
        size = 0
        while len(self.messages) < MOST and size < MOST_BYTES:
            try:
                found = self._next()
            except MQError as error:
                if not self.messages or action_for(error.reason) is Action.RECONNECT:
                    raise
                break  # it is found again when these are dealt with
            if found is None:
                break
            size += len(found.data)
            self.messages.append(found)
        return bool(self.messages)

    def _next(self) -> Stored | None:
        session, length = self.connection.session, FIRST_LENGTH
        while True:
            options = self._at_once if self.messages else self._waiting
            answer = session.mqget(session.handle, self.handle, match_md(correl_id=self.key), options(), length)
            reason = int(answer[-1])
            if reason == mq.MQRC_TRUNCATED_MSG_FAILED:
                length = max(int(answer[-3]), 2 * length)
            elif reason == mq.MQRC_NO_MSG_AVAILABLE:
                return None
            elif reason == mq.MQRC_OPTIONS_ERROR and self._can_whole:
                self._can_whole = False
                self._whole(0)
            elif answer[-2] == mq.MQCC_FAILED:
                raise MQError(reason, f"getting from {self.queue}")
            else:
                return Stored(len(self.messages), answer[1], answer[0])

    def put_aside(self, token: Token, queue: str) -> None:
        """Put a message to a back-out queue, in the unit of work."""
        message = next(stored for stored in self.messages if stored.token == token)
        persistent = mqmd.number(message.md, mqmd.AT_PERSISTENCE) == 1
        priority = max(0, mqmd.number(message.md, mqmd.AT_PRIORITY))
        puts = Puts(queue, "", b"", priority, persistent, [message.md], [message.data])
        self.connection.put_run(puts, asynchronous=False)

    def end(self) -> None:
        """End the connection: what is got and not committed is backed out."""
        self.connection.session.leave()


class IbmIntake:
    """Implements `ports.targets.Intake`."""

    def __init__(
        self, driver: Driver, settings: ConnectSettings, scheduler: Scheduler, new_id: NewId, origin: Origin,
        taker: Taker, backoff: Backoff,
    ) -> None:  # fmt: skip
        self._driver, self._settings, self._scheduler = driver, settings, scheduler
        self._new_id, self._origin, self._taker, self._backoff = new_id, origin, taker, backoff
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._closing = threading.Event()
        name = origin.queue or origin.topic
        self.thread = threading.Thread(target=self._run, name=f"mq-intake-{name}", daemon=True)

    # -- in the reactor's thread --

    def start(self) -> None:
        """Begin to connect; if the queue manager is away, wait for it."""
        self.thread.start()

    def get(self) -> None:
        """See `ports.targets.Intake`."""
        self._orders.put(_Order(self._get_some))

    def verify(self) -> None:
        """See `ports.targets.Intake`."""
        self._orders.put(_Order(self._verify))

    def commit(self, aside: Sequence[tuple[Token, str]]) -> None:
        """See `ports.targets.Intake`."""
        failpoint.reach("target.dealt-with")
        self._orders.put(_Order(partial(self._commit, tuple(aside))))

    def back_out(self) -> None:
        """See `ports.targets.Intake`."""
        self._orders.put(_Order(self._back_out))

    def close(self) -> None:
        """See `ports.targets.Intake`."""
        self._closing.set()
        self._orders.put(_Order(None))

    def join(self) -> None:
        """Wait for the thread to end; a call that hangs in the client is left behind."""
        self.thread.join(_STOP_SECONDS)

    def _tell(self, call: Callable[[], None]) -> None:
        """In the thread: have the taker told."""
        self._scheduler.soon(lambda: None if self._closing.is_set() else call())

    # -- the thread --

    def _run(self) -> None:
        attempt = 0
        while not self._closing.is_set():
            life: _Life | None = None
            try:
                life = _Life(Connection(self._driver.connect(self._settings), self._new_id), self._origin)
                backout = life.backout()
                self._tell(partial(self._taker.opened, backout))
                attempt = 0
                self._serve(life)
            except MQError as error:
                self._lose(explain(error.reason, str(error)), life)
                delay = self._backoff.delay(attempt, random.random())  # noqa: S311  jitter, not secrecy
                self._closing.wait(delay if _connects_again(error) else _AGAIN_SECONDS)
                attempt += 1
            except Exception as error:  # noqa: BLE001 -- a defect: what is got comes again, and others go on
                self._tell(partial(self._taker.failed, error))
                self._lose(f"a defect: {error!r}", life)
                self._closing.wait(_AGAIN_SECONDS)

    def _serve(self, life: _Life) -> None:
        """Do what the reactor wants, until told to end."""
        while not self._closing.is_set():
            order = self._orders.get()
            if order.call is not None:
                order.call(life)
        life.end()

    def _get_some(self, life: _Life) -> None:
        while not (self._closing.is_set() or life.handed_over):
            found = life.fill()
            if not life.works:
                life.works = True
                self._tell(self._taker.works)
            if found:
                life.handed_over = True
                self._tell(partial(self._taker.got, list(life.messages)))

    def _verify(self, life: _Life) -> None:
        try:
            life.connection.session.inquire("", mq.MQCA_Q_MGR_NAME)
        except MQError:
            self._tell(partial(self._taker.verified, alive=False))
        else:
            self._tell(partial(self._taker.verified, alive=True))

    def _commit(self, aside: Sequence[tuple[Token, str]], life: _Life) -> None:
        life.handed_over = False  # whatever becomes of it, the reactor has done its part
        for token, queue in aside:
            self._put_aside(life, token, queue)
        if self._closing.is_set():
            return
        life.connection.session.commit()
        life.messages = []
        failpoint.reach("target.taken")
        self._tell(self._taker.committed)
        self._get_some(life)

    def _put_aside(self, life: _Life, token: Token, queue: str) -> None:
        """Put a message to a back-out queue, again and again if that refuses it: the messages stay got, and nobody else
        gets them meanwhile."""
        while not self._closing.is_set():
            try:
                life.put_aside(token, queue)
            except MQError as error:
                if _connects_again(error):
                    raise
                why = f"the back-out queue {queue}: {explain(error.reason, str(error))}"
                self._tell(partial(self._taker.lost, why))
                life.works = False
                self._closing.wait(_ASIDE_SECONDS)
            else:
                return

    def _back_out(self, life: _Life) -> None:
        life.handed_over = life.works = False
        life.connection.session.back()
        life.messages = []
        self._tell(partial(self._taker.opened, life.backout()))

    def _lose(self, why: str, life: _Life | None) -> None:
        """The connection is lost. The reactor first concludes what had been got: only then is it known what has become
        of it."""
        self._tell(partial(self._taker.lost, why))
        if life is None:
            return
        life.end()
        while life.handed_over and not self._closing.is_set():
            call = self._orders.get().call
            if call == self._verify:
                self._tell(partial(self._taker.verified, alive=False))
            elif call is not None:
                life.handed_over = False


def _connects_again(error: MQError) -> bool:
    """Whether a new connection may help."""
    return action_for(error.reason) is Action.RECONNECT or error.reason in STALE_HANDLES
