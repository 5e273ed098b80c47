"""Whether the tables with which a job goes on are still in its folder. If one was removed by hand, Spark would only say
that a path does not exist, or rows that have landed would be missing without anybody being told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.pipeline.errors import StoreRefuses
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import Manifest


def check_tables(job: Job, manifest: Manifest) -> None:
    """Raise StoreRefuses if one of the job's tables has landed and its folder is gone, or the state from which a gold
    table goes on. Another driver may land meanwhile, and remove what it has replaced; the manifest tells."""
    warehouse = Path(job.warehouse)
    for folder, cure in (*_grown(job, manifest), *_replaced(job, manifest)):
        if not (warehouse / folder).exists() and _is_newest(warehouse, manifest):
            raise StoreRefuses(
                f"{warehouse / folder} is gone, and what it held does not come again, as it has landed: restore it "
                f"from a backup, or {cure}"
            )


def _grown(job: Job, manifest: Manifest) -> Iterator[tuple[str, str]]:
    for table in job.growing_tables:
        if manifest.folders.get(table):
            yield table, "make the folder, empty, to go on without"


def _replaced(job: Job, manifest: Manifest) -> Iterator[tuple[str, str]]:
    landed = manifest.last.tables if manifest.last else {}
    for gold in job.gold:
        name = gold.table if gold.replaced else f"{STATE}/{gold.table}"
        if name in landed:
            yield landed[name].folder, f"give gold table {gold.table!r} another name, under which it begins anew"


def _is_newest(warehouse: Path, manifest: Manifest) -> bool:
    now = Manifest(warehouse).last
    return now is not None and manifest.last is not None and now.number == manifest.last.number
