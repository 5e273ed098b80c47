"""Users of the admin port and their tokens, as data: what is in the file of users. No I/O; the time is an argument."""

from __future__ import annotations

import hmac
import re
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any

from gateway.ports.people import ROLES, allows

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 1000
MAX_USERS, MAX_TOKENS = 1000, 50
LONGEST_DAYS = 366
LAST_TIME = 253_402_300_799
"""The last second of the year 9999: what can be shown as a date."""
PREFIX = "mqg"
"""How a token begins, so that one is recognised where it should not be."""


class Unfit(Exception):
    """What was asked for cannot be; the text says why and what to do. `status`: as HTTP has it."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Token:
    """By which a program acts as a user, until it ends."""

    id: str
    digest: str
    """Of its secret part, which is not kept."""
    scope: str
    """The most it may do, whatever its user may."""
    ends: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """One of the file."""

    name: str
    role: str
    password: str = ""
    """Its hash; empty: signs in by tokens only."""
    disabled: bool = False
    tokens: dict[str, Token] = field(default_factory=dict)


Users = dict[str, User]


def added(users: Users, name: str, role: str, password: str) -> Users:
    """With one more. `password` is a hash."""
    if not NAME.match(name):
        raise Unfit(f"`{name[:70]}` is no user name: write letters, digits and . _ @ -, at most 64")
    if name in users:
        raise Unfit(f"there is a user {name} already: change or remove that one", 409)
    if len(users) >= MAX_USERS:
        raise Unfit(f"there are {MAX_USERS} users already: have a directory or an OpenID provider know them", 409)
    return {**users, name: User(name, _role(role), password)}


def changed(users: Users, name: str, *, role: str | None, password: str | None, disabled: bool | None) -> Users:
    """With another role, password (a hash) or state."""
    user = known(users, name)
    more: dict[str, Any] = {"role": role and _role(role), "password": password, "disabled": disabled}
    return {**users, name: replace(user, **{key: value for key, value in more.items() if value is not None})}


def removed(users: Users, name: str) -> Users:
    """Without one."""
    known(users, name)
    return {key: user for key, user in users.items() if key != name}


def with_token(users: Users, name: str, token: Token) -> Users:
    """With a token of a user."""
    user = known(users, name)
    if len(user.tokens) >= MAX_TOKENS:
        raise Unfit(f"{name} has {MAX_TOKENS} tokens already: remove one", 409)
    if not allows(user.role, _role(token.scope)):
        raise Unfit(f"{name} is {user.role}, so that no token of theirs can be {token.scope}", 409)
    return {**users, name: replace(user, tokens={**user.tokens, token.id: token})}


def without_token(users: Users, name: str, token: str) -> Users:
    """Without it."""
    user = known(users, name)
    if token not in user.tokens:
        raise Unfit(f"{name} has no token {token}", 404)
    return {**users, name: replace(user, tokens={key: one for key, one in user.tokens.items() if key != token})}


def known(users: Users, name: str) -> User:
    """The user of this name (Unfit)."""
    if name not in users:
        raise Unfit(f"there is no user {name} in the file of users", 404)
    return users[name]


def _role(role: str) -> str:
    if role not in ROLES:
        raise Unfit(f"`{role}` is no role: write {', '.join(ROLES)}")
    return role


def check_password(password: str) -> None:
    """Unfit: too short to withstand guesses, or too long to be looked at."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise Unfit(f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters")


def token_text(token: str, secret: str) -> str:
    """What its user sends."""
    return f"{PREFIX}_{token}_{secret}"


def digest_of(secret: str) -> str:
    """What is kept of it: it has too many random bits to be guessed, so that no slow hash is needed."""
    return sha256(secret.encode()).hexdigest()


def user_of_token(users: Users, text: str, now: float) -> tuple[User, str] | None:
    """Whose token it is, and the role it has: the lower one of its own and its user's."""
    prefix, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    if prefix != PREFIX:
        return None
    for user in users.values():
        token = user.tokens.get(name)
        if token is not None and hmac.compare_digest(token.digest, digest_of(secret)):
            if user.disabled or token.ends <= now:
                return None
            return user, token.scope if allows(user.role, token.scope) else user.role
    return None


def as_document(users: Users) -> dict[str, Any]:
    """The file of users."""
    listed = [{**asdict(user), "tokens": [asdict(token) for token in user.tokens.values()]} for user in users.values()]
    return {"version": 1, "users": listed}


def _whole(token: Token) -> bool:
    """Whether one of the file is what is made here: its end is compared with the time, its digest with that of what is
    sent, and its identifier and note are shown."""
    texts = all(isinstance(one, str) for one in (token.id, token.digest, token.note))
    ends = isinstance(token.ends, int | float) and 0 <= token.ends <= LAST_TIME
    return texts and ends and token.digest.isascii() and token.scope in ROLES


def of_document(document: Any) -> Users:
    """What a file of users says. ValueError: it is none."""
    if not isinstance(document, dict) or document.get("version") != 1 or not isinstance(document.get("users"), list):
        raise ValueError("it is not what `mqgate admin user` writes: `version: 1` and a list `users`")
    users: Users = {}
    for one in document["users"]:
        try:
            tokens = {str(token["id"]): Token(**token) for token in one.get("tokens", ())}
            user = User(**{**one, "tokens": tokens})
            fit = NAME.match(user.name) and user.role in ROLES and isinstance(user.password, str)
            fit = fit and isinstance(user.disabled, bool)
            fit = fit and all(_whole(token) for token in tokens.values())
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"user {len(users) + 1} is not whole: {error}") from error
        if not fit or user.name in users:
            raise ValueError(
                f"user {len(users) + 1} has a name, role, state or token that cannot be, or is there twice"
            )
        users[user.name] = user
    return users
