"""Secrets that the settings name by file; read at start, and not kept in the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from gateway.config.model import Settings
from gateway.config.security import Password
from gateway.errors import ConfigurationError, Finding


def mqi_users(settings: Settings) -> dict[str, str]:
    """Returns user and password of programs that connect through the MQI library."""
    embedded = settings.queue_manager.embedded
    if embedded is None:
        return {}
    place = "queue_manager.embedded.users"
    return {name: read_password(settings, one, f"{place}.{name}") for name, one in embedded.users.items()}


def read_password(settings: Settings, password: Password, key: str) -> str:
    """Returns a password from its file or the environment."""
    found = read_secret(settings, password.password, password.password_file, f"{key}.password_file")
    if found is None:
        raise ConfigurationError(
            [settings.finding(key, f"`{key}` has no password", "name its file in `password_file`")]
        )
    return found


def read_secret(settings: Settings, given: SecretStr | None, file: str | None, key: str) -> str | None:
    """Returns what the environment gives, or the first line of the file that the settings name under this key; None if
    there is neither."""
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    path = Path(settings.resolve(file, key))
    try:
        return path.read_text(encoding="utf-8").split("\n", 1)[0]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
