"""CONNECTs that wait until no other gateway has the client's session. Pure.

Two gateways may ask each other for the same session at the same time. Whichever is asked first gives it, and the other
must not conclude that there is none: so a gateway whose own questions have not been answered yet does not say that it
has nothing. Of two that wait for each other, the one with the smaller name goes on, and the other gives way: it refuses
its client when all have answered and nobody has given it the session, and not before, because whoever gives it the
session meanwhile closes a connection for it, and that client would be refused as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from gateway.broker.sessions.connack import AGAIN, ANOTHERS, Connacks, Refusal
from gateway.mqtt import reasons
from gateway.ports.ownership import Message
from gateway.session.connection import AUTHENTICATING
from gateway.session.registry import Registry, Waiter

_THERE = reasons.SERVER_BUSY, "the same client is connecting to another gateway"
_ELSEWHERE = reasons.SERVER_BUSY, "the same client connected to another gateway"


@dataclass(slots=True, eq=False)
class Claim:
    """A CONNECT that waits; or one whose client has gone while other gateways have still to answer."""

    waiter: Waiter
    number: int
    refusal: Refusal | None = None
    """Why its client is refused unless somebody gives it the session."""
    preferred: bool = False
    """Whether another gateway has closed a connection for it; then it goes on, whoever else connects."""
    unanswered: set[str] = field(default_factory=set)
    """The gateways that have not answered yet."""

    @property
    def waits(self) -> bool:
        """Whether its client still waits for CONNACK."""
        return self.waiter.connection is not None and self.waiter.connection.state == AUTHENTICATING

    @property
    def user(self) -> str | None:
        """The user who connects."""
        connection = self.waiter.connection
        return None if connection is None else connection.user

    @property
    def who(self) -> dict[str, Any]:
        """What the owner of a session is told about whoever asks for it."""
        connection = self.waiter.connection
        return {} if connection is None else {"user": connection.user, "listener": connection.link.listener}


class Standing(Enum):
    """How this gateway stands to a client that another one asks for."""

    NOTHING = auto()
    """It does not want the session."""
    GOES_ON = auto()
    """It is asking for the session itself, and goes on."""
    UNKNOWN = auto()
    """It is asking for the session itself and gives way, but somebody may have given it the session already."""


class Claims:
    """The CONNECTs that wait, by client identifier."""

    def __init__(
        self, connacks: Connacks, instance: str, peers: Callable[[], Collection[str]],
        write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        self.connacks = connacks
        self.instance = instance
        self.peers = peers
        self.write = write
        self._claims: dict[str, Claim] = {}
        self._number = 0

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._claims

    def clients(self) -> Collection[str]:
        """The clients that wait; those that have waited longest come first."""
        return self._claims.keys()

    def number(self, client_id: str) -> int:
        """The number of the client's questions to others; 0 if it does not wait."""
        claim = self._claims.get(client_id)
        return 0 if claim is None else claim.number

    def add(self, client_id: str, waiter: Waiter) -> bool:
        """Let the CONNECT of a client wait. Returns False if it is refused, because another user is connecting with the
        same client identifier."""
        older = self._claims.get(client_id)
        if older is not None and older.waits and older.user != getattr(waiter.connection, "user", None):
            self._refuse(Claim(waiter, 0), *ANOTHERS)
            return False
        if older is not None and older.waiter.connection is not waiter.connection:
            self._refuse(older, *AGAIN)
        self._number += 1
        self._claims[client_id] = Claim(waiter, self._number)
        return True

    def ask(self, client_id: str) -> None:
        """Ask all other gateways for the client's session."""
        claim = self._claims[client_id]
        claim.unanswered = {*self.peers()}
        for peer in sorted(claim.unanswered):
            self.write(peer, {"kind": "ask", "client": client_id, "number": claim.number, **claim.who})

    def answered(self, message: Message) -> bool:
        """Note the answer of another gateway. Returns True if nobody has the session and the client may go on."""
        client_id, kind = message["client"], message["kind"]
        claim = self._claims.get(client_id)
        if claim is not None and message.get("closed"):
            claim.preferred = True
        if claim is None or claim.number != message["number"]:
            return False
        if kind != "none":  # the same client is connecting there too, or has a session of another user there
            claim.refusal = ANOTHERS if kind == "anothers" else claim.refusal or _THERE
        claim.unanswered.discard(message["from"])
        if claim.unanswered:
            return False
        if claim.waits and (claim.preferred or claim.refusal is None):
            return True
        self._give_up(client_id, claim)
        return False

    def given(self, message: Message) -> None:
        """Note that another gateway has given this one the session."""
        claim = self._claims.get(message["client"])
        if claim is not None:
            if claim.number == message["number"]:
                claim.unanswered.discard(message["from"])
            self._withdraw(message["client"], claim)

    def go_on(self, client_id: str) -> None:
        """Let the client's CONNECT go on: no other gateway has its session now."""
        claim = self._claims.pop(client_id)
        self._withdraw(client_id, claim)
        claim.waiter.call()

    def refuse(self, client_id: str, reason: int, text: str) -> None:
        """Refuse the client's CONNECT: its session should be there and is not."""
        claim = self._claims[client_id]
        claim.refusal = reason, text
        self._withdraw(client_id, claim)
        self._give_up(client_id, claim)

    def _withdraw(self, client_id: str, claim: Claim) -> None:
        """Tell the gateways that have not answered not to answer any more; else they would give the session away again
        when it has gone on to them."""
        for peer in sorted(claim.unanswered):
            self.write(peer, {"kind": "withdraw", "client": client_id})
        claim.unanswered.clear()

    def standing(self, client_id: str, sender: str) -> Standing:
        """How this gateway stands to a client that another one asks for, and whose session is not here. A claim that
        gives way is refused when all have answered."""
        claim = self._claims.get(client_id)
        if claim is None:
            return Standing.NOTHING
        if self.instance < sender and (claim.waits or claim.unanswered):
            return Standing.GOES_ON
        claim.refusal = claim.refusal or _ELSEWHERE
        if claim.unanswered:
            return Standing.UNKNOWN
        self._give_up(client_id, claim)
        return Standing.NOTHING

    def those_of(self, sessions: Registry) -> list[str]:
        """The clients that wait and whose sessions are here by now."""
        return [client_id for client_id in self._claims if sessions.get(client_id) is not None]

    def ask_again(self, is_here: Callable[[str], bool], has_to_wait: Callable[[str], bool]) -> list[str]:
        """Ask anew for the clients that wait, because other gateways have come or gone; not for those that have to wait
        on. Returns the clients that need not wait any more."""
        ready = []
        for client_id, claim in list(self._claims.items()):
            if has_to_wait(client_id):
                continue
            if is_here(client_id) or not self.peers():
                ready.append(client_id)
            else:
                self._number += 1
                claim.number, claim.refusal = self._number, None
                self.ask(client_id)
        return ready

    def _give_up(self, client_id: str, claim: Claim) -> None:
        """Forget a claim, as all have answered and its session goes to another gateway or its client has left; a client
        that still waits is refused."""
        del self._claims[client_id]
        if claim.refusal is not None:
            self._refuse(claim, *claim.refusal)

    def _refuse(self, claim: Claim, reason: int, text: str) -> None:
        connection = claim.waiter.connection
        if connection is not None and claim.waits:
            self.connacks.refuse(connection, reason, text)
