"""Puts quarantined rows, or dead letters in bronze, back on a queue with the data source's own writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.silver import QUARANTINE
from gateway.pipeline.jobs.spark_session import make_session
from gateway.pipeline.land.manifest import Manifest


def replay_rows(job: Job, table: str, queue: str, where: str = "", txn: str = "") -> int:
    """Put the rows of a table that meet a condition; how many were put."""
    spark = make_session(f"{job.name}-replay", job.spark)
    try:
        rows = selected(spark, job, table)
        rows = rows.where(where) if where else rows
        count = int(rows.count())
        source = job.source
        options = {"queue": queue, "txn": txn, "path": source.path, "url": source.url, "tokenFile": source.token_file}
        given = {name: value for name, value in options.items() if value}
        rows.select(*kept(rows)).write.format("mqqueue").options(**given).mode("append").save()
        return count
    finally:
        spark.stop()


def selected(spark: Any, job: Job, table: str) -> Any:
    """Quarantined rows of a silver table, or dead letters of bronze."""
    warehouse = Path(job.warehouse)
    reader = spark.read.option("basePath", str(warehouse / table))
    folders = [str(warehouse / folder) for folder in sorted(Manifest(warehouse).folders.get(table, ()))]
    if job.bronze and table == job.bronze.table and folders:
        return reader.parquet(*folders).where("dlq_reason IS NOT NULL")
    if table not in {silver.table for silver in job.silver} or not folders:
        raise WrongOption(
            f"{table!r} is no table of this job with rows: name a silver table, or bronze for dead letters"
        )
    files = [str(path) for folder in folders for path in Path(folder).glob(f"status={QUARANTINE}/*.parquet")]
    if not files:
        raise WrongOption(f"nothing of {table!r} is in quarantine")
    return reader.parquet(*files)


def kept(rows: Any) -> list[str]:
    """The columns a message is rebuilt from: the original bytes where they were kept."""
    names = set(rows.columns)
    if {"mqmd", "headers"} <= names:
        return ["mqmd", "headers", "payload"]
    return [name for name in ("payload", "properties", "topic", "correl_id") if name in names]
