"""Taking one micro-batch through bronze, silver and gold, and landing them together. Each stage reads the files of the
one before, so the queue is read once, a decoder runs once, and all tables of a batch appear with one manifest
record."""

from __future__ import annotations

import time
from typing import Any

from gateway.pipeline.decode.columns import SOURCE_COLUMN, select_columns, spark_schema
from gateway.pipeline.jobs import gold as steps
from gateway.pipeline.jobs.gold import Step
from gateway.pipeline.jobs.job import Gold, Job, Silver
from gateway.pipeline.jobs.quality import counted_failures, figure
from gateway.pipeline.jobs.silver import OK, QUARANTINE, silver_rows
from gateway.pipeline.jobs.tables.folder_tables import FolderTables
from gateway.pipeline.jobs.tables.object_tables import ObjectTables
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import ManifestRecord
from gateway.pipeline.land.ranges import Ranges
from gateway.pipeline.source.put_times import waited

_AHEAD_SECONDS = 86_400.0
"""An event time this far ahead of this machine's clock is a mistake of its device. It does not count as seen: one
reading of the year 9999 would make all that follow late, and all devices silent."""


class MicroBatchWriter:
    """Writes the micro-batches of a job."""

    def __init__(self, spark: Any, job: Job, tables: FolderTables | ObjectTables) -> None:
        self.spark = spark
        self.job = job
        self.tables: Any = tables
        self.landing: Any = tables.landing
        self._schemas: dict[str, Any] = {}
        own = (SOURCE_COLUMN,) if job.sources else ()
        self._message_schema = spark_schema((*select_columns("", include_raw=includes_raw(job)), *own))
        self.landing.replaced |= job.replaced_tables

    def write(self, messages: Any, query: str, number: int, pieces: Ranges) -> ManifestRecord | None:
        """Land one batch; returns its record, or None if all of it has landed before."""
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
        record: ManifestRecord = batch.land()
        return record

    # ---- stages

    def _bronze(self, batch: Any, messages: Any) -> Any:
        """Stage bronze without passing the rows through Spark; returns its rows, or None if no stage reads them."""
        table = self.job.bronze_table
        started = time.time()
        self.tables.take(batch, table, messages, self._message_schema)
        batch.figures[f"seconds.{table}"] = time.time() - started
        if not (self.job.silver or self.job.gold):
            return None  # no stage reads it, and opening its files costs as much as a small batch
        return self.tables.read(batch, table, self._message_schema)

    def _silver(self, batch: Any, silver: Silver, bronze: Any) -> None:
        rows = silver_rows(bronze, silver, foreign_text=batch.foreign_text)
        self._stage(batch, silver.table, rows, by="status")

    def _good(self, batch: Any, silver: Silver) -> Any:
        """The rows of this batch that passed all checks; an empty frame with the same columns when none did."""
        return self.tables.read(batch, silver.table, self._silver_schema(silver), f"status={OK}")

    def _silver_schema(self, silver: Silver) -> Any:
        """The schema of a silver table, derived once: Spark takes longer to analyse the text than to do the work."""
        if silver.table not in self._schemas:
            empty = self.spark.createDataFrame([], self._message_schema)
            self._schemas[silver.table] = silver_rows(empty, silver).drop("status").schema
        return self._schemas[silver.table]

    def _event_times(self, batch: Any) -> dict[str, float | None]:
        """The latest plausible event time of each silver table, this batch included."""
        from pyspark.sql import functions as f

        seen: dict[str, float | None] = {}
        for silver in self.job.silver:
            before, micros = self._seen_before(silver), f.unix_micros(silver.event_time)
            plausible = f.when(micros <= round(_latest_plausible() * 1_000_000), micros)
            latest = self._good(batch, silver).agg(f.max(plausible)).first()[0]
            times = [when for when in (before, None if latest is None else latest / 1_000_000) if when is not None]
            seen[silver.table] = max(times, default=None)
        return seen

    def _seen_before(self, silver: Silver) -> float | None:
        last: ManifestRecord | None = self.landing.manifest.last
        seen: float | None = last.figures.get(f"seen.{silver.table}") if last else None
        return seen if seen is None or seen <= _latest_plausible() else None

    @staticmethod
    def _state_name(gold: Gold) -> str:
        return gold.table if gold.replaced else f"{STATE}/{gold.table}"

    def _gold(self, batch: Any, gold: Gold, bronze: Any, seen: dict[str, float | None]) -> Step:
        state = self.tables.latest(self._state_name(gold))
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

    def _stage_step(self, batch: Any, name: str, state_name: str, step: Step) -> None:
        if step.rows is not None:
            self._stage(batch, name, step.rows.coalesce(1))
        if step.state is not None:
            self._stage(batch, state_name, step.state.coalesce(1))

    def _stage(self, batch: Any, table: str, rows: Any, by: str = "") -> None:
        started = time.time()
        self.tables.write(batch, table, rows, by)
        batch.figures[f"seconds.{table}"] = time.time() - started

    def _counted(self, batch: Any) -> dict[str, float]:
        """Rows and quarantined rows by table."""
        figures: dict[str, float] = {}
        for silver in self.job.silver:
            figures[f"quarantined.{silver.table}"] = self.tables.rows(batch, silver.table, f"status={QUARANTINE}")
            figures[f"rows.{silver.table}"] = self.tables.rows(batch, silver.table)
            figures |= self._failed(batch, silver, figures[f"quarantined.{silver.table}"])
        figures["rows"] = self.tables.rows(batch, self.job.bronze_table)
        if (waits := waited(batch.put_times, time.time())) is not None:
            figures["wait.p50"], figures["wait.p99"] = waits
        return figures

    def _failed(self, batch: Any, silver: Silver, quarantined: float) -> dict[str, float]:
        """Rows by the check that they failed. A batch without any costs nothing, unless checks of its columns only
        count."""
        table, schema = silver.table, self._silver_schema(silver)
        bad = self.tables.read(batch, table, schema, f"status={QUARANTINE}") if quarantined else None
        rows = self.tables.read(batch, table, schema) if silver.counts else None
        found = counted_failures(rows, bad) if quarantined or silver.counts else {}
        return {figure(table, code): count for code, count in found.items()}


def _latest_plausible() -> float:
    return time.time() + _AHEAD_SECONDS


def includes_raw(job: Job) -> bool:
    """Whether bronze keeps descriptor and headers as bytes."""
    return job.bronze is not None and job.bronze.include_raw


def _others(silver: Silver, by: list[str], at: str) -> list[str]:
    return [column.name for column in silver.columns if column.name not in (*by, at)]
