"""Password files in the format of mosquitto_passwd, and the hashes in them.

`user:$7$iterations$salt$hash` is PBKDF2-HMAC-SHA512 (mosquitto 2), `user:$6$salt$hash` a single salted SHA-512 (older
ones), `user:$argon2id$...` what `mqgate passwd` writes. Comparing takes the same time whether the user exists or not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from gateway.errors import ConfigurationError, Finding

ITERATIONS = 600_000
_ARGON = PasswordHasher()
_NOBODY = _ARGON.hash(secrets.token_hex(16))
"""Verified when the user is unknown, so that the time taken does not tell."""


def hash_password(password: bytes, *, pbkdf2: bool = False, iterations: int = ITERATIONS) -> str:
    """A hash for a password file: Argon2id, or PBKDF2 for files that mosquitto reads too."""
    if not pbkdf2:
        return _ARGON.hash(password)
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def verify(stored: str | None, password: bytes) -> bool:
    """Whether the password belongs to the hash; None: there is no such user."""
    if stored is None:
        _verify_argon(_NOBODY, password)
        return False
    if stored.startswith("$argon2"):
        return _verify_argon(stored, password)
    return _verify_pbkdf2(stored, password)


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


def read_password_file(path: Path) -> dict[str, str]:
    """The hash of each user. ConfigurationError: every line that is neither an entry nor a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
    users: dict[str, str] = {}
    findings: list[Finding] = []
    for number, line in enumerate(lines, 1):
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
    return users


def write_password_file(path: Path, users: dict[str, str]) -> None:
    """Replace the file at once, readable by its owner alone."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{user}:{stored}\n" for user, stored in users.items())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o600)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
