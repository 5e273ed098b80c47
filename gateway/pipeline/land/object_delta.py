"""Delta logs of tables on object storage. The manifest is the truth and the log follows it: a batch is committed there
first, then its files are added here under the number of its entry. A driver that died in between is made up for by the
next one, which finds in the log (`transaction_version`) how far it got. delta-rs commits by a conditional put itself.
What Delta merges is in the log first: `compact` has the manifest name it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import SparkMissing, StoreUnreachable, WrongOption
from gateway.pipeline.land.delta_columns import add_columns, check_columns, delta_schema, schema_of
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import ManifestRecord
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, StoreSettings, endpoint_of, plain_http, summary

TRIES = 3


class ObjectDelta:
    """The Delta logs of a warehouse; `ObjectLanding` calls it before the first batch and after each commit."""

    format = "delta"

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
        """The version of the log that this process wrote last or found, and the entry up to which it has come: a table
        that gets nothing does not have all entries since its last rows read again in each batch."""

    def __call__(self, manifest: ObjectManifest) -> None:
        """Add what has been committed since."""
        for table in manifest.state.files:
            if not table.startswith(f"{STATE}/"):
                self._follow(manifest, table)

    def check(self, table: str, name: str, size: int) -> None:
        """TableDiffers where a batch's file does not fit the table's log. The first one is asked about: a job has the
        same columns until it starts again."""
        del size
        if table in self._schemas:
            return
        schema = self._read_schema(table, [name])
        self._compare(table, schema)
        self._schemas[table] = schema

    def compare(self, table: str, columns: Any) -> None:
        """TableDiffers where columns, as Arrow has them, have another type in the table's log."""
        self._compare(table, schema_of(columns))

    def _compare(self, table: str, schema: Any) -> None:
        found = self._opened(table)
        if found is not None and table not in self.replaced:
            check_columns(f"{self.store.url}/{table}", found, schema)

    def _follow(self, manifest: ObjectManifest, table: str) -> None:
        newest = manifest.state.last_number
        done = self._version(table) or self._version_of(manifest.last, table)
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
                check_logs(manifest, {table: files})
                self._commit(table, number, files, mode="append")
        there = self._tables.get(table)
        if there is not None:
            written, _ = self._done.get(table, (-1, 0))
            self._done[table] = max(written, there.version()), newest

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

    def _version_of(self, last: ManifestRecord | None, table: str) -> int | None:
        """The same for a job that was given another name: it has written under that of the batch before."""
        found = self._tables.get(table)
        if found is None:
            return None
        done = (found.transaction_version(f"mqgate/{last.job}") or 0) if last else 0
        self._done[table] = found.version(), done
        return done

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
        schema = self._schema(table, list(files), mode)
        properties = CommitProperties(app_transactions=[Transaction(self.app, number)])
        there = self._tables.get(table)
        if there is not None and mode == "append" and add_columns(there, schema):
            there.update_incremental()
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

    def _schema(self, table: str, names: list[str], mode: str) -> Any:
        """Of what the job lands now, or of files that were landed before it began: of all with which a log begins."""
        known = self._schemas.get(table)
        if known is not None and (mode == "append" or table in self.replaced):
            return known
        return self._read_schema(table, names if mode == "overwrite" else names[:1])

    def _read_schema(self, table: str, names: list[str]) -> Any:
        with ExitStack() as opened:
            files = [opened.enter_context(self.store.reader(name)) for name in names]
            return delta_schema(f"{self.store.url}/{table}", files, list(partition_values(names[0])))


def has_log(store: ObjectStore, table: str) -> bool:
    """Whether the table is one of Delta's already. delta-rs is not asked: it keeps the interpreter while it waits."""
    return store.has(f"{table}/_delta_log")


def names_in_log(store: ObjectStore, table: str) -> list[str]:
    """The files that a table's log names, relative to the warehouse; none where there is no log."""
    from deltalake import DeltaTable

    if not has_log(store, table):
        return []
    found = DeltaTable(f"{store.url}/{table}", storage_options=delta_options(store.settings))
    return sorted(uri.removeprefix(f"{store.url}/") for uri in found.file_uris())


def check_logs(manifest: ObjectManifest, named: Mapping[str, Iterable[str]]) -> None:
    """WrongOption where files that the logs of these tables name, or are to take in, are gone: before it was refused,
    the job was changed to plain Parquet, and its `compact` has removed them."""
    stale, lost = [], []
    for table, names in named.items():
        own = manifest.state.files.get(table, {}).keys()
        others = set(names) - own  # Delta's own merges, of which the manifest knows nothing
        there = {one.name for one in manifest.store.names(table)} if others else set()
        if others - there:
            stale.append(f"{table}/_delta_log")
            lost += sorted(own - there)
    if not stale:
        return
    logs = ", ".join(stale)
    what = (
        f"some rows were in them alone, because {lost[0]}, which had these before, is gone too. Restore what the logs "
        "name from older versions of the objects; where there are none they are lost: give the job another warehouse"
        if lost
        else f"their rows are in plain files now. Move the objects below {logs} elsewhere: then the logs begin anew, "
        "with all rows, under `format: delta`"
    )
    raise WrongOption(
        f"the tables of {manifest.store.url} were Delta's until `compact` ran with `format: parquet`: files that "
        f"{logs} names are gone, and {what}"
    )


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
