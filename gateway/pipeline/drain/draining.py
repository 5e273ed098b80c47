"""`mqgate pipeline drain`: queues of IBM MQ into a journal until told to stop, and the journal served meanwhile.

The process that drains owns the journal, so it answers the pipeline's service for it: whoever reads gives its address
(`url`) and finds cursors, leases and messages there. One thread drains; requests come in others and hold the same lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.pipeline.drain.drained_queue import IbmQueue
from gateway.pipeline.drain.drainer import Drained, Drainer
from gateway.pipeline.source.owner import StoreJournal
from gateway.pipeline.source.service import Query, Reply
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import StoreUnit

Told = Callable[[str], None]
_WAITED_FOR = frozenset({Action.RECONNECT, Action.HOLD, Action.RETRY})
HELD = mq.MQRC_OBJECT_IN_USE
LONGEST_PAUSE = 30.0
HELD_FOR = 60.0


class LockedJournal(StoreJournal):
    """A store that one thread fills and others ask: every frame under the lock, with the housekeeping it makes due."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, clock)
        self.lock = threading.RLock()

    def commit(self, unit: StoreUnit) -> None:
        """One frame, then one bounded step of housekeeping."""
        with self.lock:
            super().commit(unit)
            self._maintain()

    def _maintain(self) -> None:
        prepared = self.store.maintain(self.clock())
        if prepared is not None:
            self.store.write(prepared)
            self.store.apply(prepared)

    def tidy(self) -> None:
        """All the housekeeping there is, while nothing comes."""
        with self.lock:
            while self.store.wants_maintenance:
                self._maintain()

    def guarded(self, handle: Callable[[str, str, Query, bytes], Reply]) -> Callable[[str, str, Query, bytes], Reply]:
        """A service of this journal; what it sends afterwards it reads from the files, without the lock."""

        def locked(method: str, path: str, query: Query, body: bytes) -> Reply:
            with self.lock:
                return handle(method, path, query, body)

        return locked


@dataclass(slots=True)
class Draining:
    """Some queues of one queue manager, in turn, over one connection that is made again when it breaks."""

    connect: Callable[[], Any]
    """A `Session`."""
    journal: LockedJournal
    queues: tuple[str, ...]
    target: str = ""
    batch: int = 1000
    wait: float = 1.0
    told: Told = lambda _text: None
    done: dict[str, Drained] = field(default_factory=dict)
    connected: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.done = {queue: Drained() for queue in self.queues}

    def run(self, *, once: bool, pause: float = 1.0) -> None:
        """Until the queues are empty (`once`) or `stopping` is set. MQError when trying again cannot help."""
        first, longest = pause, max(pause, LONGEST_PAUSE)
        began = time.monotonic()
        while not self.stopping.is_set():
            try:
                self._connected(once=once)
                return
            except MQError as error:
                if not self._goes_on(error.reason, time.monotonic() - began if once else 0.0):
                    raise
                pause = first if self.connected else min(longest, 2 * pause)
                self.told(f"{error}: {explain(error.reason)}; again in {pause:.0f} s")
                self.connected = False
            self.stopping.wait(pause)

    def _goes_on(self, reason: int, waited: float) -> bool:
        """Whether trying again can help. Somebody waits for the end of `--once`: it waits for a queue that the last
        drainer's connection still holds, but not for a queue manager that is not there."""
        if reason == HELD:
            return waited < HELD_FOR
        return action_for(reason) in _WAITED_FOR and (self.connected or not waited)

    def _connected(self, *, once: bool) -> None:
        session = self.connect()
        try:
            drainers = [self._drainer(session, queue) for queue in self.queues]
            self.connected = True
            self._drain(drainers, once=once)
        finally:
            session.disconnect()

    def _drainer(self, session: Any, queue: str) -> Drainer:
        source = IbmQueue(session, queue)
        return Drainer(source, self.journal, queue, self.target, self.batch, self.done[queue])

    def _drain(self, drainers: list[Drainer], *, once: bool) -> None:
        """Rounds over the queues; waits only where the round before brought nothing."""
        idle = False
        while not self.stopping.is_set():
            got = sum([drainer.step(self.wait / len(drainers) if idle and not once else 0.0) for drainer in drainers])
            if not got and once:
                return
            idle = not got
            if idle:
                self.journal.tidy()

    def figures(self) -> dict[str, Any]:
        """For people and programs."""
        queues = {
            queue: {"messages": done.messages, "repeated": done.repeated, "units": done.units}
            for queue, done in self.done.items()
        }
        return {"connected": self.connected, "queues": queues}

    def metrics(self) -> str:
        """In Prometheus' text format."""
        lines = ["# TYPE mqgate_drain_connected gauge", f"mqgate_drain_connected {int(self.connected)}"]
        for name, of in (("messages", "messages"), ("repeated_messages", "repeated"), ("units", "units")):
            lines.append(f"# TYPE mqgate_drain_{name}_total counter")
            lines += [
                f'mqgate_drain_{name}_total{{queue="{queue}"}} {getattr(done, of)}' for queue, done in self.done.items()
            ]
        return "\n".join(lines) + "\n"


def connector(driver: Driver, settings: ConnectSettings) -> Callable[[], Any]:
    """Makes the connection."""
    return lambda: driver.connect(settings)


def open_journal(folder: Path) -> LockedJournal:
    """The journal, made when it is not there. StoreInUse while another process owns it."""
    return LockedJournal(Store.open(folder, clock=time.time))


def total(done: Iterable[Drained]) -> int:
    """Messages of all queues."""
    return sum(each.messages for each in done)
