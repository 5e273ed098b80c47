"""Puts a merged batch in the place of those that it was made of. Plain files, no Spark.

The merge is written and synchronised in a folder of its own, and its intent recorded; then the old batches leave and
the new one gets its name. Whoever finds the intent of a process that died in between completes it: the next compaction,
or the next driver before it looks for what no record names. Both hold the manifest's lock.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.pipeline.errors import PipelineError
from gateway.pipeline.land.durable import make_folder, move_folder, read_json, sync_file, write_json
from gateway.pipeline.land.manifest import FOLDER, Manifest

MERGING = "_merging"
"""Where merges are written. Not below what a batch clears away when it begins."""
INTENT = "compaction.json"
TRASH = "_trash"
ALONE = ".compacting"


@dataclass(frozen=True, slots=True)
class Merge:
    """Batch folders of a table, the folder that takes their place, and where that was written; all in the warehouse."""

    table: str
    old: list[str]
    new: str
    staged: str


@contextmanager
def alone(warehouse: Path) -> Iterator[None]:
    """One process at a time merges and expires: a second one would write the same merge into the same folder."""
    make_folder(warehouse / FOLDER)
    with (warehouse / FOLDER / ALONE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(f"{warehouse} is being compacted already: let that one end") from error
        yield


def exchange(warehouse: Path, merge: Merge) -> None:
    """Put a merge that is written in place."""
    with Manifest(warehouse).changing():
        write_json(warehouse / FOLDER / INTENT, asdict(merge))
    finish(warehouse)


def finish(warehouse: Path) -> bool:
    """Complete an exchange that was begun; whether there was one."""
    manifest = Manifest(warehouse)
    with manifest.changing():
        return finish_locked(warehouse, manifest)


def finish_locked(warehouse: Path, manifest: Manifest) -> bool:
    """The same while the manifest is locked."""
    found = read_json(warehouse / FOLDER / INTENT)
    if found is None:
        return False
    merge = Merge(**found)
    if (warehouse / merge.staged).exists() or (warehouse / merge.new).exists():
        _put_in_place(warehouse, merge)
        size = sum(file.stat().st_size for file in (warehouse / merge.new).rglob("*.parquet"))
        manifest.replace_folders(merge.table, set(merge.old), merge.new, size)
    else:
        _put_back(warehouse, merge)
    (warehouse / FOLDER / INTENT).unlink()
    shutil.rmtree(warehouse / TRASH, ignore_errors=True)
    return True


def _put_in_place(warehouse: Path, merge: Merge) -> None:
    (warehouse / TRASH).mkdir(exist_ok=True)
    for folder, aside in _with_places(warehouse, merge):
        if folder.exists():
            folder.rename(aside)
    if not (warehouse / merge.new).exists():
        move_folder(warehouse / merge.staged, warehouse / merge.new)
    sync_file(warehouse / merge.table)


def _put_back(warehouse: Path, merge: Merge) -> None:
    """Where somebody has removed what was written: the rows are still where they were, or aside."""
    for folder, aside in _with_places(warehouse, merge):
        if aside.exists():
            aside.rename(folder)
    sync_file(warehouse / merge.table)


def _with_places(warehouse: Path, merge: Merge) -> list[tuple[Path, Path]]:
    """Each old batch, and where it lies before it is deleted."""
    old = [warehouse / folder for folder in merge.old]
    return [(folder, warehouse / TRASH / f"{number}-{folder.name}") for number, folder in enumerate(old)]
