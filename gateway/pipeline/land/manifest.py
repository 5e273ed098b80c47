"""The manifest: what has landed, one small file for each batch, written last. Plain files, no Spark.

`<warehouse>/_manifest/000000000017-1f2e....json` says which message numbers are in which files. A batch has landed
when its record exists; files that no record names are left over from a crash and removed (`landing.py`).
Old records are folded into `summary.json`, so that a job that has run for a year starts in a second.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gateway.pipeline.errors import LeaseLost, PipelineError
from gateway.pipeline.land.durable import make_folder, read_json, write_json
from gateway.pipeline.land.ranges import Landed, Ranges

FOLDER = "_manifest"
SUMMARY = "summary.json"
RECORDS = "[0-9]*-*.json"
LOCK = ".lock"
NO_SUMMARY = (0, 0)
FOLD_AT, FOLD_KEEPS = 4096, 1024
"""At this many records all but so many are folded into the summary. The report shows the others."""


@dataclass(slots=True)
class LandedTable:
    """What one batch added to one table."""

    folder: str
    """Relative to the warehouse."""
    rows: int
    files: list[tuple[str, int]]
    """Names within the folder, and bytes."""


@dataclass(slots=True)
class ManifestRecord:
    """One landed batch."""

    number: int
    id: str
    job: str
    query: str
    batch: int
    pieces: Ranges
    tables: dict[str, LandedTable]
    landed: float
    """Seconds since the epoch."""
    figures: dict[str, float] = field(default_factory=dict)
    """Measurements of the run: rows, quarantined rows, latencies, seconds."""
    reads: dict[str, str] = field(default_factory=dict)
    """The queues of each stream that has ever landed here, as the job names them. Of records of earlier releases it is
    not known."""

    journals: dict[str, str] = field(default_factory=dict)
    """The journal that the numbers of each of these streams are of, as it names itself; likewise."""

    def follow(self, last: ManifestRecord | None) -> ManifestRecord:
        """It, with what the record before knows of streams that this one's job does not read now."""
        if last is not None:
            self.reads, self.journals = last.reads | self.reads, last.journals | self.journals
        return self

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ManifestRecord:
        """The record that `append` wrote, without what only a later release knows."""
        tables = {
            name: LandedTable(table["folder"], table["rows"], [(file, size) for file, size in table["files"]])
            for name, table in value["tables"].items()
        }
        pieces = [(name, low, high) for name, low, high in value["pieces"]]
        known = {name: value[name] for name in FIELDS if name in value}
        return cls(**{**known, "tables": tables, "pieces": pieces})


FIELDS = tuple(each.name for each in fields(ManifestRecord))


def is_there(warehouse: Path) -> bool:
    """Whether anything has landed in a folder by a manifest of this kind."""
    folder = warehouse / FOLDER
    return (folder / SUMMARY).exists() or any(folder.glob(RECORDS))


class Manifest:
    """All records of a warehouse. Its lease on the queue keeps it to one writing job at a time."""

    def __init__(self, warehouse: Path) -> None:
        self.folder = warehouse / FOLDER
        self.landed = Landed()
        self.last: ManifestRecord | None = None
        self.folders: dict[str, set[str]] = {}
        """The batch folders of each table."""
        self.sizes: dict[str, int] = {}
        """How long they are in bytes. Of those that an earlier release has folded or merged it is not known."""
        self.left_out: set[str] = set()
        """Batch folders that a merge left as they are, because a column has another type there."""
        self._summary_of = NO_SUMMARY
        """Which summary was read."""
        self.reload()

    @property
    def next_number(self) -> int:
        """The number of the next record."""
        return self.last.number + 1 if self.last else 1

    def append(self, record: ManifestRecord) -> None:
        """Write one record; the batch is landed when this returns."""
        self.check_alone()
        write_json(self.folder / f"{record.number:012d}-{record.id}.json", asdict(record))
        self._add(record)

    def check_alone(self) -> None:
        """LeaseLost when another driver has landed here since: it took this one for dead, or two run at once."""
        ahead = [path for path in self._files() if _number(path) >= self.next_number]
        if ahead:
            raise LeaseLost(
                f"another driver has landed {ahead[0].name} in this warehouse since this one began: run one driver for "
                "a job, and give each job a warehouse of its own"
            )

    def reload(self) -> None:
        """Read it from disk again: compaction changes it, and so did another driver that had the lease before. It is
        read once more where the summary was written meanwhile: records that a driver has folded are in that one."""
        read = None
        while read != (now := self._summary_now()):
            read = self._summary_of = now
            self.landed, self.last, self.folders, self.left_out, self.sizes = Landed(), None, {}, set(), {}
            try:
                self._read()
            except FileNotFoundError:
                if self._summary_now() == read:
                    raise

    def now(self) -> Manifest:
        """It, or another reading of it where a compaction has changed the summary since: for those who only look."""
        return self if self._summary_now() == self._summary_of else Manifest(self.folder.parent)

    def _summary_now(self) -> tuple[int, int]:
        try:
            found = (self.folder / SUMMARY).stat()
        except FileNotFoundError:
            return NO_SUMMARY
        return found.st_ino, found.st_mtime_ns

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the summary while it is read, changed and written, and batch folders while they are exchanged or looked
        through. Not twice in one process: the second would wait for the first."""
        make_folder(self.folder)
        with (self.folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.reload()
            yield

    def since(self, number: int) -> list[ManifestRecord]:
        """The records after this number, oldest first."""
        return [self._load(path) for path in self._files() if _number(path) > number]

    def records(self, most: int = FOLD_AT) -> list[ManifestRecord]:
        """The newest of the records that are not folded, oldest first."""
        return [self._load(path) for path in (self._files()[-most:] if most else [])]

    def fold(self, keep: int = FOLD_KEEPS) -> int:
        """Fold all but the newest `keep` records into the summary; how many were folded."""
        files = self._files()[:-keep] if keep else self._files()
        if not files:
            return 0
        with self.changing():
            self._write_summary(self._load(files[-1]).number)
            for path in files:
                path.unlink()
        return len(files)

    def fold_when_due(self) -> None:
        """Fold now and then, so that a job that has run for a year starts in a second."""
        if self.next_number % FOLD_KEEPS == 0 and len(self._files()) >= FOLD_AT:
            self.fold()

    def replace_folders(self, table: str, old: set[str], new: str | None, size: int = 0) -> None:
        """Record in the summary, while it is locked (`changing`), that compaction merged batch folders of a table into
        one of so many bytes, or that retention deleted them."""
        self.drop(table, old)
        if new:
            self.folders[table].add(new)
            self.sizes[new] = size
        self._write_summary()

    def drop(self, table: str, folders: set[str]) -> None:
        """Batch folders that are no longer of the table: in memory, the next summary has it."""
        self.folders.setdefault(table, set()).difference_update(folders)
        self.left_out -= folders
        for name in folders:
            self.sizes.pop(name, None)

    def leave_out(self, folders: set[str]) -> None:
        """Record in the summary that batch folders are not to be merged."""
        with self.changing():
            self.left_out |= folders
            self._write_summary()

    def _write_summary(self, number: int | None = None) -> None:
        if number is None:
            number = self.last.number if self.last else 0
        write_json(self.folder / SUMMARY, self._summary(number))
        self._summary_of = self._summary_now()

    def _summary(self, number: int) -> dict[str, Any]:
        return {
            "number": number,
            "intervals": self.landed.intervals,
            "folders": {table: sorted(folders) for table, folders in self.folders.items()},
            "left_out": sorted(self.left_out),
            "sizes": self.sizes,
            "known_to": self.last.number if self.last else 0,
            "last": asdict(self.last) if self.last else None,
        }

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(RECORDS))

    def _read(self) -> None:
        summary = read_json(self.folder / SUMMARY) or {}
        for name, spans in summary.get("intervals", {}).items():
            self.landed.add([(name, low, high) for low, high in spans])
        self.folders = {table: set(folders) for table, folders in summary.get("folders", {}).items()}
        self.left_out = set(summary.get("left_out", ()))
        self.sizes = dict(summary.get("sizes", {}))
        if summary.get("last"):
            self.last = ManifestRecord.from_json(summary["last"])
        known_to = summary.get("known_to", 0)
        for path in self._files():
            if _number(path) > known_to:
                self._add(self._load(path))

    def _add(self, record: ManifestRecord) -> None:
        self.landed.add(record.pieces)
        for name, table in record.tables.items():
            self.folders.setdefault(name, set()).add(table.folder)
            self.sizes[table.folder] = sum(size for _, size in table.files)
        self.last = record

    def _load(self, path: Path) -> ManifestRecord:
        try:
            return ManifestRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(
                f"{path} is damaged ({error}): restore it from a backup, or move the warehouse away and land again "
                "from the queue (what is still inside the purge delay) "
            ) from error


def _number(path: Path) -> int:
    """The number in the name of a record's file."""
    return int(path.name.partition("-")[0])
