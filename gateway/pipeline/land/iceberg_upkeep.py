"""Expires snapshots of Iceberg tables and removes what only they named in the table's metadata. Data files are given up
by the manifest of the warehouse and removed as its left-overs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.pipeline.land.iceberg import IcebergTables
from gateway.pipeline.land.iceberg_catalog import sentences


def expire_snapshots(tables: IcebergTables, table: str, grace: float) -> int:
    """Expire the snapshots of a table that are older than `grace` seconds; how many. The current one stays."""
    found = tables.load(table)
    if found is None:
        return 0
    until = datetime.now(UTC) - timedelta(seconds=grace)
    before = len(found.snapshots())
    with sentences(tables.settings):
        if any(datetime.fromtimestamp(one.timestamp_ms / 1000, UTC) < until for one in found.snapshots()):
            found.maintenance.expire_snapshots().older_than(until).commit()
            found = tables.load(table)
        _remove_unnamed(tables, table, found, until)
    return before - len(found.snapshots())


def _remove_unnamed(tables: IcebergTables, table: str, found: Any, until: datetime) -> None:
    """Remove lists and manifests that no snapshot names and no commit that is on its way may name."""
    root = f"{tables.store.url}/"
    named = {found.metadata_location, *(one.metadata_file for one in found.metadata.metadata_log)}
    for snapshot in found.snapshots():
        named |= {snapshot.manifest_list, *(one.manifest_path for one in snapshot.manifests(found.io))}
    kept = {name.removeprefix(root) for name in named}
    listed = tables.store.names(f"{table}/metadata")
    tables.store.delete([one.name for one in listed if one.name not in kept and one.modified < until])
