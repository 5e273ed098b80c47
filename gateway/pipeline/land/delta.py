"""Delta tables over the files that have landed, through `deltalake`: no jar, one version for each batch.

The log is written between the files' rename and the manifest's record, under the number of the record, so that a
repeated batch adds no second version. State tables get no log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import SparkMissing
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import LandedTable


class DeltaLog:
    """The Delta logs of a warehouse; `Landing` calls it after a batch's files were renamed."""

    def __init__(self, warehouse: Path, job: str, replaced: set[str]) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise SparkMissing(
                f"format: delta needs the package deltalake: {how_to_install('spark', 'delta')}"
            ) from error
        del deltalake
        self.warehouse = warehouse
        self.app = f"mqgate/{job}"
        self.replaced = replaced

    def __call__(self, number: int, tables: dict[str, LandedTable]) -> None:
        """Add one version to each table of a batch."""
        for name, table in tables.items():
            if not name.startswith(f"{STATE}/") and table.files:
                self._commit(name, table, number)

    def _commit(self, name: str, table: LandedTable, number: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        root = self.warehouse / name
        if DeltaTable.is_deltatable(str(root)) and (DeltaTable(str(root)).transaction_version(self.app) or 0) >= number:
            return
        properties = CommitProperties(app_transactions=[Transaction(self.app, number)])
        mode = "overwrite" if name in self.replaced else "append"
        actions = [add_action(self.warehouse / table.folder, root, file) for file, _ in table.files]
        keys = partition_keys(actions)
        schema = table_schema(self.warehouse / table.folder / table.files[0][0], keys)
        if DeltaTable.is_deltatable(str(root)):
            DeltaTable(str(root)).create_write_transaction(
                actions, mode=mode, schema=schema, partition_by=keys, commit_properties=properties
            )
        else:
            from deltalake.transaction import create_table_with_add_actions

            create_table_with_add_actions(
                str(root), schema, actions, mode=mode, partition_by=keys, commit_properties=properties
            )


def add_action(folder: Path, root: Path, file: str) -> Any:
    """The log's action for one file, with the partition values in its path."""
    from deltalake.transaction import AddAction

    path = (folder / file).relative_to(root)
    values = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    found = (folder / file).stat()
    return AddAction(str(path), found.st_size, values, int(found.st_mtime * 1000), True, "{}")  # noqa: FBT003


def partition_keys(actions: list[Any]) -> list[str]:
    """The partition columns: batch, and status for silver tables."""
    return list(actions[0].partition_values)


def table_schema(file: Path, keys: list[str]) -> Any:
    """The file's columns and the partition columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import Schema

    fields = [field for field in pq.read_schema(file).remove_metadata() if field.name not in keys]
    return Schema.from_arrow(pa.schema([*fields, *[pa.field(key, pa.string()) for key in keys]]))
