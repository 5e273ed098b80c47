"""Who may connect, publish and subscribe: the port to passwords, tokens and access lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gateway.mqtt.packets import Connect
from gateway.ports.link import Link

Decisions = dict[str, bool] | bool
"""The cached decisions about topics that a client may publish to, by topic, in a dict that grows with each question;
True: it may publish to all."""


class Verdict(NamedTuple):
    """The answer to a CONNECT (or a step of enhanced authentication)."""

    reason: int
    """An MQTT 5 reason code: 0 accepts, 0x18 continues with `data`, any other refuses."""
    user: str | None = None
    client_id: str | None = None
    """A client identifier that the certificate or the token imposes, if any."""
    text: str = ""
    data: bytes = b""
    expires: float = 0.0
    """When the proof ceases to hold (when a token expires); 0: never."""
    after: float = 0.0
    """For how many seconds a refusal is held back."""
    method: str = ""
    """The method that has identified the user, named like its settings."""
    exchange: object = None
    """What is needed when the client continues: kept with its connection, and passed in again with it."""
    topics: Any = None
    """What the login lets the client publish and subscribe, if it says so; in force as long as this verdict is kept."""


class Authenticating(Protocol):
    """A connection, as far as its identity goes."""

    link: Link
    request: Any
    """Its CONNECT."""
    publisher: Any
    """Has the client identifier."""
    user: str | None
    """The user it has been authenticated as, if any."""
    exchange: object
    """The `exchange` of the last verdict."""


class Access(Protocol):
    """Identity and authority. The caller caches decisions by topic; whoever puts other lists into force has that cache
    cleared."""

    def authenticate(self, connect: Connect, link: Link, done: Callable[[Verdict], None]) -> None:
        """Decide about a CONNECT; `done` may be called before this returns, or later from the reactor thread."""

    def exchange(self, connection: Authenticating, data: bytes, done: Callable[[Verdict], None]) -> None:
        """Decide about a step of enhanced authentication; `data` is the client's Authentication Data."""

    def may_take(self, owner: str | None, owner_listener: str, user: str | None, listener: str) -> bool:
        """Whether a user who connects through `listener` may have a session that `owner` made, and whose client last
        connected through `owner_listener`. None as a user is an anonymous client."""

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""

    def decisions(self, listener: str, client_id: str, user: str | None) -> Decisions:
        """The cached decisions about topics that this client may publish to; about others `may_publish` decides."""

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
