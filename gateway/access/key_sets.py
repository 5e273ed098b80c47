"""The public keys of an issuer: from a file, read once, or from a URL, fetched on a thread before they are needed.

Fetched keys are good for a time, and are fetched again before it is over. They are also fetched when a token names a
key that is not among them: at most every five seconds, while the token waits, and once a minute for the same key. While
the provider cannot be reached, or its answer is not a key set, the last keys stay in force for as long as the settings
say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from gateway.access.web import Manner, Unanswered, ask, shown
from gateway.config.identity import Jwt
from gateway.ports.batch import Scheduler

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that have a public key: a token that names `none` or HS256 is refused."""
MAX_KEYS = 100
MAX_KEY_BITS, MIN_KEY_BITS = 8192, 2048
"""The bounds for RSA keys: signatures of larger keys take long to verify, those of smaller ones can be forged."""
AGAIN_SECONDS = 5.0
"""The time between two fetches for unknown keys. Fetches that were due anyway do not count, as an issuer may change its
keys right after one. A token that names such a key meanwhile waits for the next fetch, so that a new key is not taken
for a wrong one because strangers name made-up keys."""
UNKNOWN_SECONDS = 60.0
"""For this long, a key that was not there is not fetched again."""
MAX_UNKNOWN = 1024
"""How many such keys are remembered."""
LEAST_SECONDS = 60.0
EARLY = 0.8
"""Keys are fetched again after this share of their time."""
RETRY_MOST = 60.0
MAX_WAITING = 1024
"""How many tokens may wait for keys."""
DISCOVERY = "/.well-known/openid-configuration"

Found = Literal["found", "none", "wait", "unavailable", "busy"]


class Key(NamedTuple):
    """A public key, and the algorithms that it is for."""

    public: Any
    algorithms: list[str]
    key_id: object


class Keys(NamedTuple):
    """A key set."""

    by_id: dict[str, Key]
    all: list[Key]


class NoKeySet(ValueError):
    """Raised if a document has no key that can be used."""


def keys_of(document: Any) -> Keys:
    """The public keys for signatures in a key set; everything else in it is ignored. Raises NoKeySet if there are
    none."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise NoKeySet("it has no list `keys`")
    if len(listed) > MAX_KEYS:
        raise NoKeySet(f"it has more than {MAX_KEYS} keys")
    found = [key for key in map(_key_of, listed) if key is not None]
    if not found:
        raise NoKeySet("it has no public key for signatures (RSA from 2048 bits, EC, OKP)")
    return Keys({key.key_id: key for key in found if isinstance(key.key_id, str)}, found)


def _key_of(one: Any) -> Key | None:
    import jwt

    if not isinstance(one, dict):
        return None
    one = {
        name: value for name, value in one.items() if value is not None
    }  # some issuers write every member there could be
    operations = one.get("key_ops", ["verify"])
    if one.get("kty") not in ("RSA", "EC", "OKP") or "d" in one or one.get("use", "sig") != "sig":
        return None
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if len(str(one.get("n", ""))) * 6 > MAX_KEY_BITS + 64 or len(str(one.get("e", ""))) > 12:
        return None  # the key is not even made, as that takes long
    try:
        made = jwt.PyJWK.from_dict(one)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError, NotImplementedError):  # `alg` none
        return None
    if made.algorithm_name not in ALGORITHMS:
        return None
    if one["kty"] == "RSA" and not MIN_KEY_BITS <= made.key.key_size <= MAX_KEY_BITS:
        return None
    return Key(made.key, [made.algorithm_name] if "alg" in one else ALGORITHMS, one.get("kid"))


class FixedKeys:
    """The keys of a file."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def find(self, key_id: object, _then: Callable[[], None] | None) -> tuple[Found, list[Key]]:
        """The key with this identifier, or all keys if none has it."""
        found = self._keys.by_id.get(key_id) if isinstance(key_id, str) else None
        return "found", self._keys.all if found is None else [found]


class Fetched(NamedTuple):
    """A key set, and how long it may be kept according to its provider; or why there is none."""

    keys: Keys | None
    max_age: float | None = None
    why: str = ""


Told = Callable[[str, str], None]
"""(provider, why): called when a fetch has ended; an empty `why` is a success."""


class FetchedKeys:
    """The keys that a provider publishes at a URL."""

    def __init__(self, settings: Jwt, ca: str | None, scheduler: Scheduler, told: Told) -> None:
        self._settings, self._scheduler, self._told = settings, scheduler, told
        self._manner = manner_of(settings, ca)
        self.provider = shown(settings.jwks_url or settings.issuer or "")
        self._keys: Keys | None = None
        self._got_at = self._asked_at = float("-inf")
        self._fresh = settings.refresh
        self._fetching = self._closed = False
        self._failures = 0
        self._waiting: list[Callable[[], None]] = []
        self._planned = False
        """Whether a fetch for an unknown key is planned."""
        self._unknown: dict[str, float] = {}
        """When keys that were asked for were found missing."""
        self._cancel: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Fetch the keys for the first time."""
        if self._keys is None and not self._fetching and not self._failures:
            self._fetch()

    def close(self) -> None:
        """Fetch nothing any more; whoever waits is answered."""
        self._closed = True
        self._cancel()
        self._tell_waiting()

    @property
    def age(self) -> float | None:
        """The seconds since the keys were fetched; None: there are none."""
        return None if self._keys is None else self._scheduler.monotonic() - self._got_at

    def find(self, key_id: object, then: Callable[[], None] | None) -> tuple[Found, list[Key]]:
        """The key with this identifier, or all keys if a token names none. `wait`: `then` is called when keys have been
        fetched; with None nothing waits. `unavailable`: there are no keys, or a new one could not be fetched."""
        keys = self._believed()
        if keys is not None:
            if key_id is None:
                return "found", keys.all
            if isinstance(key_id, str) and key_id in keys.by_id:
                return "found", [keys.by_id[key_id]]
            if then is None:
                self._note_unknown(str(key_id))
            elif self._is_unknown(str(key_id)) and not self._failures:
                return "none", []
            else:
                self._fetch_soon()
        if then is None or not (self._fetching or self._planned):
            return "unavailable" if keys is None or self._failures else "none", []
        if len(self._waiting) >= MAX_WAITING:
            return "busy", []
        self._waiting.append(then)
        return "wait", []

    def _is_unknown(self, key_id: str) -> bool:
        """Whether the key was found missing a moment ago."""
        return self._scheduler.monotonic() - self._unknown.get(key_id, float("-inf")) < UNKNOWN_SECONDS

    def _note_unknown(self, key_id: str) -> None:
        """Note that a key is not among those that were just fetched."""
        if not (self._failures or self._closed):
            self._unknown.pop(key_id, None)
            if len(self._unknown) >= MAX_UNKNOWN:
                del self._unknown[next(iter(self._unknown))]
            self._unknown[key_id] = self._scheduler.monotonic()

    def _fetch_soon(self) -> None:
        """Fetch keys soon, because one is unknown. If fetches fail, they are repeated anyway."""
        if self._fetching or self._planned or self._closed:
            return
        wait = self._asked_at + (UNKNOWN_SECONDS if self._failures else AGAIN_SECONDS) - self._scheduler.monotonic()
        if wait <= 0:
            self._fetch_for_unknown()
        elif not self._failures:
            self._planned = True
            self._scheduler.later(wait, self._fetch_for_unknown)

    def _fetch_for_unknown(self) -> None:
        self._planned = False
        if not (self._fetching or self._closed):
            self._asked_at = self._scheduler.monotonic()
            self._fetch()

    def _believed(self) -> Keys | None:
        if self._scheduler.monotonic() - self._got_at > self._fresh + self._settings.keep:
            self._keys = None
        return self._keys

    # -- fetching --

    def _fetch(self) -> None:
        self._cancel()
        self._fetching = True
        # A thread for each fetch: a name server that hangs then keeps nothing waiting, not even the end of the process.
        threading.Thread(target=self._run, name="keys", daemon=True).start()

    def _run(self) -> None:
        """Fetch the keys, on the thread."""
        try:
            fetched = fetch(self._settings, self._manner)
        except Exception as error:  # noqa: BLE001 -- whatever it is, there are no keys
            fetched = Fetched(None, why=f"{self.provider}: {type(error).__name__}")
        self._scheduler.soon(lambda: self._fetched(fetched))

    def _fetched(self, fetched: Fetched) -> None:
        self._fetching = False
        if self._closed:
            return
        if fetched.keys is not None:
            before, self._keys, self._failures = self._keys, fetched.keys, 0
            self._got_at = self._scheduler.monotonic()
            for gone in set() if before is None else before.by_id.keys() - fetched.keys.by_id.keys():
                self._note_unknown(gone)
            said = self._settings.refresh if fetched.max_age is None else fetched.max_age
            self._fresh = max(LEAST_SECONDS, min(self._settings.refresh, said))
            again = self._fresh * EARLY
        else:
            self._failures += 1
            again = min(RETRY_MOST, 2.0 ** min(self._failures, 10))
        self._cancel = self._scheduler.later(again, self._again)
        self._told(self.provider, fetched.why)
        self._tell_waiting()

    def _again(self) -> None:
        if not self._fetching and not self._closed:
            self._fetch()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


def manner_of(settings: Jwt, ca: str | None) -> Manner:
    """How the provider of these keys is asked."""
    return Manner(settings.timeout, ca, settings.private_addresses, settings.redirects)


def fetch(settings: Jwt, manner: Manner) -> Fetched:
    """Fetch the keys of an issuer. Blocks."""
    origin = settings.jwks_url or settings.issuer or ""
    try:
        answer = ask(settings.jwks_url or _discovered(origin, manner), manner, origin)
        return Fetched(keys_of(answer.value), answer.max_age)
    except (Unanswered, NoKeySet) as error:
        where = "" if isinstance(error, Unanswered) else f"{shown(origin)}: "
        return Fetched(None, why=f"{where}{error}")


def _discovered(issuer: str, manner: Manner) -> str:
    """Where an issuer says that its keys are (OpenID Connect Discovery 1.0, 4). Raises NoKeySet or Unanswered."""
    document = ask(issuer.rstrip("/") + DISCOVERY, manner).value
    said = document if isinstance(document, dict) else {}
    if said.get("issuer") != issuer:  # 4.3: exactly the same
        raise NoKeySet(f"its configuration is that of the issuer {str(said.get('issuer'))[:100]!r}")
    url = said.get("jwks_uri")
    if not isinstance(url, str):
        raise NoKeySet("its configuration has no `jwks_uri`")
    return url
