"""Removing from a folder what dead drivers and ended compactions have left: files that tasks wrote for batches that
came to nothing, staged parts, and batches that no record names. On object storage `object_compaction.py` does this.

Age decides, and it is never less than an hour: the files of a driver that is still running are younger than that, and
whoever lists a table's folder is done with it by then.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.config.units import show_duration
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.tables import object_compaction
from gateway.pipeline.jobs.tables.object_compaction import Leftovers, vacuum_hours
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.land.landing import STAGING, STATE, TASKS
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.merge import MERGING, TRASH

LEAST_AGE = 3600.0


def age_of(job: Job) -> float:
    """The age from which left-over files are removed."""
    return job.retention.leftovers if job.on_objects else max(job.retention.leftovers, LEAST_AGE)


def shown_age(job: Job) -> str:
    """The age from which left-over files are removed, as text."""
    age = show_duration(age_of(job))
    if job.on_objects and job.format == "delta" and job.replaced_tables:
        age += f" (in tables that each batch replaces {show_duration(vacuum_hours(job) * 3600)})"
    return age


def remove_leftovers(job: Job, now: float | None = None) -> Leftovers:
    """Remove left-over files and folders; returns how many were removed, and how many are too young."""
    check_format(job, removes=True)
    if job.on_objects:
        return object_compaction.remove_leftovers(job)
    warehouse, now = Path(job.warehouse), time.time() if now is None else now
    until = now - age_of(job)
    listed = [*_staged(warehouse), *_unnamed(warehouse, job)]
    old = [path for path in listed if touched(path) < until]
    for path in old:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return Leftovers(len(old), len(listed) - len(old))


def touched(path: Path) -> float:
    """When something was last written below a path, or the path was given its name."""
    try:
        below = list(path.rglob("*")) if path.is_dir() else []
        return max(max(found.st_mtime, found.st_ctime) for found in (one.stat() for one in (path, *below)))
    except FileNotFoundError:  # a driver is at it
        return time.time()


def _staged(warehouse: Path) -> Iterator[Path]:
    tasks = warehouse / TASKS
    yield from tasks.glob("*")
    yield from (path for path in (warehouse / STAGING).glob("*") if path != tasks)
    yield from (warehouse / MERGING).glob("*/*")
    yield from (warehouse / TRASH).glob("*")


def _unnamed(warehouse: Path, job: Job) -> list[Path]:
    """Batches that no record names. Delta logs name the same batches as records do."""
    manifest = Manifest(warehouse)
    known = {warehouse / folder for folders in manifest.folders.values() for folder in folders}
    tables = (*job.growing_tables, *job.replaced_tables, f"{STATE}/*")
    return [path for table in tables for path in sorted(warehouse.glob(f"{table}/batch=*")) if path not in known]
