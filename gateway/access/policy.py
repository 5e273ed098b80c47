"""The settings of identity and authority together with the files that they name. ConfigurationError says what is wrong
with one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gateway.access.checks import BATCH_THREADS, THREADS, WAITING_THREADS
from gateway.access.logins import Authenticator, HashedUsers, Method, OwnFunction, PlainUsers
from gateway.access.managed import ManagedUsers
from gateway.access.passwords import NOBODY, Hashes, PasswordFile, read_password_file
from gateway.access.scram import Users
from gateway.access.tokens import Issuers, Tokens
from gateway.config.counting import counted
from gateway.config.load import load_acl
from gateway.config.model import Settings
from gateway.config.security import ClientIds, Guessing
from gateway.errors import ConfigurationError, Finding, emptied
from gateway.ports.counters import IdentityMethod
from gateway.routing.acl import Acl, compile_acl

Told = Callable[[IdentityMethod, str, str], None]
"""(method, provider, why): called on any thread when a provider has answered; an empty `why` is a success."""


@dataclass(slots=True)
class Policy:
    """The rules of access that are in force together."""

    tokens: Tokens
    methods: list[Method]
    """The methods that are asked about user and password, in order."""
    acl: Acl
    anonymous_on: dict[str, bool]
    certificates: bool
    certificate_client_id: bool
    scram: Users
    client_ids: ClientIds
    guesses: Guessing
    managed: bool
    """Whether users are managed while the gateway runs."""
    password_file: PasswordFile
    gives: bool = field(init=False)
    """Whether a login may say what its client may publish and subscribe."""

    def __post_init__(self) -> None:
        self.gives = self.tokens.give or self.managed or any(one.name == "webhook" for one in self.methods)

    def emptied(self, before: Policy) -> Finding | None:
        """What is wrong with a password file that is empty now and had users when it was read for `before`; None:
        nothing."""
        now, users = self.password_file, len(before.password_file.users)
        if not now.empty or not users or now.path != before.password_file.path:
            return None
        return emptied(now.path, counted(users, "user"), f"the line `{NOBODY}` if it is to have no users")

    @property
    def checked(self) -> bool:
        """Whether there is anything to check a user's password or token against."""
        return bool(self.methods or self.tokens)

    @property
    def stages(self) -> tuple[Sequence[Method], Sequence[Method]]:
        """The methods that compute, if any do, and the others: from the first on that waits for somebody else."""
        first = next((at for at, one in enumerate(self.methods) if one.waits), len(self.methods))
        here = self.methods[:first]
        return () if all(isinstance(one, PlainUsers) for one in here) else here, self.methods[first:]

    @property
    def threads(self) -> int:
        """How many are asked at a time by the others."""
        if any(one.name == "webhook" for one in self.methods):
            return BATCH_THREADS
        return WAITING_THREADS if any(one.waits for one in self.methods) else THREADS

    @property
    def by_client(self) -> bool:
        """Whether an answer may depend on the client."""
        return any(one.by_client for one in self.methods)

    def close(self) -> None:
        """The policy is no longer in force: close its methods."""
        for one in self.methods:
            one.close()


def policy_of(
    settings: Settings, reached: dict[str, str], secret: bytes, issuers: Issuers | None, told: Told,
    managed: ManagedUsers | None = None, before: Users | None = None,
) -> Policy:  # fmt: skip
    """The settings with their files as they are now. `reached`: where each listener is bound; `before`: the users of
    SCRAM so far. Raises ConfigurationError."""
    security = settings.security
    listeners = [
        one.model_copy(update={"bind": reached[one.name], "unix": None}) if one.name in reached else one
        for one in settings.listeners
    ]
    plain = plain_users(settings)
    hashed = PasswordFile("", {}, empty=False)
    if security.password_file is not None:
        hashed = read_password_file(Path(settings.resolve(security.password_file, "security.password_file")))
    made: dict[str, Callable[[], Method]] = {
        "users": lambda: PlainUsers(plain),
        "password_file": lambda: HashedUsers(Hashes(hashed.users, secret)),
        "managed": lambda: managed or ManagedUsers(),
        "ldap": lambda: _directory(settings, told),
        "webhook": lambda: _webhook(settings, told),
        "authenticator": lambda: _own_function(settings),
    }
    return Policy(
        Tokens([]) if issuers is None else issuers.of(settings),
        [made[name]() for name in security.in_order if name in made and (name != "password_file" or hashed.users)],
        acl=acl_of(settings),
        anonymous_on={one.name: settings.anonymous_on(one) for one in listeners},
        certificates=security.certificate_user != "none",
        certificate_client_id=security.certificate_client_id,
        scram=Users(plain, secret, before),
        client_ids=security.client_ids,
        guesses=security.guesses,
        managed=security.managed,
        password_file=hashed,
    )


def _own_function(settings: Settings) -> Method:
    function = authenticator_of(settings)
    assert function is not None  # noqa: S101 -- it is configured
    return OwnFunction(function)


def _directory(settings: Settings, told: Told) -> Method:
    from gateway.access.directory import Directory  # its library is an extra

    ldap = settings.security.ldap
    assert ldap is not None  # noqa: S101 -- it is configured
    secret = None if ldap.password is None else ldap.password.get_secret_value()
    if secret is None and ldap.password_file is not None:
        secret = _secret(settings.resolve(ldap.password_file, "security.ldap.password_file"))
    ca = None if ldap.ca is None else settings.resolve(ldap.ca, "security.ldap.ca")
    return Directory(ldap, ca, secret, partial(told, "ldap"))


def _webhook(settings: Settings, told: Told) -> Method:
    from gateway.access.webhook import Asked  # with what it needs to ask, only where it is asked

    webhook = settings.security.webhook
    assert webhook is not None  # noqa: S101 -- it is configured
    file, ca = webhook.token_file, webhook.ca
    token = None if file is None else _secret(settings.resolve(file, "security.webhook.token_file"))
    ca = None if ca is None else settings.resolve(ca, "security.webhook.ca")
    return Asked(webhook, ca, token, partial(told, "webhook"))


def _secret(file: str) -> str:
    """The first line of a file. Raises ConfigurationError."""
    secret = _first_line(file).decode(errors="replace")
    if not secret:
        raise ConfigurationError([Finding(file, 1, 1, "the password is empty", "write one into the file")])
    return secret


def plain_users(settings: Settings) -> dict[str, bytes]:
    """Users and passwords in the settings and the files they name. Raises ConfigurationError."""
    found = {
        name: _first_line(settings.resolve(one.password_file, f"security.users.{name}.password_file"))
        for name, one in settings.security.users.items()
        if one.password_file is not None
    }
    found |= {
        name: one.password.get_secret_value().encode()
        for name, one in settings.security.users.items()
        if one.password is not None
    }
    if empty := [name for name, password in found.items() if not password]:
        fix = "write one into its file"
        wrong = [(f"security.users.{name}", f"the password of user `{name}` is empty", fix) for name in empty]
        raise ConfigurationError([settings.finding(*one) for one in wrong])
    return found


def _first_line(name: str) -> bytes:
    try:
        return Path(name).read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigurationError([Finding(name, 1, 1, f"cannot be read: {error}", "check the name")]) from error


def acl_of(settings: Settings) -> Acl:
    """The access list in the settings or in the file they name. Raises ConfigurationError."""
    return compile_acl(load_acl(settings), partly=settings.security.wide_subscriptions == "filter")


def authenticator_of(settings: Settings) -> Authenticator | None:
    """The operator's own function, if there is one. Its module may be next to the settings. Raises
    ConfigurationError."""
    name = settings.security.authenticator
    if name is None:
        return None
    beside = str(Path(settings.source).resolve().parent if settings.source else Path.cwd())
    if beside not in sys.path:
        sys.path.append(beside)  # last, so that it hides no other module
    module, _, function = name.partition(":")
    try:
        found: Authenticator = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        fix = f"put {module}.py into {beside}, or its directory into PYTHONPATH"
        raise ConfigurationError([_of_authenticator(settings, error, fix)]) from error
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError([_of_authenticator(settings, error, "write `module:function`")]) from error
    return found


def _of_authenticator(settings: Settings, error: Exception, fix: str) -> Finding:
    key = "security.authenticator"
    return settings.finding(key, f"`{key}`: {settings.security.authenticator}: {error}", fix)
