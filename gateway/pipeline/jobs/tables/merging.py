"""Merging Parquet files into one. Columns of a job come and go: the merged file has every column that any of its files
has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gateway.pipeline.jobs.job import Retention

PARTS_OF_KEEP = 8
"""A fraction of a table's retention within which all rows of a merged file have landed: the file goes when the last of
them may."""


class Part(NamedTuple):
    """What may be merged with others: a file, or the folder of a batch."""

    name: str
    size: int
    landed: float


def lots_of(parts: Iterable[Part], retention: Retention, table: str) -> list[list[Part]]:
    """The small ones of these parts, oldest first, in lots of as many as make one part of the target size."""
    size = retention.compact_bytes
    span = retention.keep.get(table, math.inf) / PARTS_OF_KEEP
    lots: list[list[Part]] = []
    room, until = 0, 0.0
    for part in parts:
        if part.size < size // 2:
            if room <= 0 or part.landed > until:
                lots.append([])
                room, until = size, part.landed + span
            lots[-1].append(part)
            room -= part.size
    return lots


def due(lots: Iterable[list[Part]], retention: Retention) -> list[list[str]]:
    """The names in the lots that are worth a merge: the lot has many parts, or they make one of the target size."""
    most = retention.compact_bytes
    found = [lot for lot in lots if len(lot) >= retention.compact_files or sum(part.size for part in lot) >= most]
    return [[part.name for part in lot] for lot in found]


def alike(schemas: Sequence[Any]) -> list[bool]:
    """Which files can become one, by their schemas, the newest last: those in which each column has the type that it
    has later, or one that is widened to it without loss. A batch without rows has no file, hence no schema, and
    fits."""
    types: dict[str, Any] = {}
    found = []
    for schema in reversed(schemas):
        columns = {} if schema is None else {field.name: field.type for field in schema}
        found.append(all(widens(kind, types.get(name, kind)) for name, kind in columns.items()))
        types = columns | types if found[-1] else types
    return found[::-1]


def widens(old: Any, new: Any) -> bool:
    """Whether each value of the old type is also one of the new: the same type, or a longer integer or floating-point
    number."""
    from pyarrow import types

    kinds = (types.is_signed_integer, types.is_floating)
    return old == new or any(kind(old) and kind(new) and old.bit_width < new.bit_width for kind in kinds)


def write_merged(files: Iterable[Path], schemas: Sequence[Any], target: Path) -> None:
    """Write the rows of all these files, which are alike, into one. A file is read before the next one is asked for."""
    import pyarrow.parquet as pq

    from gateway.pipeline.source.object_files import fitted

    schema = _all_columns(schemas)
    with pq.ParquetWriter(target, schema, compression="zstd", store_schema=False) as writer:
        for file in files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches():
                    writer.write_batch(fitted(batch, schema))


def _all_columns(schemas: Iterable[Any]) -> Any:
    """The schema of files that are alike. A column that one of them lacks is nullable."""
    import pyarrow as pa

    listed = [schema.remove_metadata() for schema in schemas]  # of Spark's own, which would be believed rather
    return pa.schema(
        field.with_nullable(field.nullable or not all(field.name in each.names for each in listed))
        for field in pa.unify_schemas(listed, promote_options="permissive")
    )
