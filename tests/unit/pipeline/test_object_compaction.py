"""What `compact` does to tables of Delta on an S3 server: what nobody needs goes, and the manifest follows the log."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from s3_server import BUCKET, Proxy, s3_found

from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables import object_compaction
from gateway.pipeline.jobs.tables.compaction import compact
from gateway.pipeline.jobs.tables.leftovers import shown_age
from gateway.pipeline.jobs.tables.object_compaction import remove_leftovers
from gateway.pipeline.land.object_delta import ObjectDelta, delta_options
from gateway.pipeline.land.object_landing import ObjectBatch, ObjectLanding, WrittenFile
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import ObjectStore

for module in ("obstore", "moto", "deltalake"):
    pytest.importorskip(module, reason=f"{module} is not installed: tests/run installs it")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]
JOB = """
version: 1
name: plant
source: {{queue: Q, path: x}}
warehouse: s3://{bucket}/{prefix}
format: delta
gold: [{{table: devices, kind: dead_letters}}]
"""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with s3_found(monkeypatch) as server:
        yield server


def make_job(prefix: str) -> Job:
    return parse_job("job.yaml", JOB.format(bucket=BUCKET, prefix=prefix.replace("_", "-")))


def parquet(seqs: list[int]) -> bytes:
    import pyarrow.parquet as pq

    target = io.BytesIO()
    pq.write_table(pa.table({"seq": seqs}), target)
    return target.getvalue()


def staged(landing: ObjectLanding, number: int) -> ObjectBatch:
    """A batch of ten rows whose file is there; nothing is committed."""
    batch = landing.begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    data = parquet(list(range(10 * number, 10 * number + 10)))
    landing.store.put(f"bronze/{number}.parquet", data)
    batch.add("bronze", [WrittenFile(f"{number}.parquet", 10, len(data))])
    return batch


def test_what_a_replaced_table_of_delta_held_goes_after_a_week(
    proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that grows the log alone says what may go."""
    import deltalake

    job = make_job(request.node.name)
    store = ObjectStore(job.warehouse, job.storage.settings)
    landing = ObjectLanding(store, job.name, ObjectDelta(store, job.name, job.replaced_tables))
    landing.replaced |= job.replaced_tables
    for number in range(3):
        batch = staged(landing, number)
        store.put(f"devices/{number}.parquet", parquet([number]))
        batch.add("devices", [WrittenFile(f"{number}.parquet", 1, len(parquet([number])))])
        batch.land()
    compact(job)
    assert shown_age(job) == "1d (in tables that each batch replaces 1w)"
    clock = time.time
    for days, removed in ((6, (0, 2)), (8, (2, 0)), (9, (0, 0))):
        monkeypatch.setattr(time, "time", lambda later=86400.0 * days: clock() + later)
        monkeypatch.setattr(object_compaction, "_store_clock", lambda _: time.time())
        assert remove_leftovers(job) == removed
    assert not {"devices/0.parquet", "devices/1.parquet"} & ObjectManifest(store).state.retired.keys()
    for table, rows in (("devices", [2]), ("bronze", list(range(30)))):
        found = deltalake.DeltaTable(f"{job.warehouse}/{table}", storage_options=delta_options(store.settings))
        assert sorted(found.to_pyarrow_table()["seq"].to_pylist()) == rows


def test_the_manifest_names_what_delta_has_merged(
    proxy: Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not every file that ever landed; nor gives it up what the log has not come to."""
    import deltalake

    job = make_job(request.node.name)
    store = ObjectStore(job.warehouse, job.storage.settings)

    def landing() -> ObjectLanding:
        return ObjectLanding(store, job.name, ObjectDelta(store, job.name, set()))

    def in_log() -> Any:
        return deltalake.DeltaTable(f"{job.warehouse}/bronze", storage_options=delta_options(store.settings))

    driver = landing()
    for number in range(4):
        staged(driver, number).land()
    dying = landing()
    batch = staged(dying, 4)
    dying.after_commit = None
    batch.land()
    assert compact(job) == {"bronze": 4}
    manifest = ObjectManifest(store)
    assert len(manifest.files("bronze")) == 2
    assert "bronze/4.parquet" in manifest.files("bronze")
    assert sum(len(store.get(name) or b"") for name in manifest.files("bronze")) == sum(
        size for size, _ in manifest.state.files["bronze"].values()
    )
    staged(landing(), 5).land()
    staged(driver := landing(), 6).land()
    compact(job)
    assert len(ObjectManifest(store).files("bronze")) == 1
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 8 * 86400.0)
    staged(driver, 7).land()
    compact(job)
    manifest = ObjectManifest(store)
    assert sorted(in_log().to_pyarrow_table()["seq"].to_pylist()) == list(range(80))
    assert {f"{store.url}/{name}" for name in manifest.files("bronze")} == set(in_log().file_uris())
    assert not {f"bronze/{number}.parquet" for number in range(7)} & manifest.state.retired.keys()
    store.delete([one.name for one in store.names("bronze/_delta_log")])
    staged(landing(), 8).land()
    assert sorted(in_log().to_pyarrow_table()["seq"].to_pylist()) == list(range(90))
