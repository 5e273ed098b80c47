"""What a gateway reports about itself while it starts and much is stored: nothing is served before all of it is
read."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.counting import counted
from gateway.observe import logs
from gateway.observe.service import ServiceManager

EVERY_SECONDS = 10.0
_LONGER = 60
"""For how many more seconds the service manager waits."""

log = logs.get("mqgate")


class Recovering:
    """Logs a line every ten seconds, and tells the service manager to wait."""

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
        said = f"{counted(self._count, 'record')} of sessions and of what is stored for them read so far"
        log.info("recovering", f"{said}; listeners open when all are")
        self._service.starting(said, _LONGER)
