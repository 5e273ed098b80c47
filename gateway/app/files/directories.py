"""Where a gateway keeps its files: as its settings say, or in the working directory."""

from __future__ import annotations

from pathlib import Path

from gateway.config.model import Settings

_OTHERWISE = "./mqgate-data"


def data_directory(settings: Settings) -> Path:
    """Returns the directory of the journal or of the buffer, which also holds the files by which commands find the
    gateway."""
    embedded, buffer = settings.queue_manager.embedded, settings.queue_manager.buffer
    if embedded is not None:
        return _directory(settings, embedded.path, "queue_manager.embedded.path")
    if buffer is not None:
        return _directory(settings, buffer.path, "queue_manager.buffer.path")
    return _directory(settings, _OTHERWISE, "queue_manager.buffer.path")


def _directory(settings: Settings, name: str, key: str) -> Path:
    """Returns a directory of the settings. If it is not named, it is in the working directory, whatever else the file
    says about the queue manager. Earlier releases then had it beside the file; if it exists there, and not here, it is
    still used, so that no message is left behind."""
    if settings.said_by(key) != "default":
        return Path(settings.resolve(name, key))
    before = Path(settings.resolve(name))
    return before if before.is_dir() and not Path(name).is_dir() else Path(name)
