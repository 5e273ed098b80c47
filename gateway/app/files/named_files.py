"""Checks the files that settings name before anything is started: `mqgate check` and the start report which file is
missing or unsuitable, where it is named, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.access.passwords import read_password_file
from gateway.access.policy import acl_of, authenticator_of, plain_users
from gateway.app.listener_settings import listeners_of, resolved_admin_tls
from gateway.config.load import display
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding

NAMING = frozenset({
    "certificate", "key", "client_ca", "crl", "ca", "token_file", "read_token_file", "password_file", "jwks_file",
    "client_secret_file",
    "ccdt", "objects",
})  # fmt: skip
"""The last words of the keys whose value is a file that must exist."""
TEXTS = frozenset({
    "token_file", "read_token_file", "password_file", "jwks_file", "client_secret_file", "objects",
})  # fmt: skip
"""Those of them whose files are text; the passwords of MQTT (`security.users`) are bytes."""


def wrong_files(settings: Settings) -> list[Finding]:
    """Returns everything that is wrong with the files, in the order of the settings."""
    return [*_unreadable(settings), *_unfit_certificates(settings), *_unfit_access(settings)]


def _unreadable(settings: Settings) -> Iterator[Finding]:
    for key, value, _ in display(settings):
        if key.rpartition(".")[2] in NAMING and isinstance(value, str):
            path = Path(settings.resolve(value, key))
            text = key.rpartition(".")[2] in TEXTS and not key.startswith("security.users.")
            why = _why_unreadable(path) or (_why_no_text(path) if text else "")
            if why:
                fix = "write the file, or correct the name"
                yield settings.finding(key, f"`{key}`: {path} {why}", fix)
    if isinstance(settings.security.acl, str):
        path = Path(settings.resolve(settings.security.acl, "security.acl"))
        why = _why_unreadable(path)
        if why:
            yield settings.finding(
                "security.acl", f"`security.acl`: {path} {why}", "write the file, or correct the name"
            )


def _why_unreadable(path: Path) -> str:
    """Returns why a file cannot be read; empty if it can."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def _why_no_text(path: Path) -> str:
    """Returns why a file is not text; empty if it is."""
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text (byte {error.start + 1})"
    return ""


def _unfit_certificates(settings: Settings) -> Iterator[Finding]:
    """Yields certificates and keys that the TLS library does not accept: broken ones, and a key of another
    certificate."""
    found = [(f"listener `{one.name}`", f"listeners.{n}", one.tls) for n, one in enumerate(listeners_of(settings))]
    for name, where, tls in [*found, ("the admin port", "admin", resolved_admin_tls(settings))]:
        if tls is None:
            continue
        if any(_why_unreadable(Path(file)) for file in (tls.certificate, tls.key, tls.client_ca, tls.crl) if file):
            continue  # reported already
        from gateway.net.tls import TlsContext  # the TLS library is loaded only where there is TLS

        try:
            TlsContext(tls, browsers=False)
        except OSError as error:
            fix = "write a certificate in PEM form with its chain, and the key that belongs to it"
            yield settings.finding(f"{where}.tls.certificate", f"{name}: {error}", fix)


def _unfit_access(settings: Settings) -> Iterator[Finding]:
    """Yields what is wrong with passwords, access list and authenticator, which are read as at a start."""
    security = settings.security
    keys = {f"security.users.{name}.password_file": one.password_file for name, one in security.users.items()}
    files = [Path(settings.resolve(file, key)) for key, file in keys.items() if file is not None]
    if not any(map(_why_unreadable, files)):
        yield from _findings(lambda: plain_users(settings))
    name = security.password_file
    if name is not None:
        path = Path(settings.resolve(name, "security.password_file"))
        if not _why_unreadable(path) and not _why_no_text(path):
            yield from _findings(lambda: read_password_file(path))
    if not isinstance(security.acl, str) or not _why_unreadable(Path(settings.resolve(security.acl, "security.acl"))):
        yield from _findings(lambda: acl_of(settings))
    yield from _findings(lambda: authenticator_of(settings))


def _findings(read: Callable[[], object]) -> list[Finding]:
    try:
        read()
    except ConfigurationError as error:
        return error.findings
    return []
