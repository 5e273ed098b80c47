"""A thread for each consumed queue that waits for messages, by browsing, and says so: a wait never blocks a commit.

It sees arrivals behind its cursor; what comes back in front of it (a backout, a higher priority) is seen when the
cursor starts over, which it does after every idle wait.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.reasons import explain
from gateway.backends.ibm.structures import NO_ID, get_options, match_md
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import constants as mq

WAIT_MILLISECONDS = 1000
"""One wait; also the longest time that stopping and starting over take."""
_OPTIONS = mq.MQGMO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES | mq.MQGMO_ACCEPT_TRUNCATED_MSG
_FIRST = get_options(_OPTIONS | mq.MQGMO_BROWSE_FIRST, mq.MQMO_NONE, WAIT_MILLISECONDS)
_NEXT = get_options(_OPTIONS | mq.MQGMO_BROWSE_NEXT, mq.MQMO_NONE, WAIT_MILLISECONDS)


class Watcher:
    """See the module. `arrived` is called in the watcher's thread, once for all that came since it returned."""

    def __init__(
        self,
        driver: Driver,
        settings: ConnectSettings,
        queue: str,
        arrived: Callable[[], None],
        *,
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.queue = queue
        self._driver = driver
        self._settings = settings
        self._arrived = arrived
        self._backoff = backoff or Backoff()
        self._told = told
        self._stopping = threading.Event()
        self._taken = threading.Event()
        self._taken.set()
        self.thread = threading.Thread(target=self._run, name=f"mq-watch-{queue}", daemon=True)

    def taken_note(self) -> None:
        """The consumer has looked at the queue: tell it again when there is more."""
        self._taken.set()

    def stop(self) -> None:
        """End after the wait that is under way."""
        self._stopping.set()
        self._taken.set()

    def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                connection = Connection(self._driver.connect(self._settings), lambda _priority: NO_ID)
                attempt = 0
                try:
                    self._watch(connection)
                finally:
                    connection.session.disconnect()
            except MQError as error:
                self._told(explain(error.reason, f"waiting on {self.queue}: {error}"))
                self._stopping.wait(self._backoff.delay(attempt, random.random()))  # noqa: S311  jitter
                attempt += 1

    def _watch(self, connection: Connection) -> None:
        session, options = connection.session, _FIRST
        handle = connection.browse(self.queue)
        while not self._stopping.is_set():
            answer = session.mqget(session.handle, handle, match_md(), options(), 0)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                options = _FIRST
                continue
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), "MQGET")
            options = _NEXT
            if self._taken.is_set():
                self._taken.clear()
                self._arrived()
            elif not self._taken.wait(WAIT_MILLISECONDS / 1000):
                options = _FIRST  # the consumer is busy: what it leaves is found from the start
