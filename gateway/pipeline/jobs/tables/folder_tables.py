"""The tables of a batch in a folder that driver and executors share: Spark reads and writes the files itself."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

from gateway.pipeline.errors import PipelineError
from gateway.pipeline.land.landing import TASKS, Landing, MicroBatch
from gateway.pipeline.land.ranges import STREAM, by_stream


class FolderTables:
    """Reads and writes the parts of a batch for `MicroBatchWriter`."""

    def __init__(self, spark: Any, landing: Landing) -> None:
        self.spark = spark
        self.landing = landing

    def take(self, batch: MicroBatch, table: str, messages: Any, schema: Any) -> None:
        """Stage bronze. Collecting `messages` runs the tasks, which write the files; the rows stay out of Spark."""
        target = batch.stage(table)
        if target is None:
            return
        folder = self.landing.warehouse / TASKS
        told = messages.collect()
        files = [(row.asDict().get(STREAM), folder / row.file) for row in told]
        if not batch.trimmed:
            batch.put_times = [(bytes(row.put_times), row.rows) for row in told]
            batch.foreign_text = any(row.foreign_text for row in told)
            take_files([file for _, file in files], target)
            return
        target.mkdir(parents=True)
        parts = [
            self.spark.read.schema(schema).parquet(*map(str, some)).where(wanted)
            for some, wanted in by_stream(files, batch.pieces)
        ]
        if parts:
            reduce(lambda one, other: one.union(other), parts).write.mode("overwrite").parquet(str(target))

    def write(self, batch: MicroBatch, table: str, rows: Any, by: str = "") -> None:
        """Stage a table's part, with a folder for each value of `by`."""
        target = batch.stage(table)
        if target is not None:
            target.mkdir(parents=True)  # a table without rows for this batch has a folder all the same
            rows.write.mode("overwrite").parquet(str(target), partitionBy=[by] if by else None)

    def read(self, batch: MicroBatch, table: str, schema: Any, part: str = "") -> Any:
        """The rows of this batch in a table, or in one partition of it; an empty frame if there are none."""
        folder = batch.current(table) / part
        if not folder.exists():
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(str(folder))

    def latest(self, table: str) -> Any:
        """A state table as the last batch left it; None before the first batch."""
        folder = self.landing.latest(table)
        return None if folder is None else self.spark.read.parquet(str(folder))

    @staticmethod
    def rows(batch: MicroBatch, table: str, part: str = "") -> int:
        """How many rows a table has in this batch, from the files' footers."""
        return sum(rows_in(file) for file in (batch.current(table) / part).rglob("*.parquet"))


def take_files(files: list[Path], target: Path) -> None:
    """Move the files that tasks have reported, and no others, to the folder of a table's part."""
    target.mkdir(parents=True)  # a table without rows for this batch has a folder all the same
    for number, file in enumerate(files):
        try:
            file.rename(target / f"part-{number:05}.parquet")
        except FileNotFoundError as error:
            raise PipelineError(
                f"a task has written {file.name}, but {file.parent} here does not have it: driver and executors must "
                "share the warehouse, and one driver may land in it at a time"
            ) from error


def rows_in(file: Path) -> int:
    """The number of rows of a Parquet file, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)
