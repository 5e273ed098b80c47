"""Tables of Iceberg follow the manifest: once whatever a catalog answers, with new columns, by day, and kept small."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from long_form import in_long_form
from rest_catalog import RestCatalog, rest_catalog
from s3_server import BUCKET, Fault, Proxy, lead_to, s3_server

from gateway.errors import ConfigurationError
from gateway.pipeline.errors import CatalogMissing, StoreUnreachable, TableDiffers, WrongOption
from gateway.pipeline.jobs.job import Job, parse_job, read_job
from gateway.pipeline.jobs.tables.compaction import compact, expire
from gateway.pipeline.jobs.tables.followers import follower_of
from gateway.pipeline.jobs.tables.object_compaction import keep_iceberg, remove_leftovers
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land.iceberg import IcebergTables
from gateway.pipeline.land.object_landing import ObjectBatch, ObjectLanding, WrittenFile
from gateway.pipeline.land.object_manifest import LOG
from gateway.pipeline.land.objects import open_store

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
pytest.importorskip("moto", reason="moto is not installed: pip install '.[test]'")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]
JOB = """
version: 1
name: plant
source: {{queue: Q, path: x}}
warehouse: {warehouse}
storage: {{timeout: 10s, patience: 5s}}
format: iceberg
catalog: {{type: {type}, uri: "{uri}"}}
retention: {{compact_files: 2, leftovers: {leftovers}, keep: {{bronze: 30d}}}}
"""
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install '.[lake]'")
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def proxy(server: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    lead_to(server, monkeypatch)
    server.faults.clear()
    yield server
    assert server.unspent() == [], "a fault that met no request"


def job_in(folder: Path, **other: str) -> Job:
    given = {"warehouse": f"{folder}/lake", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "leftovers": "1d"}
    return parse_job("job.yaml", JOB.format(**given | other))


def on_s3(folder: Path) -> Job:
    return job_in(folder, warehouse=f"s3://{BUCKET}/{folder.name}")


def landing_of(job: Job) -> ObjectLanding:
    store = open_store(job.place, job.storage.settings)
    landing = ObjectLanding(store, job.name, follower_of(job, store))
    landing.replaced |= {"devices"}
    tables_of(landing).replaced.add("devices")
    return landing


def tables_of(landing: ObjectLanding) -> IcebergTables:
    assert isinstance(landing.after_commit, IcebergTables)
    return landing.after_commit


def staged(landing: ObjectLanding, number: int, days: int = 0, table: str = "bronze", **more: Any) -> ObjectBatch:
    """A batch of ten rows, put on one day, whose file is there; nothing is committed."""
    import pyarrow.parquet as pq

    batch = landing.begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    when = pa.array([NOON + timedelta(days=days)] * 10, pa.timestamp("us", "UTC"))
    columns = {"seq": list(range(10 * number, 10 * number + 10)), "put_ts": when, "status": ["ok"] * 10}
    target = io.BytesIO()
    pq.write_table(pa.table(columns | more), target, store_schema=False)
    name = f"day{days}/{number}.parquet"
    landing.store.put(f"{table}/{name}", target.getvalue())
    batch.add(table, [WrittenFile(name, 10, len(target.getvalue()))])
    return batch


def table(job: Job, name: str = "bronze") -> Any:
    """As somebody else's program finds it, with pyarrow's file systems."""
    from pyiceberg.catalog import load_catalog

    assert job.catalog is not None
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    own = {"s3.endpoint": endpoint, "s3.region": "us-east-1"} if job.place.startswith("s3:") else {}
    return load_catalog("mqgate", type=job.catalog.type, uri=job.catalog.uri, **own).load_table(("lake", name))


def seqs(job: Job, name: str = "bronze") -> list[int]:
    return sorted(table(job, name).scan().to_arrow()["seq"].to_pylist())


def test_batches_once_by_day_with_a_column_more(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    landing = landing_of(job)
    for number in range(3):
        staged(landing, number, days=number % 2).land()
    staged(landing, 3, temperature=[21.5] * 10).land()
    found = table(job)
    assert seqs(job) == list(range(40))
    assert [one.name for one in found.spec().fields] == ["status", "put_ts_day"]
    assert found.scan().to_arrow()["temperature"].null_count == 30
    tomorrow = found.scan(row_filter="put_ts >= '2026-11-24T00:00:00+00:00'")
    assert [task.file.file_path for task in tomorrow.plan_files()] == [f"file://{tmp_path}/lake/bronze/day1/1.parquet"]
    numbers = [one.summary.additional_properties["mqgate.entry"] for one in found.snapshots()]
    assert numbers == ["1", "2", "3", "4"]
    again = landing_of(job)
    assert again.begin("q", 0, [("s", 0, 40)]) is None
    assert len(table(job).snapshots()) == 4


@pytest.mark.parametrize("does", ["answer lost", "503", *in_long_form("500")])
def test_on_object_storage_whose_requests_fail(proxy: Proxy, tmp_path: Path, does: str) -> None:
    job = on_s3(tmp_path)
    warehouse_of(job).check()
    landing = landing_of(job)
    staged(landing, 0).land()
    proxy.faults += [Fault("PUT", "/metadata/", does, times=2), Fault("GET", "/metadata/", does)]
    staged(landing, 1).land()
    staged(landing_of(job), 2).land()
    assert seqs(job) == list(range(30))
    assert [path for path in warehouse_of(job).files("bronze") if not path.startswith("s3://")] == []


def test_a_driver_that_died_between_the_commits(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    first = landing_of(job)
    staged(first, 0).land()
    for number in (1, 2):
        batch = staged(first, number)
        first.after_commit = None
        batch.land()
    staged(landing_of(job), 3).land()
    assert seqs(job) == list(range(40))


def test_a_driver_that_died_before_its_tables_were_made(proxy: Proxy, tmp_path: Path) -> None:
    """On object storage nothing but its first entry is there, and that of an earlier release is one of any format."""
    job = on_s3(tmp_path)
    first = landing_of(job)
    batch = staged(first, 0)
    first.after_commit = None
    batch.land()
    (entry,) = first.store.names(f"{LOG}/")
    said = json.loads(first.store.get(entry.name) or b"")
    del said["format"]
    first.store.put(entry.name, json.dumps(said).encode())
    check_format(job)
    staged(landing_of(job), 1).land()
    check_format(job)
    assert seqs(job) == list(range(20))


def test_two_drivers_follow_the_same_entry(tmp_path: Path) -> None:
    """The other's snapshot comes between this one's look at the table and its commit, which is then stale."""
    job = job_in(tmp_path)
    one, other = landing_of(job), landing_of(job)
    staged(one, 0).land()
    other.restart()
    assert other.begin("q", 0, [("s", 0, 10)]) is None
    tables = tables_of(one)
    write = tables._write

    def after_the_other(*args: Any) -> Any:
        tables._write = write  # type: ignore[method-assign]
        other.manifest.refresh()
        tables_of(other)(other.manifest)
        return write(*args)

    tables._write = after_the_other  # type: ignore[method-assign]
    staged(one, 1).land()
    assert seqs(job) == list(range(20))
    assert len(table(job).snapshots()) == 2


def test_a_replaced_table_has_its_last_rows(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    landing = landing_of(job)
    for number in range(3):
        staged(landing, number, table="devices").land()
    assert seqs(job, "devices") == list(range(20, 30))
    assert list(table(job, "devices").spec().fields) == []


def test_a_column_of_another_type_is_refused_before_the_commit(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    staged(landing_of(job), 0, temperature=[21.5] * 10).land()
    changed = landing_of(job)
    with pytest.raises(TableDiffers, match=r"do not fit lake.bronze: .*temperature.*give the column"):
        staged(changed, 1, temperature=["warm"] * 10).land()
    assert changed.manifest.state.number == 1
    staged(landing_of(job), 1).land()
    assert seqs(job) == list(range(20))


def test_a_table_of_another_warehouse_is_refused(tmp_path: Path) -> None:
    staged(landing_of(job_in(tmp_path)), 0).land()
    moved = job_in(tmp_path, warehouse=f"{tmp_path}/other")
    with pytest.raises(WrongOption, match=r"give the job a `catalog.namespace` of its own"):
        staged(landing_of(moved), 0).land()


def test_files_are_merged_snapshots_expired_and_nothing_else(tmp_path: Path) -> None:
    job, at_once = job_in(tmp_path), job_in(tmp_path, leftovers="0s")
    landing = landing_of(job)
    for number in range(6):
        staged(landing, number, days=number % 2).land()
    on_its_way = staged(landing, 6)
    before = table(job)
    assert compact(job) == {"bronze": 6}
    assert keep_iceberg(job) == 0
    on_its_way.land()
    assert (seqs(job), len(list(table(job).scan().plan_files()))) == (list(range(70)), 3)
    assert before.scan().to_arrow().num_rows == 60, "a reader may hold the snapshot before"
    assert remove_leftovers(job).removed == 0
    assert keep_iceberg(at_once) == 7
    assert remove_leftovers(at_once).removed == 6
    metadata = list((tmp_path / "lake/bronze/metadata").glob("snap-*"))
    assert (seqs(job), len(table(job).snapshots()), len(metadata)) == (list(range(70)), 1, 1)
    staged(landing_of(job), 7).land()
    assert seqs(job) == list(range(80))


def test_a_merge_whose_command_died_is_followed_by_the_next_batch(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    landing = landing_of(job)
    for number in range(3):
        staged(landing, number).land()
    assert compact(job) == {"bronze": 3}
    staged(landing, 3).land()
    assert (seqs(job), len(list(table(job).scan().plan_files()))) == (list(range(40)), 2)


def test_old_rows_are_given_up(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    staged(landing_of(job), 0).land()
    assert expire(job, now=2**32) == {"bronze": 1}
    keep_iceberg(job)
    assert seqs(job) == []


def test_a_catalog_that_was_lost_is_written_anew(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    landing = landing_of(job)
    staged(landing, 0).land()
    staged(landing, 1, temperature=[21.5] * 10).land()
    (tmp_path / "catalog.db").unlink()
    staged(landing_of(job), 2).land()
    assert seqs(job) == list(range(30))


# ---- a REST catalog


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path) as server:
        yield server


@pytest.mark.parametrize("answer", ["lost", "409", "500", *in_long_form("503")])
def test_a_rest_catalog_whose_commits_fail(rest: RestCatalog, tmp_path: Path, answer: str) -> None:
    job = job_in(tmp_path, type="rest", uri=rest.url)
    landing = landing_of(job)
    rest.answers.append(answer)
    staged(landing, 0).land()
    rest.answers.append(answer)
    staged(landing, 1).land()
    assert rest.answers == []
    assert seqs(job) == list(range(20))
    assert len(table(job).snapshots()) == 2


def test_a_commit_that_fails_for_good_is_made_up_for(rest: RestCatalog, tmp_path: Path) -> None:
    job = job_in(tmp_path, type="rest", uri=rest.url)
    landing = landing_of(job)
    staged(landing, 0).land()
    rest.answers += ["500"] * 5
    with pytest.raises(StoreUnreachable, match="no Iceberg commit"):
        staged(landing, 1).land()
    rest.answers.clear()
    landing.restart()
    staged(landing, 2).land()
    assert seqs(job) == list(range(30))


def test_a_rest_catalog_that_refuses(rest: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest.token = "secret"
    job = job_in(tmp_path, type="rest", uri=rest.url)
    with pytest.raises(CatalogMissing, match=r"refuses: .*set PYICEBERG_CATALOG__MQGATE__CREDENTIAL or __TOKEN"):
        warehouse_of(job).check()
    monkeypatch.setenv("PYICEBERG_CATALOG__MQGATE__TOKEN", "secret")
    with suppress(CatalogMissing):  # read once, when pyiceberg is imported
        warehouse_of(job).check()


@pytest.mark.parametrize(
    ("kind", "uri"),
    [("sql", "sqlite:////nowhere/catalog.db"), ("rest", "http://127.0.0.1:9"), ("sql", "oracel://x"), ("sql", "x")],
)
def test_no_catalog_there(tmp_path: Path, kind: str, uri: str) -> None:
    with pytest.raises(CatalogMissing, match=r"cannot be used: .*correct `catalog.uri`") as refused:
        warehouse_of(job_in(tmp_path, type=kind, uri=uri)).check()
    assert "\n" not in str(refused.value)


def test_a_catalog_whose_driver_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(CatalogMissing, match=r"not installed \(No module named 'pg8000'\): install it") as refused:
        warehouse_of(job_in(tmp_path, uri="postgresql+pg8000://127.0.0.1:9/lake")).check()
    assert "\n" not in str(refused.value)


# ---- the job


def test_a_relative_catalog_is_beside_the_job(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(warehouse="lake", type="sql", uri="sqlite:///catalog.db", leftovers="1d"))
    job = read_job(file)
    assert job.catalog is not None
    assert job.catalog.uri == f"sqlite:///{tmp_path}/catalog.db"
    assert job.place == f"folder://{tmp_path}/lake"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("format: iceberg", "has no catalog"),
        ("catalog: {uri: 'sqlite:///x.db'}", "`catalog` has no meaning for parquet"),
        ("format: iceberg\ncatalog: {uri: 'postgresql://u:pw@db/x'}", "has a password in it"),
    ],
)
def test_mistakes(line: str, says: str) -> None:
    text = f"version: 1\nname: plant\nsource: {{queue: Q, path: x}}\nwarehouse: lake\n{line}\n"
    with pytest.raises(ConfigurationError, match=says):
        parse_job("job.yaml", text)
