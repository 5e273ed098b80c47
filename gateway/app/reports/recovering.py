"""What a gateway says of itself while it starts and much is stored: nothing is served before all of it is read."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.counting import counted
from gateway.observe import logs
from gateway.observe.service import ServiceManager

EVERY_SECONDS = 10.0
_LONGER = 60
"""Seconds for which the service manager goes on waiting."""

log = logs.get("mqgate")


class Recovering:
    """A line of the log every ten seconds, and the service manager hears that it is to wait."""

    def __init__(self, service: ServiceManager, monotonic: Callable[[], float]) -> None:
        self._service = service
        self._monotonic = monotonic
        self._due = monotonic() + EVERY_SECONDS
        self._count = 0

    def read(self) -> None:
        """A record of the state has been read."""
        self._count += 1
        now = self._monotonic()
        if now < self._due:
            return
        self._due = now + EVERY_SECONDS
        said = f"{counted(self._count, 'record')} of sessions and what is stored for them read so far"
        log.info("recovering", f"{said}; listeners open when all are")
        self._service.starting(said, _LONGER)
