"""Merging, expiring and removing files of tables on object storage, also while the job runs. Each step is an entry of
the manifest, so that what a driver commits meanwhile and what is done here cannot contradict one another.

A merged file is put first and named afterwards, in the entry that gives up the small ones. Those stay for
`retention.leftovers`, for readers that were told their names; and so does every file that no entry names, as it may
belong to a batch that is under way. A removal is entered before it is done: a batch that names such a file is refused
from then on.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Container, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from gateway.pipeline.errors import Overtaken
from gateway.pipeline.jobs.job import Job, Retention
from gateway.pipeline.jobs.tables.merging import Part, alike, due, lots_of, write_merged
from gateway.pipeline.land.iceberg import IcebergTables
from gateway.pipeline.land.iceberg_upkeep import expire_snapshots
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.object_delta import check_logs, delta_options, has_log
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import PROBES, ObjectStore, open_store

CLOCK = f"{PROBES}-clock"
BESIDE = ("/_delta_log/", "/metadata/")
"""What Delta and Iceberg keep beside the files of a table."""
VACUUM_HOURS = 168
"""Delta's readers may hold what the log no longer names for a week, which is Delta's own rule."""


def compact_objects(job: Job) -> dict[str, int]:
    """Merge the small files of all tables; returns how many were merged, by table."""
    store = open_store(job.place, job.storage.settings)
    if job.format == "delta":
        return _compact_delta(store, job)
    manifest = ObjectManifest(store)
    done: dict[str, int] = {}
    for table in job.growing_tables:
        lots = due(small_files(manifest, table, job.retention), job.retention)
        done[table] = sum(_merge(manifest, table, names) for names in lots)
    return {table: count for table, count in done.items() if count}


def small_files(manifest: ObjectManifest, table: str, retention: Retention) -> list[list[Part]]:
    """The files to merge, in lots that belong to one partition each."""
    parts: dict[str, list[Part]] = {}
    files = manifest.state.files.get(table, {})
    for name, (size, landed) in sorted(files.items(), key=lambda each: each[1][1]):
        if name not in manifest.state.left_out:
            parts.setdefault(_folder(name), []).append(Part(name, size, landed))
    return [lot for found in parts.values() for lot in lots_of(found, retention, table)]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _merge(manifest: ObjectManifest, table: str, names: list[str]) -> int:
    """Merge those of the files that can become one; returns how many they are. The others are left out from now on."""
    sizes = manifest.state.files[table]
    schemas = [_schema_of(manifest.store, name, sizes[name][0]) for name in names]
    fits = alike(schemas)
    left_out = [name for name, fit in zip(names, fits, strict=True) if not fit]
    old, new = list(compress(names, fits)), []
    if len(old) == 1:
        old = []
    else:
        new = [_put_merged(manifest.store, _folder(old[0]), old, list(compress(schemas, fits)))]

    def allowed() -> None:
        if not {*old, *left_out} <= manifest.state.files[table].keys():
            raise Overtaken(f"files of {table!r} were merged or given up by another command: run this one again")

    if old or left_out:
        manifest.commit("merge", {"table": table, "old": old, "new": new, "left_out": left_out}, allowed)
    return len(old)


def _schema_of(store: ObjectStore, name: str, size: int) -> Any:
    import pyarrow.parquet as pq

    with store.reader(name, size) as source:
        return pq.read_schema(source)


def _put_merged(store: ObjectStore, folder: str, names: list[str], schemas: list[Any]) -> tuple[str, int]:
    """Put the rows of some files as one file; returns its name and size. Only one of the files at a time is on this
    host."""
    new = f"{folder}/merged-{secrets.token_hex(8)}.parquet"
    with tempfile.TemporaryDirectory(prefix="mqgate-") as local:
        piece, target = Path(local) / "piece.parquet", Path(local) / "merged.parquet"

        def pieces() -> Iterator[Path]:
            for name in names:
                store.download(name, piece)
                yield piece

        write_merged(pieces(), schemas, target)
        store.upload(new, target)
        return new, target.stat().st_size


def keep_iceberg(job: Job) -> int:
    """Bring tables of Iceberg up to date with the merges, and expire snapshots that nobody may hold any more; returns
    how many."""
    if job.catalog is None:
        return 0
    store = open_store(job.place, job.storage.settings)
    manifest = ObjectManifest(store)
    tables = IcebergTables(store, job.catalog.settings, job.replaced_tables)
    tables(manifest)
    return sum(expire_snapshots(tables, table, job.retention.leftovers) for table in tables.names(manifest))


def expire_objects(job: Job, now: float | None = None) -> dict[str, int]:
    """Give up files older than their table's retention; returns how many, by table."""
    now = time.time() if now is None else now
    store = open_store(job.place, job.storage.settings)
    manifest = ObjectManifest(store)
    done: dict[str, int] = {}
    for table, age in job.retention.keep.items():
        files = manifest.state.files.get(table, {})
        old = [name for name, (_, landed) in files.items() if landed < now - age]
        if not old or table.startswith(STATE) or job.format == "delta":
            continue

        def allowed(table: str = table, old: list[str] = old) -> None:
            if not set(old) <= manifest.state.files[table].keys():
                raise Overtaken(f"files of {table!r} were merged or given up by another command: run this one again")

        manifest.commit("merge", {"table": table, "old": old, "new": []}, allowed)
        done[table] = len(old)
    return done


class Leftovers(NamedTuple):
    """How many files that nothing names were removed, and how many were not."""

    removed: int
    younger: int
    """Files that stay for now: they may belong to a batch that is under way, or a reader may hold them."""


def remove_leftovers(job: Job) -> Leftovers:
    """Remove the files that nothing names and nobody may hold any more."""
    store = open_store(job.place, job.storage.settings)
    manifest = ObjectManifest(store)
    now, here = _store_clock(store), time.time()
    listed = [
        (one, age)
        for table, age in _ages(job).items()
        for one in store.names(table)
        if not any(each in one.name for each in BESIDE)
    ]

    def unnamed() -> dict[str, bool]:
        """Those that nothing names as the manifest is now, and whether they may go."""
        live = {name for files in manifest.state.files.values() for name in files}
        retired = manifest.state.retired
        return {
            one.name: one.modified.timestamp() + age <= now and retired.get(one.name, 0.0) + age <= here
            for one, age in listed
            if one.name not in live
        }

    manifest.refresh()
    found = unnamed()
    names = [name for name, may_go in found.items() if may_go]
    if names:

        def allowed() -> None:
            still = unnamed()
            if not all(still.get(name) for name in names):
                raise Overtaken("a batch was landed that names what was to be removed: run this command again")

        manifest.commit("remove", {"names": names}, allowed)
        store.delete(names)
    manifest.trim()
    return Leftovers(len(names), len(found) - len(names))


def _ages(job: Job) -> dict[str, float]:
    """The age from which files that nothing names may go, by table, the state included. For a Delta table that grows
    only the log tells which these are; for one that each batch replaces it names the same files as the manifest."""
    age = job.retention.leftovers
    if job.format == "delta":
        return dict.fromkeys(job.replaced_tables, vacuum_hours(job) * 3600.0) | {STATE: age}
    return dict.fromkeys([*job.growing_tables, *job.replaced_tables, STATE], age)


def _store_clock(store: ObjectStore) -> float:
    """The time by the store's clock, which also dates its objects."""
    store.put(CLOCK, b"")
    return max((one.modified.timestamp() for one in store.names("_manifest") if one.name == CLOCK), default=time.time())


def vacuum_hours(job: Job) -> int:
    """How many hours files stay that a Delta log no longer names."""
    return max(VACUUM_HOURS, round(job.retention.leftovers / 3600))


def _compact_delta(store: ObjectStore, job: Job) -> dict[str, int]:
    """Merge with Delta's own `optimize`, and `vacuum` what its log no longer names."""
    from deltalake import DeltaTable

    done: dict[str, int] = {}
    options, manifest = delta_options(store.settings), ObjectManifest(store)
    for table in job.growing_tables:
        root = f"{store.url}/{table}"
        if has_log(store, table):
            found = DeltaTable(root, storage_options=options)
            check_logs(manifest, {table: [uri.removeprefix(f"{store.url}/") for uri in found.file_uris()]})
            done[table] = int(found.optimize.compact()["numFilesRemoved"])
            found.vacuum(vacuum_hours(job), dry_run=False, full=True)
            found.update_incremental()
            _follow_log(manifest, table, found, job)
    return {table: count for table, count in done.items() if count}


def _follow_log(manifest: ObjectManifest, table: str, found: Any, job: Job) -> None:
    """Have the manifest name the same files as the log, or it would name every file that ever landed: files that Delta
    has merged are given up for those that have their rows. Files that the log has not reached yet stay."""
    come_to = found.transaction_version(f"mqgate/{job.name}")
    if come_to is None:  # the job has got another name and has landed nothing since
        return
    listed = found.get_add_actions()
    names = (f"{table}/{path}" for path in listed.column("path").to_pylist())
    in_log = dict(zip(names, listed.column("size_bytes").to_pylist(), strict=True))
    manifest.refresh()  # after the log, which follows it
    old = manifest.state.files.get(table, {}).keys() - in_log.keys()
    if old:
        landed = [record.tables[table] for _, record in manifest.numbered(come_to) if table in record.tables]
        old -= {f"{table}/{name}" for each in landed for name, _ in each.files}
    new = [(name, size) for name, size in in_log.items() if name not in manifest.state.files.get(table, {})]

    def allowed() -> None:
        if not old <= manifest.state.files[table].keys():
            raise Overtaken(f"files of {table!r} were merged by another command: run this one again")

    if old:
        manifest.commit("merge", {"table": table, "old": sorted(old), "new": new}, allowed)
    _forget_vacuumed(manifest, table, in_log, time.time() - vacuum_hours(job) * 3600)


def _forget_vacuumed(manifest: ObjectManifest, table: str, in_log: Container[str], until: float) -> None:
    """Give up the names of files that were merged so long ago that `vacuum` has removed them."""
    retired = manifest.state.retired.items()
    names = [name for name, since in retired if name.startswith(f"{table}/") and since <= until and name not in in_log]
    if names:
        manifest.commit("remove", {"names": names}, lambda: None)
        manifest.store.delete(names)
