"""What Iceberg is told of a Parquet file: its columns, counts, bounds and partition, all from the file's footer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gateway.pipeline.land.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Footer:
    """A file that has been put."""

    name: str
    """Relative to the warehouse."""
    size: int
    metadata: Any
    schema: Any
    """Arrow's, all columns optional: a job that is changed may give a column up."""


def footer_of(store: ObjectStore, name: str, size: int) -> Footer:
    """What the end of a file says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.reader(name, size) as source:
        metadata = pq.read_metadata(source)
    found = metadata.schema.to_arrow_schema().remove_metadata()
    return Footer(name, size, metadata, pa.schema([field.with_nullable(True) for field in found]))  # noqa: FBT003


def table_schema(footers: list[Footer]) -> Any:
    """The columns of all files."""
    import pyarrow as pa

    return pa.unify_schemas([footer.schema for footer in reversed(footers)], promote_options="permissive")


def day_column(schema: Any) -> str:
    """The column by whose day rows are partitioned: when they were put; of results, their first time."""
    import pyarrow as pa

    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    return "put_ts" if "put_ts" in times else next(iter(times), "")


def data_file(footer: Footer, url: str, table: Any) -> Any:
    """The entry of a file in a table's manifest."""
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        MetricsMode,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    schema = table.schema()
    ids = parquet_path_to_id_mapping(schema)
    plan = compute_statistics_plan(schema, table.properties)
    for number in {ids[path] for path in without_statistics(footer.metadata)}:
        plan[number] = replace(plan[number], mode=MetricsMode(MetricModeTypes.NONE))
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer.metadata, stats_columns=plan, parquet_column_mapping=ids
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{url}/{footer.name}",
        file_format=FileFormat.PARQUET,
        partition=found.partition(table.spec(), schema),
        file_size_in_bytes=footer.size,
        sort_order_id=None,
        spec_id=table.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )


def without_statistics(metadata: Any) -> set[str]:
    """The columns whose smallest and largest values the file does not tell."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(metadata.num_columns)]
    return {column.path_in_schema for column in columns if not column.is_stats_set}
