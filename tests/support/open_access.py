"""The access port when nothing is restricted: everybody may connect and do everything."""

from __future__ import annotations

from collections.abc import Callable

from gateway.mqtt.packets import Connect
from gateway.ports.access import Authenticating, Decisions, Verdict
from gateway.ports.link import Link


class OpenAccess:
    """Anonymous allowed, no access list: any user passes."""

    def authenticate(self, connect: Connect, link: Link, done: Callable[[Verdict], None]) -> None:
        """Accept; an authentication method cannot be offered here."""
        if 0x15 in connect.properties:
            done(Verdict(0x8C, text="no authentication method is offered here"))
        else:
            done(Verdict(0, link.certificate_user or connect.username))

    def exchange(self, connection: Authenticating, data: bytes, done: Callable[[Verdict], None]) -> None:
        """No method, no exchange."""
        del connection, data
        done(Verdict(0x8C, text="no authentication method is offered here"))

    def may_take(self, owner: str | None, owner_listener: str, user: str | None, listener: str) -> bool:
        """Who made it, and anybody what nobody made."""
        del owner_listener, listener
        return owner in {None, user}

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Everything."""
        del listener, client_id, user, topic
        return True

    def decisions(self, listener: str, client_id: str, user: str | None) -> Decisions:
        """Everything."""
        del listener, client_id, user
        return True

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Everything."""
        del listener, client_id, user, filter_
        return True

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Everything."""
        del listener, client_id, user, topic
        return True
