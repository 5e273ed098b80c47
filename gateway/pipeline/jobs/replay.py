"""Putting quarantined rows, or dead letters in bronze, back on a queue with the data source's own writer."""

from __future__ import annotations

from functools import partial, reduce
from itertools import compress
from operator import and_
from pathlib import Path
from typing import Any

from gateway.config.counting import counted
from gateway.pipeline.decode.columns import SOURCE, SOURCE_COLUMN, select_columns, spark_schema
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.leases import access_to
from gateway.pipeline.jobs.silver import QUARANTINE
from gateway.pipeline.jobs.sources import chosen
from gateway.pipeline.jobs.spark.spark_session import make_session
from gateway.pipeline.jobs.status import groups_of
from gateway.pipeline.jobs.tables.conditions import can_have
from gateway.pipeline.jobs.tables.footers import all_columns, footers_of, has_any, has_one_of
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.jobs.tables.warehouse import ObjectWarehouse, Warehouse, warehouse_of
from gateway.pipeline.journal.puts import BUILT_FROM, PutTarget
from gateway.pipeline.land.objects import ObjectStore, open_store
from gateway.pipeline.source.options import Options, put_queue
from gateway.pipeline.source.running_gateway import in_use, running_gateway

REBUILT_FROM = ("mqmd", "headers", *BUILT_FROM)
"""The columns from which a message is rebuilt, in addition to its payload: its bytes if they were kept, or the values
decoded from them."""
NAMED_BY = (SOURCE, "seq", "msg_id")
"""The columns that tell which message a row is of."""


def replay_rows(job: Job, table: str, queue: str, where: str = "", txn: str = "", source: str = "") -> int:
    """Put the rows of a table that meet a condition on a queue of a source; returns how many were put. Everything but
    the condition is checked before Spark starts, which takes seconds."""
    check_format(job)
    warehouse = warehouse_of(job)
    files = files_of(job, warehouse, table)
    target = target_options(job, queue, txn, source)
    spark = make_session(f"{job.name}-replay", job.spark)
    try:
        rows = selected(spark, job, warehouse, table, files, where)
        rows = messages_of(spark, job, warehouse, table, rows)
        return put_all(rows, target)
    finally:
        spark.stop()


def put_all(rows: Any, target: dict[str, str]) -> int:
    """Put the rows, and count them on the way, so that their files are read once; returns how many they are."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    rows = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
    rows.write.format("mqqueue").options(**target).mode("append").save()
    return int(seen.get["rows"])


def put_sentence(count: int, queue: str, txn: str) -> str:
    """What a user is told of a replay. It is not known here whether one of the same name had put the rows before."""
    named = f" under the name {txn!r}, once however often this is repeated" if txn else ""
    return f"{counted(count, 'message')} put on {queue}{named}"


def files_of(job: Job, warehouse: Warehouse, table: str) -> list[str]:
    """The files with the quarantined rows of a silver table, or those of bronze: names on object storage, or paths.
    Raises WrongOption if there are none."""
    known = [*([job.bronze_table] if job.bronze else []), *(silver.table for silver in job.silver)]
    if table not in known:
        raise WrongOption(f"the job has no table {table!r} to replay from: name one of {', '.join(known)}")
    names = names_of(warehouse, table)
    if table == job.bronze_table:
        _some(names, f"{table!r} has no rows yet: let the job run first")
        return names
    _some(
        found := [name for name in names if f"/status={QUARANTINE}/" in name], f"nothing of {table!r} is in quarantine"
    )
    return found


def names_of(warehouse: Warehouse, table: str) -> list[str]:
    """The files of a table: names on object storage, or paths."""
    return warehouse.names(table) if isinstance(warehouse, ObjectWarehouse) else warehouse.files(table)


def _some(files: list[str], otherwise: str) -> None:
    if not files:
        raise WrongOption(otherwise)


def target_options(job: Job, queue: str, txn: str, source: str) -> dict[str, str]:
    """The options of the data source's writer. Raises if what they name cannot be reached."""
    each = chosen(job.inputs, source)
    there = each.source
    options = {"queue": queue, "txn": txn, "path": there.path, "url": there.url}
    options |= {"tokenFile": there.token_file, "caFile": there.ca_file}
    given = {name: value for name, value in options.items() if value}
    asked = Options.read(given)
    put_queue(asked.queue)
    if there.path and not there.url and running_gateway(Path(there.path)):
        raise in_use(Path(there.path))
    groups_of(each)
    target = PutTarget(asked.queue, asked.priority, asked.expiry, asked.persistence == 1)
    access_to(each).put(target, [], "", 0)  # a queue refuses nothing at all, too
    return given


def selected(spark: Any, job: Job, warehouse: Warehouse, table: str, files: list[str], where: str = "") -> Any:
    """The rows of these files that meet the condition: quarantined ones of a silver table, or dead letters of bronze.
    Files that have none, by their footers, are not read."""
    footers = footers_of(*stored(job, warehouse, files))
    if table == job.bronze_table:
        letters = [has_any(footer, "dlq_reason") for footer in footers]
        files, footers = list(compress(files, letters)), list(compress(footers, letters))
    read = partial(_letters if table == job.bronze_table else _quarantined, spark, job, warehouse, all_columns(footers))
    if not where:
        return read(files)
    wanted = can_have(footers, read(files).where(where))
    return read(list(compress(files, wanted))).where(where)


def _letters(spark: Any, job: Job, warehouse: Warehouse, _columns: Any, files: list[str]) -> Any:
    return _messages(spark, job, warehouse, files).where("dlq_reason IS NOT NULL")


def _quarantined(spark: Any, job: Job, warehouse: Warehouse, columns: Any, files: list[str]) -> Any:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    from gateway.pipeline.jobs.tables.object_tables import rows_of

    return rows_of(spark, *stored(job, warehouse, files), from_arrow_schema(columns)).withColumn(
        "status", f.lit(QUARANTINE)
    )


def stored(job: Job, warehouse: Warehouse, files: list[str]) -> tuple[ObjectStore, list[str]]:
    """The files as objects: the store, and their names in it."""
    if isinstance(warehouse, ObjectWarehouse):
        return warehouse.store, files
    return open_store(job.warehouse, job.storage.settings), [str(Path(one).relative_to(job.warehouse)) for one in files]


def _messages(spark: Any, job: Job, warehouse: Warehouse, files: list[str]) -> Any:
    """The rows of bronze files. As the job may have changed since, only some files have descriptor and headers."""
    own = (SOURCE_COLUMN,) if job.sources else ()
    schema = spark_schema((*select_columns("", include_raw=True), *own))
    if isinstance(warehouse, ObjectWarehouse):
        from gateway.pipeline.jobs.tables.object_tables import rows_of

        return rows_of(spark, warehouse.store, files, schema)
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


def messages_of(spark: Any, job: Job, warehouse: Warehouse, table: str, rows: Any) -> Any:
    """The columns from which messages are rebuilt. A silver table has the payload and the carried columns, unless a
    column of its own has that name; bronze has the others, as long as it keeps the message."""
    import numpy as np
    from pyspark.sql import functions as f

    own = {column.name for silver in job.silver if silver.table == table for column in silver.columns}
    there = [name for name in rows.columns if name not in own]
    files = names_of(warehouse, job.bronze_table) if job.bronze and table != job.bronze_table else []
    if not files or "seq" not in there:
        return rows.select("payload", *[name for name in REBUILT_FROM if name in there])
    numbers = np.sort(rows.select("seq").toArrow()["seq"].to_numpy())
    store, names = stored(job, warehouse, files)
    wanted = [has_one_of(footer, "seq", numbers) for footer in footers_of(store, names)]
    bronze = _messages(spark, job, warehouse, list(compress(files, wanted)))
    if len(numbers):
        bronze = bronze.where(f.col("seq").between(int(numbers[0]), int(numbers[-1])))
    keys = [name for name in NAMED_BY if name in there and name in bronze.columns]
    same = [f.col(f"silver.{name}").eqNullSafe(f.col(f"bronze.{name}")) for name in keys]
    both = rows.alias("silver").join(bronze.alias("bronze"), reduce(and_, same), "left").orderBy("silver.seq")
    return both.select("silver.payload", *[_of_either(name, carried=name in there) for name in REBUILT_FROM])


def _of_either(name: str, *, carried: bool) -> Any:
    from pyspark.sql import functions as f

    found = f.col(f"bronze.{name}")
    return (f.coalesce(found, f.col(f"silver.{name}")) if carried else found).alias(name)
