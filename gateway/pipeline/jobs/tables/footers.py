"""What the footers of a table's Parquet files tell without their rows: which columns the files have, and which files
can have the rows that are looked for, so that only those are fetched from object storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.pipeline.land.objects import ObjectStore

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT_ONCE = 16
"""Footers that are requested at a time: each takes a store some round trips."""


def footers_of(store: ObjectStore, names: Sequence[str]) -> list[Any]:
    """The footers of some files, in their order."""
    import pyarrow.parquet as pq

    def footer(name: str) -> Any:
        with store.reader(name) as source:
            return pq.read_metadata(source)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(footer, names))


def all_columns(footers: Sequence[Any]) -> Any:
    """The schema of all columns that any of the files has. Columns whose types are not of one kind are text."""
    import pyarrow as pa

    kinds: dict[str, list[Any]] = {}
    for field in (field for footer in footers for field in footer.schema.to_arrow_schema()):
        kinds.setdefault(field.name, []).append(field.type)
    return pa.schema([(name, _one_kind(types)) for name, types in kinds.items()])


def _one_kind(types: list[Any]) -> Any:
    import pyarrow as pa

    try:
        listed = [pa.schema([("one", each)]) for each in dict.fromkeys(types)]
        return pa.unify_schemas(listed, promote_options="permissive").field("one").type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def has_any(footer: Any, column: str) -> bool:
    """Whether a file may have a value in a column; True if the footer does not tell."""
    return any(
        said is None or said.null_count is None or said.null_count < rows for said, rows in _said(footer, column)
    )


def has_one_of(footer: Any, column: str, values: Any) -> bool:
    """Whether a file may have one of these values, a sorted array; True if the footer does not tell."""
    import numpy as np

    return any(
        said is None
        or not said.has_min_max
        or np.searchsorted(values, said.min, "left") < np.searchsorted(values, said.max, "right")
        for said, _ in _said(footer, column)
    )


def has_between(footer: Any, column: str, low: int | str | None, high: int | str | None) -> bool:
    """Whether a file may have a value from `low` to `high` (None: no such end) in a column, whatever the case of its
    name; True if the footer does not tell. Times are microseconds. Values of another type are not compared."""
    return any(_between(said, low, high) for said, _ in _said(footer, column, any_case=True))


def _between(said: Any, low: int | str | None, high: int | str | None) -> bool:
    if said is None or not said.has_min_max:
        return True
    try:
        least, greatest = _comparable(said.min), _comparable(said.max)
    except (ValueError, OverflowError):  # no time, or no text, that Python has
        return True
    if len({type(least), type(greatest), *(type(end) for end in (low, high) if end is not None)}) != 1:
        return True
    return (low is None or greatest >= low) and (high is None or least <= high)


def _comparable(value: Any) -> Any:
    """A value as Spark compares it: text by its characters, times in microseconds; None for what is not compared."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
    return value if type(value) in (int, str) else None


def _said(footer: Any, column: str, *, any_case: bool = False) -> Iterator[tuple[Any, int]]:
    """The statistics of a column, and the number of rows, for each row group; nothing for a file without the column."""
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    places = [at for at, path in enumerate(paths) if path == column or (any_case and path.lower() == column.lower())]
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for at in places if group.num_rows else ():
            yield group.column(at).statistics, group.num_rows
