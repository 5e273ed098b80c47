"""Delta tables over the files that have landed, through `deltalake`: no jar, one version for each batch.

The manifest is the truth and the log follows it, as on object storage: a batch is recorded there first, then its files
are added here under the number of the record. What a driver that died in between has left undone the next one does
before its first batch. The other order left in the log a batch that was never recorded, where another one of the same
number came next. State tables get no log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import SparkMissing
from gateway.pipeline.land.delta_columns import add_columns, check_columns, delta_schema, schema_of
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import Manifest

TRIES = 5


class DeltaLog:
    """The Delta logs of a warehouse; `Landing` calls it before its first batch and after each record."""

    def __init__(self, warehouse: Path, job: str, replaced: set[str]) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise SparkMissing(
                f"format: delta needs the package deltalake: {how_to_install('spark', 'delta')}"
            ) from error
        del deltalake
        self.warehouse = warehouse
        self.job = job
        self.replaced = replaced
        self._followed: dict[str, int] = {}
        """The record up to which this process has followed: a table that gets nothing has them not read again."""

    def __call__(self, manifest: Manifest) -> None:
        """Add what has been recorded since."""
        if manifest.last is not None:
            for table in manifest.folders:
                if not table.startswith(f"{STATE}/"):
                    self._follow(manifest, table, manifest.last.number)

    def check(self, table: str, folder: Path) -> None:
        """TableDiffers where the files of a batch do not fit the table's log."""
        files = sorted(folder.rglob("*.parquet"))
        if files:
            self._compare(table, self._schema(table, files[:1], []))

    def compare(self, table: str, columns: Any) -> None:
        """TableDiffers where columns, as Arrow has them, have another type in the table's log."""
        self._compare(table, schema_of(columns))

    def _compare(self, table: str, schema: Any) -> None:
        found = None if table in self.replaced else self._opened(table)
        if found is not None:
            check_columns(str(self.warehouse / table), found, schema)

    def _follow(self, manifest: Manifest, table: str, newest: int) -> None:
        found = self._opened(table)
        done = None if found is None else max(self._come_to(found, manifest), self._followed.get(table, 0))
        if done is None or (table in self.replaced and done < newest):
            # The first version has all files that the manifest has; a replaced table is its last ones.
            self._commit(found, table, newest, self._files(manifest, table), mode="overwrite")
            return
        for record in manifest.since(done) if done < newest else ():
            if table in record.tables:
                landed = record.tables[table]
                files = [self.warehouse / landed.folder / name for name, _ in landed.files]
                self._commit(self._opened(table), table, record.number, files, mode="append")
        self._followed[table] = newest

    def _come_to(self, found: Any, manifest: Manifest) -> int:
        """The record that a log has come to. A job that was given another name has written under that one before."""
        done: int | None = found.transaction_version(f"mqgate/{self.job}")
        if done is not None:
            return done
        others = {record.job for record in manifest.records()}
        return max((found.transaction_version(f"mqgate/{name}") or 0 for name in others), default=0)

    def _files(self, manifest: Manifest, table: str) -> list[Path]:
        if table in self.replaced:
            landed = manifest.last.tables.get(table) if manifest.last else None
            return [self.warehouse / landed.folder / name for name, _ in landed.files] if landed else []
        folders = sorted(manifest.folders[table])
        return [file for folder in folders for file in sorted((self.warehouse / folder).rglob("*.parquet"))]

    def _opened(self, table: str) -> Any:
        """The table as its log is now; None where there is no log."""
        from deltalake import DeltaTable

        root = str(self.warehouse / table)
        return DeltaTable(root) if DeltaTable.is_deltatable(root) else None

    def _commit(self, found: Any, table: str, number: int, files: list[Path], mode: Any) -> None:
        """Add files under a number. Where a compaction commits at the same time this is done again."""
        from deltalake.exceptions import DeltaError

        for tried in range(1, TRIES + 1) if files else ():
            try:
                self._write(found, table, number, files, mode)
                return
            except DeltaError:
                if tried == TRIES:
                    raise
                found = self._opened(table)
                if found is not None and (found.transaction_version(f"mqgate/{self.job}") or 0) >= number:
                    return

    def _write(self, found: Any, table: str, number: int, files: list[Path], mode: Any) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import create_table_with_add_actions

        root = self.warehouse / table
        actions = [add_action(root, file) for file in files]
        keys = partition_keys(actions)
        schema = self._schema(table, files if mode == "overwrite" else files[:1], keys)
        properties = CommitProperties(app_transactions=[Transaction(f"mqgate/{self.job}", number)])
        if found is None:
            create_table_with_add_actions(
                str(root), schema, actions, mode="error", partition_by=keys, commit_properties=properties
            )
            return
        if mode == "append" and add_columns(found, schema):
            found = self._opened(table)
        found.create_write_transaction(
            actions, mode=mode, schema=schema, partition_by=keys, commit_properties=properties
        )

    def _schema(self, table: str, files: list[Path], keys: list[str]) -> Any:
        return delta_schema(str(self.warehouse / table), files, keys)


def add_action(root: Path, file: Path) -> Any:
    """The log's action for one file, with the partition values in its path."""
    from deltalake.transaction import AddAction

    path = file.relative_to(root)
    values = dict(part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    found = file.stat()
    return AddAction(str(path), found.st_size, values, int(found.st_mtime * 1000), True, "{}")  # noqa: FBT003


def partition_keys(actions: list[Any]) -> list[str]:
    """The partition columns: batch, and status for silver tables."""
    return list(actions[0].partition_values)
