"""What follows the manifest of a warehouse of objects: Delta logs or tables of Iceberg, depending on the job's
format."""

from __future__ import annotations

from collections.abc import Callable

from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.iceberg import IcebergTables
from gateway.pipeline.land.object_delta import ObjectDelta
from gateway.pipeline.land.objects import ObjectStore


def follower_of(job: Job, store: ObjectStore) -> ObjectDelta | IcebergTables | None:
    """What follows the manifest of a job's warehouse: Delta logs, or tables of Iceberg; None for plain files."""
    if job.format == "delta":
        return ObjectDelta(store, job.name, job.replaced_tables)
    if job.catalog is not None:
        return IcebergTables(store, job.catalog.settings, job.replaced_tables)
    return None


def by_day(job: Job) -> Callable[[str], bool]:
    """Tells for a table whether the rows of each day are in files of their own."""
    growing = set(job.growing_tables) if job.format == "iceberg" else set()
    return growing.__contains__
