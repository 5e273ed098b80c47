"""Which files a gateway was made from, and whether they are others now.

A mounted ConfigMap or Secret is changed by swapping one symbolic link beside the files, so a file is known by where its
name leads as well as by size and time. Looks, never reads: what has changed is read by a reload.
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
"""For each file: its name, where that leads, time and size; a file that is not there has zeros."""

_FILES = (
    "certificate",
    "key",
    "client_ca",
    "crl",
    "token_file",
    "read_token_file",
    "password_file",
    "jwks_file",
    "acl",
)


class Watch:
    """Calls `changed` when the files are others than at the last reload, and have been the same for two looks: what is
    still being written is left alone. A reload that was refused is not tried again before something changes."""

    def __init__(self, files: Callable[[], list[str]], changed: Callable[[], None]) -> None:
        self._files = files
        self._changed = changed
        self._in_force = self._last = look(files())

    def look(self) -> None:
        """Look once."""
        now = look(self._files())
        settled, self._last = now == self._last, now
        if settled and now != self._in_force:
            self._in_force = now
            self._changed()
            self._in_force = self._last = look(self._files())  # new settings may name other files


def look(files: list[str]) -> Seen:
    """What is to be seen of these files without opening them."""
    return tuple(_seen(file) for file in files)


def _seen(file: str) -> tuple[str, str, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return file, "", 0, 0
    return file, os.path.realpath(file), found.st_mtime_ns, found.st_size


def watched_files(settings: Settings, table: Table) -> list[str]:
    """Everything a reload reads, each file once, in order."""
    return sorted(set(_named(settings, table)))


def _named(settings: Settings, table: Table) -> Iterator[str]:
    if settings.source is not None:
        yield settings.source
    try:
        yield from mapping_files(settings)
    except ConfigurationError:  # none is left: that is a change, too
        yield from ()
    for key, value, _ in display(settings):
        if key.rpartition(".")[2] in _FILES and isinstance(value, str):
            yield settings.resolve(value, key)
    for route in table.routes:
        schema = route.rule.spec.payload.schema_file
        if schema is not None:
            yield str(Path(route.rule.file).parent / schema)
