"""The warehouse of a job as commands see it: what has landed, the files of a table, the status of a run. A folder and
object storage answer in the same way, so that status, report and replay need not know which it is."""

from __future__ import annotations

import io
import json
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gateway.pipeline.errors import StoreRefuses, StoreUnreachable
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.durable import make_folder, read_json, write_json
from gateway.pipeline.land.iceberg_catalog import open_catalog
from gateway.pipeline.land.manifest import Manifest, ManifestRecord
from gateway.pipeline.land.object_delta import names_in_log
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import Tell, open_store

STATUS = "_status"
"""Where a running job writes its progress."""
STATUS_EVERY = 2.0
"""Seconds between two statuses while only figures change: each is a request, as many as for a batch."""
STATUS_PATIENCE = 5.0
"""Seconds for putting a status; one that cannot be put in time is left out: the next one follows."""


class Warehouse(Protocol):
    """What commands ask of a warehouse."""

    def check(self, tell: Tell | None = None, *, once: bool = False) -> None:
        """Raise an error of ours unless batches can be committed here. With `tell`, a store that may answer later is
        waited for as long as it is patient, and `tell` is told why. `once`: for a run that ends by itself."""

    def manifest(self) -> Manifest | ObjectManifest:
        """What has landed, as it is now."""

    def records(self) -> list[ManifestRecord]:
        """The newest batches, oldest first."""

    def parts(self, table: str) -> int:
        """How many parts (batches, or files) a table has."""

    def files(self, table: str, part: str = "") -> list[str]:
        """The committed files of a table, or those in one partition, as paths or addresses to give to a reader."""

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a small table."""

    def read_status(self) -> dict[str, Any] | None:
        """The progress of the job's last run."""

    def write_status(self, value: dict[str, Any]) -> None:
        """Keep the progress of a run."""


class FolderWarehouse:
    """A warehouse in a folder."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.folder = Path(job.warehouse)

    def check(self, tell: Tell | None = None, *, once: bool = False) -> None:
        """Check, by trying, that files can be written. Renames are atomic on any file system that is mounted as one."""
        del tell, once
        try:
            make_folder(self.folder)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise StoreRefuses(
                f"the warehouse {self.folder} cannot be written ({error.strerror}): correct `warehouse`, or give this "
                "user a folder with room that driver and executors share"
            ) from error

    def manifest(self) -> Manifest:
        """What has landed."""
        return Manifest(self.folder)

    def records(self) -> list[ManifestRecord]:
        """The batches that are not folded into one record."""
        return Manifest(self.folder).records()

    def parts(self, table: str) -> int:
        """How many batch folders a table has."""
        return len(Manifest(self.folder).folders.get(table, ()))

    def files(self, table: str, part: str = "") -> list[str]:
        """The files of the batches that the manifest knows; of a Delta table, those that its log names."""
        if self.job.format == "delta" and table in (*self.job.growing_tables, *self.job.replaced_tables):
            return self._in_log(table, part)
        folders = sorted(Manifest(self.folder).folders.get(table, ()))
        return [str(file) for folder in folders for file in sorted((self.folder / folder / part).rglob("*.parquet"))]

    def _in_log(self, table: str, part: str) -> list[str]:
        from deltalake import DeltaTable

        root = str(self.folder / table)
        if not DeltaTable.is_deltatable(root):
            return []
        log = DeltaTable(root)
        place = log.table_uri.removeprefix("file://")  # behind links, and with blanks as %20
        found = sorted(uri.removeprefix("file://").removeprefix(place) for uri in log.file_uris())
        return [f"{root}/{name}" for name in found if f"/{part.strip('/')}/" in f"/{name}" or not part]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a small table."""
        import pyarrow.parquet as pq

        return [row for file in self.files(table) for row in pq.ParquetFile(file).read().to_pylist()]

    def read_status(self) -> dict[str, Any] | None:
        """The progress of the job's last run."""
        found: dict[str, Any] | None = read_json(self.folder / STATUS / f"{self.job.name}.json")
        return found

    def write_status(self, value: dict[str, Any]) -> None:
        """Keep the progress of a run, if there is room for it: a run waits for room, and does not end because of
        this."""
        with suppress(OSError):
            write_json(self.folder / STATUS / f"{self.job.name}.json", value, durable=False)


class ObjectWarehouse:
    """A warehouse on object storage."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store = open_store(job.place, job.storage.settings)
        self._hasty = open_store(job.place, replace(self.store.settings, patience=STATUS_PATIENCE))
        self._told: tuple[Any, ...] = ()
        self._told_at = -STATUS_EVERY

    def check(self, tell: Tell | None = None, *, once: bool = False) -> None:
        """Check, by trying, that the store takes conditional puts and refuses a second one; and that a catalog
        answers."""
        self.store.check(tell, once=once)
        if self.job.catalog is not None:
            open_catalog(self.job.catalog.settings, self.store)

    def manifest(self) -> ObjectManifest:
        """What has landed."""
        return ObjectManifest(self.store)

    def records(self) -> list[ManifestRecord]:
        """The newest batches."""
        return ObjectManifest(self.store).records()

    def parts(self, table: str) -> int:
        """How many files a table has."""
        return len(ObjectManifest(self.store).files(table))

    def files(self, table: str, part: str = "") -> list[str]:
        """The files that the manifest names; of a Delta table, those that its log names."""
        root = f"{self.store.url}/{table}/"
        found = [f"{self.store.url}/{name}" for name in self.names(table)]
        return [name.removeprefix("file://") for name in found if name.startswith(root + part)]

    def names(self, table: str) -> list[str]:
        """The same files, relative to the warehouse."""
        if self.job.format == "delta" and table in (*self.job.growing_tables, *self.job.replaced_tables):
            return names_in_log(self.store, table)
        return ObjectManifest(self.store).files(table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a small table."""
        import pyarrow.parquet as pq

        found = (self.store.get(name) for name in self.names(table))
        return [row for data in found if data for row in pq.ParquetFile(io.BytesIO(data)).read().to_pylist()]

    def read_status(self) -> dict[str, Any] | None:
        """The progress of the job's last run."""
        data = self.store.get(f"{STATUS}/{self.job.name}.json")
        found: dict[str, Any] | None = None if data is None else json.loads(data)
        return found

    def write_status(self, value: dict[str, Any]) -> None:
        """Keep the progress of a run, if the store takes it in time. Of batches in quick succession, the figures of
        some are left out."""
        told, now = (value.get("state"), value.get("error"), value.get("restarts")), time.monotonic()
        if told == self._told and now - self._told_at < STATUS_EVERY:
            return
        self._told, self._told_at = told, now
        with suppress(StoreUnreachable):
            self._hasty.put(f"{STATUS}/{self.job.name}.json", json.dumps(value).encode())


def warehouse_of(job: Job) -> Warehouse:
    """The warehouse of a job."""
    return ObjectWarehouse(job) if job.on_objects else FolderWarehouse(job)
