"""What tasks do with the tables of a job on object storage: read files of the batch, and write files of it. The rows go
between Spark and these functions as Arrow batches, so that Spark needs no jar for the store."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.pipeline.land.iceberg_files import day_column
from gateway.pipeline.land.objects import StoreSettings, open_store
from gateway.pipeline.source.tasks import COMPRESSION, LEVEL, days_of

WRITTEN = "name string, rows bigint, size bigint"


@dataclass(frozen=True)
class FileReader:
    """Reads files by number, for `mapInArrow` over a range of numbers."""

    url: str
    settings: StoreSettings
    names: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files, a row group at a time, in the columns of the schema."""
        store = open_store(self.url, self.settings)
        with tempfile.TemporaryDirectory(prefix="mqgate-") as folder:
            for number in (each for batch in numbers for each in batch.column(0).to_pylist()):
                file = Path(folder) / "read.parquet"
                store.download(self.names[number], file)
                for batch in pq.ParquetFile(file).iter_batches(columns=self.schema.names):
                    yield fitted(batch, self.schema)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns; those that the file lacks are null."""
    here = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in here else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of a task, for `mapInArrow`: one file, or one for each value of a column, and of each day."""

    url: str
    settings: StoreSettings
    table: str
    by: str = ""
    by_day: bool = False
    """Whether rows of different days go into different files, with the column `by` kept in them, as tables of Iceberg
    want it."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Put the files; their names below the table, rows and sizes, for the driver."""
        store = open_store(self.url, self.settings)
        own = secrets.token_hex(8)
        found: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(prefix="mqgate-") as folder:
            for part, (file, rows) in self._written(Path(folder), batches).items():
                name = f"{part}{own}.parquet"
                store.upload(f"{self.table}/{name}", file)
                found.append({"name": name, "rows": rows, "size": file.stat().st_size})
        schema = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64())])
        yield pa.RecordBatch.from_pylist(found, schema=schema)

    def _written(self, folder: Path, batches: Iterator[pa.RecordBatch]) -> dict[str, tuple[Path, int]]:
        """Files and their rows, by partition."""
        writers: dict[str, pq.ParquetWriter] = {}
        rows: dict[str, int] = {}
        with ExitStack() as open_files:
            for batch in batches:
                for part, some in self._parts(batch):
                    if part not in writers:
                        file = folder / f"{len(writers)}.parquet"
                        writer = pq.ParquetWriter(
                            file, some.schema, compression=COMPRESSION, compression_level=LEVEL, store_schema=False
                        )
                        writers[part] = open_files.enter_context(writer)
                        rows[part] = 0
                    writers[part].write_batch(some)
                    rows[part] += some.num_rows
        return {part: (folder / f"{at}.parquet", rows[part]) for at, part in enumerate(writers)}

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not batch.num_rows:
            return
        for part, some in by_value(batch, self.by, keep=self.by_day) if self.by else [("", batch)]:
            if self.by_day:
                yield from ((f"{part}{day}", rows) for day, rows in days_of(some, day_column(some.schema)))
            else:
                yield part, some


def by_value(batch: pa.RecordBatch, name: str, *, keep: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by the value of a column, which becomes part of the name of the part."""
    values = batch.column(batch.schema.get_field_index(name))
    rest = batch if keep else batch.select([each for each in batch.schema.names if each != name])
    for value in pc.unique(values).to_pylist():
        yield f"{name}={value}/", rest.filter(pc.equal(values, value))
