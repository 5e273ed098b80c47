"""Files that survive a power loss: sync the contents, then rename, then sync the folder that holds the name."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any


def sync_file(path: Path) -> None:
    """Sync the contents of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync everything below `folder`, deepest first."""
    for path in sorted(folder.rglob("*"), key=lambda each: len(each.parts), reverse=True):
        sync_file(path)
    sync_file(folder)


def make_folder(folder: Path) -> None:
    """Make a folder with those above it, each name synchronised."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
        sync_file(folder.parent)


def move_folder(source: Path, target: Path) -> None:
    """Rename a finished folder and sync the folder above."""
    make_folder(target.parent)
    source.rename(target)
    sync_file(target.parent)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace a small file in one step. `durable=False` for a file that need not survive a power loss."""
    make_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"), sort_keys=True)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    beside.rename(path)
    if durable:
        sync_file(path.parent)


def read_json(path: Path) -> Any:
    """The value in a JSON file; None when there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
