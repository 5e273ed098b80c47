"""Tables of Iceberg over the files that have landed. The manifest is the truth and a table's snapshots follow it, each
under the number of the manifest's entry that it has come to: in the snapshot's properties, for readers, and in the
table's, which survive when snapshots expire. Whoever is to add something looks there first, and again after an answer
that was lost or a commit that was stale: pyiceberg's own repetitions, which would add the same files once more, are
turned off.

Files are named and described, never read by the driver beyond their footers, and never written a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.pipeline.errors import PipelineError, StoreUnreachable, TableDiffers
from gateway.pipeline.land.iceberg_catalog import CatalogSettings, open_catalog, sentences
from gateway.pipeline.land.iceberg_files import Footer, data_file, day_column, footer_of, table_schema
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.object_manifest import Entry, ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, summary

TRIES = 5
ENTRY = "mqgate.entry"
"""The property with the number of the manifest's entry that a snapshot, or a table, has come to."""
PROPERTIES = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a table."""

    number: int
    added: dict[str, int]
    """Names of files, relative to the warehouse, and their bytes."""
    removed: tuple[Any, ...] = ()
    """What the table's snapshot says of the files that go."""


class IcebergTables:
    """The tables of a warehouse; `ObjectLanding` calls it before the first batch and after each commit."""

    format = "iceberg"

    def __init__(self, store: ObjectStore, catalog: CatalogSettings, replaced: set[str]) -> None:
        self.store = store
        self.settings = catalog
        self.replaced = replaced
        self.catalog = open_catalog(catalog, store)
        self._tables: dict[str, Any] = {}
        self._fitting: dict[str, Any] = {}
        """Schemas that were found to fit their table."""
        self._at: int | None = None
        """The entry that all tables have come to; None until they were compared with the manifest."""

    def __call__(self, manifest: ObjectManifest) -> None:
        """Bring all tables up to the manifest."""
        entries = [] if self._at is None else manifest.entries(self._at)
        in_step = self._at is not None and (not entries or entries[0]["number"] == self._at + 1)
        for table in self.names(manifest):
            if not in_step or self._is_rewritten(table, entries):
                self._compare(manifest, table)
            else:
                self._append(table, entries)
        self._at = manifest.state.number

    def names(self, manifest: ObjectManifest) -> list[str]:
        """The tables: all but the state of the job."""
        return [table for table in manifest.state.files if not table.startswith(f"{STATE}/")]

    def check(self, table: str, name: str, size: int) -> None:
        """TableDiffers where a batch's file does not fit its table. Asked before the batch is committed."""
        footer = footer_of(self.store, name, size)
        if self._fitting.get(table) == footer.schema:
            return
        self.compare(table, footer.schema)
        self._fitting[table] = footer.schema

    def compare(self, table: str, columns: Any) -> None:
        """TableDiffers where columns, as Arrow has them, have a type that the table's do not become."""
        found = self.load(table)
        if found is not None:
            self._widen(found.transaction(), table, [columns])  # which is never committed

    # ---- what is to be done

    def _is_rewritten(self, table: str, entries: list[Entry]) -> bool:
        """Whether files of the table went, too."""
        return table in self.replaced or any(one["kind"] == "merge" and one["table"] == table for one in entries)

    def _append(self, table: str, entries: list[Entry]) -> None:
        def change(found: Any) -> Change | None:
            done = come_to(found)
            added: dict[str, int] = {}
            number = done
            for entry in entries:
                landed = entry["record"]["tables"].get(table) if entry["kind"] == "batch" else None
                if entry["number"] > done and landed is not None:
                    number = entry["number"]
                    added |= {f"{table}/{name}": size for name, size in landed["files"]}
            return Change(number, added) if added else None

        self._commit(table, change)

    def _compare(self, manifest: ObjectManifest, table: str) -> None:
        number, files = manifest.state.number, manifest.state.files[table]
        wanted = {name: size for name, (size, _) in files.items()}

        def change(found: Any) -> Change | None:
            if found is not None and come_to(found) >= number:
                return None
            there = self.files(found)
            added = {name: size for name, size in wanted.items() if name not in there}
            removed = [about for name, about in there.items() if name not in wanted]
            return Change(number, added, tuple(removed)) if added or removed else None

        self._commit(table, change)

    def files(self, found: Any) -> dict[str, Any]:
        """The files of a table's current snapshot, by name."""
        if found is None or found.current_snapshot() is None:
            return {}
        with sentences(self.settings):
            tasks = list(found.scan().plan_files())
        return {task.file.file_path.removeprefix(f"{self.store.url}/"): task.file for task in tasks}

    # ---- doing it

    def load(self, table: str) -> Any:
        """The table as the catalog has it; None where it has none."""
        from pyiceberg.exceptions import NoSuchTableError

        with sentences(self.settings):
            try:
                return self.catalog.load_table((self.settings.namespace, table))
            except NoSuchTableError:
                return None

    def _commit(self, table: str, change: Any) -> None:
        """Do what `change` says of the table as it is; whatever is answered, the table says whether it was done."""
        for tried in range(1, TRIES + 1):
            found = self._tables.pop(table, None) or self.load(table)
            wanted = change(found)
            if wanted is None:
                break
            try:
                done = self._write(table, found, wanted)
                found = done if found is not None else None  # what has just been made cannot be read: it is loaded anew
                break
            except PipelineError:
                raise
            except Exception as error:
                if tried == TRIES:
                    raise StoreUnreachable(f"{self.store.url}/{table}: no Iceberg commit: {summary(error)}") from error
        if found is not None:
            self._tables[table] = found

    def _write(self, table: str, found: Any, change: Change) -> Any:
        footers = [footer_of(self.store, name, size) for name, size in change.added.items()]
        come = {ENTRY: str(change.number)}
        if found is None:
            doing = self.catalog.create_table_transaction(
                (self.settings.namespace, table), table_schema(footers), location=f"{self.store.url}/{table}",
                properties=PROPERTIES,
            )  # fmt: skip
            self._partition(doing, table, footers[0])
        else:
            doing = found.transaction()
            self._widen(doing, table, [footer.schema for footer in footers])
        mapping = doing.table_metadata.schema().name_mapping.model_dump_json()
        doing.set_properties({**come, "schema.name-mapping.default": mapping})
        files = [data_file(footer, self.store.url, doing.table_metadata) for footer in footers]
        update = doing.update_snapshot(snapshot_properties=come)
        with update.overwrite() if change.removed else update.merge_append() as snapshot:
            for one in change.removed:
                snapshot.delete_data_file(one)
            for one in files:
                snapshot.append_data_file(one)
        return doing.commit_transaction()

    def _partition(self, doing: Any, table: str, footer: Footer) -> None:
        """Hidden partitions: by the day of a column, and rows in quarantine apart. Replaced tables are small."""
        from pyiceberg.transforms import DayTransform, IdentityTransform

        day = "" if table in self.replaced else day_column(footer.schema)
        with doing.update_spec() as spec:
            if day and "status" in footer.schema.names:
                spec.add_field("status", IdentityTransform(), "status")
            if day:
                spec.add_field(day, DayTransform(), f"{day}_day")

    def _widen(self, doing: Any, table: str, schemas: list[Any]) -> None:
        """Columns that the table does not have yet become columns of the table."""
        from pyiceberg.exceptions import ValidationError

        for schema in dict.fromkeys(schemas):
            try:
                with doing.update_schema() as update:
                    update.union_by_name(schema)
            except (ValidationError, ValueError, TypeError) as error:
                raise TableDiffers(
                    f"rows of this job do not fit {self.settings.namespace}.{table}: {summary(error)}: give the column "
                    "that has changed its type another name, or the rows another table"
                ) from error


def come_to(found: Any) -> int:
    """The manifest's entry that a table has come to, by its properties and those of its snapshots."""
    if found is None:
        return 0
    named = [found.properties.get(ENTRY)]
    named += [one.summary.additional_properties.get(ENTRY) for one in found.snapshots() if one.summary is not None]
    return max((int(number) for number in named if number), default=0)
