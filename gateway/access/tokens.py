"""JSON Web Tokens in the password of CONNECT: RS, ES and EdDSA keys from a JWKS file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import jwt

from gateway.config.security import Jwt
from gateway.errors import ConfigurationError, Finding

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with a public key only: a token that says `none` or HS256 is refused."""


class Claimed(NamedTuple):
    """What a token proves."""

    user: str
    expires: float


class Tokens:
    """Checks tokens against the keys of one file."""

    def __init__(self, settings: Jwt, path: Path) -> None:
        self._settings = settings
        try:
            keys = jwt.PyJWKSet.from_dict(json.loads(path.read_text(encoding="utf-8"))).keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            fix = "give a JSON Web Key Set with public keys"
            raise ConfigurationError([Finding(str(path), 1, 1, f"no key set: {error}", fix)]) from error
        self._by_id = {key.key_id: key for key in keys if key.key_id}
        self._all = keys

    def check(self, token: bytes) -> Claimed | None:
        """The user and expiry of a valid token."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return None
        keys = [self._by_id[key_id]] if key_id in self._by_id else self._all
        for key in keys:
            claims = self._decode(token, key)
            if claims is not None:
                user = claims.get(self._settings.user_claim)
                return Claimed(user, float(str(claims.get("exp", 0)))) if isinstance(user, str) and user else None
        return None

    def _decode(self, token: bytes, key: jwt.PyJWK) -> dict[str, object] | None:
        settings = self._settings
        try:
            claims: dict[str, object] = jwt.decode(
                token, key.key, algorithms=ALGORITHMS, audience=settings.audience, issuer=settings.issuer,
                leeway=settings.leeway, options={"require": ["exp"], "verify_aud": settings.audience is not None},
            )  # fmt: skip
        except (jwt.PyJWTError, TypeError, ValueError):
            return None
        return claims
