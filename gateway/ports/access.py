"""Who may connect, publish and subscribe: the port behind which passwords, tokens and access lists live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gateway.mqtt.packets import Connect
from gateway.ports.link import Link

Decisions = dict[str, bool] | bool
"""What is known of the topics that a client may publish to: by topic, in a dict that grows as it is asked; True: it may
publish to all."""


class Verdict(NamedTuple):
    """The answer to a CONNECT (or a step of enhanced authentication)."""

    reason: int
    """An MQTT 5 reason code: 0 accepted, 0x18 continue with `data`, else refused."""
    user: str | None = None
    client_id: str | None = None
    """A client identifier imposed by the certificate or the token, if any."""
    text: str = ""
    data: bytes = b""
    expires: float = 0.0
    """When what was proven ceases to be true (a token's expiry); 0: never."""
    after: float = 0.0
    """Seconds a refusal is held back."""
    method: str = ""
    """What has known the user, as its settings are called."""
    exchange: object = None
    """What is to be known when the client goes on: kept with its connection, and handed in again with it."""
    topics: Any = None
    """What its login lets it publish and subscribe, if it says so; in force as long as this verdict is kept."""


class Authenticating(Protocol):
    """A connection as far as identity goes."""

    link: Link
    request: Any
    """Its CONNECT."""
    publisher: Any
    """Of whom the client identifier it has."""
    user: str | None
    """Who it is already."""
    exchange: object
    """That of the last verdict."""


class Access(Protocol):
    """Identity and authority. The caller caches decisions per topic; whoever puts other lists into force has that
    cleared."""

    def authenticate(self, connect: Connect, link: Link, done: Callable[[Verdict], None]) -> None:
        """Decide about a CONNECT; `done` may be called before this returns, or later from the reactor thread."""

    def exchange(self, connection: Authenticating, data: bytes, done: Callable[[Verdict], None]) -> None:
        """A step of enhanced authentication: the client's AUTH data."""

    def may_take(self, owner: str | None, owner_listener: str, user: str | None, listener: str) -> bool:
        """Whether a user who connects through `listener` may have a session that `owner` made, whose client connected
        last through `owner_listener`. None: an anonymous client."""

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""

    def decisions(self, listener: str, client_id: str, user: str | None) -> Decisions:
        """What is known of the topics that this client may publish to; of others `may_publish` is asked."""

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
