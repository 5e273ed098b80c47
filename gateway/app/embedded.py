"""The embedded queue manager of the settings: in a gateway, or in a process of its own."""

from __future__ import annotations

from pathlib import Path

from gateway.app.mqi_library import short_name
from gateway.app.secrets import mqi_users
from gateway.config.model import Settings
from gateway.config.queue_manager import Embedded
from gateway.ports.batch import Scheduler
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions


def open_embedded(settings: Settings, directory: Path, scheduler: Scheduler) -> EmbeddedQueueManager:
    """Open its journal in `directory` and run the MQSC commands of the settings. StoreError or ConfigurationError."""
    embedded = settings.queue_manager.embedded
    assert embedded is not None  # noqa: S101 -- the callers have looked
    text = ""
    if embedded.objects is not None:
        path = settings.resolve(embedded.objects, "queue_manager.embedded.objects")
        text = Path(path).read_text(encoding="utf-8")
    return EmbeddedQueueManager.open(
        directory, embedded.name, scheduler, text, users=mqi_users(settings), administrators=embedded.administrators,
        check_client=embedded.check_client, max_uncommitted=embedded.max_uncommitted,
        store_options=StoreOptions(
            embedded.name, segment_bytes=embedded.segment_bytes or 0, max_bytes=embedded.max_bytes
        ),
    )  # fmt: skip


def mqi_socket(settings: Settings, embedded: Embedded, directory: Path) -> Path:
    """Where programs with the MQI library reach it."""
    if embedded.socket is None:
        return short_name(directory / "mqi.sock")
    return short_name(Path(settings.resolve(embedded.socket, "queue_manager.embedded.socket")))
