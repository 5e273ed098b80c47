"""Lands micro-batches in tables exactly once: stage, sync, rename, record. Plain files on a folder that driver and
executors share.

A batch is staged under `_staging/<id>/<table>`, each table's folder is renamed to `<table>/batch=<id>`, and the record
in the manifest comes last. `<id>` names the message numbers covered, so a repeated batch has the same name whatever
number Spark gives it. After a crash a folder without a record either belongs to the next batch and is kept (a rename
shows only whole folders), or was planned under a checkpoint that was lost and is removed. So a plain listing of the
files, by pyarrow or DuckDB, is as exact as the manifest.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from gateway.pipeline.errors import PipelineError, StoreRefuses
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.land.durable import make_folder, move_folder, sync_tree
from gateway.pipeline.land.manifest import LandedTable, Manifest, ManifestRecord
from gateway.pipeline.land.merge import finish_locked
from gateway.pipeline.land.ranges import Ranges, range_id

STAGING = "_staging"
TASKS = f"{STAGING}/tasks"
"""Folder of the files that tasks have written."""
STATE = "_state"
MERGED = "merged-"
"""Begins the names of batches that compaction has made of others."""


class AfterRecord(Protocol):
    """Called when a batch is recorded, and before the first one: brings a Delta log up to the manifest."""

    def __call__(self, manifest: Manifest) -> None:
        """Must do nothing for batches that it has seen."""

    def check(self, table: str, folder: Path) -> None:
        """Called with the files of each table before a batch gets its names; refuses what could not follow."""


class RowCounter(Protocol):
    """Counts the rows of a data file, from its footer."""

    def __call__(self, file: Path) -> int:
        """The number of rows in a Parquet file."""


@dataclass(slots=True)
class MicroBatch:
    """A micro-batch that is being landed."""

    landing: Landing
    query: str
    number: int
    pieces: Ranges
    trimmed: bool
    """Whether a part of the planned range had landed before."""
    figures: dict[str, float] = field(default_factory=dict)
    put_times: list[tuple[bytes, int]] = field(default_factory=list)
    """As the tasks told of their files, with the rows of each; none where files were written anew."""
    foreign_text: bool = True
    """Whether any of the messages may be text in another character set than UTF-8, likewise."""
    tables: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The name of the batch, from the ranges it covers."""
        return range_id(self.pieces)

    def final(self, table: str) -> Path:
        """The folder of the table's part of this batch once it has landed."""
        return self.landing.warehouse / table / f"batch={self.id}"

    def stage(self, table: str) -> Path | None:
        """The folder to write the table's part to; None when it is in place already, renamed before a crash."""
        self.tables.append(table)
        return None if self.final(table).exists() else self.staging(table)

    def staging(self, table: str) -> Path:
        """The folder of the table's part while it is staged."""
        return self.landing.warehouse / STAGING / self.id / table

    def current(self, table: str) -> Path:
        """The folder that has the rows now, for stages that read what an earlier stage of the same batch wrote."""
        return self.final(table) if self.final(table).exists() else self.staging(table)

    def land(self) -> ManifestRecord:
        """Make the batch visible and record it."""
        failpoint("land.stage.after")
        self.landing.manifest.check_alone()
        if self.landing.after_record is not None:
            for table in self.tables:
                if not table.startswith(f"{STATE}/"):
                    self.landing.after_record.check(table, self.current(table))
        self._rename()
        return self.landing.record(self)

    def _rename(self) -> None:
        for table in self.tables:
            if not self.final(table).exists():
                sync_tree(self.staging(table))
                failpoint("land.rename.before")
                move_folder(self.staging(table), self.final(table))
            failpoint("land.rename.after")


class Landing:
    """The tables of one warehouse, written by one job at a time."""

    def __init__(self, warehouse: Path, job: str, rows: RowCounter, after_record: AfterRecord | None = None) -> None:
        self.warehouse = warehouse
        self.job = job
        self.rows = rows
        self.after_record = after_record
        make_folder(warehouse)
        self.manifest = Manifest(warehouse)
        self._first = True
        self.replaced: set[str] = set()
        """Tables that each batch replaces: last values, totals."""
        self.reads: dict[str, str] = {}
        """The queues of each of the job's streams."""
        self.journals: dict[str, str] = {}
        """The journal of each."""

    def restart(self) -> None:
        """A query begins. The manifest is read again with its first batch: by then this driver has the lease, and no
        other driver lands any more."""
        self._first = True
        self.manifest.reload()

    def begin(self, query: str, number: int, pieces: Ranges) -> MicroBatch | None:
        """The batch to land; None when all of it has landed before."""
        if self._first:
            self.manifest.reload()
        missing = self.manifest.landed.missing(pieces)
        batch = MicroBatch(self, query, number, missing, trimmed=missing != pieces)
        if self._first:
            self._first = False
            self.clear(keep=batch.id)
            if self.after_record is not None:
                self.after_record(self.manifest)
        if not missing:
            return None
        self.manifest.check_alone()  # a driver that stood still while another one landed: what is staged is that one's
        shutil.rmtree(self.warehouse / STAGING, ignore_errors=True)
        failpoint("land.stage.before")
        return batch

    def clear(self, keep: str = "") -> list[Path]:
        """Remove batch folders that no record names: they were planned under a checkpoint that was lost. What a
        compaction that was killed had begun to put in place is completed first: its folder, too, is in no record."""
        with self.manifest.changing():
            finish_locked(self.warehouse, self.manifest)
            return self._cleared(keep)

    def _cleared(self, keep: str) -> list[Path]:
        known = {folder for folders in self.manifest.folders.values() for folder in folders}
        unknown = []
        for folder in [*self.warehouse.glob("*/batch=*"), *self.warehouse.glob(f"{STATE}/*/batch=*")]:
            name = str(folder.relative_to(self.warehouse))
            if name not in known and folder.name != f"batch={keep}" and not name.startswith(STAGING):
                unknown.append(folder)
        self._check_manifest(unknown)
        for folder in unknown:
            shutil.rmtree(folder)
        return unknown

    def _check_manifest(self, unknown: list[Path]) -> None:
        """StoreRefuses where it is the manifest that is missing: a crash leaves one batch of a table, and no more."""
        if self.manifest.last is not None or self.manifest.folders:
            return
        table, count = max(Counter(folder.parent for folder in unknown).items(), key=itemgetter(1), default=("", 0))
        if count > 1:
            raise StoreRefuses(
                f"{self.manifest.folder} has no record, and {table} has {count} batches, which would be removed as "
                "left-overs: restore the manifest from a backup, or move the tables away to land anew"
            )

    def record(self, batch: MicroBatch) -> ManifestRecord:
        """Write the manifest's record and delete the state of earlier batches."""
        tables = {table: self._describe(batch.final(table)) for table in batch.tables}
        number, last = self.manifest.next_number, self.manifest.last
        failpoint("land.manifest.before")
        record = ManifestRecord(
            number, batch.id, self.job, batch.query, batch.number, batch.pieces, tables, time.time(), batch.figures,
            self.reads, self.journals,
        ).follow(last)  # fmt: skip
        self.manifest.append(record)
        failpoint("land.manifest.after")
        if self.after_record is not None:
            self.after_record(self.manifest)
        self._drop_state(record)
        self.manifest.fold_when_due()
        return record

    def latest(self, table: str) -> Path | None:
        """The folder of the last batch in a state table, or in a table that each batch replaces."""
        last = self.manifest.last
        return self.warehouse / last.tables[table].folder if last and table in last.tables else None

    def _describe(self, folder: Path) -> LandedTable:
        if not folder.exists():
            raise PipelineError(
                f"{folder} was removed while its batch was on its way, which begins again: let nothing but mqgate "
                "change this folder, and set `retention.leftovers` to longer than a batch takes"
            )
        files = sorted(folder.rglob("*.parquet"))
        return LandedTable(
            str(folder.relative_to(self.warehouse)),
            sum(map(self.rows, files)),
            [(str(file.relative_to(folder)), file.stat().st_size) for file in files],
        )

    def _drop_state(self, now: ManifestRecord) -> None:
        """Delete the state of earlier batches: only the last record's is needed."""
        for table in now.tables:
            if not table.startswith(f"{STATE}/") and table not in self.replaced:
                continue
            old = self.manifest.folders[table] - {now.tables[table].folder}
            for folder in old:
                shutil.rmtree(self.warehouse / folder, ignore_errors=True)
            self.manifest.drop(table, old)
