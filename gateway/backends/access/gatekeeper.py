"""Who may connect and what they may do, by the settings: certificate, token, password, SCRAM, one's own function.

Hashing takes tens of milliseconds and runs on its own threads; what was verified is remembered for a while by a keyed
digest, never as a password. Wrong passwords are answered late, the later the more there were from one address.
"""

from __future__ import annotations

import hmac
import importlib
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.backends.access import scram
from gateway.backends.access.passwords import read_password_file, verify
from gateway.backends.access.scram import Exchange, ScramError, keys_of
from gateway.backends.access.tokens import Tokens
from gateway.config.model import AclEntry, Settings
from gateway.config.source import read_yaml
from gateway.errors import ConfigurationError, Finding
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, Connect
from gateway.ports.access import Verdict
from gateway.ports.batch import Scheduler
from gateway.ports.link import Link
from gateway.routing.acl import PUBLISH, Acl, Subject, compile_acl

REMEMBERED = 20_000
REMEMBER_SECONDS = 300.0
DELAY_FROM, DELAY_MOST = 0.25, 5.0
MAX_ADDRESSES = 10_000
Authenticator = Callable[[str, str | None, bytes | None], str | None]
"""One's own check: (client id, user, password) to the user's name, or None."""
Done = Callable[[Verdict], None]


class Gatekeeper:
    """Implements `ports.access.Access`."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self.generation = 0
        self._scheduler = scheduler
        self._threads = ThreadPoolExecutor(2, "passwords")
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, float] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._use(settings)

    def reload(self, settings: Settings) -> None:
        """Use these from now on; ConfigurationError leaves the old ones in force."""
        self._use(settings)
        self.generation += 1

    def _use(self, settings: Settings) -> None:
        security = settings.security
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
        hashed = {}
        if security.password_file is not None:
            hashed = read_password_file(Path(settings.resolve(security.password_file, "security.password_file")))
        tokens = None
        if security.jwt is not None:
            tokens = Tokens(security.jwt, Path(settings.resolve(security.jwt.jwks_file, "security.jwt.jwks_file")))
        acl = compile_acl(_acl_entries(settings))
        own = _load(security.authenticator) if security.authenticator else None
        self._anonymous = security.anonymous
        self._anonymous_on = {one.name: one.anonymous for one in settings.listeners if one.anonymous is not None}
        self._certificates = security.certificate_user != "none"
        self._plain, self._hashed, self._tokens, self._own, self._acl = plain, hashed, tokens, own, acl
        self._scram = {name: keys_of(password, secrets.token_bytes(16)) for name, password in plain.items()}
        self._unknown = keys_of(secrets.token_bytes(16), secrets.token_bytes(16))
        self._checked = bool(plain or hashed or tokens or own)
        self._known.clear()

    # -- identity --

    def authenticate(self, connect: Connect, link: Link, done: Done) -> None:
        """Decide about a CONNECT."""
        if prop.AUTHENTICATION_METHOD in connect.properties:
            self._begin(connect, link, done)
        elif link.certificate_user and self._certificates:
            done(_certificate_verdict(connect, link.certificate_user))
        elif connect.username is None and connect.password is None:
            done(self._anonymous_verdict(link))
        elif not self._checked:
            allowed = self._anonymous_on.get(link.listener, self._anonymous)
            done(Verdict(0, connect.username) if allowed else _wrong(connect.version))
        else:
            self._check(connect, link, done)

    def _anonymous_verdict(self, link: Link) -> Verdict:
        if self._anonymous_on.get(link.listener, self._anonymous):
            return Verdict(0)
        return Verdict(reasons.NOT_AUTHORIZED, text="user and password are needed here")

    def _check(self, connect: Connect, link: Link, done: Done) -> None:
        user, password = connect.username or "", connect.password or b""
        if self._tokens is not None and password.count(b".") == 2:
            claimed = self._tokens.check(password)
            if claimed is not None and user in {"", claimed.user}:
                done(Verdict(0, claimed.user, expires=claimed.expires))
                return
        expected = self._plain.get(user)
        if expected is not None and hmac.compare_digest(expected, password):
            done(Verdict(0, user))
            return
        digest = hmac.digest(self._key, user.encode() + b"\0" + password, "sha256")
        if self._known.get(digest, 0.0) > self._scheduler.monotonic():
            done(Verdict(0, user))
            return
        self._threads.submit(self._verify, connect, digest, link.peer.rsplit(":", 1)[0], done)

    def _verify(self, connect: Connect, digest: bytes, address: str, done: Done) -> None:
        """On a thread of its own: the slow part."""
        user, password = connect.username or "", connect.password or b""
        accepted: str | None = user if verify(self._hashed.get(user), password) else None
        if accepted is None and self._own is not None:
            try:
                accepted = self._own(connect.client_id, connect.username, connect.password)
            except Exception:  # noqa: BLE001 -- a foreign function that fails has not accepted anybody
                accepted = None
        self._scheduler.soon(lambda: self._verified(connect, digest, address, accepted, done))

    def _verified(self, connect: Connect, digest: bytes, address: str, user: str | None, done: Done) -> None:
        if user is not None:
            self._failures.pop(address, None)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[digest] = self._scheduler.monotonic() + REMEMBER_SECONDS
            done(Verdict(0, user))
            return
        self._scheduler.later(self._delay(address), lambda: done(_wrong(connect.version)))

    def _delay(self, address: str) -> float:
        """How late a wrong password is answered: doubled with each one from the same address, forgotten in a minute."""
        now = self._scheduler.monotonic()
        count, last = self._failures.get(address, (0, now))
        count = 1 if now - last > 60 else count + 1
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures.clear()
        self._failures[address] = (count, now)
        return float(min(DELAY_FROM * 2 ** (count - 1), DELAY_MOST))

    # -- SCRAM --

    def _begin(self, connect: Connect, link: Link, done: Done) -> None:
        method = connect.properties[prop.AUTHENTICATION_METHOD]
        if method != scram.METHOD or not self._scram:
            done(Verdict(reasons.BAD_AUTHENTICATION_METHOD, text="that authentication method is not offered here"))
            return
        exchange = Exchange(self._scram, self._unknown, secrets.token_urlsafe(18))
        if len(self._exchanges) > MAX_ADDRESSES:
            self._exchanges.clear()
        self._exchanges[id(link)] = exchange
        self._step(exchange, _bytes(connect.properties.get(prop.AUTHENTICATION_DATA)), id(link), done)

    def exchange(self, connection: object, data: bytes, done: Done) -> None:
        """The client's next message: a proof, or the first of a re-authentication."""
        link = id(getattr(connection, "link", None))
        exchange = self._exchanges.get(link)
        if exchange is None:
            exchange = self._exchanges[link] = Exchange(self._scram, self._unknown, secrets.token_urlsafe(18))
        self._step(exchange, data, link, done)

    def _step(self, exchange: Exchange, data: bytes, link: int, done: Done) -> None:
        try:
            if not exchange.user:
                done(Verdict(reasons.CONTINUE_AUTHENTICATION, data=exchange.challenge(data)))
                return
            signature = exchange.finish(data)
        except ScramError as error:
            self._exchanges.pop(link, None)
            done(Verdict(reasons.NOT_AUTHORIZED, text=str(error)))
            return
        self._exchanges.pop(link, None)
        done(Verdict(0, exchange.user, data=signature))

    # -- authority --

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""
        return self._acl.may_publish(listener, client_id, user, topic)

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""
        return self._acl.may_subscribe(listener, client_id, user, filter_)

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
        return self._acl.may_receive(listener, client_id, user, topic)

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication."""
        return self._acl.of(Subject(client_id, user or "", listener)).why(PUBLISH, topic).text

    @property
    def acl(self) -> Acl:
        """The list in force."""
        return self._acl

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _wrong(version: int) -> Verdict:
    reason = reasons.BAD_USER_NAME_OR_PASSWORD if version == V5 else reasons.NOT_AUTHORIZED
    return Verdict(reason, text="user or password is wrong")


def _certificate_verdict(connect: Connect, user: str) -> Verdict:
    """A certificate says who it is; a CONNECT that says otherwise is refused."""
    if connect.username not in {None, user}:
        return Verdict(reasons.NOT_AUTHORIZED, text="the user name is not that of the certificate")
    return Verdict(0, user)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _first_line(name: str) -> bytes:
    try:
        return Path(name).read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigurationError([Finding(name, 1, 1, f"cannot be read: {error}", "check the name")]) from error


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
