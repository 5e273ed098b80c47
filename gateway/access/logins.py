"""User and password, and who says whether they belong together: methods, asked one after the other.

The first that accepts decides. A method that cannot answer now is passed over; if no other accepts, the client is told
to try again later instead of that its password is wrong. All methods but the first run on threads, and may block.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore
from typing import NamedTuple, Protocol

from gateway.access.passwords import Hashes
from gateway.config.security import MethodName
from gateway.routing.acl import Lists

FUNCTION_SECONDS = 300.0
"""How long an answer of the operator's own function holds."""
Authenticator = Callable[[str, str | None, bytes | None], str | None]
"""A function of the operator: (client id, user, password) to the user's name, or None."""
_HASHES = BoundedSemaphore(2)
"""Limits how many hashes are computed at a time: each takes a processor for tens of milliseconds."""


class Credentials(NamedTuple):
    """What a CONNECT says, and where it came from."""

    client_id: str
    username: str | None
    password: bytes | None
    listener: str = ""
    address: str = ""


class Login(NamedTuple):
    """A user who has proved who he is."""

    user: str
    method: MethodName
    lasts: float = float("inf")
    """For how many seconds this holds without asking again, unless files are read again."""
    client_id: str | None = None
    """The client identifier that it is for, if it is for only one."""
    expires: float = 0.0
    """When it ends, and the connection with it; 0: never."""
    topics: Lists | None = None
    """What the user may publish and subscribe where the access list says nothing; None: nothing is said about
    topics."""


class NotNow(NamedTuple):
    """A method cannot say now whether it knows a user."""

    why: str
    instead: Login | None = None
    """Who is let in nevertheless, if no other method accepts."""


Answer = Login | NotNow | None


class Method(Protocol):
    """A way of identifying users."""

    @property
    def name(self) -> MethodName:
        """The method's name in the settings."""

    @property
    def by_client(self) -> bool:
        """Whether the answer may depend on the client, and not only on user and password."""

    @property
    def asked_again(self) -> bool:
        """Whether a wrong password is asked about again when it comes again."""

    @property
    def waits(self) -> bool:
        """Whether it asks somebody else, which takes long but no processor time."""

    def ask(self, who: Credentials) -> Answer:
        """Who this is; None: user and password do not belong together, or the user is not known here. Blocks."""

    def close(self) -> None:
        """End what is open; the method is asked no more."""


def ask_in_order(methods: Sequence[Method], who: Credentials) -> Answer:
    """The first login that a method returns; if there is none, the last NotNow; otherwise None."""
    last: NotNow | None = None
    for method in methods:
        answer = ask_one(method, who)
        if isinstance(answer, Login):
            return answer
        last = answer or last
    return (last.instead or last) if last is not None else None


def ask_one(method: Method, who: Credentials) -> Answer:
    """Ask one method. If it raises, nobody is accepted."""
    try:
        return method.ask(who)
    except Exception as error:  # noqa: BLE001
        return None if method.name == "authenticator" else NotNow(f"{method.name}: {type(error).__name__}")


class PlainUsers:
    """Users whose passwords are known in plain text."""

    name: MethodName = "users"
    by_client = asked_again = waits = False

    def __init__(self, users: dict[str, bytes]) -> None:
        self._users = users

    def ask(self, who: Credentials) -> Answer:
        """Compare in constant time."""
        expected = self._users.get(who.username or "")
        right = expected is not None and hmac.compare_digest(expected, who.password or b"")
        return Login(who.username or "", self.name) if right else None

    def close(self) -> None:
        """Nothing is open."""


class HashedUsers:
    """Users in a password file."""

    name: MethodName = "password_file"
    by_client = asked_again = waits = False

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = hashes

    def ask(self, who: Credentials) -> Answer:
        """Verify the hash; takes the same time for unknown users."""
        with _HASHES:
            right = self._hashes.verify(who.username or "", who.password or b"")
        return Login(who.username or "", self.name) if right else None

    def close(self) -> None:
        """Nothing is open."""


class OwnFunction:
    """The operator's own function."""

    name: MethodName = "authenticator"
    by_client = asked_again = True
    waits = False

    def __init__(self, function: Authenticator) -> None:
        self._function = function

    def ask(self, who: Credentials) -> Answer:
        """Who the function says this is."""
        user = self._function(who.client_id, who.username, who.password)
        return None if user is None else Login(user, self.name, FUNCTION_SECONDS)

    def close(self) -> None:
        """Nothing is open."""
