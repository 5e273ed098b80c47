"""Secrets that the settings name by file, read at start; not kept in the settings."""

from __future__ import annotations

from pathlib import Path

from gateway.config.model import Settings
from gateway.config.security import Password
from gateway.errors import ConfigurationError, Finding


def mqi_users(settings: Settings) -> dict[str, str]:
    """User and password of programs that come through the MQI library."""
    embedded = settings.queue_manager.embedded
    if embedded is None:
        return {}
    place = "queue_manager.embedded.users"
    return {name: read_password(settings, one, f"{place}.{name}") for name, one in embedded.users.items()}


def read_password(settings: Settings, password: Password, key: str) -> str:
    """From its file or the environment."""
    if password.password is not None:
        return password.password.get_secret_value()
    if password.password_file is None:
        raise ConfigurationError(
            [settings.finding(key, f"`{key}` has no password", "name its file in `password_file`")]
        )
    path = Path(settings.resolve(password.password_file, f"{key}.password_file"))
    try:
        return path.read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
