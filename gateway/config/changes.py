"""The differences between two versions of the settings, for the log, with secrets masked; and which of them need a
restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.config.load import MASK, display
from gateway.config.model import Settings

LIVE = ("mappings", "security", "limits", "log.level", "log.connections", "log.clients", "events", "process",
        "mqtt.max_connections", "mqtt.max_sessions", "mqtt.max_buffered_bytes",
        "admin.token_file", "admin.read_token_file", "admin.hosts", "admin.users_file", "admin.session_idle",
        "admin.session_length", "admin.audit_keep", "admin.page", "admin.oidc", "admin.ldap")  # fmt: skip
"""Sections and keys that a reload puts into force. The others are only read at start."""
AT_START = ("security.managed",)
"""Keys within those that are nevertheless only read at start."""
LIVE_OF_A_LISTENER = ("limits", "max_connections", "max_sessions")
"""The keys of `listeners.N.` that a reload puts into force."""


class Change(NamedTuple):
    """One setting that has changed."""

    key: str
    before: object
    after: object
    live: bool
    """Whether a reload puts it into force."""

    def __str__(self) -> str:
        text = f"{self.key}: {self.before!r} -> {self.after!r}"
        return text if self.live else f"{text} (after a restart)"


def changes(before: Settings, after: Settings) -> list[Change]:
    """Every setting whose value has changed, in the order of the reference; None stands for a key that is absent."""
    old, new = dict(_values(before)), dict(_values(after))
    keys = [*old, *(key for key in new if key not in old)]
    return [
        Change(key, _shown(old.get(key)), _shown(new.get(key)), is_live(key))
        for key in keys
        if old.get(key) != new.get(key)
    ]


def is_live(key: str) -> bool:
    """Whether a reload puts this setting into force."""
    section, _, rest = key.partition(".")
    if section == "listeners":
        return _within(rest.partition(".")[2], LIVE_OF_A_LISTENER)
    return _within(key, LIVE) and not _within(key, AT_START)


def _within(key: str, sections: tuple[str, ...]) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in sections)


def _values(settings: Settings) -> Iterator[tuple[str, object]]:
    """Yield keys and values. Secrets are objects that can be compared and never show their value."""
    for key, value, _ in display(settings, secrets=True):
        yield key, value


def _shown(value: object) -> object:
    return MASK if hasattr(value, "get_secret_value") else value
