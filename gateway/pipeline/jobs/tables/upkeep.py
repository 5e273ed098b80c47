"""How many parts a job's tables have, and when there is something to merge: from the manifest, without reading a file,
so that a running job can report it after each batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.config.counting import counted
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.tables.compaction import landed_at, mergeable
from gateway.pipeline.jobs.tables.merging import Part, due, lots_of
from gateway.pipeline.jobs.tables.object_compaction import small_files
from gateway.pipeline.land.landing import MERGED
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.object_manifest import ObjectManifest


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """A table to which each batch adds."""

    table: str
    parts: int
    """Files on object storage; folders of batches on a file system."""
    small: int | None
    """The most parts that one merge would take; None if another log knows (Delta)."""
    left_out: int
    """Parts that no merge takes, because a column has another type there."""
    due: bool
    """Whether `mqgate pipeline compact` would merge them now."""


def upkeep_of(job: Job, manifest: Manifest | ObjectManifest) -> list[TableUpkeep]:
    """The upkeep of a job's growing tables."""
    return [_upkeep(job, manifest, table) for table in job.growing_tables]


def _upkeep(job: Job, manifest: Manifest | ObjectManifest, table: str) -> TableUpkeep:
    if isinstance(manifest, ObjectManifest):
        parts, left_out = set(manifest.state.files.get(table, ())), manifest.state.left_out
        lots = small_files(manifest, table, job.retention)
    else:
        parts, left_out = manifest.folders.get(table, set()), manifest.left_out
        lots = lots_of(_parts(manifest, job, table), job.retention, table)
    left = len(parts & left_out)
    if job.format == "delta":
        return TableUpkeep(table, len(parts), None, left, due=False)
    return TableUpkeep(table, len(parts), max(map(len, lots), default=0), left, due=bool(due(lots, job.retention)))


def _parts(manifest: Manifest, job: Job, table: str) -> list[Part]:
    """The batches that could be merged. One of unknown length, which an earlier release has written, counts as small if
    it was never merged. Their folders tell when they landed, where that matters."""
    names = sorted(name for name in mergeable(manifest, table) if name in manifest.sizes or MERGED not in name)
    warehouse, kept = Path(job.warehouse), table in job.retention.keep
    found = [Part(name, manifest.sizes.get(name, 0), landed_at(warehouse / name) if kept else 0.0) for name in names]
    return sorted(found, key=lambda part: part.landed)


def next_compaction(job: Job, tables: list[TableUpkeep]) -> str:
    """The next compaction, in words for people."""
    if job.format == "delta":
        within = "" if job.on_objects else ", within a batch alone"
        return f"by Delta's own log{within}: run `mqgate pipeline compact` daily"
    left = sum(each.left_out for each in tables)
    beside = f"; {left:,} left out, in which a column has another type than later" if left else ""
    if any(each.due for each in tables):
        due = ", ".join(each.table for each in tables if each.due)
        return f"due ({due}): run `mqgate pipeline compact`{beside}"
    nearest = max((each.small or 0 for each in tables), default=0)
    return f"after {counted(job.retention.compact_files - nearest, 'more small part')}{beside}"


def shown_upkeep(job: Job, manifest: Manifest | ObjectManifest) -> dict[str, Any]:
    """The upkeep as status and the page show it."""
    tables = upkeep_of(job, manifest)
    return {"tables": [asdict(each) for each in tables], "next_compaction": next_compaction(job, tables)}
