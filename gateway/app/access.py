"""Who decides about identity and authority, by the settings."""

from __future__ import annotations

from typing import Protocol

from gateway.backends.access.gatekeeper import Gatekeeper
from gateway.config.model import Settings
from gateway.ports.access import Access
from gateway.ports.batch import Scheduler


class ReloadableAccess(Access, Protocol):
    """An access port that can be given new settings."""

    def reload(self, settings: Settings) -> None:
        """Use these from now on; ConfigurationError leaves the old ones in force."""

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication."""


def access_of(settings: Settings, scheduler: Scheduler) -> ReloadableAccess:
    """The access port these settings ask for."""
    return Gatekeeper(settings, scheduler)
