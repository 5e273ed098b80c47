"""The access port of the settings, and their access list for the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.access.gatekeeper import Gatekeeper, acl_of
from gateway.config.model import Settings
from gateway.ports.access import Access
from gateway.ports.batch import Scheduler
from gateway.routing.acl import PUBLISH, SUBSCRIBE, Subject, Why


class ReloadableAccess(Access, Protocol):
    """An access port that can be given new settings."""

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Read all files now; calling the answer puts them into force. ConfigurationError: the old ones stay in
        force."""

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication."""


def why_publish(settings: Settings, client_id: str, user: str, topic: str, listener: str = "") -> Why:
    """Whether the access list of the settings lets this client publish there, and which entry says so."""
    return acl_of(settings).of(Subject(client_id, user, listener)).why(PUBLISH, topic)


def why_subscribe(settings: Settings, client_id: str, user: str, filter_: str, listener: str = "") -> tuple[Why, bool]:
    """The same for a subscription, and whether its deliveries are checked one by one."""
    rights = acl_of(settings).of(Subject(client_id, user, listener))
    return rights.why(SUBSCRIBE, filter_), rights.subscribe(filter_).check_deliveries


def access_of(settings: Settings, scheduler: Scheduler) -> ReloadableAccess:
    """The access port of these settings."""
    return Gatekeeper(settings, scheduler)
