"""How many messages lie on the queues that metrics and the page speak of, and what is the matter with one that refuses.

The embedded queue manager is asked at once. IBM MQ is asked every few seconds, apart from the reactor: what was seen
last is told for a while, then nothing rather than something old.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.ports.inspection import QueueRow

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway
    from gateway.app.inquiries import Inquiries
    from gateway.backends.ibm.inspection import IbmInspection

EVERY_SECONDS = 5.0
OLD_SECONDS = 60.0


def queue_names(gateway: Gateway) -> list[str]:
    """Queues that rules name without a template."""
    names = {route.rule.spec.queue for route in gateway.table.routes} | {
        one.spec.queue for one in gateway.table.outbound
    }
    return sorted(name for name in names if name and "{" not in name)


class Sights:
    """See the module: here nothing is far away."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def look(self) -> None:
        """Called every second."""

    def depth(self, queue: str) -> int | None:
        """None: it is not defined (the dead letters tell), or cannot be seen for the moment."""
        with suppress(MQError):
            return self.gateway.queue_manager.depth(queue)
        return None

    def row(self, queue: str) -> QueueRow | None:
        """A queue that refuses, in one line; MQError where it does not exist, None when it could not be looked at."""
        inspection = self.gateway.inspection
        return None if inspection is None else inspection.queue(queue)


class FarSights(Sights):
    """Of a queue manager elsewhere."""

    def __init__(self, gateway: Gateway, inspection: IbmInspection, inquiries: Inquiries) -> None:
        super().__init__(gateway)
        self._inspection = inspection
        self._inquiries = inquiries
        self._depths: dict[str, int] = {}
        self._rows: dict[str, QueueRow | MQError] = {}
        self._seen_at = self._asked_at = float("-inf")
        self._asking = False

    def look(self) -> None:
        """Ask again when it is time, and nobody waits for the last answer."""
        now = time.monotonic()
        if self._asking or now - self._asked_at < EVERY_SECONDS:
            return
        self._asking, self._asked_at = True, now
        engine = self.gateway.engine
        names = {*queue_names(self.gateway), engine.dead_letter_queue} - {""}
        held = {parked.address.queue for parked in engine.parking.waiting.values()}
        self._inquiries.ask(lambda: (200, (self._count(sorted(names)), self._see(sorted(held)))), self._answered)

    def _count(self, names: list[str]) -> dict[str, int]:
        """In the thread."""
        found = {}
        for name in names:
            with suppress(MQError):
                found[name] = self._inspection.depth(name)
        return found

    def _see(self, names: list[str]) -> dict[str, QueueRow | MQError]:
        """In the thread."""
        found: dict[str, QueueRow | MQError] = {}
        for name in names:
            try:
                found[name] = self._inspection.queue(name)
            except MQError as error:
                found[name] = error
        return found

    def _answered(self, found: tuple[int, object] | Exception) -> None:
        self._asking = False
        if isinstance(found, tuple):
            self._depths, self._rows = found[1]  # type: ignore[misc]
            self._seen_at = time.monotonic()

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._seen_at < OLD_SECONDS

    def depth(self, queue: str) -> int | None:
        """As it was seen last."""
        return self._depths.get(queue) if self._fresh else None

    def row(self, queue: str) -> QueueRow | None:
        """As it was seen last."""
        found = self._rows.get(queue) if self._fresh else None
        if isinstance(found, MQError):
            raise found
        return found
