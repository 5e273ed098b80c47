"""Who may connect, publish and subscribe: the port behind which passwords, tokens and access lists live."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.mqtt.packets import Connect
from gateway.ports.link import Link


class Verdict(NamedTuple):
    """The answer to a CONNECT (or a step of enhanced authentication)."""

    reason: int
    """An MQTT 5 reason code: 0 accepted, 0x18 continue with `data`, else refused."""
    user: str | None = None
    client_id: str | None = None
    """A client identifier imposed by the certificate, if any."""
    text: str = ""
    data: bytes = b""
    expires: float = 0.0
    """When what was proven ceases to be true (a token's expiry); 0: never."""


class Access(Protocol):
    """Identity and authority. The caller caches decisions per topic; whoever puts other lists into force has that
    cleared."""

    def authenticate(self, connect: Connect, link: Link, done: Callable[[Verdict], None]) -> None:
        """Decide about a CONNECT; `done` may be called before this returns, or later from the reactor thread."""

    def exchange(self, connection: object, data: bytes, done: Callable[[Verdict], None]) -> None:
        """A step of enhanced authentication: the client's AUTH data."""

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
