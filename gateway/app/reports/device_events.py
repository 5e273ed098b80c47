"""Device events of a running gateway: they are put separately from messages, a few at a time.

They have units of work of their own, one at a time with a pause in between, so that a storm of them costs only an
occasional commit. Nothing waits for them; what cannot be put is lost, counted and logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.config.events import Events
from gateway.observe import logs
from gateway.observe.device_events import DeviceEvent, DeviceEvents, descriptor_of_events
from gateway.ports.batch import BatchQueueManager, Outcome, Puts, Scheduler, Unit
from gateway.ports.counters import Counters, DeviceEventKind, DeviceEventResult
from gateway.ports.link import address_of

log = logs.get("mqgate")
PAUSE_SECONDS = 0.25
"""The pause between two units of work while few events come."""
BUSY_SECONDS = 0.05
"""The same while more events wait."""
MOST_IN_UNIT = 200
"""How many events are in a unit of work, which takes some milliseconds of the reactor's time."""
PROBLEM = "device events"


class DeviceEventQueue:
    """Takes events and puts them; used only in the reactor's thread."""

    def __init__(
        self, queue_manager: BatchQueueManager, scheduler: Scheduler, counters: Counters, problems: dict[str, str],
        gateway: str,
    ) -> None:  # fmt: skip
        self._queue_manager, self._scheduler, self._counters = queue_manager, scheduler, counters
        self._problems, self._gateway = problems, gateway
        self._events = DeviceEvents(self._counted)
        self._settings = Events()
        self._under_way = self._timed = False
        self._head = b""

    def use(self, settings: Events) -> None:
        """Put events where these settings say from now on, or nowhere."""
        self._settings, self._head = settings, descriptor_of_events(settings.expiry)
        if not settings.wanted:
            self._problems.pop(PROBLEM, None)

    def wants(self, kind: DeviceEventKind) -> bool:
        """Whether events of this kind are put anywhere."""
        return self._settings.wanted and kind in self._settings.kinds

    def add(self, kind: DeviceEventKind, client_id: str, peer: str, **fields: object) -> None:
        """Something has happened to a device: add an event."""
        if not self.wants(kind):
            return
        about = {"client_id": client_id or None, "peer": peer, **fields}
        key = client_id or f"\0{address_of(peer)}"
        self._events.add(self._scheduler.monotonic(), key, DeviceEvent(kind, time.time(), about))
        self._later(PAUSE_SECONDS)

    def end(self) -> None:
        """The gateway ends: put now what waits."""
        waiting = self._events.take_all()
        for first in range(0, len(waiting), MOST_IN_UNIT):
            self._submit(waiting[first : first + MOST_IN_UNIT], lambda: None)

    def _later(self, seconds: float) -> None:
        if not self._timed and not self._under_way and self._events:
            self._timed = True
            self._scheduler.later(seconds, self._put)

    def _put(self) -> None:
        self._timed = False
        events = self._events.take(self._scheduler.monotonic(), MOST_IN_UNIT)
        if not events:
            self._later(PAUSE_SECONDS)
            return
        self._under_way = True
        busy = len(events) == MOST_IN_UNIT

        def done() -> None:
            self._under_way = False
            self._later(BUSY_SECONDS if busy else PAUSE_SECONDS)

        self._submit(events, done)

    def _submit(self, events: list[DeviceEvent], over: Callable[[], None]) -> None:
        place = self._settings.queue or f"topic://{self._settings.mq_topic}"
        bodies = [event.body(self._gateway) for event in events]

        def done(unit: Unit, outcome: Outcome) -> None:
            del unit
            self._answered(events, place, outcome)
            over()

        self._queue_manager.submit(Unit([Puts(place, heads=[self._head] * len(bodies), bodies=bodies)]), done)

    def _answered(self, events: list[DeviceEvent], place: str, outcome: Outcome) -> None:
        result: DeviceEventResult = "lost" if outcome.failures else "put"
        for event in events:
            self._counted(event.kind, result, 1)
        if outcome.failures:
            text = f"{place} takes no device events, they are lost: {outcome.failures[0].text}"
            if PROBLEM not in self._problems:
                log.warning("device_events", text, reason=outcome.failures[0].reason)
            self._problems[PROBLEM] = text
        elif self._problems.pop(PROBLEM, None) is not None:
            log.info("device_events", f"{place} takes device events again")

    def _counted(self, kind: DeviceEventKind, result: DeviceEventResult, count: int) -> None:
        self._counters.device_events[kind, result] += count
