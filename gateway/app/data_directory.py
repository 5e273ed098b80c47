"""The data directory: who may read it, and what the command line finds there (gateway.json, admin.token)."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from gateway.config.model import Settings
from gateway.observe import logs

log = logs.get("mqgate")


def make_private(directory: Path) -> None:
    """Make the directory readable by its owner alone, and all files that are made from now on. Where that is refused,
    as on some mounted volumes, the log says so."""
    os.umask(os.umask(0o077) | 0o077)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        try:
            directory.chmod(0o700)
        except OSError as error:
            log.warning("data_directory", f"{directory} can be read by others and cannot be changed: {error}")


def write_address(directory: Path, settings: Settings, number: int) -> None:
    """Write gateway.json, by which commands find this process and its token. `number`: the admin port, or 0."""
    path, admin = directory / "gateway.json", settings.admin
    host = "127.0.0.1" if admin.bind in {"0.0.0.0", "::"} else admin.bind
    named = settings.resolve(admin.token_file, "admin.token_file") if admin.token_file is not None else None
    record = {
        "pid": os.getpid(),
        "admin": f"http://{host}:{number}" if number else None,
        "token_file": str(Path(named or directory / "admin.token").absolute()),
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.chmod(0o600)
    fresh.replace(path)


def own_token(directory: Path) -> str:
    """The token in admin.token, written at the first start and readable by its owner alone."""
    path = directory / "admin.token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
    return path.read_text(encoding="utf-8").strip()
