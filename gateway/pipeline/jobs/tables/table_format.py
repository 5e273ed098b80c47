"""The format in which a warehouse's tables have landed, by what lies there, and whether a job may go on with its own.

Plain files may become tables of Delta: the first version of the log names all that the manifest does. No other change
is possible. Delta's merges are known to its log alone, so that plain files would show rows twice, and a manifest of
plain files in a folder knows nothing of that of objects: the tables of one are left-overs to the other.
"""

from __future__ import annotations

from pathlib import Path

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.landing import STATE
from gateway.pipeline.land.manifest import FOLDER, Manifest, is_there
from gateway.pipeline.land.object_delta import check_logs, has_log, names_in_log
from gateway.pipeline.land.object_manifest import LOG, ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, open_store
from gateway.pipeline.source.places import is_object_place

BECOMES = {"parquet": "delta"}


def check_format(job: Job, *, removes: bool = False) -> None:
    """Raise WrongOption if tables have landed in a format that the job's cannot follow. If an earlier release let both
    land side by side, the job goes on, and only what `removes` files is refused."""
    found = landed_formats(job)
    if "delta" in found and not job.on_objects:
        _check_logs(job)
    elif "delta" in found and not removes:  # `compact` opens the logs anyway, and looks itself
        _check_object_logs(job)
    others = sorted(one for one in found if one != job.format and BECOMES.get(one) != job.format)
    if not others or (job.format in found and not removes):
        return
    if job.format in found:
        raise WrongOption(
            f"the tables of {job.warehouse} have landed as {' and as '.join((*others, job.format))}: those of "
            f"{others[0]} would be taken for left-overs. Move them, and what `{FOLDER}` has of them, to another folder"
        )
    raise WrongOption(
        f"the tables of {job.warehouse} have landed as {others[0]}, and as {job.format} rows would be lost or there "
        f"twice: write `format: {others[0]}`. When `mqgate pipeline run --once` has ended so, the job may have another "
        "warehouse, and goes on there"
    )


def _check_logs(job: Job) -> None:
    """Raise WrongOption if Delta logs name batches that the manifest has given up since: before that was refused, the
    job was changed to plain Parquet, and its `compact` has merged or removed them. Neither format can go on from
    there."""
    folder = Path(job.warehouse)
    stale = [f"{table}/_delta_log" for table in job.growing_tables if _in_log(folder, table) - _landed(folder, table)]
    if stale:
        raise WrongOption(
            f"the tables of {folder} were Delta's until `compact` ran with `format: parquet`: the files that their "
            "logs name are gone, and their rows are in plain files now, those twice that `compact` had merged as Delta "
            f"(they have the same `seq`). Move {', '.join(stale)} out of the warehouse: then the job goes on as "
            "parquet, and as delta with logs that begin anew"
        )


def _check_object_logs(job: Job) -> None:
    try:
        store = open_store(job.place, job.storage.settings)
        named = {table: names_in_log(store, table) for table in job.growing_tables}
    except ImportError:  # as in a folder
        return
    check_logs(ObjectManifest(store), named)


def _in_log(folder: Path, table: str) -> set[str]:
    """The batches of which a table's log has files."""
    try:
        from deltalake import DeltaTable
    except ImportError:  # a job of Delta is told so, and any other one is told to become one
        return set()
    root = str(folder / table)
    if not DeltaTable.is_deltatable(root):
        return set()
    return {f"{table}/batch={values['batch']}" for values in DeltaTable(root).partitions() if "batch" in values}


def _landed(folder: Path, table: str) -> set[str]:
    """The batches that have landed; asked for after the log, to which a run may have added meanwhile."""
    return Manifest(folder).folders.get(table, set())


def landed_formats(job: Job) -> set[str]:
    """The formats that have left their marks: one, or none before the first batch."""
    if is_object_place(job.warehouse):
        return _on_objects(open_store(job.place, job.storage.settings))
    folder = Path(job.warehouse)
    found = {_plain(folder)} if is_there(folder) else set()
    return found | ({"iceberg"} if any((folder / LOG).glob("*.json")) else set())


def _plain(folder: Path) -> str:
    """The format of the job's own tables; others may lie beside them."""
    return "delta" if any((folder / table / "_delta_log").exists() for table in Manifest(folder).folders) else "parquet"


def _on_objects(store: ObjectStore) -> set[str]:
    """The formats on object storage. If an earlier release has not recorded it, the first entry alone tells none yet: a
    driver that dies behind it has made no tables of any format."""
    manifest = ObjectManifest(store)
    tables = [name for name in manifest.state.files if not name.startswith(f"{STATE}/")]
    found = {"delta"} if any(has_log(store, name) for name in tables) else set()
    found |= {"iceberg"} if any(store.has(f"{name}/metadata") for name in tables) else set()
    said = manifest.said_format() or ("parquet" if manifest.state.number > 1 else "")
    return found or ({said} if tables and said else set())
