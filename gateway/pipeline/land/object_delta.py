"""Delta logs of tables on object storage. The manifest is the truth and the log follows it: a batch is committed there
first, then its files are added here under the number of its entry. A driver that died in between is made up for by the
next one, which finds in the log (`transaction_version`) how far it got. delta-rs commits by a conditional put itself.
"""

from __future__ import annotations

from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import SparkMissing, StoreUnreachable
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, StoreSettings, endpoint_of, plain_http, summary

TRIES = 3


class ObjectDelta:
    """The Delta logs of a warehouse; `ObjectLanding` calls it before the first batch and after each commit."""

    def __init__(self, store: ObjectStore, job: str, replaced: set[str]) -> None:
        try:
            import deltalake
        except ImportError as error:
            raise SparkMissing(
                f"format: delta needs the package deltalake: {how_to_install('spark', 'lake', 'delta')}"
            ) from error
        del deltalake
        self.store = store
        self.app = f"mqgate/{job}"
        self.replaced = replaced
        self.options = delta_options(store.settings)
        self._schemas: dict[str, Any] = {}
        self._tables: dict[str, Any] = {}
        """As their logs were last read. A table that is opened anew has every entry since the last checkpoint fetched,
        several times: in the hundredth batch five hundred requests."""
        self._done: dict[str, tuple[int, int]] = {}
        """The version of the log that this process wrote last, and the entry up to which it has come."""

    def __call__(self, manifest: ObjectManifest) -> None:
        """Add what has been committed since."""
        for table in manifest.state.files:
            if not table.startswith(f"{STATE}/"):
                self._follow(manifest, table)

    def check(self, table: str, name: str, size: int) -> None:
        """delta-rs checks nothing before a commit."""

    def _follow(self, manifest: ObjectManifest, table: str) -> None:
        newest = manifest.state.last_number
        done = self._version(table)
        if done is None or (table in self.replaced and done < newest):
            # The first version has all files that the manifest has; a replaced table is its last ones.
            self._commit(table, newest, manifest.state.files[table], mode="overwrite")
            return
        if done >= newest:
            return
        for number, record in manifest.numbered(done):
            landed = record.tables.get(table)
            if landed is not None and landed.files:
                files = {f"{table}/{name}": (size, record.landed) for name, size in landed.files}
                self._commit(table, number, files, mode="append")

    def _opened(self, table: str) -> Any:
        """The table as its log is now; None where there is no log."""
        from deltalake import DeltaTable

        found = self._tables.get(table)
        if found is not None:
            found.update_incremental()
        elif has_log(self.store, table):
            found = self._tables[table] = DeltaTable(f"{self.store.url}/{table}", storage_options=self.options)
        return found

    def _version(self, table: str) -> int | None:
        """The entry up to which the log has come; None where there is no log."""
        found = self._opened(table)
        if found is None:
            return None
        version, done = self._done.get(table, (-1, 0))
        return done if found.version() == version else found.transaction_version(self.app) or 0

    def _commit(self, table: str, number: int, files: dict[str, tuple[int, float]], mode: str) -> None:
        """Add files under a number. Whatever delta-rs answers, the log says whether it did."""
        if not files:
            return
        for tried in range(1, TRIES + 1):
            try:
                self._write(table, number, files, mode)
                return
            except Exception as error:
                self._tables.pop(table, None)
                if (self._version(table) or 0) >= number:
                    return
                if tried == TRIES:
                    raise StoreUnreachable(f"{self.store.url}/{table}: no Delta commit: {summary(error)}") from error

    def _write(self, table: str, number: int, files: dict[str, tuple[int, float]], mode: str) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction, create_table_with_add_actions

        actions = []
        for name, (size, landed) in files.items():
            path = name.removeprefix(f"{table}/")
            actions.append(AddAction(path, size, partition_values(path), int(landed * 1000), True, "{}"))  # noqa: FBT003
        keys = list(actions[0].partition_values)
        schema = self._schema(table, next(iter(files)), keys)
        properties = CommitProperties(app_transactions=[Transaction(self.app, number)])
        there = self._tables.get(table)
        if there is not None:
            there.create_write_transaction(
                actions, mode=mode, schema=schema, partition_by=keys, commit_properties=properties
            )
            self._done[table] = there.version() + 1, number  # the object stays at the version before, until it is read
        else:
            create_table_with_add_actions(
                f"{self.store.url}/{table}", schema, actions, mode="error", partition_by=keys,
                commit_properties=properties, storage_options=self.options,
            )  # fmt: skip

    def _schema(self, table: str, name: str, keys: list[str]) -> Any:
        if table not in self._schemas:
            import pyarrow as pa
            import pyarrow.parquet as pq
            from deltalake import Schema

            with self.store.reader(name) as source:
                found = pq.ParquetFile(source).schema_arrow.remove_metadata()
            fields = [*found, *[pa.field(key, pa.string()) for key in keys]]
            self._schemas[table] = Schema.from_arrow(pa.schema(fields))
        return self._schemas[table]


def has_log(store: ObjectStore, table: str) -> bool:
    """Whether the table is one of Delta's already. delta-rs is not asked: it keeps the interpreter while it waits."""
    return store.has(f"{table}/_delta_log")


def partition_values(path: str) -> dict[str, str]:
    """The partition columns in a file's path."""
    return dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)


def delta_options(settings: StoreSettings) -> dict[str, str]:
    """How delta-rs reaches the store; credentials it finds in the environment by itself."""
    endpoint = endpoint_of(settings)
    options = {"timeout": f"{settings.timeout:g}s"}
    options |= {"AWS_ENDPOINT_URL": endpoint} if endpoint else {}
    options |= {"AWS_ALLOW_HTTP": "true"} if plain_http(settings) else {}
    return options | ({"AWS_REGION": settings.region} if settings.region else {})
