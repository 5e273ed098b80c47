"""What can run out: space on the disk of the gateway, and the validity of its certificates. Read when asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.app.files.directories import data_directory
from gateway.config.model import Settings
from gateway.config.tls import Tls


class Room(NamedTuple):
    """Space on the gateway's own disk: what its messages use, and what they may use."""

    used: int
    limit: int


def room_for(folder: Path, used: int, limit: int | None) -> int:
    """Returns how many bytes may be used in all: the setting, limited by what the file system has left."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return limit or 0
    free = used + space.f_bavail * space.f_frsize
    return min(limit, free) if limit else free


def room_of(settings: Settings) -> Room | None:
    """Returns the room of the embedded queue manager's journal; None if there is none."""
    embedded = settings.queue_manager.embedded
    if embedded is None:
        return None
    folder = data_directory(settings)
    try:
        used = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    except OSError:
        return None
    return Room(used, room_for(folder, used, embedded.max_bytes))


ADMIN = "admin"
"""The name of the admin port, where listeners are named."""


def _secured(settings: Settings) -> Iterator[tuple[str, str, Tls]]:
    """Yields name, key of the settings, and TLS settings of everything that has TLS."""
    for index, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield listener.name, f"listeners.{index}.tls", listener.tls
    if settings.admin.tls is not None:
        yield ADMIN, "admin.tls", settings.admin.tls


def certificate_ends(settings: Settings) -> Iterator[tuple[str, float]]:
    """Yields name, and expiry in seconds since the epoch, of every TLS listener whose certificate can be read, and of
    the admin port."""
    for listener, key, tls in _secured(settings):
        from cryptography import x509  # large: only where there is TLS

        name = settings.resolve(tls.certificate, f"{key}.certificate")
        try:
            found = x509.load_pem_x509_certificate(Path(name).read_bytes())
        except (OSError, ValueError):
            continue
        yield listener, found.not_valid_after_utc.timestamp()


def revocation_ends(settings: Settings) -> Iterator[tuple[str, float]]:
    """Yields listener, and next update in seconds since the epoch, of every revocation list that names one."""
    for listener, key, tls in _secured(settings):
        if tls.crl is None:
            continue
        from cryptography import x509

        name = settings.resolve(tls.crl, f"{key}.crl")
        try:
            found = x509.load_pem_x509_crl(Path(name).read_bytes()).next_update_utc
        except (OSError, ValueError):
            continue
        if found is not None:
            yield listener, found.timestamp()
