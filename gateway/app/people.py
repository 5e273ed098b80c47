"""The people of the settings: their file, the providers that know them, limits for guesses and sessions; read at start
and again on reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.access.guesses import Guesses
from gateway.app.files.secrets import read_secret
from gateway.app.reports import log_lines
from gateway.config.model import Settings
from gateway.people.people import Directory, People
from gateway.people.sessions import Sessions
from gateway.people.users_file import UsersFile

if TYPE_CHECKING:
    from gateway.people.oidc import Provider


def people_of(settings: Settings, directory: Path, secret: bytes, soon: Callable[[Callable[[], None]], None]) -> People:
    """Returns the people of these settings. Raises ConfigurationError."""
    bounds = settings.security.guesses
    guesses = Guesses(bounds.per_user, bounds.per_address, bounds.within)
    sessions = Sessions(settings.admin.session_idle, settings.admin.session_length)
    people = People(users_file(settings, directory), guesses, sessions, secret, soon)
    prepare(people, None, settings, directory)()
    return people


def prepare(people: People, before: Settings | None, settings: Settings, directory: Path) -> Callable[[], None]:
    """Read the file again; calling the result puts it into force. Raises ConfigurationError, and then nothing changes.
    A person who was signed in by a provider or directory with other settings is signed out."""
    file = users_file(settings, directory)
    users = file.read()
    told = Providers().told
    provider, known = _provider(settings, told), _directory(settings, told)
    changed = {
        name
        for name in ("oidc", "ldap")
        if before is not None and getattr(before.admin, name) != getattr(settings.admin, name)
    }

    def use() -> None:
        bounds = settings.security.guesses
        people.guesses.use(bounds.per_user, bounds.per_address, bounds.within)
        people.sessions.idle, people.sessions.length = settings.admin.session_idle, settings.admin.session_length
        people.file = file
        people.use(users)
        people.use_others(provider, known, changed)

    return use


class Providers:
    """Logs each change of whether a provider answers."""

    def __init__(self) -> None:
        self._well: dict[str, bool] = {}

    def told(self, provider: str, why: str) -> None:
        """A provider has answered; `why` says why not, if it has not."""
        if self._well.get(provider, True) != (not why):
            log_lines.identity(provider, why)
        self._well[provider] = not why


def users_file(settings: Settings, directory: Path) -> UsersFile:
    """Returns the file of users."""
    named = settings.admin.users_file
    return UsersFile(directory / "admin.users" if named is None else Path(settings.resolve(named, "admin.users_file")))


def _provider(settings: Settings, told: Callable[[str, str], None]) -> Provider | None:
    oidc = settings.admin.oidc
    if oidc is None:
        return None
    from gateway.people.oidc import Provider  # loaded, with what it needs, only where it is used

    secret = read_secret(settings, oidc.client_secret, oidc.client_secret_file, "admin.oidc.client_secret_file")
    ca = None if oidc.ca is None else settings.resolve(oidc.ca, "admin.oidc.ca")
    return Provider(oidc, ca, secret, told)


def _directory(settings: Settings, told: Callable[[str, str], None]) -> Directory | None:
    ldap = settings.admin.ldap
    if ldap is None:
        return None
    from gateway.access.directory import Directory as LdapDirectory  # its library is an extra

    secret = read_secret(settings, ldap.password, ldap.password_file, "admin.ldap.password_file")
    ca = None if ldap.ca is None else settings.resolve(ldap.ca, "admin.ldap.ca")
    return LdapDirectory(ldap, ca, secret, told)
