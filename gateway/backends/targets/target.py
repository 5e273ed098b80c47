"""A target over IBM MQ: one connection, with units that are given up if the queue manager is lost or silent.

The worker continues with a unit that was given up: it finds out what its commit has done, or makes its calls again when
the queue manager is back. Until that is known the target counts as away.

Where several gateways share their state, the worker's marker is a fence (`fences`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.reader import Reader
from gateway.backends.ibm.unit_of_work import Marker
from gateway.backends.ibm.worker import Backoff, Worker
from gateway.backends.targets import fences
from gateway.backends.targets.intake import IbmIntake
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Done, Failure, Outcome, Scheduler, Stored, Unit
from gateway.ports.state_queues import MARKERS
from gateway.ports.targets import Origin, Taker
from gateway.queue_manager.journal import failpoint

ANSWER_SECONDS = 5.0
"""A unit that has no outcome after this many seconds is given up, so that others need not wait for it."""
_AGAIN_SECONDS = 1.0
_STOP_SECONDS = 5.0


class IbmTarget:
    """Implements `ports.targets.Target`. It is made, `start`ed, and `close`d."""

    def __init__(
        self,
        settings: ConnectSettings,
        scheduler: Scheduler,
        driver: Driver,
        markers: bytes,
        *,
        instance: str = "",
        backoff: Backoff | None = None,
        told: Callable[[str], None] = lambda _text: None,
        attempted: Callable[[int], None] = lambda _reason: None,
    ) -> None:
        """`markers`: the key of the markers that are handed over when it is connected. `instance`: this gateway's name
        among those that share its state. `told` gets a line for the operator at each loss and return, in the reactor's
        thread."""
        self.name = settings.name
        self.away = "it is being connected"
        self._settings, self._scheduler, self._driver = settings, scheduler, driver
        self._backoff = backoff or Backoff()
        self._told = told
        self._markers = markers
        self._new_id = MessageIds(time.time(), os.urandom(4))
        self._on_ready: Callable[[list[Stored]], None] = lambda _markers: None
        self._running: Unit | None = None
        """The unit whose outcome somebody waits for."""
        self._done: Done = lambda _unit, _outcome: None
        self._settled: Done = lambda _unit, _outcome: None
        self._cancel: Callable[[], None] = lambda: None
        self._stopping = False
        self._intakes: list[IbmIntake] = []
        self._ended: set[str] = set()
        """Gateways that are still to be fenced off."""
        self._fenced: set[str] = set()
        """Gateways that have been fenced off."""
        marker = Marker(fences.key_of(instance or os.urandom(12).hex()), fence=bool(instance))
        self._worker = Worker(
            driver, settings, marker, self._new_id,
            lambda unit, outcome: scheduler.soon(partial(self._finished, unit, outcome)),
            backoff=self._backoff, told=lambda text: scheduler.soon(partial(self._hear, text)),
            attempted=lambda reason: scheduler.soon(partial(attempted, reason)),
            superseded=lambda text: scheduler.soon(partial(self._over, text)),
        )  # fmt: skip

    def start(self) -> None:
        """Begin to connect; if the queue manager is away, wait for it."""
        self._worker.start()
        self._connect()

    def close(self) -> None:
        """Disconnect; a call that hangs in the client is left behind."""
        self._stopping = True
        self._cancel()
        self._worker.stop()
        for intake in self._intakes:
            intake.close()
        self._worker.thread.join(_STOP_SECONDS)
        for intake in self._intakes:
            intake.join()

    def on_ready(self, call: Callable[[list[Stored]], None]) -> None:
        """See `ports.targets.Target`."""
        self._on_ready = call

    def fence_off(self, gateways: Iterable[str]) -> None:
        """See `ports.targets.Target`."""
        self._ended |= {*gateways} - self._fenced
        if self._ended and not self.away:  # otherwise it looks when it is back
            self.away = "what an ended gateway has left there is being looked at"
            self._begin_to_look()

    def submit(self, unit: Unit, done: Done, settled: Done) -> None:
        """See `ports.targets.Target`."""
        self._running, self._done, self._settled = unit, done, settled
        self._cancel = self._scheduler.later(ANSWER_SECONDS, partial(self._silent, unit))
        self._worker.submit(unit)

    def consume(self, origin: Origin, taker: Taker) -> IbmIntake:
        """See `ports.targets.Target`."""
        made = IbmIntake(
            self._driver, self._settings, self._scheduler, self._new_id, origin, taker, self._backoff
        )  # fmt: skip
        self._intakes = [one for one in self._intakes if one.thread.is_alive()] + [made]
        made.start()
        return made

    # -- in the reactor's thread, called by the worker's --

    def _connect(self) -> None:
        """Submit an empty unit, which is finished when there is a connection."""
        self._worker.submit(Unit())

    def _finished(self, unit: Unit, outcome: Outcome) -> None:
        self._worker.concluded()
        if unit is self._running:
            self._running = None
            self._cancel()
            failpoint.reach("target.committed")
            self._done(unit, outcome)
            if outcome.failures and not self._worker.connected:
                self._lose("the connection was lost")
        elif not self._stopping:
            if unit:
                self._settled(unit, outcome)
            if unit or not outcome.failures:
                self._begin_to_look()
            else:
                self._scheduler.later(_AGAIN_SECONDS, self._connect)

    def _hear(self, text: str) -> None:
        """The worker has lost its connection, or has it again."""
        if self._stopping:
            return
        if not self._worker.connected:
            self._give_up(text)
        if not self.away or not self._worker.connected:
            self._told(text)

    def _silent(self, unit: Unit) -> None:
        if unit is self._running:
            self._give_up(f"it has not answered for {ANSWER_SECONDS:.0f} seconds")

    def _give_up(self, why: str) -> None:
        """Nobody waits for the unit any more. A unit in progress makes the worker connect again; otherwise an empty one
        does."""
        was_away, self.away = self.away, why
        unit, self._running = self._running, None
        if unit is not None:
            self._cancel()
            failure = Failure(-1, mq.MQRC_CONNECTION_BROKEN, f"{self.name}: {why}", away=True)
            self._done(unit, Outcome([failure]))
        elif not was_away:
            self._connect()

    def _lose(self, why: str) -> None:
        if not self.away:
            self.away = why
            self._connect()

    def _over(self, text: str) -> None:
        """A defect has stopped the worker's thread, or another gateway has taken over."""
        self._give_up(text)
        self.away = f"{text}; it takes nothing until the gateway is restarted"

    # -- what lies there --

    def _begin_to_look(self) -> None:
        look = partial(self._look, frozenset(self._ended))
        threading.Thread(target=look, name="mq-target", daemon=True).start()

    def _look(self, ended: frozenset[str]) -> None:
        """In a thread of its own: look at what other processes have left, once these can add nothing more to it."""
        reader = Reader(self._driver, self._settings, self._new_id)
        try:
            self._take_markers_of(ended)
            found = list(reader.rows(MARKERS, self._markers))
        except MQError as error:
            self._scheduler.soon(partial(self._hear_again, str(error)))
        else:
            self._scheduler.soon(partial(self._ready, found, ended))
        finally:
            reader.close()

    def _take_markers_of(self, ended: frozenset[str]) -> None:
        if not ended:
            return
        connection = Connection(self._driver.connect(self._settings), self._new_id)
        try:
            fences.take(connection, sorted(ended))
        finally:
            connection.session.leave()

    def _hear_again(self, why: str) -> None:
        self.away = why
        self._scheduler.later(_AGAIN_SECONDS, self._connect)

    def _ready(self, markers: list[Stored], ended: frozenset[str]) -> None:
        self._ended -= ended
        self._fenced |= ended
        if self._stopping or (self._worker.outstanding and self._running is None):
            return  # what was given up meanwhile is settled first
        if not self._worker.connected:
            self._connect()
            return
        if self._ended:
            self._begin_to_look()
            return
        self._on_ready(markers)
        self.away = ""
        self._told(f"connected to {self.name}")
