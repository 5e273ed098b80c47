"""Puts quarantined rows, or dead letters in bronze, back on a queue with the data source's own writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.silver import QUARANTINE
from gateway.pipeline.jobs.sources import chosen
from gateway.pipeline.jobs.spark_session import make_session
from gateway.pipeline.jobs.warehouse import ObjectWarehouse, Warehouse, warehouse_of


def replay_rows(job: Job, table: str, queue: str, where: str = "", txn: str = "", source: str = "") -> int:
    """Put the rows of a table that meet a condition on a queue of a source; how many were put."""
    there = chosen(job.inputs, source).source
    spark = make_session(f"{job.name}-replay", job.spark)
    try:
        rows = selected(spark, job, table)
        rows = rows.where(where) if where else rows
        count = int(rows.count())
        options = {"queue": queue, "txn": txn, "path": there.path, "url": there.url}
        options |= {"tokenFile": there.token_file, "caFile": there.ca_file}
        given = {name: value for name, value in options.items() if value}
        rows.select(*kept(rows)).write.format("mqqueue").options(**given).mode("append").save()
        return count
    finally:
        spark.stop()


def selected(spark: Any, job: Job, table: str) -> Any:
    """Quarantined rows of a silver table, or dead letters of bronze."""
    warehouse = warehouse_of(job)
    known = {silver.table for silver in job.silver}
    bronze = bool(job.bronze) and table == job.bronze_table
    if not (bronze or table in known) or not warehouse.files(table):
        raise WrongOption(
            f"{table!r} is no table of this job with rows: name a silver table, or bronze for dead letters"
        )
    if isinstance(warehouse, ObjectWarehouse):
        rows = _from_objects(spark, warehouse, table, "" if bronze else f"status={QUARANTINE}/")
    else:
        rows = _from_folder(spark, job, table, warehouse, bronze=bronze)
    return rows.where("dlq_reason IS NOT NULL") if bronze else rows


def _from_folder(spark: Any, job: Job, table: str, warehouse: Warehouse, *, bronze: bool) -> Any:
    files = [file for file in warehouse.files(table) if bronze or f"/status={QUARANTINE}/" in file]
    _some(files, table)
    return spark.read.option("basePath", str(Path(job.warehouse) / table)).parquet(*files)


def _from_objects(spark: Any, warehouse: ObjectWarehouse, table: str, part: str) -> Any:
    from gateway.pipeline.jobs.object_tables import rows_of, schema_of

    names = [name for name in warehouse.names(table) if name.startswith(f"{table}/{part}")]
    _some(names, table)
    return rows_of(spark, warehouse.store, names, schema_of(warehouse.store, names[0]))


def _some(files: list[str], table: str) -> None:
    if not files:
        raise WrongOption(f"nothing of {table!r} is in quarantine")


def kept(rows: Any) -> list[str]:
    """The columns a message is rebuilt from: the original bytes where they were kept."""
    names = set(rows.columns)
    if {"mqmd", "headers"} <= names:
        return ["mqmd", "headers", "payload"]
    return [name for name in ("payload", "properties", "topic", "correl_id") if name in names]
