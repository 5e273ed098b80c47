"""JSON Web Tokens: which are accepted, and what they say about their bearers. Signatures are RS, PS, ES and EdDSA, by
the keys of the issuer (`key_sets`); whatever else a token says about keys is not read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from gateway.access.granted import NoLists, lists_of
from gateway.access.key_sets import FetchedKeys, FixedKeys, Found, Key, Keys, NoKeySet, Told, keys_of
from gateway.config.identity import Jwt
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.ports.batch import Scheduler
from gateway.routing.acl import Lists

MAX_TOKEN = 16_384
"""The most bytes of a token, as its content is read before its signature."""
_MALFORMED = "its claims do not have the form of RFC 7519: `exp`, `nbf` and `iat` are numbers, `jti` is text"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class Claimed(NamedTuple):
    """What a token proves."""

    user: str
    expires: float
    """Until when it is accepted: its `exp` plus the tolerated difference of clocks."""
    client_id: str | None = None
    topics: Lists | None = None


class NotBelieved(NamedTuple):
    """Why a token proves nothing, in words that its bearer may read."""

    why: str
    found: Found = "none"
    """With `unavailable` and `busy` it may be accepted at another time."""


Answered = Callable[[Claimed | NotBelieved], None]


class Issuer:
    """An issuer with its keys."""

    def __init__(self, settings: Jwt, keys: FixedKeys | FetchedKeys) -> None:
        self.settings, self.keys = settings, keys

    def check(self, token: bytes, answered: Answered) -> None:
        """Have `answered` called with what a token proves, now or when keys have been fetched for it."""
        key_id = _key_id(token)
        found, keys = self.keys.find(key_id, lambda: answered(self._checked(token, *self.keys.find(key_id, None))))
        if found != "wait":
            answered(self._checked(token, found, keys))

    def _checked(self, token: bytes, found: Found, keys: list[Key]) -> Claimed | NotBelieved:
        if found == "unavailable":
            return NotBelieved("the keys of its issuer are not available now: try again later", found)
        if found == "busy":
            return NotBelieved("too many tokens wait for keys: try again later", found)
        why = "it is not signed with a key of its issuer"
        for key in keys:
            claims = self._decode(token, key)
            if isinstance(claims, dict):
                return self._claimed(claims)
            why = claims or why
        return NotBelieved(why)

    def _decode(self, token: bytes, key: Key) -> dict[str, Any] | str:
        """Its claims; or why they do not hold, which is empty if the signature is not by this key."""
        import jwt

        settings = self.settings
        try:
            # Whether the claim of the user is there, and is text, is checked afterwards.
            claims: dict[str, Any] = jwt.decode(
                token, key.public, algorithms=key.algorithms, audience=settings.audience, issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp"], "verify_aud": settings.audience is not None, "verify_sub": False},
            )  # fmt: skip
        except jwt.MissingRequiredClaimError as error:
            return f"it lacks the claim `{error.claim}`"
        except tuple(_reasons()) as error:
            return next(text for kind, text in _reasons().items() if isinstance(error, kind))
        except (jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError):  # also an infinite `exp`
            return _MALFORMED if _is_signed(token, key) else ""
        return claims

    def _claimed(self, claims: dict[str, Any]) -> Claimed | NotBelieved:
        settings = self.settings
        user = filled(settings.user_claim, claims)
        if user is None:
            return NotBelieved("it does not name its user")
        client_id = None if settings.client_id_claim is None else filled(settings.client_id_claim, claims)
        if settings.client_id_claim is not None and client_id is None:
            return NotBelieved("it does not name its client identifier")
        try:
            topics = _topics(settings, claims)
        except NoLists as error:
            return NotBelieved(f"its topics cannot be used: {error}")
        return Claimed(user, float(str(claims.get("exp", 0))) + settings.leeway, client_id, topics)


def _is_signed(token: bytes, key: Key) -> bool:
    """Whether the signature is by this key, whatever the token says."""
    import jwt

    try:
        jwt.PyJWS().decode(token, key.public, algorithms=key.algorithms)
    except (jwt.PyJWTError, TypeError, ValueError):  # the key is for another algorithm
        return False
    return True


def _topics(settings: Jwt, claims: Mapping[str, Any]) -> Lists | None:
    """What the bearer may publish and subscribe, if the token decides about that. Raises NoLists if it cannot be
    understood."""
    if settings.topics_claim is not None:
        said = _value(claims, settings.topics_claim)
        return Lists() if said is None else lists_of(said)
    if settings.topics is None:
        return None
    return Lists(_made(settings.topics.publish, claims), _made(settings.topics.subscribe, claims))


def _made(filters: list[str], claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The filters with claims filled in, each of which may only be a part of a level."""
    made = []
    for one in filters:
        names = set(_PLACEHOLDER.findall(one)) - {"client", "user"}
        values = {name: _name(claims, name) for name in names}
        if all(value is not None and not set(value) & set("/+#{}") for value in values.values()):
            made.append(_PLACEHOLDER.sub(lambda found: values.get(found[1]) or found[0], one))  # noqa: B023
    return tuple(made)


def _reasons() -> Mapping[type[Exception], str]:
    """What can be wrong with a token whose signature is right."""
    import jwt

    return {
        jwt.ExpiredSignatureError: "it has expired",
        jwt.ImmatureSignatureError: "it is not valid yet",
        jwt.InvalidAudienceError: "it is for another audience",
        jwt.InvalidIssuerError: "it is of another issuer",
    }


class Tokens:
    """The issuers whose tokens are accepted."""

    def __init__(self, issuers: list[Issuer]) -> None:
        self._issuers = issuers

    def __bool__(self) -> bool:
        return bool(self._issuers)

    @staticmethod
    def is_token(password: bytes) -> bool:
        """Whether a password has the form of a token."""
        import jwt

        if password.count(b".") != 2 or len(password) > MAX_TOKEN:
            return False

        try:
            jwt.get_unverified_header(password)
        except (jwt.PyJWTError, RecursionError):  # too many nested brackets
            return False
        return True

    def check(self, token: bytes, answered: Answered) -> None:
        """Have `answered` called with what a token proves. With several issuers, the keys of the one that it names
        count."""
        issuer = self._issuers[0] if len(self._issuers) == 1 else self._named(token)
        if not self.is_token(token):
            answered(NotBelieved("it is not a token"))
        elif issuer is None:
            answered(NotBelieved("it is of another issuer"))
        else:
            issuer.check(token, answered)

    def _named(self, token: bytes) -> Issuer | None:
        """The issuer that a token names; signature and issuer are then checked with that one's settings."""
        try:
            body = token.split(b".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
        except (ValueError, RecursionError, IndexError):
            return None
        name = claims.get("iss") if isinstance(claims, dict) else None
        return next((one for one in self._issuers if one.settings.issuer == name), None)

    @property
    def give(self) -> bool:
        """Whether a token may say what its bearer may publish and subscribe."""
        return any(one.settings.topics or one.settings.topics_claim for one in self._issuers)

    def start(self) -> None:
        """Fetch the keys that come from URLs."""
        for one in self.fetched():
            one.start()

    def close_others(self, others: Tokens) -> None:
        """Stop fetching for issuers that `others` does not have."""
        kept = set(map(id, others.fetched()))
        for one in self.fetched():
            if id(one) not in kept:
                one.close()

    def fetched(self) -> list[FetchedKeys]:
        """The keys that come from URLs."""
        return [one.keys for one in self._issuers if isinstance(one.keys, FetchedKeys)]

    @property
    def keys_age(self) -> float | None:
        """The age, in seconds, of the oldest fetched keys; None: none were fetched."""
        return max((age for one in self.fetched() if (age := one.age) is not None), default=None)


class Issuers:
    """Makes issuers from settings. Fetched keys outlast a reload that does not change their issuer."""

    def __init__(self, scheduler: Scheduler, told: Told) -> None:
        self._scheduler, self._told = scheduler, told
        self._known: dict[str, FetchedKeys] = {}

    def of(self, settings: Settings) -> Tokens:
        """The issuers in these settings. Raises ConfigurationError if a file of keys cannot be used."""
        known, issuers = {}, []
        for key, one in settings.security.issuers:
            if one.jwks_file is not None:
                path = Path(settings.resolve(one.jwks_file, f"{key}.jwks_file"))
                issuers.append(Issuer(one, FixedKeys(keys_of_file(path))))
                continue
            ca = None if one.ca is None else settings.resolve(one.ca, f"{key}.ca")
            same = f"{one.model_dump_json()} {ca}"
            known[same] = self._known.get(same) or FetchedKeys(one, ca, self._scheduler, self._told)
            issuers.append(Issuer(one, known[same]))
        self._known |= known
        return Tokens(issuers)

    def keep(self, tokens: Tokens) -> None:
        """Forget the keys of issuers that are not among these."""
        kept = set(map(id, tokens.fetched()))
        self._known = {same: one for same, one in self._known.items() if id(one) in kept}


def keys_of_file(path: Path) -> Keys:
    """The keys in a file. Raises ConfigurationError."""
    try:
        return keys_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, NoKeySet | OSError) else f"not JSON: {error}"
        fix = "give a JSON Web Key Set with public keys"
        raise ConfigurationError([Finding(str(path), 1, 1, f"not a key set: {what}", fix)]) from error


def _key_id(token: bytes) -> object:
    """The identifier of the key with which a token says it is signed. It is looked up among known keys and nowhere
    else; other headers about keys (`jku`, `jwk`, `x5u`) are not read at all."""
    import jwt

    return jwt.get_unverified_header(token).get("kid")


def filled(template: str, claims: Mapping[str, Any]) -> str | None:
    """The value of a claim, or a template with its claims filled in; None if one of them is not a name."""
    if "{" not in template:
        return _name(claims, template)
    values = {name: _name(claims, name) for name in _PLACEHOLDER.findall(template)}
    if None in values.values():
        return None
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), template)


def _name(claims: Mapping[str, Any], name: str) -> str | None:
    """The text of a claim; one within claims is reached with dots. None: it is not a name."""
    value = _value(claims, name)
    return value if _is_name(value) else None


def _value(claims: Mapping[str, Any], name: str) -> Any:
    """The value of a claim, or of one within claims."""
    value: Any = claims
    for step in [name] if name in claims else name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _is_name(user: object) -> TypeGuard[str]:
    """Whether a claim can name a user: text that is not empty and has no control characters and no half of a surrogate
    pair."""
    return isinstance(user, str) and user != "" and not any("\ud800" <= one <= "\udfff" or one < " " for one in user)
