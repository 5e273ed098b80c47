"""Users and roles that are managed while the gateway runs: what is known of each, and who is let in by it.

Kept in memory, changed in the reactor's thread, read in any. Where they are stored is not known here. A password that
the gateway has made is long and random, so one round of SHA-512 protects it; one that somebody has chosen is protected
by Argon2id.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from gateway.access.logins import Answer, Credentials, Login
from gateway.access.passwords import hash_password, verify
from gateway.config.security import MethodName
from gateway.routing.acl import Lists

TOKEN_SECONDS = 7 * 86400.0
LEAST_OWN = 20
"""The least number of characters of a password that a device sets for itself, which is not a word but made by a
machine."""
_HASHES = threading.BoundedSemaphore(2)
_KINDS: dict[str, Any] = {"enabled": bool, "token_ends": int | float, "changed": int | float}
"""The types of a user's fields that are not text."""


@cache
def _of_nobody() -> str:
    """A hash that takes as long to verify as that of a chosen password. It is made on first use, as making it takes 64
    MiB and a fifth of a second."""
    return hash_password(secrets.token_bytes(16))


class User(NamedTuple):
    """A managed user."""

    name: str
    password: str = ""
    """The hash of the password; empty: no password lets the user in."""
    role: str = ""
    enabled: bool = True
    client_id: str = ""
    """The only client identifier the user may have; empty: any."""
    fingerprint: str = ""
    """SHA-256 of the certificate that the user has to have."""
    token: str = ""
    """Hash of the token with which the user sets the password once."""
    token_ends: float = 0.0
    changed: float = 0.0


class Role(NamedTuple):
    """What users with a role may publish and subscribe where the access list says nothing."""

    name: str
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


class ManagedUsers:
    """The method `managed`, and what the gatekeeper asks about users, whatever method identifies them."""

    name: MethodName = "managed"
    by_client = asked_again = waits = False

    def __init__(self) -> None:
        self.on_claimed: Callable[[User], None] = lambda _user: None
        """Called, on any thread, with a user who has set the password with the token."""
        self.users: dict[str, User] = {}
        self.roles: dict[str, Role] = {}
        self._fingerprints: dict[str, str] = {}
        self._claims: dict[str, User] = {}
        """Users whose tokens have set their passwords, until `claimed` is called for them."""
        self._changing = threading.Lock()

    # -- what is known --

    def put(self, users: Iterable[User], roles: Iterable[Role] = ()) -> None:
        """Add or replace users and roles."""
        with self._changing:
            for one in users:
                self._unbind(one.name)
                self.users[one.name] = one
                if one.fingerprint:
                    self._fingerprints[one.fingerprint] = one.name
        self.roles |= {one.name: one for one in roles}

    def remove(self, users: Iterable[str], roles: Iterable[str] = ()) -> None:
        """Remove users and roles."""
        with self._changing:
            for name in users:
                self._unbind(name)
                self.users.pop(name, None)
        for name in roles:
            self.roles.pop(name, None)

    def _unbind(self, name: str) -> None:
        old = self.users.get(name)
        if old is not None and self._fingerprints.get(old.fingerprint) == name:  # otherwise it is another user's by now
            del self._fingerprints[old.fingerprint]

    def lists(self, user: str | None) -> Lists | None:
        """What a user's role permits; None: the user has no role."""
        known = self.users.get(user or "")
        if known is None or not known.role:
            return None
        role = self.roles.get(known.role)
        return Lists() if role is None else Lists(role.publish, role.subscribe)

    def version(self, user: str) -> str:
        """A text that changes with each change of the user, so that what was remembered of the password becomes
        void."""
        known = self.users.get(user)
        return "" if known is None else repr(known.changed)

    def refuses(self, user: str | None, client_id: str) -> str:
        """Why a user is not let in, however the user was identified; empty: nothing speaks against it."""
        known = self.users.get(user or "")
        if known is None:
            return ""
        if not known.enabled:
            return "the user is disabled"
        return "the user has another client identifier" if known.client_id not in {"", client_id} else ""

    def bound_to(self, fingerprint: str) -> str | None:
        """The user that a certificate is bound to."""
        return self._fingerprints.get(fingerprint)

    def certified(self, name: str | None, fingerprint: str) -> str | None:
        """The user of a certificate: the one it is bound to, otherwise the one it names, unless that one is bound to
        another certificate."""
        bound = self.bound_to(fingerprint)
        if bound is not None:
            return bound
        known = self.users.get(name or "")
        return "" if known is not None and known.fingerprint else name

    def claimed(self, claim: User) -> User | None:
        """A user as it is now, with the password that the token has set. None: the token no longer counts, because the
        user is gone, has another token or password by now, or has used it at another gateway."""
        with self._changing:
            self._claims.pop(claim.name, None)
            now = self.users.get(claim.name)
        if now is None or now.token != claim.token or (not now.token_ends and now.password != claim.password):
            return None
        return now._replace(password=claim.password, token_ends=0.0)

    def as_claimed(self, stored: User) -> User:
        """A user as it is stored, with the password that the token has set here and that is not stored yet."""
        with self._changing:
            claim = self._claims.get(stored.name)
        if claim is None or claim.token != stored.token or not stored.token_ends:
            return stored
        return stored._replace(password=claim.password, token_ends=0.0)

    # -- logging in --

    def ask(self, who: Credentials) -> Answer:
        """Verify a password; takes as long for an unknown user as for a chosen password."""
        user, password = self.users.get(who.username or ""), who.password or b""
        if user is None or not user.enabled:
            self._verify(_of_nobody(), password)
            return None
        if user.password and self._verify(user.password, password):
            return Login(user.name, self.name)
        return Login(user.name, self.name, 0.0) if user.token and self._claim(user, password) else None

    def _claim(self, user: User, password: bytes) -> bool:
        """Whether `TOKEN:PASSWORD` sets the password, which it does once. The same text is accepted again, in case the
        first answer was lost."""
        token, colon, own = password.partition(b":")
        if not colon or len(own) < LEAST_OWN or not verify(user.token, token):
            return False
        with self._changing:
            now = self.users.get(user.name)
            if now is None or now.token != user.token:
                return False
            if now.token_ends:
                if now.token_ends < time.time():
                    return False
                now = now._replace(password=hashed(own), token_ends=0.0)
                self.users[user.name] = self._claims[user.name] = now
                self.on_claimed(now)
                return True
            return verify(now.password, own)

    @staticmethod
    def _verify(stored: str, password: bytes) -> bool:
        if stored.startswith("$argon2"):
            with _HASHES:
                return verify(stored, password)
        return verify(stored, password)

    def close(self) -> None:
        """Nothing is open."""


def hashed(secret: bytes) -> str:
    """The hash of a secret that a machine has made and nobody can guess, so that one round is enough."""
    salt = secrets.token_bytes(12)
    digest = hashlib.sha512(secret + salt).digest()
    return f"$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def made_secret() -> str:
    """A new password or token: 192 bits."""
    return secrets.token_urlsafe(24)


def user_of(record: dict[str, Any]) -> User:
    """A user from its record. Raises TypeError or ValueError if it is not one."""
    found = User(**record)
    for name, value in zip(User._fields, found, strict=True):
        wanted = _KINDS.get(name, str)
        if not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool):
            raise TypeError(f"{name} is {type(value).__name__}")
    return found


def role_of(record: dict[str, Any]) -> Role:
    """A role from its record. Raises TypeError, ValueError or KeyError if it is not one."""
    lists = record["publish"], record["subscribe"]
    if not isinstance(record["name"], str) or not all(
        isinstance(one, list) and all(isinstance(filter_, str) for filter_ in one) for one in lists
    ):
        raise TypeError("a role has a name and lists of filters")
    return Role(record["name"], *map(tuple, lists))
