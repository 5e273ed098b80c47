"""The columns of a Delta table. delta-rs leaves them as they are when files are appended, and looks into no file. So a
column that a job gains is added here, and one that has another type than the table's is refused before a batch lands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.pipeline.errors import TableDiffers

NULLS = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})
"""What the fields of a type say beside it. Writers differ in it, and all columns are optional."""


def file_columns(source: Any) -> Any:
    """The columns of a Parquet file, all optional: a job that is changed may give one up."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.read_schema(source).remove_metadata()
    return pa.schema([field.with_nullable(True) for field in found])  # noqa: FBT003


def delta_schema(where: str, files: Iterable[Any], keys: Sequence[str]) -> Any:
    """The columns of these files together, and the partition columns."""
    import pyarrow as pa

    try:
        columns = pa.unify_schemas(list(dict.fromkeys(map(file_columns, files))))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise differs(where, str(error)) from error
    own = [field for field in columns if field.name not in keys]
    return schema_of(pa.schema([*own, *[pa.field(key, pa.string()) for key in keys]]))


def schema_of(columns: Any) -> Any:
    """The same columns, as Arrow has them, for a log."""
    from deltalake import Schema

    return Schema.from_arrow(columns)


def check_columns(where: str, found: Any, schema: Any) -> None:
    """TableDiffers where a column has another type than in the table."""
    there = {field.name: field for field in found.schema().fields}
    for field in schema.fields:
        old = there.get(field.name)
        if old is not None and _kind(old) != _kind(field):
            raise differs(where, f"{field.name!r} is {_said(old)} there, and {_said(field)} now")


def add_columns(found: Any, schema: Any) -> bool:
    """Columns that the table does not have yet become columns of it; whether there were any."""
    there = {field.name for field in found.schema().fields}
    new = [field for field in schema.fields if field.name not in there]
    if new:
        found.alter.add_columns(new)
    return bool(new)


def differs(where: str, why: str) -> TableDiffers:
    """The error, with what is to be done."""
    return TableDiffers(
        f"rows of this job do not fit the Delta table {where}: {why}: give the column that has changed its type "
        "another name, or the rows another table"
    )


def _kind(field: Any) -> Any:
    return _bare(json.loads(field.to_json())["type"])


def _said(field: Any) -> str:
    kind = _kind(field)
    return kind if isinstance(kind, str) else str(kind["type"])


def _bare(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {name: _bare(value) for name, value in kind.items() if name not in NULLS}
    return [_bare(one) for one in kind] if isinstance(kind, list) else kind
