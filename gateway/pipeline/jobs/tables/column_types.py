"""Whether the columns that a job declares fit the tables that have landed, so that `mqgate pipeline check` reports what
would be refused with the first batch of a run. Works without Spark: the types of declared columns are known, and all
others are the same in every job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gateway.config.source import Document
from gateway.errors import Finding
from gateway.pipeline.decode.columns import arrow_type
from gateway.pipeline.errors import TableDiffers
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.tables.followers import follower_of
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.objects import open_store


class Tables(Protocol):
    """Tables whose columns keep their types: those of Delta and Iceberg."""

    def compare(self, table: str, columns: Any) -> None:
        """Raise TableDiffers if columns, with their Arrow types, have another type in the table."""


class Declared(NamedTuple):
    """A column of a table, and the place in the job's file that declares it."""

    table: str
    name: str
    kind: str
    at: tuple[str | int, ...]


def misfits(job: Job, document: Document) -> list[Finding]:
    """A finding for every column that has another type in its table, at its place in the file."""
    tables = tables_of(job)
    return [] if tables is None else list(_found(tables, job, document))


def tables_of(job: Job) -> Tables | None:
    """The tables of a job, if the types of their columns are kept; None for plain Parquet."""
    if job.on_objects:
        return follower_of(job, open_store(job.place, job.storage.settings))
    return DeltaLog(Path(job.warehouse), job.name, job.replaced_tables) if job.format == "delta" else None


def _found(tables: Tables, job: Job, document: Document) -> Iterator[Finding]:
    """The findings. A table whose columns all fit is read once; for any other, each column is asked about."""
    for _, columns in groupby(declared(job), key=attrgetter("table")):
        listed = list(columns)
        if _why_not(tables, listed):
            yield from (document.finding(one.at, why) for one in listed if (why := _why_not(tables, [one])))


def _why_not(tables: Tables, columns: list[Declared]) -> str:
    import pyarrow as pa

    try:
        tables.compare(columns[0].table, pa.schema([pa.field(one.name, arrow_of(one.kind)) for one in columns]))
    except TableDiffers as error:
        return str(error)
    return ""


def declared(job: Job) -> Iterator[Declared]:
    """The columns whose types the job's file declares, and those that gold tables take over from them."""
    for number, silver in enumerate(job.silver):
        for place, column in enumerate(silver.columns):
            yield Declared(silver.table, column.name, column.type, ("silver", number, "columns", place))
    for number, gold in enumerate(job.gold):
        if gold.kind == "dead_letters":
            continue
        silver = job.silver_of(gold)
        taken = [*(gold.by or silver.key)]
        if gold.kind == "last":
            taken += gold.values or [column.name for column in silver.columns]
        for name in dict.fromkeys(taken):
            yield Declared(gold.table, name, silver.type_of(name), ("gold", number))


def arrow_of(kind: str) -> Any:
    """The Arrow type that a column has in its files."""
    import pyarrow as pa

    own = {"float": pa.float32(), "double": pa.float64(), "date": pa.date32()}
    return own[kind] if kind in own else arrow_type(kind)  # type: ignore[arg-type]
