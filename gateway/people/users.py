"""Users of the admin port and their tokens as data: what the file of users holds. No I/O; the time is an argument."""

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
"""The last second of the year 9999, as later times cannot be shown as dates."""
PREFIX = "mqg"
"""How a token begins, so that it is recognised where it should not be."""


class Unfit(Exception):
    """A change that cannot be made; the text says why and what to do. `status` is the HTTP status."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Token:
    """Lets a program act as a user until the token ends."""

    id: str
    digest: str
    """The digest of its secret part, which is not kept."""
    scope: str
    """The highest role it can have, whatever its user's role."""
    ends: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """A user in the file."""

    name: str
    role: str
    password: str = ""
    """The hash of the password; empty: the user signs in by tokens only."""
    disabled: bool = False
    tokens: dict[str, Token] = field(default_factory=dict)


Users = dict[str, User]


def added(users: Users, name: str, role: str, password: str) -> Users:
    """The users and one more. `password` is a hash. Raises Unfit."""
    if not NAME.match(name):
        raise Unfit(f"`{name[:70]}` is not a user name: use letters, digits and . _ @ -, at most 64 of them")
    if name in users:
        raise Unfit(f"there is a user {name} already: change or remove that one", 409)
    if len(users) >= MAX_USERS:
        raise Unfit(f"there are {MAX_USERS} users already: use a directory or an OpenID provider for more", 409)
    return {**users, name: User(name, _role(role), password)}


def changed(users: Users, name: str, *, role: str | None, password: str | None, disabled: bool | None) -> Users:
    """The users, one of them with another role, password (a hash) or state. Raises Unfit."""
    user = known(users, name)
    more: dict[str, Any] = {"role": role and _role(role), "password": password, "disabled": disabled}
    return {**users, name: replace(user, **{key: value for key, value in more.items() if value is not None})}


def removed(users: Users, name: str) -> Users:
    """The users without one of them. Raises Unfit."""
    known(users, name)
    return {key: user for key, user in users.items() if key != name}


def with_token(users: Users, name: str, token: Token) -> Users:
    """The users, one of them with another token. Raises Unfit."""
    user = known(users, name)
    if len(user.tokens) >= MAX_TOKENS:
        raise Unfit(f"{name} has {MAX_TOKENS} tokens already: remove one", 409)
    if not allows(user.role, _role(token.scope)):
        raise Unfit(f"{name} is {user.role}, so a token of this user cannot be {token.scope}", 409)
    return {**users, name: replace(user, tokens={**user.tokens, token.id: token})}


def without_token(users: Users, name: str, token: str) -> Users:
    """The users, one of them without a token. Raises Unfit."""
    user = known(users, name)
    if token not in user.tokens:
        raise Unfit(f"{name} has no token {token}", 404)
    return {**users, name: replace(user, tokens={key: one for key, one in user.tokens.items() if key != token})}


def known(users: Users, name: str) -> User:
    """The user with this name. Raises Unfit if there is none."""
    if name not in users:
        raise Unfit(f"there is no user {name} in the file of users", 404)
    return users[name]


def _role(role: str) -> str:
    if role not in ROLES:
        raise Unfit(f"`{role}` is not a role: write one of {', '.join(ROLES)}")
    return role


def check_password(password: str) -> None:
    """Raise Unfit if a password is too short to withstand guessing, or too long to be checked."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise Unfit(f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters: choose another")


def token_text(token: str, secret: str) -> str:
    """The text of a token, as its user sends it."""
    return f"{PREFIX}_{token}_{secret}"


def digest_of(secret: str) -> str:
    """The digest of a secret, which is what is kept. The secret has too many random bits to be guessed, so no slow hash
    is needed."""
    return sha256(secret.encode()).hexdigest()


def user_of_token(users: Users, text: str, now: float) -> tuple[User, str] | None:
    """Whose token it is, and its role, which is the lower one of its own and its user's; None: nobody's."""
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
    """The content of the file of users."""
    listed = [{**asdict(user), "tokens": [asdict(token) for token in user.tokens.values()]} for user in users.values()]
    return {"version": 1, "users": listed}


def _whole(token: Token) -> bool:
    """Whether a token in the file is as tokens are made here. Its end is compared with the time, its digest with that
    of what is sent, and its identifier and note are shown."""
    texts = all(isinstance(one, str) for one in (token.id, token.digest, token.note))
    ends = isinstance(token.ends, int | float) and 0 <= token.ends <= LAST_TIME
    return texts and ends and token.digest.isascii() and token.scope in ROLES


def of_document(document: Any) -> Users:
    """The users in the content of a file. Raises ValueError if it is not a file of users."""
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
            raise ValueError(f"user {len(users) + 1} is incomplete or has unknown keys: {error}") from error
        if not fit or user.name in users:
            raise ValueError(f"user {len(users) + 1} has an invalid name, role, state or token, or occurs twice")
        users[user.name] = user
    return users
