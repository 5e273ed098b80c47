"""The tables of a batch on object storage. Tasks put and get the files; the driver handles only their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from gateway.pipeline.land.object_landing import ObjectBatch, ObjectLanding, WrittenFile
from gateway.pipeline.land.objects import ObjectStore
from gateway.pipeline.land.ranges import STREAM, by_stream

TASKS_PER_CORE = 4
"""The most tasks for each core. With more files, several share a task: starting one costs more than reading a small
file."""


class ObjectTables:
    """Reads and writes the parts of a batch for `MicroBatchWriter`."""

    def __init__(self, spark: Any, landing: ObjectLanding, by_day: Callable[[str], bool] = lambda _: False) -> None:
        self.spark = spark
        self.landing = landing
        self.by_day = by_day
        """Whether a table is partitioned by day, as those of Iceberg are."""
        self._schemas: dict[str, Any] = {}
        """The schemas of tables that this process has written."""

    def take(self, batch: ObjectBatch, table: str, messages: Any, schema: Any) -> None:
        """Add bronze. Collecting `messages` runs the tasks, which put the files; the rows stay out of Spark."""
        told = messages.collect()
        files = [(row.asDict().get(STREAM), WrittenFile(row.file, row.rows, row.bytes)) for row in told]
        if not batch.trimmed:
            batch.put_times = [(bytes(row.put_times), row.rows) for row in told]
            batch.foreign_text = any(row.foreign_text for row in told)
            batch.add(table, [file for _, file in files])
            return
        parts = [
            self._rows_of([f"{table}/{file.name}" for file in some], schema).where(wanted)
            for some, wanted in by_stream(files, batch.pieces)
        ]
        empty = self._rows_of([], schema)
        self.write(batch, table, reduce(lambda one, other: one.union(other), parts) if parts else empty)

    def write(self, batch: ObjectBatch, table: str, rows: Any, by: str = "") -> None:
        """Put a table's part, with files of their own for each value of `by`."""
        from gateway.pipeline.source.object_files import WRITTEN, FileWriter

        store = self.landing.store
        self._schemas[table] = rows.schema
        writer = FileWriter(store.url, store.settings, table, by, by_day=self.by_day(table))
        batch.add(table, [WrittenFile(*row) for row in rows.mapInArrow(writer.__call__, WRITTEN).collect()])

    def read(self, batch: ObjectBatch, table: str, schema: Any, part: str = "") -> Any:
        """The rows of this batch in a table, or in one partition of it; an empty frame if there are none."""
        return self._rows_of(batch.names(table, part), schema)

    def latest(self, table: str) -> Any:
        """A state table as the last batch left it; None if it has no rows."""
        names = self.landing.latest(table)
        if names is None:
            return None
        if table not in self._schemas:
            self._schemas[table] = schema_of(self.landing.store, names[0])
        return self._rows_of(names, self._schemas[table])

    @staticmethod
    def rows(batch: ObjectBatch, table: str, part: str = "") -> int:
        """How many rows a table has in this batch, as the tasks counted them."""
        return batch.rows(table, part)

    def _rows_of(self, names: Sequence[str], schema: Any) -> Any:
        return rows_of(self.spark, self.landing.store, names, schema)


def rows_of(spark: Any, store: ObjectStore, names: Sequence[str], schema: Any) -> Any:
    """The rows of some files as a frame; the tasks fetch the files."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from gateway.pipeline.source.object_files import FileReader

    if not names:
        return spark.createDataFrame([], schema)
    reader = FileReader(store.url, store.settings, tuple(names), to_arrow_schema(schema, timezone="UTC"))
    tasks = min(len(names), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    return spark.range(0, len(names), 1, tasks).mapInArrow(reader.__call__, schema)


def schema_of(store: ObjectStore, name: str) -> Any:
    """Spark's schema of a Parquet file, from its footer."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    with store.reader(name) as source:
        return from_arrow_schema(pq.ParquetFile(source).schema_arrow.remove_metadata())
