"""Password files in the format of mosquitto_passwd, and the hashes in them.

`user:$7$iterations$salt$hash` is PBKDF2-HMAC-SHA512 (mosquitto 2), `user:$6$salt$hash` a single salted SHA-512 (older
versions), `user:$argon2id$...` what `mqgate passwd` writes. Verifying takes the same time whether the user exists or
not.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import NamedTuple

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import HashingError, InvalidHashError, VerificationError

from gateway.errors import ConfigurationError, Finding

ITERATIONS = 600_000
NOBODY = "# nobody"
"""The line of a password file that has no users."""
_ARGON = PasswordHasher()


def hash_password(password: bytes, *, pbkdf2: bool = False, iterations: int = ITERATIONS) -> str:
    """A hash for a password file: Argon2id, or PBKDF2 for files that mosquitto reads too."""
    if not pbkdf2:
        return _ARGON.hash(password)
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


class Hashes:
    """The hashes of all users. An unknown name is verified against a dummy like the hash of some user, always the same
    one, so that neither its time nor that of others reveals that it is unknown."""

    def __init__(self, stored: dict[str, str], secret: bytes) -> None:
        self._stored = stored
        self._secret = secret
        self._dummies = [_dummy(one) for one in stored.values()]

    def __bool__(self) -> bool:
        return bool(self._stored)

    def verify(self, user: str, password: bytes) -> bool:
        """Whether the password is that of the user."""
        stored = self._stored.get(user)
        if stored is not None:
            return verify(stored, password)
        if self._dummies:
            number = int.from_bytes(hmac.digest(self._secret, user.encode(), "sha256")[:8])
            verify(self._dummies[number % len(self._dummies)], password)
        return False


def verify(stored: str, password: bytes) -> bool:
    """Whether the password belongs to the hash. An empty password belongs to nobody, whatever the hash, as in
    mosquitto."""
    if not password:
        return False
    return _verify_argon(stored, password) if stored.startswith("$argon2") else _verify_pbkdf2(stored, password)


_DUMMIES: dict[str, str] = {}
"""Dummies by the kind of hash. They are kept, as making one may take half a second, and each reload builds the users
anew."""
_MOST_DUMMIES = 100


def _dummy(stored: str) -> str:
    """A hash that takes as long to verify as this one and belongs to no password."""
    kind = stored.rpartition("$")[0].rpartition("$")[0]  # without salt and hash
    if kind in _DUMMIES:
        return _DUMMIES[kind]
    salt, digest = (base64.b64encode(secrets.token_bytes(length)).decode() for length in (12, 64))
    dummy = f"{kind}${salt}${digest}"
    if stored.startswith("$argon2"):
        try:
            dummy = PasswordHasher.from_parameters(extract_parameters(stored)).hash(secrets.token_bytes(16))
        except (InvalidHashError, HashingError):  # it lets nobody in and takes no time, like the hash of its user
            dummy = "$argon2"
    if len(_DUMMIES) >= _MOST_DUMMIES:
        _DUMMIES.clear()
    _DUMMIES[kind] = dummy
    return dummy


def _verify_argon(stored: str, password: bytes) -> bool:
    try:
        return _ARGON.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def _verify_pbkdf2(stored: str, password: bytes) -> bool:
    try:
        _, kind, *rest = stored.split("$")
        iterations = int(rest.pop(0)) if kind == "7" else 0
        salt, expected = (base64.b64decode(part) for part in rest)
        if kind == "7" and 0 < iterations <= 10_000_000:
            digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
        elif kind == "6":
            digest = hashlib.sha512(password + salt).digest()
        else:
            return False
    except ValueError:
        return False
    return hmac.compare_digest(digest, expected)


class PasswordFile(NamedTuple):
    """A password file as read."""

    path: str
    users: dict[str, str]
    empty: bool
    """Whether the file was empty, without even a comment."""


def read_password_file(path: Path) -> PasswordFile:
    """The hash of each user. Raises ConfigurationError with every line that is neither an entry nor a comment."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
    users: dict[str, str] = {}
    findings: list[Finding] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, stored = line.partition(":")
        if not colon or not user or not stored.startswith(("$7$", "$6$", "$argon2")):
            fix = "use `mqgate passwd` or mosquitto_passwd to write the line"
            findings.append(Finding(str(path), number, 1, "not USER:HASH", fix))
            continue
        users[user] = stored
    if findings:
        raise ConfigurationError(findings)
    return PasswordFile(str(path), users, not text.strip())


def write_password_file(path: Path, users: dict[str, str]) -> None:
    """Replace the file in one step, readable by its owner only. A file that exists keeps owner and mode, as those who
    may read it are seldom those who change it. Without users the file says so, because an empty file is taken for a
    lost one."""
    before = path.stat() if path.exists() else None
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if not users:
                file.write(f"{NOBODY}\n")
            file.writelines(f"{user}:{stored}\n" for user, stored in users.items())
            file.flush()
            os.fsync(file.fileno())
        if before is not None and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):  # only root gives files away
                os.chown(name, before.st_uid, before.st_gid)
        Path(name).chmod(0o600 if before is None else before.st_mode & 0o777)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a write says no name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
