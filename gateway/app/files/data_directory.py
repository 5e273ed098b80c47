"""The data directory: who may read it, and what the command line finds there (gateway.json, admin.token)."""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from gateway.config.model import Settings
from gateway.config.source import unread
from gateway.errors import ConfigurationError, StoreInUse
from gateway.observe import logs

log = logs.get("mqgate")

SECRET_BYTES = 32
PATIENCE, _AGAIN_SECONDS = 5.0, 0.1
"""How long to wait for a store that another process has open, and how often to try."""
_T = TypeVar("_T")


def patiently(opened: Callable[[], _T], patience: float = PATIENCE) -> _T:
    """Returns what is opened, even if a command has the store open at that moment, as a backup does. Raises StoreInUse
    if it is not released in time: then it is another gateway."""
    until, said = time.monotonic() + patience, False
    while True:
        try:
            return opened()
        except StoreInUse as error:
            if time.monotonic() >= until:
                raise
            if not said:
                log.warning("data_directory", f"{error.whose}: waiting for it, at most {patience:.0f} s")
            said = True
        time.sleep(_AGAIN_SECONDS)


def make_private(directory: Path) -> None:
    """Make the directory, and all files made from now on, readable only by their owner. If that is refused, as on some
    mounted volumes, the log says so."""
    os.umask(os.umask(0o077) | 0o077)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        try:
            directory.chmod(0o700)
        except OSError as error:
            log.warning("data_directory", f"{directory} can be read by others and cannot be changed: {error}")


@contextmanager
def owner_kept(directory: Path) -> Iterator[None]:
    """Give what root creates in the directory while a command is running to the directory's owner afterwards: the user
    of a service could not open root's files."""
    there = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    owner = there.stat()
    try:
        yield
    finally:
        if os.geteuid() == 0 != owner.st_uid:
            _give(directory, owner)


def _give(directory: Path, owner: os.stat_result) -> None:
    """Change the owner by descriptors: the owner may exchange what is in the directory meanwhile, and root must not
    give away what a link leads to."""
    for _, folders, files, here in os.fwalk(directory):
        if os.fstat(here).st_uid == 0:
            os.fchown(here, owner.st_uid, owner.st_gid)
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=here, follow_symlinks=False)


def write_address(directory: Path, settings: Settings, number: int, *, again: bool = False) -> bool:
    """Write gateway.json, by which commands find this process. If that fails, as on a full disk, the log says so once,
    and the gateway goes on and tries again. `number`: the admin port, or 0. Returns whether it was written."""
    try:
        _write_address(directory, settings, number)
    except OSError as error:
        text = f"{directory / 'gateway.json'}: {error.strerror}: commands may not find this gateway until it is written"
        if not again:
            log.warning("data_directory", text)
        return False
    return True


def _write_address(directory: Path, settings: Settings, number: int) -> None:
    path, admin = directory / "gateway.json", settings.admin
    host = "127.0.0.1" if admin.bind in {"0.0.0.0", "::"} else admin.bind
    named = settings.resolve(admin.token_file, "admin.token_file") if admin.token_file is not None else None
    record = {
        "pid": os.getpid(),
        "admin": f"{admin.scheme}://{host}:{number}" if number else None,
        "token_file": str(Path(named or directory / "admin.token").absolute()),
    }
    if admin.tls is not None:
        record["certificate"] = _own_certificate(settings.resolve(admin.tls.certificate, "admin.tls.certificate"))
    text = json.dumps(record).encode()
    if path.exists() and path.read_bytes() == text:
        return
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(text)
        fresh.chmod(0o600)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _own_certificate(file: str) -> str:
    """Returns the first certificate in the file, which is the one that the admin port shows: commands trust only this
    one, whatever its name."""
    text, end = Path(file).read_text(encoding="utf-8"), "-----END CERTIFICATE-----"
    return text[text.find("-----BEGIN CERTIFICATE-----") :].partition(end)[0] + end + "\n"


def own_token(directory: Path) -> str:
    """Returns the token in admin.token, which is written at the first start and readable only by its owner. If it
    cannot be written, the token is one that nobody knows. Raises ConfigurationError if there is one that cannot be
    read."""
    path = directory / "admin.token"
    try:
        token = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([unread(str(path), error, "remove it: the next start makes another")]) from error
    if not token:
        token = secrets.token_urlsafe(24)
        try:
            _write_token(path, token)
        except OSError as error:
            text = (
                f"{path}: {error.strerror}: nobody can administer this gateway until it is reloaded with room on disk"
            )
            log.warning("data_directory", text)
    return token


def _write_token(path: Path, token: str) -> None:
    path.unlink(missing_ok=True)  # an empty one, left by a start on a full disk
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError:
        path.unlink(missing_ok=True)
        raise


def own_secret(directory: Path) -> bytes:
    """Returns the secret from which salts are made; it is written at the first start and readable only by its owner. If
    it cannot be kept, it is valid until the process ends: users who log in by SCRAM then get other salts, known or
    not."""
    path = directory / "salt.secret"
    try:
        if not path.exists() or path.stat().st_size != SECRET_BYTES:
            fresh = path.with_suffix(".new")
            fresh.write_bytes(secrets.token_bytes(SECRET_BYTES))
            fresh.chmod(0o600)
            fresh.replace(path)
        found = path.read_bytes()
    except OSError as error:
        log.warning("salt_secret", f"{path} cannot be kept: {error}; salts of SCRAM change with every start")
        found = b""
    return found if len(found) == SECRET_BYTES else secrets.token_bytes(SECRET_BYTES)
