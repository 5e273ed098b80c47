"""What Spark's tasks do: read their piece, decode it, and hand over batches, rows, or the name of a Parquet file.

With option staging each task writes its rows to a Parquet file of its own, and Spark is handed one row for the file:
letting Spark carry and write rows that are only to be landed costs five times as much. A file counts only when its row
has arrived at the driver. Files that a killed or repeated task has left under other names are removed with the folder.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.mq.character_sets.ccsid import CCSID_UTF_8
from gateway.pipeline.decode.columns import FILES, SOURCE_COLUMN, arrow_schema, select_columns
from gateway.pipeline.decode.payloads import STRING
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.land.durable import sync_file
from gateway.pipeline.land.objects import ObjectStore, StoreSettings, open_store
from gateway.pipeline.source.bounds import Bounds
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.places import is_staging_object_place
from gateway.pipeline.source.put_times import PutTimes, Times
from gateway.pipeline.source.queue_access import Piece

COMPRESSION, LEVEL = "zstd", 1
"""Smaller than snappy by a factor of five on telemetry, and no slower."""
EPOCH = date(1970, 1, 1).toordinal()
GROUP_BYTES = 64 << 20
"""Size of a row group before it is encoded, which is the most that a task holds in memory."""
NEVER_REPEAT = ("seq", "msg_id", "payload")
"""Columns without a dictionary: the writer would discard it half-way."""
LOOKED_FOR = ("queue", "seq", "put_ts", "recv_ts", "topic", "client_id", "dlq_reason", "dlq_dest_q", "header_error")
"""Columns with minimum and maximum in the file's footer, so that readers can skip files."""


@dataclass(frozen=True)
class TaskReader:
    """Reads partitions in tasks; pickled once at the start of a query."""

    options: Options
    names: tuple[str, ...]
    required: tuple[str, ...] = ()
    """Columns that are never null by the schema."""

    @classmethod
    def of(cls, options: Options, schema: Any) -> TaskReader:
        """A reader for the columns of the schema that Spark has; with staging, for the columns to be written to
        files."""
        names = tuple(schema.fieldNames())
        if not options.staging:
            return cls(options, names, tuple(field.name for field in schema.fields if not field.nullable))
        if names != tuple(column.name for column in FILES):
            raise WrongOption("with option staging Spark is handed files: leave the schema out and name `columns`")
        chosen = select_columns(options.columns, include_raw=options.include_raw)
        return cls(options, tuple(column.name for column in chosen))

    def read(self, piece: Piece | None, bounds: Bounds | None) -> Iterator[Any]:
        """Record batches; rows with transfer=rows; with staging a record batch that names the file of the rows."""
        batches = self._batches(piece, bounds)
        if self.options.staging:
            if is_staging_object_place(self.options.staging):
                yield from put_rows(open_store(self.options.staging, self.storage), batches)
            else:
                yield from write_rows(Path(self.options.staging), batches)
        elif self.options.transfer == "rows":
            for batch in batches:
                yield from zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True)
        else:
            yield from batches

    @property
    def storage(self) -> StoreSettings:
        """How to reach object storage; credentials are those of this process."""
        return StoreSettings.from_text(self.options.storage)

    def _batches(self, piece: Piece | None, bounds: Bounds | None) -> Iterator[Any]:
        from gateway.pipeline.decode.row_decoder import decoder_of

        if piece is None:
            return
        decoder = decoder_of(self.options.queue_manager, self.names)
        for chunk in piece.chunks(self.options.arrow_batch_size, decoder.heads):
            batch = decoder.batch(chunk)
            if bounds is not None:
                batch = bounds.apply(batch, chunk)
            if batch.num_rows:
                if self.options.source_name:
                    batch = named(batch, self.options.source_name)
                yield without_nulls(batch, self.required) if self.required else batch
            failpoint("read.middle")
        decoder.keep()


def named(batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
    """The rows with a column for the name of their source."""
    (field,) = arrow_schema([SOURCE_COLUMN])
    return batch.append_column(field, pa.repeat(pa.scalar(source, field.type), batch.num_rows))


def without_nulls(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """The rows under a schema that declares these columns never null, as Spark's does. Raises WrongOption if one is."""
    for name in names:
        if batch.column(name).null_count:
            raise WrongOption(f"column {name!r} is null in some messages: declare it nullable in the schema")
    fields = [field.with_nullable(field.name not in names) for field in batch.schema]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def write_rows(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all batches of a task to one file, synchronise it, and yield its name, rows and size for the driver."""
    first = next(batches, None)
    if first is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{secrets.token_hex(8)}.parquet"
    try:
        told = _write(target, first, batches)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    sync_file(target)
    written = {"file": target.name, "bytes": target.stat().st_size, **told}
    yield pa.RecordBatch.from_pylist([written], schema=arrow_schema(FILES))


def put_rows(store: ObjectStore, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `write_rows`, to object storage: the file is written beside this process first, so that no half of a file is
    ever put."""
    parts = (part for batch in batches for part in days_of(batch, "put_ts"))
    for day, some in groupby(parts, key=itemgetter(0)):  # numbers follow put times, so a day comes once
        rows_of_day = (batch for _, batch in some)
        with tempfile.TemporaryDirectory(prefix="mqgate-") as folder:
            file = Path(folder) / f"{secrets.token_hex(8)}.parquet"
            told = _write(file, next(rows_of_day), rows_of_day)
            store.upload(f"{day}{file.name}", file)
            written = {"file": f"{day}{file.name}", "bytes": file.stat().st_size, **told}
        yield pa.RecordBatch.from_pylist([written], schema=arrow_schema(FILES))


def days_of(batch: pa.RecordBatch, name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by the day of a time, in UTC, in the order of the days, with a folder for each; all together if there is
    no such column."""
    if name not in batch.schema.names:
        yield "", batch
        return
    times = batch.column(name).cast(pa.timestamp("us", "UTC"))  # Spark's are in the zone of its session
    days = times.cast(pa.date32()).cast(pa.int32())
    found = sorted(pc.unique(days).to_pylist(), key=lambda day: (day is not None, day or 0))
    for day in found:
        chosen = pc.is_null(days) if day is None else pc.equal(days, day)
        yield folder_of_day(day), batch if len(found) == 1 else batch.filter(chosen)


def folder_of_day(day: int | None) -> str:
    """A folder's name for a day since 1970."""
    if day is None:
        return "no-day/"
    return f"{date.fromordinal(EPOCH + day)}/" if 0 < EPOCH + day <= date.max.toordinal() else f"day-{day}/"


def _write(target: Path, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    """Write a file; returns what the driver is told of it: its rows, when they were put, and whether text in it is to
    be converted."""
    rows, group, size, times, foreign = 0, [first], first.nbytes, PutTimes(), has_foreign_text(first)
    times.add(put_micros(first))
    with pq.ParquetWriter(target, first.schema, **layout(first.schema)) as writer:
        for batch in others:
            if size > GROUP_BYTES:
                rows += _write_group(writer, group)
                group, size = [], 0
            group.append(batch)
            size += batch.nbytes
            times.add(put_micros(batch))
            foreign = foreign or has_foreign_text(batch)
        rows += _write_group(writer, group)
    return {"rows": rows, "put_times": times.as_bytes(), "foreign_text": foreign}


def put_micros(batch: pa.RecordBatch) -> Times:
    """The put times of the rows; none if they are not among the columns."""
    if "put_ts" not in batch.schema.names:
        return np.empty(0, dtype=np.int64)
    return batch.column("put_ts").cast(pa.int64()).drop_null().to_numpy()


def has_foreign_text(batch: pa.RecordBatch) -> bool:
    """Whether any of the rows may be text in another character set than UTF-8."""
    if not {"format", "ccsid"} <= set(batch.schema.names):
        return True
    ccsid = batch.column("ccsid")
    other = pc.and_(pc.greater(ccsid, 0), pc.not_equal(ccsid, CCSID_UTF_8))
    return bool(pc.any(pc.and_(other, pc.equal(batch.column("format"), STRING))).as_py())


def _write_group(writer: pq.ParquetWriter, group: list[pa.RecordBatch]) -> int:
    writer.write_table(pa.Table.from_batches(group))
    return sum(batch.num_rows for batch in group)


def layout(schema: pa.Schema) -> dict[str, Any]:
    """Arguments of ParquetWriter: compression, and which columns have a dictionary and statistics."""
    repeating = [name for name in schema.names if name not in (*NEVER_REPEAT, "properties")]
    if "properties" in schema.names:
        repeating += ["properties.key_value.key", "properties.key_value.value"]
    return {
        "compression": COMPRESSION,
        "compression_level": LEVEL,
        "use_dictionary": repeating,
        "write_statistics": [name for name in LOOKED_FOR if name in schema.names] or False,
        "store_schema": False,  # Spark, DuckDB and Delta know the types from Parquet's own
    }
