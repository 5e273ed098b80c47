"""The access port made from the settings, and their access list for the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from gateway.access.gatekeeper import Gatekeeper
from gateway.access.key_sets import FixedKeys, fetch, manner_of
from gateway.access.logins import Credentials, Login, ask_one
from gateway.access.policy import acl_of, policy_of
from gateway.access.tokens import Claimed, Issuer, NotBelieved, Tokens, keys_of_file
from gateway.app.reports import log_lines
from gateway.config.counting import counted
from gateway.config.identity import Jwt
from gateway.config.model import Settings
from gateway.ports.batch import Scheduler
from gateway.ports.counters import Counters, IdentityMethod, LoginMethod
from gateway.routing.acl import PUBLISH, SUBSCRIBE, Subject, Why


def why_publish(settings: Settings, client_id: str, user: str, topic: str, listener: str = "") -> Why:
    """Whether the access list of the settings lets this client publish there, and which entry says so."""
    why = acl_of(settings).of(Subject(client_id, user, listener)).why(PUBLISH, topic)
    return _unless_given(settings, user, why)


def why_subscribe(settings: Settings, client_id: str, user: str, filter_: str, listener: str = "") -> tuple[Why, bool]:
    """The same for a subscription, and whether its deliveries are checked one by one."""
    rights = acl_of(settings).of(Subject(client_id, user, listener))
    why = _unless_given(settings, user, rights.why(SUBSCRIBE, filter_))
    return why, rights.subscribe(filter_).check_deliveries


def _unless_given(settings: Settings, user: str, why: Why) -> Why:
    """With what may decide where no entry does: a role, or what a login gives, which the settings do not have."""
    security = settings.security
    tokens = any(one.topics is not None or one.topics_claim is not None for _, one in security.issuers)
    by = {"jwt": tokens, "managed": security.managed, "webhook": security.webhook is not None}
    giving = " or ".join(name for name, gives in by.items() if gives)
    if why.entry != -1 or not user or not giving:
        return why
    return replace(why, text=f"{why.text}, unless {giving} says otherwise of this user, as the running gateway knows")


def how_users_are_known(settings: Settings) -> str:
    """Returns the methods by which a client can authenticate, in the order in which they are asked."""
    security = settings.security
    by_certificate = any(one.knows_by_certificate for one in settings.listeners)
    known = ["certificate"] if by_certificate and security.certificate_user != "none" else []
    known += ["SCRAM"] if security.users else []
    return ", ".join([*known, *security.in_order]) or "nothing: no authentication method is configured"


def ask_each(settings: Settings, credentials: Credentials) -> Iterator[tuple[str, str, bool]]:
    """Yields, for each method in order, its name, its answer, and whether it lets the client in, as if a client had
    connected with these credentials."""
    issuers = [(key, one) for key, one in settings.security.issuers if "jwt" in settings.security.in_order]
    for key, one in issuers:
        yield "jwt", *_ask_issuer(settings, key, one, credentials)
    told: list[str] = []
    policy = policy_of(settings, {}, b"check", None, lambda _method, _provider, why: told.append(why))
    for method in policy.methods:
        told.clear()
        answer = ask_one(method, credentials)
        if isinstance(answer, Login):
            yield method.name, f"lets in as {answer.user}", True
        else:
            why = next(filter(None, reversed(told)), answer.why) if answer else ""  # a device is not told that much
            yield method.name, f"cannot say: {why}" if answer else "does not know this user and password", False
    policy.close()


def _ask_issuer(settings: Settings, key: str, one: Jwt, who: Credentials) -> tuple[str, bool]:
    name, token, said = one.issuer or one.jwks_url or one.jwks_file, who.password or b"", list[Claimed | NotBelieved]()
    if one.jwks_file is not None:
        keys = keys_of_file(Path(settings.resolve(one.jwks_file, f"{key}.jwks_file")))
    else:
        ca = None if one.ca is None else settings.resolve(one.ca, f"{key}.ca")
        fetched = fetch(one, manner_of(one, ca))
        if fetched.keys is None:
            return f"{name}: its keys cannot be fetched: {fetched.why}", False
        keys = fetched.keys
    count = counted(len(keys.all), "key")
    if not Tokens.is_token(token):
        return f"{name}: {count}; the password is not a token", False
    Tokens([Issuer(one, FixedKeys(keys))]).check(token, said.append)
    if isinstance(said[0], NotBelieved):
        return f"{name}: {count}; the token is refused: {said[0].why}", False
    same = who.username in {None, "", said[0].user}
    return f"{name}: {count}; " + (f"lets in as {said[0].user}" if same else f"it is of {said[0].user}"), same


def access_of(
    settings: Settings, scheduler: Scheduler, secret: bytes, counters: Counters, providers: Providers
) -> Gatekeeper:
    """Returns the access port of these settings."""
    gatekeeper = Gatekeeper(settings, scheduler, secret)
    gatekeeper.on_guessing = log_lines.guessing
    gatekeeper.on_asked = providers.asked
    gatekeeper.on_login = partial(_logged_in, counters)
    return gatekeeper


def _logged_in(counters: Counters, method: LoginMethod) -> None:
    counters.mqtt_logins[method] += 1


_REMEMBERED = 600.0
"""For how many seconds a failure is reported. Keys are asked for again within a minute, the others with each login that
is not remembered."""


class Providers:
    """How providers of identities answer: each answer is counted, and each change is a line in the log."""

    def __init__(self, counters: Counters, monotonic: Callable[[], float]) -> None:
        self._counters, self._monotonic = counters, monotonic
        self._last: dict[str, tuple[str, float]] = {}
        """The last answer of each provider, and when it was given: why there was none, or empty."""

    def asked(self, method: IdentityMethod, provider: str, why: str) -> None:
        """A provider has answered; `why` says why not, if it has not."""
        self._counters.identity_requests[method, "failed" if why else "ok"] += 1
        before, _ = self._last.get(provider, (None, 0.0))
        self._last[provider] = why, self._monotonic()
        if before is None or bool(before) != bool(why):
            log_lines.identity(provider, why)

    def problems(self) -> Iterator[str]:
        """Yields a sentence for each provider that does not answer. One that has not been asked for a while may have
        been taken out of the settings."""
        since = self._monotonic() - _REMEMBERED
        for why, at in self._last.values():
            if why and at > since:
                yield f"a provider of identities does not answer: {why}; what is known stays in force"
