"""Sign-in with an OpenID provider: the authorization code flow with PKCE (RFC 6749, RFC 7636, OpenID Connect Core 1.0).

Each attempt has its own state, nonce and verifier, is bound by a cookie to the browser that began it, and can be used
once. Where it leads in the end is fixed: no address is taken from a request. `begin` and `finish` block.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from gateway.access.key_sets import DISCOVERY, Keys, NoKeySet, keys_of
from gateway.access.tokens import filled
from gateway.access.web import Manner, Unanswered, ask
from gateway.config.identity import check_url
from gateway.config.people import Oidc
from gateway.config.units import Wrong
from gateway.people.people import Begun, Refused
from gateway.ports.people import ROLES, Caller

ATTEMPT_SECONDS = 600.0
MOST_OVER = 10_000
"""How many used attempts are remembered. One that is forgotten is of no use either, as the provider accepts its code
only once."""
DOCUMENT_SECONDS = 3600.0
REDIRECT = "/api/v1/sign-in/answer"
LONGEST = 4096
_IN_FORM = "client_secret_post"
_PLACES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_NOT_NOW = "the provider does not answer as it should: see the log, and try again"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that is under way at the provider."""

    state: str
    nonce: str
    verifier: str


class Attempts:
    """Attempts that are under way. The browser keeps them: the rest is derived from its cookie with a key of this
    process. So an attempt that is never finished leaves nothing here, and strangers who begin many of them displace
    nobody. Used attempts are remembered, because each can be used only once, in whichever browser. No I/O."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._over: dict[str, None] = {}
        self._lock = threading.Lock()

    def begin(self, now: float) -> tuple[str, Attempt]:
        """Begin an attempt. Returns what the cookie is to hold, and the attempt."""
        cookie = f"{int(now)}.{secrets.token_urlsafe(32)}"
        return cookie, self._of(cookie)

    def take(self, state: str, cookie: str, now: float) -> Attempt:
        """The attempt of this cookie, which is used up by this. Raises Refused."""
        attempt = self._of(cookie)
        again = len(state) == len(attempt.state) and self._came_back(state)
        if not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "replace")):
            raise Refused("this sign-in was begun in another browser, or never here: begin again")
        # The cookie is one of ours: nobody else knows its state.
        if again or now - int(cookie.partition(".")[0]) > ATTEMPT_SECONDS:
            raise Refused("this sign-in is over: begin again")
        return attempt

    def _came_back(self, state: str) -> bool:
        """Note that an attempt is used; returns whether it was used before."""
        with self._lock:
            again = state in self._over
            while len(self._over) >= MOST_OVER:
                del self._over[next(iter(self._over))]
            self._over[state] = None
        return again

    def _of(self, cookie: str) -> Attempt:
        return Attempt(*(self._made(cookie, what) for what in ("state", "nonce", "verifier")))

    def _made(self, cookie: str, what: str) -> str:
        digest = hmac.digest(self._key, f"{what} {cookie}".encode("utf-8", "replace"), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Provider:
    """An OpenID provider."""

    def __init__(self, settings: Oidc, ca: str | None, secret: str | None, told: Callable[[str, str], None]) -> None:
        self.settings = settings
        self._told = told
        self._secret = secret
        self._manner = Manner(settings.timeout, ca, settings.private_addresses)
        self._attempts = Attempts()
        self._document: tuple[float, dict[str, str]] | None = None

    @property
    def name(self) -> str:
        """The provider's name on the sign-in page."""
        return self.settings.name

    @property
    def redirect(self) -> str:
        """The address to which the provider sends browsers back."""
        return self.settings.gateway_url.rstrip("/") + REDIRECT

    def begin(self) -> Begun:
        """Begin a sign-in. Raises Refused."""
        place = self._places()["authorization_endpoint"]
        cookie, attempt = self._attempts.begin(time.monotonic())
        challenge = base64.urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code", "client_id": self.settings.client_id, "redirect_uri": self.redirect,
            "scope": " ".join(self.settings.scopes), "state": attempt.state, "nonce": attempt.nonce,
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        return Begun(f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(query)}", cookie)

    def finish(self, query: Mapping[str, str], cookie: str) -> Caller:
        """Finish a sign-in; returns who has signed in. Raises Refused."""
        attempt = self._attempts.take(query.get("state", ""), cookie, time.monotonic())
        if query.get("iss", self.settings.issuer) != self.settings.issuer:  # RFC 9207
            raise Refused("the answer is from another provider: begin again")
        code = query.get("code", "")
        if not code or len(code) > LONGEST:
            raise Refused("the provider has refused the sign-in: " + query.get("error", "no code")[:60])
        claims = self._claims(self._exchange(code, attempt.verifier))
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
            raise Refused("the token is for another sign-in")
        user, role = filled(self.settings.user_claim, claims), self._role(claims)
        if user is None or len(user) > 256:
            raise Refused(f"the token does not name its user in `{self.settings.user_claim}`")
        if role is None:
            raise Refused(
                f"{user} has no role here: none of `{self.settings.roles_claim}` is one of `admin.oidc.roles`"
            )
        return Caller(user, "oidc", role)

    def _role(self, claims: Mapping[str, Any]) -> str | None:
        value: Any = claims
        name = self.settings.roles_claim
        for step in [name] if name in claims else name.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        given = {one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)}
        found = [one.role for one in self.settings.roles if one.value in given]
        return max(found, key=ROLES.index, default=None)

    def _exchange(self, code: str, verifier: str) -> str:
        """Exchange a code for the ID token. Raises Refused."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect,
            "code_verifier": verifier,
        }  # fmt: skip
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._secret and self._places()["secret"] != _IN_FORM:
            headers["Authorization"] = _basic(self.settings.client_id, self._secret)
        else:
            form |= {"client_id": self.settings.client_id}
            form |= {"client_secret": self._secret} if self._secret else {}
        answer = self._asked(self._places()["token_endpoint"], urlencode(form).encode(), headers)
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or len(token) > LONGEST * 4:
            raise Refused("the provider has returned no ID token", 503)
        return token

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token that is signed with one of the provider's keys, made for this gateway and valid now.
        Raises Refused."""
        import jwt

        settings = self.settings
        keys = self._keys()
        try:
            named = keys.by_id.get(str(jwt.get_unverified_header(token).get("kid")))
        except (jwt.PyJWTError, RecursionError) as error:
            raise Refused("the provider's ID token is not a token") from error
        for key in [named] if named is not None else keys.all:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token, key.public, algorithms=key.algorithms, audience=settings.client_id, issuer=settings.issuer,
                    leeway=settings.leeway, options={"require": ["exp", "iat", "aud", "iss", "sub"]},
                )  # fmt: skip
            except (jwt.PyJWTError, TypeError, ValueError, RecursionError):
                continue
            if (
                isinstance(claims.get("aud"), list)
                and len(claims["aud"]) > 1
                and claims.get("azp") != settings.client_id
            ):
                break
            return claims
        raise Refused("the ID token is not from the provider, not for this gateway, or not valid now")

    def _keys(self) -> Keys:
        return keys_of(self._asked(self._places()["jwks_uri"], wrong=_wrong_keys))

    def _places(self) -> dict[str, str]:
        """The addresses of the provider's endpoints, from its own configuration document."""
        if self._document is not None and time.monotonic() - self._document[0] < DOCUMENT_SECONDS:
            return self._document[1]
        said = self._asked(self.settings.issuer.rstrip("/") + DISCOVERY, wrong=self._wrong_document)
        places = {key: str(said.get(key)) for key in _PLACES}
        places["secret"] = _IN_FORM if _only_in_form(said.get("token_endpoint_auth_methods_supported")) else ""
        self._document = time.monotonic(), places
        return places

    def _wrong_document(self, said: Any) -> str:
        """What is wrong with its configuration document (OpenID Connect Discovery 1.0, 4.3); empty: nothing."""
        found = said if isinstance(said, dict) else {}
        if found.get("issuer") != self.settings.issuer:
            return f"its configuration is that of the issuer {str(found.get('issuer'))[:100]!r}"
        for key in _PLACES:
            try:
                check_url(str(found.get(key)))
            except Wrong as error:
                return f"`{key}` of its configuration: {error}"[:300]
        return ""

    def _asked(
        self, url: str, body: bytes | None = None, headers: dict[str, str] | None = None,
        wrong: Callable[[Any], str] = lambda _answer: "",
    ) -> Any:  # fmt: skip
        """The provider's answer. `wrong` says why an answer cannot be used, or nothing. Raises Refused."""
        try:
            answer = ask(url, self._manner, self.settings.issuer, body, headers).value
            why = wrong(answer)
        except Unanswered as error:
            answer, why = None, str(error)
        self._told(self.settings.issuer, f"oidc: {why}" if why else "")
        if why:
            raise Refused(_NOT_NOW, 503)
        return answer


def _wrong_keys(said: Any) -> str:
    try:
        keys_of(said)
    except NoKeySet as error:
        return f"its key set cannot be used: {error}"
    return ""


def _only_in_form(methods: object) -> bool:
    """Whether a provider takes the secret of a client in the form only. Unless it says so, it takes it in a header
    (OpenID Connect Discovery 1.0, 3), as RFC 6749, 2.3.1 demands."""
    return isinstance(methods, list) and _IN_FORM in methods and "client_secret_basic" not in methods


def _basic(client_id: str, secret: str) -> str:
    """Name and secret of a client as a header (RFC 6749, 2.3.1): each is encoded as in a form, then both together in
    base64."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
