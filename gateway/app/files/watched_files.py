"""The files that a gateway was made from, watched for changes.

A mounted ConfigMap or Secret is changed by swapping one symbolic link beside the files, so a file is identified by its
resolved path, size and time. Files are not opened: a reload reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.app.mappings import mapping_files
from gateway.config.load import display
from gateway.config.model import Settings
from gateway.errors import ConfigurationError
from gateway.routing.table import Table

Seen = tuple[tuple[str, str, int, int], ...]
"""For each file: its name, the path it resolves to, time and size; zeros if it does not exist."""

_NOT_THERE = ("", 0, 0)
_FILES = (
    "certificate",
    "key",
    "client_ca",
    "crl",
    "token_file",
    "read_token_file",
    "users_file",
    "client_secret_file",
    "password_file",
    "jwks_file",
    "ca",
    "acl",
)


class Watch:
    """Calls `changed` when the files differ from those of the last reload and two looks found them the same: files that
    are still being written are left alone. A refused reload is not repeated before something changes."""

    def __init__(self, files: Callable[[], list[str]], changed: Callable[[Callable[[], None]], None]) -> None:
        """`changed` is given what it calls when they have been read, which takes its time."""
        self._files = files
        self._changed = changed
        self._in_force = self._last = look(files())

    def look(self) -> None:
        """Compare the files with the last look."""
        now = look(self._files())
        settled, self._last = now == self._last, now
        if settled and now != self._in_force:
            self._in_force = now
            self._changed(self._read)

    def _read(self) -> None:
        """New settings may name other files, which are read once more: like what has changed or come while others were
        read, they may be others by now."""
        known = {one[0]: one for one in self._in_force}
        self._in_force = tuple(known.get(file, (file, *_NOT_THERE)) for file in self._files())


def look(files: list[str]) -> Seen:
    """The state of these files, without opening them."""
    return tuple(_seen(file) for file in files)


def _seen(file: str) -> tuple[str, str, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return file, *_NOT_THERE
    return file, os.path.realpath(file), found.st_mtime_ns, found.st_size


def watched_files(settings: Settings, table: Table) -> list[str]:
    """Every file that a reload reads, sorted, each once."""
    return sorted(set(_named(settings, table)))


def _named(settings: Settings, table: Table) -> Iterator[str]:
    if settings.source is not None:
        yield settings.source
    try:
        yield from mapping_files(settings)
    except ConfigurationError:  # the pattern matches no file any more: a change like another
        yield from ()
    for key, value, _ in display(settings):
        if key.rpartition(".")[2] in _FILES and isinstance(value, str):
            yield settings.resolve(value, key)
    for route in table.routes:
        schema = route.rule.spec.payload.schema_file
        if schema is not None:
            yield str(Path(route.rule.file).parent / schema)
