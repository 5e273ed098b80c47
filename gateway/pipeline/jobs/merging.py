"""Merges Parquet files into one. Columns of a job come and go: the merged file has all that any of its files has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def alike(files: Sequence[Path | None]) -> list[bool]:
    """Which files can be one, the newest last: not those in which a column has another type than it has later. A batch
    without rows has no file, and fits."""
    import pyarrow.parquet as pq

    types: dict[str, Any] = {}
    found = []
    for file in reversed(files):
        columns = {} if file is None else {field.name: field.type for field in pq.read_schema(file)}
        found.append(all(types.get(name, kind) == kind for name, kind in columns.items()))
        types |= columns if found[-1] else {}
    return found[::-1]


def write_merged(files: Sequence[Path], target: Path) -> None:
    """Write the rows of all these files to one."""
    import pyarrow.parquet as pq

    from gateway.pipeline.source.object_files import fitted

    schema = _all_columns([pq.read_schema(file) for file in files])
    with pq.ParquetWriter(target, schema, compression="zstd", store_schema=False) as writer:
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches():
                writer.write_batch(fitted(batch, schema))


def _all_columns(schemas: Iterable[Any]) -> Any:
    """The schema of files that are alike. A column that one of them lacks may be null."""
    import pyarrow as pa

    listed = [schema.remove_metadata() for schema in schemas]  # of Spark's own, which would be believed rather
    return pa.schema(
        field.with_nullable(field.nullable or not all(field.name in each.names for each in listed))
        for field in pa.unify_schemas(listed)
    )
