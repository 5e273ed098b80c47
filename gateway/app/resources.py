"""What the process lives on and must not run out of: room on its disk, days of its certificates. Read when asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from gateway.config.model import Settings


class Room(NamedTuple):
    """The gateway's own disk: what its messages take, and what they may take."""

    used: int
    limit: int


def room_of(settings: Settings) -> Room | None:
    """Of the embedded queue manager's journal or the buffer; None where neither is."""
    embedded, buffer = settings.queue_manager.embedded, settings.queue_manager.buffer
    if embedded is not None:
        folder = Path(settings.resolve(embedded.path, "queue_manager.embedded.path"))
        limit = embedded.max_bytes
    elif buffer is not None:
        folder, limit = Path(settings.resolve(buffer.path, "queue_manager.buffer.path")), buffer.max_bytes
    else:
        return None
    try:
        used = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
        space = os.statvfs(folder)
    except OSError:
        return None
    free = used + space.f_bavail * space.f_frsize
    return Room(used, min(limit, free) if limit else free)


def certificate_ends(settings: Settings) -> Iterator[tuple[str, float]]:
    """(listener, expiry in seconds since the epoch) of every TLS listener whose certificate can be read."""
    for index, listener in enumerate(settings.listeners):
        if listener.tls is None:
            continue
        name = settings.resolve(listener.tls.certificate, f"listeners.{index}.tls.certificate")
        try:
            found = x509.load_pem_x509_certificate(Path(name).read_bytes())
        except (OSError, ValueError):
            continue
        yield listener.name, found.not_valid_after_utc.timestamp()
