"""Takes one micro-batch through bronze, silver and gold and lands them together. Each stage reads the files of the one
before, so the queue is read once, a decoder runs once, and all tables of a batch appear with one manifest record.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gateway.pipeline.decode.columns import COLUMNS, select_columns, spark_schema
from gateway.pipeline.errors import PipelineError
from gateway.pipeline.jobs import gold as steps
from gateway.pipeline.jobs.gold import Step
from gateway.pipeline.jobs.job import Gold, Job, Silver
from gateway.pipeline.jobs.silver import OK, QUARANTINE, silver_rows
from gateway.pipeline.land.landing import STATE, TASKS, Landing, MicroBatch
from gateway.pipeline.land.manifest import ManifestRecord
from gateway.pipeline.land.ranges import Ranges, condition

BRONZE_STATE = f"{STATE}/_bronze"


class MicroBatchWriter:
    """Writes the micro-batches of a job."""

    def __init__(self, spark: Any, job: Job, landing: Landing) -> None:
        self.spark = spark
        self.job = job
        self.landing = landing
        self._schemas: dict[str, Any] = {}
        self._message_schema = spark_schema(select_columns("", include_raw=includes_raw(job)))
        landing.replaced |= job.replaced_tables

    def write(self, messages: Any, query: str, number: int, pieces: Ranges) -> ManifestRecord | None:
        """Land one batch; None when all of it has landed before."""
        started = time.time()
        batch = self.landing.begin(query, number, pieces)
        if batch is None:
            return None
        bronze = self._bronze(batch, messages)
        for silver in self.job.silver:
            self._silver(batch, silver, bronze)
        seen = self._event_times(batch)
        for gold in self.job.gold:
            self._stage_step(batch, gold.table, self._state_name(gold), self._gold(batch, gold, bronze, seen))
        batch.figures |= {f"seen.{table}": when for table, when in seen.items() if when is not None}
        batch.figures |= self._counted(batch)
        batch.figures["seconds"] = time.time() - started
        return batch.land()

    # ---- stages

    def _bronze(self, batch: MicroBatch, messages: Any) -> Any:
        """Stage bronze. Collecting `messages` runs the tasks, which write the files; the rows stay out of Spark."""
        table = self.job.bronze.table if self.job.bronze else BRONZE_STATE
        started = time.time()
        target = batch.stage(table)
        if target is not None:
            files = [self.landing.warehouse / TASKS / row.file for row in messages.collect()]
            if batch.trimmed:
                self._take_missing(batch, files, target)
            else:
                take_files(files, target)
        batch.figures[f"seconds.{table}"] = time.time() - started
        if not (self.job.silver or self.job.gold):
            return None  # no stage reads it, and opening its files costs as much as a small batch
        return self.spark.read.schema(self._message_schema).parquet(str(batch.current(table)))

    def _take_missing(self, batch: MicroBatch, files: list[Path], target: Path) -> None:
        """Stage the rows that have not landed, when a part of the batch has."""
        target.mkdir(parents=True)
        if files and batch.pieces:
            rows = self.spark.read.schema(self._message_schema).parquet(*map(str, files))
            rows.where(condition(batch.pieces)).write.mode("overwrite").parquet(str(target))

    def _silver(self, batch: MicroBatch, silver: Silver, bronze: Any) -> None:
        self._stage(batch, silver.table, silver_rows(bronze, silver), by=["status"])

    def _good(self, batch: MicroBatch, silver: Silver) -> Any:
        """The rows of this batch that passed all checks; an empty frame with the same columns when none did."""
        schema = self._silver_schema(silver)
        folder = batch.current(silver.table) / f"status={OK}"
        if not folder.exists():
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(str(folder))

    def _silver_schema(self, silver: Silver) -> Any:
        """The schema of a silver table, derived once: Spark takes longer to analyse the text than to do the work."""
        if silver.table not in self._schemas:
            empty = self.spark.createDataFrame([], spark_schema(COLUMNS))
            self._schemas[silver.table] = silver_rows(empty, silver).drop("status").schema
        return self._schemas[silver.table]

    def _event_times(self, batch: MicroBatch) -> dict[str, float | None]:
        """The latest event time of each silver table, this batch included."""
        from pyspark.sql import functions as f

        seen: dict[str, float | None] = {}
        for silver in self.job.silver:
            before = self._seen_before(silver)
            latest = self._good(batch, silver).agg(f.max(f.unix_micros(silver.event_time))).first()[0]
            times = [when for when in (before, None if latest is None else latest / 1_000_000) if when is not None]
            seen[silver.table] = max(times, default=None)
        return seen

    def _seen_before(self, silver: Silver) -> float | None:
        last = self.landing.manifest.last
        return last.figures.get(f"seen.{silver.table}") if last else None

    @staticmethod
    def _state_name(gold: Gold) -> str:
        return gold.table if gold.replaced else f"{STATE}/{gold.table}"

    def _gold(self, batch: MicroBatch, gold: Gold, bronze: Any, seen: dict[str, float | None]) -> Step:
        state = self._latest(self._state_name(gold))
        if gold.kind == "dead_letters":
            return steps.dead_letter_step(bronze, state)
        silver = self.job.silver_of(gold)
        rows, by, at = self._good(batch, silver), list(gold.by or silver.key), silver.event_time
        latest = seen[silver.table]
        if gold.kind == "window":
            return steps.window_step(
                rows, state, by=by, values=gold.values, at=at, every=gold.every, watermark=gold.watermark,
                before=self._seen_before(silver), seen=latest,
            )  # fmt: skip
        if gold.kind == "last":
            return steps.last_step(rows, state, by=by, values=gold.values or _others(silver, by, at), at=at)
        if gold.kind == "gaps":
            return steps.gap_step(rows, state, by=by, sequence=gold.sequence, at=at, wraps_at=gold.wraps_at)
        if gold.kind == "silence":
            return steps.silence_step(rows, state, by=by, at=at, after=gold.after, seen=latest)
        return steps.latency_step(rows, by=gold.by, start=gold.start or at, every=gold.every)

    def _latest(self, table: str) -> Any:
        folder = self.landing.latest(table)
        return None if folder is None else self.spark.read.parquet(str(folder))

    def _stage_step(self, batch: MicroBatch, name: str, state_name: str, step: Step) -> None:
        if step.rows is not None:
            self._stage(batch, name, step.rows.coalesce(1))
        if step.state is not None:
            self._stage(batch, state_name, step.state.coalesce(1))

    @staticmethod
    def _stage(batch: MicroBatch, table: str, rows: Any, by: list[str] | None = None) -> None:
        target = batch.stage(table)
        started = time.time()
        if target is not None:
            target.mkdir(parents=True)  # a table without rows for this batch has a folder all the same
            rows.write.mode("overwrite").parquet(str(target), partitionBy=by)
        batch.figures[f"seconds.{table}"] = time.time() - started

    def _counted(self, batch: MicroBatch) -> dict[str, float]:
        """Rows and quarantined rows by table, from the files' footers."""
        figures: dict[str, float] = {}
        for silver in self.job.silver:
            folder = batch.current(silver.table)
            figures[f"quarantined.{silver.table}"] = _rows_below(folder / f"status={QUARANTINE}")
            figures[f"rows.{silver.table}"] = _rows_below(folder)
        bronze = batch.current(self.job.bronze.table if self.job.bronze else BRONZE_STATE)
        figures["rows"] = _rows_below(bronze)
        return figures | waits(bronze, time.time())


def includes_raw(job: Job) -> bool:
    """Whether bronze keeps descriptor and headers as bytes."""
    return job.bronze is not None and job.bronze.include_raw


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


def _others(silver: Silver, by: list[str], at: str) -> list[str]:
    return [column.name for column in silver.columns if column.name not in (*by, at)]


def _rows_below(folder: Path) -> int:
    return sum(rows_in(file) for file in folder.rglob("*.parquet"))


def waits(bronze: Path, now: float) -> dict[str, float]:
    """The time from put to table of the rows of a batch: median and 99th percentile, in seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = [pq.ParquetFile(file).read(columns=["put_ts"]).column(0) for file in bronze.rglob("*.parquet")]
    micros = pa.chunked_array([chunk for column in columns for chunk in column.cast("int64").chunks], pa.int64())
    late, median = pc.quantile(micros, q=[0.01, 0.5]).to_pylist()  # the oldest have waited longest
    if median is None:
        return {}
    return {name: max(0.0, now - at / 1_000_000) for name, at in (("wait.p50", median), ("wait.p99", late))}


def rows_in(file: Path) -> int:
    """The number of rows of a Parquet file, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)
