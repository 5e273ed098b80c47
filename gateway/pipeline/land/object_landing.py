"""Lands micro-batches on object storage exactly once: tasks put files under names that nobody knows yet, and one entry
of the manifest, put under a condition, names them all. Nothing is renamed, copied or written twice.

A file that no entry names is nothing: a killed task's, a dead driver's, a batch's that was overtaken. `mqgate pipeline
compact` removes such files, by an entry of its own, so that a driver that was thought dead cannot name them afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Protocol

from gateway.pipeline.errors import Overtaken
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import LandedTable, ManifestRecord
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import ObjectStore
from gateway.pipeline.land.ranges import Ranges, range_id

REREAD_AFTER = 10.0
"""Seconds after which a driver that has landed nothing looks at the log before it begins a batch."""


class WrittenFile(NamedTuple):
    """A file that a task has put."""

    name: str
    """Relative to its table."""
    rows: int
    size: int


class AfterCommit(Protocol):
    """Called when a batch is committed, and before the first one: brings a Delta log up to the manifest."""

    format: str
    """What an entry says that the tables are, from before they are that."""

    def __call__(self, manifest: ObjectManifest) -> None:
        """Must do nothing for batches that it has seen."""

    def check(self, table: str, name: str, size: int) -> None:
        """Called with a file of each table before a batch is committed; refuses what could not follow."""


@dataclass(slots=True)
class ObjectBatch:
    """A micro-batch that is being landed."""

    landing: ObjectLanding
    query: str
    number: int
    pieces: Ranges
    trimmed: bool
    """Whether a part of the planned range had landed before."""
    follows: int
    """The entry of the batch before, whose state this one continues."""
    began: int
    """The last entry of any kind when this batch began."""
    figures: dict[str, float] = field(default_factory=dict)
    put_times: list[tuple[bytes, int]] = field(default_factory=list)
    """As the tasks told of their files, with the rows of each; none where files were written anew."""
    foreign_text: bool = True
    """Whether any of the messages may be text in another character set than UTF-8, likewise."""
    tables: dict[str, list[WrittenFile]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of the batch, from the ranges it covers."""
        return range_id(self.pieces)

    def add(self, table: str, files: Sequence[WrittenFile]) -> None:
        """Files of this batch for a table."""
        self.tables[table] = list(files)

    def names(self, table: str, part: str = "") -> list[str]:
        """The names of a table's files, or of those in one partition of it, relative to the warehouse."""
        return [f"{table}/{file.name}" for file in self.tables.get(table, ()) if file.name.startswith(part)]

    def rows(self, table: str, part: str = "") -> int:
        """How many rows they have."""
        return sum(file.rows for file in self.tables.get(table, ()) if file.name.startswith(part))

    def land(self) -> ManifestRecord:
        """Commit the batch."""
        failpoint("land.stage.after")
        return self.landing.commit(self)


class ObjectLanding:
    """The tables of one warehouse on object storage, written by one job at a time."""

    def __init__(self, store: ObjectStore, job: str, after_commit: AfterCommit | None = None) -> None:
        self.store = store
        self.job = job
        self.after_commit = after_commit
        self.manifest = ObjectManifest(store)
        self.replaced: set[str] = set()
        """Tables that each batch replaces: last values, totals."""
        self.reads: dict[str, str] = {}
        """The queues of each of the job's streams."""
        self.journals: dict[str, str] = {}
        """The journal of each."""
        self._behind = True
        self._read_at = time.monotonic()

    def restart(self) -> None:
        """A query begins."""
        self._behind = True
        self._refresh()

    def _refresh(self) -> None:
        self.manifest.refresh()
        self._read_at = time.monotonic()

    def begin(self, query: str, number: int, pieces: Ranges) -> ObjectBatch | None:
        """The batch to land; None when all of it has landed before. What others put since the batch before is found
        out by its commit."""
        if time.monotonic() - self._read_at >= REREAD_AFTER:
            self._refresh()
        if self._behind and self.after_commit is not None:
            self.after_commit(self.manifest)
        self._behind = False
        missing = self.manifest.landed.missing(pieces)
        if not missing:
            return None
        failpoint("land.stage.before")
        state = self.manifest.state
        state.forget_removed()
        return ObjectBatch(self, query, number, missing, missing != pieces, state.last_number, state.number)

    def commit(self, batch: ObjectBatch) -> ManifestRecord:
        """Put the manifest's entry: before it nothing of the batch is there, after it all of it."""
        tables = {
            table: LandedTable(table, batch.rows(table), [(file.name, file.size) for file in files])
            for table, files in batch.tables.items()
        }
        last = self.manifest.last
        record = ManifestRecord(
            last.number + 1 if last else 1, batch.id, self.job, batch.query, batch.number, batch.pieces, tables,
            time.time(), batch.figures, self.reads, self.journals,
        ).follow(last)  # fmt: skip
        replaces = [table for table in tables if table in self.replaced or table.startswith(f"{STATE}/")]
        if self.after_commit is not None:
            for table, files in batch.tables.items():
                if files and not table.startswith(f"{STATE}/"):
                    self.after_commit.check(table, f"{table}/{files[0].name}", files[0].size)
        failpoint("land.manifest.before")
        self._read_at = -REREAD_AFTER  # where this fails the log is read again
        body = {"record": asdict(record), "replaces": replaces}
        body["format"] = "parquet" if self.after_commit is None else self.after_commit.format
        self.manifest.commit("batch", body, lambda: self._check_current(batch))
        self._read_at = time.monotonic()
        failpoint("land.manifest.after")
        if self.after_commit is not None:
            self.after_commit(self.manifest)
        return record

    def _check_current(self, batch: ObjectBatch) -> None:
        state = self.manifest.state
        if state.last_number != batch.follows:
            raise Overtaken(
                f"entry {state.last_number} of {self.store.url} was landed while this batch was on its way, by another "
                "driver or by a put of ours whose answer was lost: it begins again from there. Run one driver for a "
                "job, and give each job a warehouse of its own"
            )
        names = [name for table in batch.tables for name in batch.names(table)]
        gone = [name for name in names if state.removed.get(name, 0) > batch.began]
        if gone or state.known_from > batch.began:
            raise Overtaken(
                f"{gone[0] if gone else 'a file'} was removed as a left-over while its batch was on its way: it begins "
                "again. Batches that take so long need a longer `retention.leftovers`"
            )

    def latest(self, table: str) -> list[str] | None:
        """The files of a state table, or of a table that each batch replaces; None where it has no rows yet."""
        return self.manifest.files(table) or None
