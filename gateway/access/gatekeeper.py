"""Who may connect and what they may do, by the settings: certificate, token, password, SCRAM, a function of the
operator.

Hashing takes tens of milliseconds and runs on threads of its own. A verified password is remembered for some minutes by
a keyed digest, never as a password. Each wrong password from an address delays the next answer to it longer.
"""

from __future__ import annotations

import hmac
import importlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gateway.access import scram
from gateway.access.attempts import Attempts
from gateway.access.passwords import read_password_file, verify
from gateway.access.scram import Exchange, Keys, ScramError, keys_of
from gateway.access.tokens import Tokens
from gateway.config.model import Settings
from gateway.config.security import AclEntry
from gateway.config.source import read_yaml
from gateway.errors import ConfigurationError, Finding
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, Connect
from gateway.ports.access import Verdict
from gateway.ports.batch import Scheduler
from gateway.ports.link import Link, address_of
from gateway.routing.acl import PUBLISH, Acl, Subject, compile_acl

REMEMBERED = 20_000
REMEMBER_SECONDS = 300.0
MAX_EXCHANGES = 20_000
Authenticator = Callable[[str, str | None, bytes | None], str | None]
"""A function of the operator: (client id, user, password) to the user's name, or None."""
Done = Callable[[Verdict], None]


@dataclass(slots=True)
class _Policy:
    """The settings and their files, read together."""

    plain: dict[str, bytes]
    hashed: dict[str, str]
    tokens: Tokens | None
    own: Authenticator | None
    acl: Acl
    anonymous_on: dict[str, bool]
    certificates: bool
    certificate_client_id: bool
    scram: dict[str, Keys]

    @property
    def checked(self) -> bool:
        """Whether there is anything to check a user's password or token with."""
        return bool(self.plain or self.hashed or self.tokens or self.own)


class Gatekeeper:
    """Implements `ports.access.Access`."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._threads = ThreadPoolExecutor(2, "passwords")
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, float] = {}
        self._attempts = Attempts()
        self._exchanges: OrderedDict[object, Exchange] = OrderedDict()
        self._unknown = keys_of(secrets.token_bytes(16), secrets.token_bytes(16))
        self._reached = {one.name: one.bind for one in settings.listeners if not one.local}
        """Listeners that other hosts can reach. A new `bind` takes effect with a restart, so a reload does not change
        this."""
        self._policy = _policy_of(settings, self._reached)

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Read all files now; calling the answer puts them into force. ConfigurationError: the old ones stay in
        force."""
        policy = _policy_of(settings, self._reached)

        def use() -> None:
            self._policy = policy
            self._known.clear()

        return use

    # -- identity --

    def authenticate(self, connect: Connect, link: Link, done: Done) -> None:
        """Decide about a CONNECT."""
        policy = self._policy
        if prop.AUTHENTICATION_METHOD in connect.properties:
            self._begin(connect, link, done)
        elif link.certificate_user is not None and policy.certificates:
            done(_certificate_verdict(connect, link.certificate_user, policy.certificate_client_id))
        elif connect.username is None and connect.password is None:
            done(self._anonymous_verdict(link))
        elif policy.checked:
            self._check(connect, link, done)
        elif policy.anonymous_on.get(link.listener, False):
            done(Verdict(0))  # an unproven user name counts for nothing: access lists and rules see an anonymous client
        else:
            done(_wrong(connect.version))

    def _anonymous_verdict(self, link: Link) -> Verdict:
        if self._policy.anonymous_on.get(link.listener, False):
            return Verdict(0)
        return Verdict(reasons.NOT_AUTHORIZED, text="user and password are needed here")

    def _check(self, connect: Connect, link: Link, done: Done) -> None:
        policy = self._policy
        user, password = connect.username or "", connect.password or b""
        if policy.tokens is not None and password.count(b".") == 2:
            claimed = policy.tokens.check(password)
            if claimed is not None and user in {"", claimed.user}:
                done(Verdict(0, claimed.user, expires=claimed.expires))
                return
        expected = policy.plain.get(user)
        if expected is not None and hmac.compare_digest(expected, password):
            done(Verdict(0, user))
            return
        if self._known.get(self._digest(connect), 0.0) > self._scheduler.monotonic():
            done(Verdict(0, user))
            return
        address = address_of(link.peer)
        if self._attempts.begin(address):
            gone = lambda: bool(getattr(link, "closed", False))  # noqa: E731 -- it is asked on another thread, later
            self._threads.submit(self._verify, policy, connect, gone, address, done)
        else:
            done(Verdict(reasons.SERVER_BUSY, text="too many passwords are being checked: try again later"))

    def _digest(self, connect: Connect) -> bytes:
        return hmac.digest(self._key, (connect.username or "").encode() + b"\0" + (connect.password or b""), "sha256")

    def _verify(self, policy: _Policy, connect: Connect, gone: Callable[[], bool], address: str, done: Done) -> None:
        """In a thread: verify the password, unless its client has disconnected."""
        if gone():
            self._scheduler.soon(lambda: self._attempts.end(address))
            return
        user, password = connect.username or "", connect.password or b""
        accepted: str | None = user if verify(policy.hashed.get(user), password) else None
        if accepted is None and policy.own is not None:
            try:
                accepted = policy.own(connect.client_id, connect.username, connect.password)
            except Exception:  # noqa: BLE001 -- a function that fails has accepted nobody
                accepted = None
        self._scheduler.soon(lambda: self._verified(policy, connect, address, accepted, done))

    def _verified(self, policy: _Policy, connect: Connect, address: str, user: str | None, done: Done) -> None:
        self._attempts.end(address)
        if user is None:
            self._refuse_late(address, _wrong(connect.version), done)
            return
        self._attempts.succeeded(address)
        if (
            policy is self._policy and user == connect.username
        ):  # otherwise: a reload came between, or the operator's function renames users
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[self._digest(connect)] = self._scheduler.monotonic() + REMEMBER_SECONDS
        done(Verdict(0, user))

    def _refuse_late(self, address: str, verdict: Verdict, done: Done) -> None:
        self._scheduler.later(self._attempts.failed(address, self._scheduler.monotonic()), lambda: done(verdict))

    # -- SCRAM --

    def _begin(self, connect: Connect, link: Link, done: Done) -> None:
        method = connect.properties[prop.AUTHENTICATION_METHOD]
        if method != scram.METHOD or not self._policy.scram:
            done(Verdict(reasons.BAD_AUTHENTICATION_METHOD, text="that authentication method is not offered here"))
            return
        exchange = self._new_exchange(link)
        self._step(exchange, _bytes(connect.properties.get(prop.AUTHENTICATION_DATA)), link, done)

    def _new_exchange(self, link: object) -> Exchange:
        while len(self._exchanges) >= MAX_EXCHANGES:
            self._exchanges.popitem(last=False)
        exchange = Exchange(self._policy.scram, self._unknown, secrets.token_urlsafe(18))
        self._exchanges.pop(link, None)
        self._exchanges[link] = exchange
        return exchange

    def exchange(self, connection: object, data: bytes, done: Done) -> None:
        """The client's next message in AUTH: a proof, or the first of a re-authentication, which has to be of the same
        user."""
        link = getattr(connection, "link", None)
        certified = getattr(link, "certificate_user", None) if self._policy.certificates else None
        known = {getattr(connection, "user", None), certified} - {None}
        exchange = self._exchanges.get(link) or self._new_exchange(link)

        def same(verdict: Verdict) -> None:
            changed = verdict.reason == 0 and known - {verdict.user}
            done(Verdict(reasons.NOT_AUTHORIZED, text="that proves another user") if changed else verdict)

        self._step(exchange, data, link, same)

    def _step(self, exchange: Exchange, data: bytes, link: object, done: Done) -> None:
        try:
            if not exchange.user:
                done(Verdict(reasons.CONTINUE_AUTHENTICATION, data=exchange.challenge(data)))
                return
            signature = exchange.finish(data)
        except ScramError as error:
            self._exchanges.pop(link, None)
            verdict = Verdict(reasons.NOT_AUTHORIZED, text=str(error))
            self._refuse_late(address_of(str(getattr(link, "peer", ""))), verdict, done)
            return
        self._exchanges.pop(link, None)
        done(Verdict(0, exchange.user, data=signature))

    # -- authority --

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""
        return self._policy.acl.may_publish(listener, client_id, user, topic)

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""
        return self._policy.acl.may_subscribe(listener, client_id, user, filter_)

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
        return self._policy.acl.may_receive(listener, client_id, user, topic)

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication."""
        return self._policy.acl.of(Subject(client_id, user or "", listener)).why(PUBLISH, topic).text

    @property
    def acl(self) -> Acl:
        """The access list in force."""
        return self._policy.acl

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _wrong(version: int) -> Verdict:
    reason = reasons.BAD_USER_NAME_OR_PASSWORD if version == V5 else reasons.NOT_AUTHORIZED
    return Verdict(reason, text="user or password is wrong")


def _certificate_verdict(connect: Connect, user: str, is_client_id: bool) -> Verdict:
    """The verdict on a certificate's user; a CONNECT with another user name or client identifier is refused."""
    if not user:
        return Verdict(reasons.NOT_AUTHORIZED, text="the certificate does not name one user")
    if connect.username not in {None, user}:
        return Verdict(reasons.NOT_AUTHORIZED, text="the user name is not that of the certificate")
    if is_client_id and connect.client_id not in {"", user}:
        return Verdict(reasons.CLIENT_IDENTIFIER_NOT_VALID, text="the client identifier is not that of the certificate")
    return Verdict(0, user, client_id=user if is_client_id else None)


def _policy_of(settings: Settings, reached: dict[str, str]) -> _Policy:
    security = settings.security
    listeners = [
        one.model_copy(update={"bind": reached[one.name], "unix": None}) if one.name in reached else one
        for one in settings.listeners
    ]
    plain = {
        name: _first_line(settings.resolve(one.password_file, f"security.users.{name}.password_file"))
        for name, one in security.users.items()
        if one.password_file is not None
    }
    plain |= {
        name: one.password.get_secret_value().encode()
        for name, one in security.users.items()
        if one.password is not None
    }
    empty = [name for name, password in plain.items() if not password]
    if empty:
        what = f"the password of user `{empty[0]}` is empty"
        raise ConfigurationError([Finding(f"security.users.{empty[0]}", 1, 1, what, "write one into its file")])
    hashed, tokens = {}, None
    if security.password_file is not None:
        hashed = read_password_file(Path(settings.resolve(security.password_file, "security.password_file")))
    if security.jwt is not None:
        tokens = Tokens(security.jwt, Path(settings.resolve(security.jwt.jwks_file, "security.jwt.jwks_file")))
    return _Policy(
        plain,
        hashed,
        tokens,
        own=_load(security.authenticator) if security.authenticator else None,
        acl=acl_of(settings),
        anonymous_on={one.name: settings.anonymous_on(one) for one in listeners},
        certificates=security.certificate_user != "none",
        certificate_client_id=security.certificate_client_id,
        scram={name: keys_of(password, secrets.token_bytes(16)) for name, password in plain.items()},
    )


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _first_line(name: str) -> bytes:
    try:
        return Path(name).read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigurationError([Finding(name, 1, 1, f"cannot be read: {error}", "check the name")]) from error


def acl_of(settings: Settings) -> Acl:
    """The access list of the settings, or of the file they name (ConfigurationError)."""
    return compile_acl(_acl_entries(settings))


def _acl_entries(settings: Settings) -> list[AclEntry] | None:
    acl = settings.security.acl
    if not isinstance(acl, str):
        return acl
    path = Path(settings.resolve(acl, "security.acl"))
    document = read_yaml(str(path), _first_lines(path))
    value = document.value
    entries = value.get("acl") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        raise ConfigurationError(
            [Finding(str(path), 1, 1, "not a list of entries", "write a list, or `acl:` with one")]
        )
    try:
        return [AclEntry.model_validate(entry) for entry in entries]
    except ValueError as error:
        raise ConfigurationError([Finding(str(path), 1, 1, str(error), "correct the entry")]) from error


def _first_lines(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error


def _load(name: str) -> Authenticator:
    module, _, function = name.partition(":")
    try:
        found: Authenticator = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        finding = Finding("security.authenticator", 1, 1, f"{name}: {error}", "write `module:function`")
        raise ConfigurationError([finding]) from error
    return found
