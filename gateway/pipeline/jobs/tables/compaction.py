"""Merging small batches into larger files and deleting old ones, also while the job runs. Plain files and pyarrow.
`land/merge.py` puts a merge in the place of the batches of which it was made, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import compress
from pathlib import Path
from typing import Any

from gateway.pipeline.errors import StoreRefuses
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.tables.merging import Part, alike, due, lots_of, write_merged
from gateway.pipeline.jobs.tables.object_compaction import compact_objects, expire_objects, vacuum_hours
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.land.durable import sync_tree
from gateway.pipeline.land.landing import MERGED, STATE
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.merge import MERGING, Merge, alone, exchange, finish
from gateway.pipeline.source.places import is_object_place

YOUNGEST_KEPT = 2
"""The newest batches are not merged: the job may read them again."""


def compact(job: Job) -> dict[str, int]:
    """Merge the small batches of all tables that have enough of them; returns how many were merged, by table."""
    check_folder(job)
    check_format(job, removes=True)
    if job.on_objects:
        return compact_objects(job)
    warehouse = Path(job.warehouse)
    with alone(warehouse):
        finish(warehouse)
        return _compact_delta(warehouse, job) if job.format == "delta" else _compact_folders(warehouse, job)


def check_folder(job: Job) -> None:
    """StoreRefuses where the folder is not there, which would be made. An object store has none."""
    if not is_object_place(job.warehouse) and not Path(job.warehouse).is_dir():
        raise StoreRefuses(
            f"the warehouse {job.warehouse} is not there: correct `warehouse`, or mount or restore it; where the job "
            "has never run, there is nothing to merge"
        )


def _compact_folders(warehouse: Path, job: Job) -> dict[str, int]:
    done: dict[str, int] = {}
    for table in job.growing_tables:
        found = lots_of(_parts(warehouse, Manifest(warehouse), table), job.retention, table)
        done[table] = sum(_merge(warehouse, table, lot) for lot in due(found, job.retention))
    return {table: count for table, count in done.items() if count}


def _parts(warehouse: Path, manifest: Manifest, table: str) -> list[Part]:
    """The batches that may be merged, oldest first."""
    names = [name for name in mergeable(manifest, table) if (warehouse / name).exists()]
    sizes = {name: manifest.sizes.get(name) or _size(warehouse / name) for name in names}
    return sorted(
        (Part(name, sizes[name], landed_at(warehouse / name)) for name in names), key=lambda part: part.landed
    )


def mergeable(manifest: Manifest, table: str) -> set[str]:
    """All batches of a table except the newest ones, and those that cannot be merged with others."""
    youngest = manifest.records(YOUNGEST_KEPT)
    newest = {record.tables[table].folder for record in youngest if table in record.tables}
    return manifest.folders.get(table, set()) - manifest.left_out - newest


def landed_at(folder: Path) -> float:
    """When a batch landed; for a merged one, when the last of its batches did."""
    return folder.stat().st_mtime if folder.exists() else 0.0


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def _merge(warehouse: Path, table: str, folders: list[str]) -> int:
    """Merge those of the batches that can become one; returns how many they are. The others are left out from now
    on."""
    fits = alike([_schema_of(warehouse / folder) for folder in folders])
    left_out = {folder for folder, fit in zip(folders, fits, strict=True) if not fit}
    if left_out:
        Manifest(warehouse).leave_out(left_out)
    folders = list(compress(folders, fits))
    if len(folders) == 1:
        return 0
    name = MERGED + hashlib.blake2b("".join(folders).encode(), digest_size=6).hexdigest()
    staged = warehouse / MERGING / table / f"batch={name}"
    shutil.rmtree(staged, ignore_errors=True)
    _write_parts(warehouse, folders, staged)
    landed = max(landed_at(warehouse / folder) for folder in folders)
    os.utime(staged, (landed, landed))
    sync_tree(staged)
    exchange(warehouse, Merge(table, folders, f"{table}/batch={name}", str(staged.relative_to(warehouse))))
    return len(folders)


def _schema_of(folder: Path) -> Any:
    """The columns of a batch, which all its files have; None for a batch without a file."""
    import pyarrow.parquet as pq

    file = next(folder.rglob("*.parquet"), None)
    return None if file is None else pq.read_schema(file)


def _write_parts(warehouse: Path, folders: list[str], target: Path) -> None:
    """Write one file for each partition of the batches (such as status=ok)."""
    import pyarrow.parquet as pq

    parts: dict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        for file in sorted((warehouse / folder).rglob("*.parquet")):
            parts[str(file.parent.relative_to(warehouse / folder))].append(file)
    target.mkdir(parents=True)
    for below, files in parts.items():
        (target / below).mkdir(parents=True, exist_ok=True)
        write_merged(files, list(map(pq.read_schema, files)), target / below / "part-merged.parquet")


def expire(job: Job, now: float | None = None) -> dict[str, int]:
    """Delete batches older than their table's retention; returns how many were deleted, by table."""
    check_format(job, removes=True)
    if job.on_objects:
        return expire_objects(job, now)
    warehouse, now = Path(job.warehouse), time.time() if now is None else now
    with alone(warehouse):
        return _expired(warehouse, job, now)


def kept_for_good(job: Job) -> list[str]:
    """The tables with a retention that `expire` does not enforce. On object storage Delta's files are not batches:
    nothing tells when the rows of those that `optimize` has merged have landed."""
    return sorted(job.retention.keep) if job.on_objects and job.format == "delta" else []


def _expired(warehouse: Path, job: Job, now: float) -> dict[str, int]:
    done: dict[str, int] = {}
    for table, age in job.retention.keep.items():
        if job.format == "delta":
            done |= _expire_delta(warehouse, table, now - age)
            continue
        manifest = Manifest(warehouse)
        old = {name for name in manifest.folders.get(table, ()) if 0 < landed_at(warehouse / name) < now - age}
        if old and not table.startswith(STATE):
            with manifest.changing():
                manifest.replace_folders(table, old, None)
            for name in old:
                shutil.rmtree(warehouse / name, ignore_errors=True)
            done[table] = len(old)
    return done


def _compact_delta(warehouse: Path, job: Job) -> dict[str, int]:
    """Merge with Delta's own `optimize`: the log says which files count, and `vacuum` removes the others once no reader
    of an earlier version may hold them."""
    from deltalake import DeltaTable

    done: dict[str, int] = {}
    for table in job.growing_tables:
        if DeltaTable.is_deltatable(str(warehouse / table)):
            found = DeltaTable(str(warehouse / table))
            with _as_old(warehouse / table):
                done[table] = int(found.optimize.compact()["numFilesRemoved"])
                found.vacuum(vacuum_hours(job), dry_run=False)
    return {table: count for table, count in done.items() if count}


@contextmanager
def _as_old(table: Path) -> Iterator[None]:
    """Restore, at the end, the times at which the batches in these folders landed, whatever is done in the folders
    meanwhile."""
    landed = {folder: landed_at(folder) for folder in table.glob("batch=*")}
    try:
        yield
    finally:
        for folder, when in landed.items():
            with suppress(FileNotFoundError):  # vacuum has removed it
                os.utime(folder, (when, when))


def _expire_delta(warehouse: Path, table: str, until: float) -> dict[str, int]:
    """Remove old batches by an entry of the log, which readers follow; `vacuum` removes their files later."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(warehouse / table)):
        return {}
    found = DeltaTable(str(warehouse / table))
    live = {values["batch"] for values in found.partitions() if "batch" in values}
    old = sorted(name for name in live if 0 < landed_at(warehouse / table / f"batch={name}") < until)
    if not old:
        return {}
    found.delete(f"batch IN ({', '.join(map(repr, old))})")
    return {table: len(old)}
