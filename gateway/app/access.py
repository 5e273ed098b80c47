"""Who decides about identity and authority, by the settings."""

from __future__ import annotations

from typing import Protocol

from gateway.broker.open_access import OpenAccess
from gateway.config.model import Settings
from gateway.ports.access import Access
from gateway.ports.batch import Scheduler


class ReloadableAccess(Access, Protocol):
    """An access port that can be given new settings."""

    def reload(self, settings: Settings) -> None:
        """Use these from now on; ConfigurationError leaves the old ones in force."""

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication."""


class Unrestricted(OpenAccess):
    """No user, no list, anonymous allowed."""

    def reload(self, settings: Settings) -> None:
        """Nothing to read."""
        del settings

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Nothing forbids it."""
        del listener, client_id, user, topic
        return "no access list is configured: everything is allowed"


def access_of(settings: Settings, scheduler: Scheduler) -> ReloadableAccess:
    """The access port these settings ask for."""
    del settings, scheduler
    return Unrestricted()
