"""Jobs onto an S3 server: the same rows as onto a folder, read back by others, also while requests fail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from device_fleet import SMALL, Fleet, descriptor, put, reading
from long_form import in_long_form
from s3_server import BUCKET, MANIFEST, Fault, Proxy, s3_server

from gateway.mq import mqmd
from gateway.mq.headers import dlh
from gateway.pipeline.commands import pipeline
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land.objects import open_store
from gateway.queue_manager.journal.store import Store

for module in ("obstore", "moto", "deltalake", "duckdb", "pyiceberg"):
    pytest.importorskip(module, reason=f"{module} is not installed: tests/run installs it")

JOB = """
version: 1
name: plant
source: {{queue: "TELEMETRY.*", path: {path}, group: {group}, max_messages: 700, purge_delay: 0s, consume: false}}
warehouse: {warehouse}
format: {format}
storage: {{endpoint: "{endpoint}", timeout: 20s, patience: 30s}}
trigger: 0s
restart: {{from: 50ms}}
silver:
  - table: readings
    event_time: ts
    key: [device]
    columns:
      - {{name: device, required: true}}
      - {{name: n, type: bigint}}
      - {{name: ts, type: timestamp, unit: ms}}
      - {{name: temperature, type: double, max: 100}}
gold:
  - {{table: devices, kind: last, values: [n, temperature]}}
  - {{table: gaps, kind: gaps, sequence: n}}
"""
MORE_GOLD = """
  - {{table: tens, kind: window, every: 2s, values: [temperature], watermark: 1s}}
  - {{table: dead, kind: dead_letters}}
"""
"""For Parquet alone: a table that is replaced and one that grows from a state are what formats differ in."""
TABLES = ("bronze", "readings", "devices", "gaps")
MORE_TABLES = ("tens", "dead")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve readings of 100 devices, one in quarantine, a gap, and two dead letters."""
    folder = tmp_path_factory.mktemp("journal") / "j"

    def sent(device: int, n: int) -> bytes:
        return b'{"device": "dev0005", ' if (device, n) == (5, 3) else reading(device, n)

    fleet = Fleet(payload=sent)
    heads, bodies = fleet.batch(1200)
    kept = [at for at in range(1200) if at != 507]
    store = Store.open(folder, clock=time.time, options=SMALL)
    for begin in range(0, len(kept), 100):
        some = kept[begin : begin + 100]
        put(store, "TELEMETRY.A", [heads[at] for at in some], [bodies[at] for at in some])
    letter = dlh.build(2085, "ORDERS", "QM9", descriptor())
    put(store, "TELEMETRY.DLQ", [mqmd.build(format=b"MQDEAD  ")] * 2, [letter + b"RFH broken"] * 2)
    store.close()
    return folder


def text_of(journal: Path, warehouse: str, endpoint: str = "", table_format: str = "parquet") -> str:
    group = "".join(letter for letter in warehouse.lower() if letter.isalpha())[-40:]
    text = JOB.lstrip() + (MORE_GOLD.lstrip("\n") if table_format == "parquet" else "")
    text = text.format(path=journal, warehouse=warehouse, endpoint=endpoint, format=table_format, group=group)
    return text + (f"catalog: {{uri: 'sqlite:///{journal.parent}/{group}.db'}}\n" if table_format == "iceberg" else "")


def job_at(*where: Any) -> Job:
    return parse_job("job.yaml", text_of(*where))


def run(spark: Any, job: Job) -> None:
    from gateway.pipeline.jobs.run import JobRun

    assert JobRun(spark, job).run(once=True).state == "done"


def rows(job: Job, table: str) -> list[str]:
    """The rows, without what names their place."""
    found = warehouse_of(job).rows(table)
    return sorted(repr(sorted((key, value) for key, value in row.items() if key != "status")) for row in found)


@pytest.fixture(scope="module")
def on_a_folder(spark: Any, journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = job_at(journal, str(tmp_path_factory.mktemp("folder") / "lake"))
    run(spark, job)
    return job


@pytest.mark.parametrize("table_format", ["parquet", "iceberg", *in_long_form("delta")])
def test_the_same_rows_as_on_a_folder_though_requests_fail(
    spark: Any, proxy: Proxy, journal: Path, on_a_folder: Job, tmp_path: Path, table_format: str
) -> None:
    text = text_of(journal, f"s3://{BUCKET}/same/{table_format}", proxy.url, table_format)
    job = parse_job("job.yaml", text)
    proxy.faults += [
        Fault("PUT", MANIFEST, "answer lost"),
        Fault("PUT", MANIFEST, "412"),
        Fault("PUT", r"/bronze/[\w/-]+\.parquet", "503", times=2),
        Fault("PUT", r"/readings/status(=|%3D)ok/", "lost"),
        Fault("GET", r"/bronze/[\w/-]+\.parquet", "answer lost"),
    ]
    proxy.faults += [Fault("PUT", "_delta_log/", "answer lost", times=2)] if table_format == "delta" else []
    proxy.faults += [Fault("PUT", "/metadata/", "answer lost", times=2)] if table_format == "iceberg" else []
    run(spark, job)
    assert proxy.unspent() == []
    for table in TABLES + (MORE_TABLES if table_format == "parquet" else ()):
        assert rows(job, table) == rows(on_a_folder, table), table
    assert [record.figures["rows"] for record in warehouse_of(job).records()] == [700, 501]
    _read_by_others(job)
    if table_format == "delta":
        _read_as_delta(spark, job)
    if table_format == "iceberg":
        _read_as_iceberg(spark, job, proxy)
    if table_format == "parquet":
        _asked_by_commands(text, tmp_path)
        _put_back(spark, job)


def _read_by_others(job: Job) -> None:
    """pyarrow's own file system, DuckDB by the store's library, and delta-rs: 1201 readings, of which three are in
    quarantine."""
    import duckdb
    import pyarrow.parquet as pq
    from deltalake import DeltaTable
    from obstore.fsspec import FsspecStore
    from pyarrow.fs import S3FileSystem
    from s3_server import CREDENTIALS

    from gateway.pipeline.land.object_delta import delta_options
    from gateway.pipeline.land.objects import endpoint_of

    settings = job.storage.settings
    bucket = S3FileSystem(
        endpoint_override=endpoint_of(settings), region="us-east-1",
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"], secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip
    named = warehouse_of(job).files("readings", "status=ok")
    opened = (bucket.open_input_file(name.removeprefix("s3://")) for name in named)
    seqs = [seq for file in opened for seq in pq.ParquetFile(file).read()["seq"].to_pylist()]
    assert (len(seqs), len(set(seqs))) == (1198, 1198)
    with duckdb.connect() as there:
        client = {"allow_http": True}
        there.register_filesystem(FsspecStore("s3", endpoint=endpoint_of(settings), client_options=client))
        found = there.sql(f"SELECT count(*), count(DISTINCT seq), count(DISTINCT device) FROM read_parquet({named})")
        assert found.fetchall() == [(1198, 1198, 100)]
    if job.format == "delta":
        table = DeltaTable(f"{job.warehouse}/readings", storage_options=delta_options(settings)).to_pyarrow_table()
        assert table.num_rows == 1201
        assert sorted(set(table["status"].to_pylist())) == ["ok", "quarantine"]


def _read_as_delta(spark: Any, job: Job) -> None:
    """Spark over the files that the log names, as delta-rs reads it."""
    from deltalake import DeltaTable

    from gateway.pipeline.jobs.tables.object_tables import rows_of, schema_of
    from gateway.pipeline.land.object_delta import delta_options

    table = DeltaTable(f"{job.warehouse}/readings", storage_options=delta_options(job.storage.settings))
    names = [uri.removeprefix(f"{job.warehouse}/") for uri in table.file_uris() if "/status=ok/" in uri]
    store = open_store(job.place, job.storage.settings)
    found = rows_of(spark, store, names, schema_of(store, names[0])).selectExpr("count(*)", "count(DISTINCT seq)")
    assert tuple(found.first()) == (1198, 1198)


def _read_as_iceberg(spark: Any, job: Job, proxy: Proxy) -> None:
    """pyiceberg with pyarrow's file system, DuckDB over its rows, and Spark over the files of the snapshot."""
    import duckdb
    from pyiceberg.catalog import load_catalog
    from s3_server import CREDENTIALS

    assert job.catalog is not None
    keys = {"s3.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"], "s3.region": "us-east-1", "s3.endpoint": proxy.url}
    keys["s3.secret-access-key"] = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    catalog = load_catalog("mqgate", type="sql", uri=job.catalog.uri, **keys)
    table = catalog.load_table(("lake", "readings"))
    assert [one.name for one in table.spec().fields] == ["status", "put_ts_day"]
    good = table.scan(row_filter="status = 'ok'", selected_fields=("seq", "device")).to_arrow()
    found = duckdb.from_arrow(good).aggregate("count(*), count(DISTINCT seq), count(DISTINCT device)").fetchall()
    assert found == [(1198, 1198, 100)]
    long_ago = list(table.scan(row_filter="put_ts < '2000-01-01T00:00:00+00:00'").plan_files())
    assert long_ago == [], "days are partitions"
    names = [task.file.file_path.removeprefix(f"{job.warehouse}/") for task in table.scan().plan_files()]
    from gateway.pipeline.jobs.tables.object_tables import rows_of, schema_of

    store = open_store(job.place, job.storage.settings)
    assert rows_of(spark, store, names, schema_of(store, names[0])).groupBy("status").count().count() == 2


def _asked_by_commands(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)

    def asked(*words: str) -> str:
        done = CliRunner().invoke(pipeline, [words[0], str(file), *words[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    assert "refuses a second one of the same name" in asked("check")
    assert json.loads(asked("files", "--table", "readings", "--part", "status=ok", "--json"))
    assert "last batch: 501 rows" in asked("status")
    asked("report", "-o", str(tmp_path / "report.html"))
    assert "Dead letters by reason" in (tmp_path / "report.html").read_text()
    assert "0 left-over files removed" in asked("compact")


def _put_back(spark: Any, job: Job) -> None:
    from gateway.pipeline.jobs.replay import files_of, messages_of, selected

    warehouse = warehouse_of(job)

    def rows(table: str) -> Any:
        return selected(spark, job, warehouse, table, files_of(job, warehouse, table))

    found = messages_of(spark, job, warehouse, "readings", rows("readings")).collect()
    assert [(bytes(row.payload), row.client_id, row.properties.get("site")) for row in found] == [
        (b'{"device": "dev0005", ', "dev0005", "site5"),
        *[(b"RFH broken", None, None)] * 2,
    ]
    assert [row.dlq_reason for row in rows("bronze").collect()] == [2085, 2085]
