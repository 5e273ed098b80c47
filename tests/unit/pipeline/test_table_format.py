"""A job whose format has changed: goes on where nothing is lost or doubled by it, and is refused before otherwise."""

from __future__ import annotations

import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from device_fleet import write_journal
from long_form import LONG, in_long_form
from s3_server import BUCKET, Proxy, s3_found

from gateway.pipeline.commands import pipeline
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables import compaction, leftovers, object_compaction
from gateway.pipeline.jobs.tables.compaction import compact, expire
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.followers import follower_of
from gateway.pipeline.jobs.tables.leftovers import remove_leftovers
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.object_delta import delta_options
from gateway.pipeline.land.object_landing import ObjectLanding, WrittenFile
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import open_store

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")

pytestmark = pytest.mark.filterwarnings("default")
FORMATS = ("parquet", "delta", "iceberg")
JOB = """
version: 1
name: j
source: {{queue: Q, path: x}}
warehouse: {folder}/lake
format: {format}
retention: {{compact_files: 2, keep: {{bronze: 30d}}}}
"""


def job_of(folder: Path, table_format: str) -> Job:
    catalog = f"catalog: {{uri: 'sqlite:///{folder}/catalog.db'}}\n" if table_format == "iceberg" else ""
    text = JOB.format(folder=folder, format=table_format) + catalog
    (folder / "job.yaml").write_text(text)
    return parse_job("job.yaml", text)


def land(job: Job, number: int) -> None:
    """A batch of ten rows, in two files, with the job's format."""
    import pyarrow.parquet as pq

    landing: Any
    if job.on_objects:
        store = open_store(job.place, job.storage.settings)
        landing = ObjectLanding(store, job.name, follower_of(job, store))
    else:
        folder = Path(job.warehouse)
        landing = Landing(
            folder, job.name, rows_in, DeltaLog(folder, job.name, set()) if job.format == "delta" else None
        )
    batch = landing.begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    target = Path(job.warehouse) / "bronze" if job.on_objects else batch.stage("bronze")
    target.mkdir(parents=True, exist_ok=True)
    for part in range(2):
        pq.write_table(pa.table({"seq": range(10 * number + 5 * part, 10 * number + 5 * part + 5)}),
                       target / f"{number}-{part}.parquet")  # fmt: skip
    if job.on_objects:
        names = [f"{number}-{part}.parquet" for part in range(2)]
        batch.add("bronze", [WrittenFile(name, 5, (target / name).stat().st_size) for name in names])
    batch.land()


def make_old(folder: Path) -> None:
    """Two weeks ago, which is older than what is removed."""
    then = time.time() - 14 * 86400
    for path in folder.rglob("*.parquet"):
        os.utime(path, (then, then))


def seqs(job: Job) -> list[int]:
    import pyarrow.parquet as pq

    return sorted(
        seq for name in warehouse_of(job).files("bronze") for seq in pq.ParquetFile(name).read()["seq"].to_pylist()
    )


@pytest.mark.parametrize("other", FORMATS)
@pytest.mark.parametrize("landed", FORMATS)
def test_a_format_that_has_changed(tmp_path: Path, landed: str, other: str) -> None:
    """Plain files may become tables of Delta. Of any other change tables would be given up, or show rows twice."""
    before, after = job_of(tmp_path, landed), job_of(tmp_path, other)
    check_format(after)
    for number in range(6):
        land(before, number)
    compact(before)
    make_old(tmp_path)
    for change in (
        () if other == landed or (landed, other) == ("parquet", "delta") else (compact, expire, remove_leftovers)
    ):
        with pytest.raises(
            WrongOption, match=rf"tables of {tmp_path}/lake have landed as {landed}.* write `format: {landed}`"
        ):
            change(after)
    check_format(before)
    assert seqs(before) == list(range(60))


def test_plain_files_become_tables_of_delta(tmp_path: Path) -> None:
    plain, delta = job_of(tmp_path, "parquet"), job_of(tmp_path, "delta")
    for number in range(6):
        land(plain, number)
    compact(plain)
    check_format(delta)
    assert seqs(plain) == list(range(60))
    for number in range(6, 9):
        land(delta, number)
    compact(delta)
    make_old(tmp_path)
    compact(delta)
    remove_leftovers(delta)
    assert seqs(delta) == list(range(90))


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_delta_that_was_compacted_as_plain_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    """As an earlier release let it: the log names files that are gone, and neither format is advised before it is."""
    delta, plain = job_of(tmp_path, "delta"), job_of(tmp_path, "parquet")
    for number in range(6):
        land(delta, number)
    with monkeypatch.context() as earlier:
        earlier.setattr(compaction, "check_format", lambda *_, **__: None)
        compact(plain)
    job = job_of(tmp_path, table_format)
    with pytest.raises(WrongOption, match=r"until `compact` ran with `format: parquet`: .* Move bronze/_delta_log out"):
        check_format(job)
    (tmp_path / "lake/bronze/_delta_log").rename(tmp_path / "log")
    check_format(job)
    land(job, 6)
    compact(job)
    assert seqs(job) == list(range(70))


def object_job(proxy: Proxy, folder: Path, prefix: str, table_format: str) -> Job:
    catalog = f"catalog: {{uri: 'sqlite:///{folder}/{prefix}.db'}}\n" if table_format == "iceberg" else ""
    text = JOB.replace("{folder}/lake", f"s3://{BUCKET}/{prefix}").format(format=table_format) + catalog
    return parse_job("job.yaml", f"{text}storage: {{endpoint: '{proxy.url}', patience: 30s}}\n")


def put_batch(job: Job, number: int, folder: Path, follower: Any = None) -> None:
    """A batch of ten rows on object storage."""
    import pyarrow.parquet as pq

    store, file = open_store(job.place, job.storage.settings), folder / f"{number}.parquet"
    pq.write_table(pa.table({"seq": range(10 * number, 10 * number + 10)}), file, store_schema=False)
    store.upload(f"bronze/{number}.parquet", file)
    batch = ObjectLanding(store, job.name, follower or follower_of(job, store)).begin(
        "q", number, [("s", 10 * number, 10 * number + 10)]
    )
    assert batch is not None
    batch.add("bronze", [WrittenFile(f"{number}.parquet", 10, file.stat().st_size)])
    batch.land()


def rows_on_objects(job: Job, proxy: Proxy) -> list[int]:
    """As readers of the format have them."""
    if job.format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(f"{job.warehouse}/bronze", storage_options=delta_options(job.storage.settings))
        return sorted(table.to_pyarrow_table()["seq"].to_pylist())
    if job.catalog is not None:
        from pyiceberg.catalog import load_catalog

        own = {"s3.endpoint": proxy.url, "s3.region": "us-east-1"}
        catalog = load_catalog("mqgate", type="sql", uri=job.catalog.uri, **own)
        return sorted(catalog.load_table(("lake", "bronze")).scan().to_arrow()["seq"].to_pylist())
    return sorted(row["seq"] for row in warehouse_of(job).rows("bronze"))


def test_a_format_that_has_changed_on_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as in a folder, with the same outcome."""
    with s3_found(monkeypatch) as proxy:
        for landed, other in (
            product(FORMATS, FORMATS) if LONG else zip(FORMATS, (*FORMATS[1:], FORMATS[0]), strict=True)
        ):
            prefix = f"{landed}-{other}"
            before, after = (object_job(proxy, tmp_path, prefix, each) for each in (landed, other))
            check_format(after)
            for number in range(3):
                put_batch(before, number, tmp_path)
            compact(before)
            if other == landed or (landed, other) == ("parquet", "delta"):
                check_format(after)
                put_batch(after, 3, tmp_path)
                compact(after)
                assert rows_on_objects(after, proxy) == list(range(40)), prefix
                continue
            for change in (check_format, compact, expire, remove_leftovers):
                with pytest.raises(WrongOption, match=f"{prefix} have landed as {landed}.* write `format: {landed}`"):
                    change(after)
            assert rows_on_objects(before, proxy) == list(range(30)), prefix


def compact_as_before(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an earlier release, whose manifest knew nothing of Delta's merges."""
    with monkeypatch.context() as earlier:
        earlier.setattr(object_compaction, "_follow_log", lambda *_: None)
        compact(job)


@pytest.mark.parametrize(
    ("optimized", "plain_batch"),
    [(True, True), *in_long_form((False, False), (False, True), (True, False))],
)
def test_delta_that_was_compacted_as_plain_files_on_object_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimized: bool, plain_batch: bool
) -> None:
    """As an earlier release let it: goes on as Delta while the files are there; then its logs are told to be moved."""
    with s3_found(monkeypatch) as proxy:
        delta, plain = (object_job(proxy, tmp_path, "changed", each) for each in ("delta", "parquet"))
        store, batches = open_store(delta.place, delta.storage.settings), 3
        for number in range(batches):
            put_batch(delta, number, tmp_path)
        if optimized:
            compact_as_before(delta, monkeypatch)
        if plain_batch:
            put_batch(plain, batches, tmp_path)
            batches += 1
        with monkeypatch.context() as earlier:
            for module in (compaction, leftovers):
                earlier.setattr(module, "check_format", lambda *_, **__: None)
            compact(plain)
            check_format(delta)
            clock = time.time
            earlier.setattr(time, "time", lambda: clock() + 86400.0)
            earlier.setattr(object_compaction, "_store_clock", lambda _: time.time())
            remove_leftovers(plain)
        for refused in (lambda: check_format(delta), lambda: check_format(plain), lambda: compact(delta)):
            with pytest.raises(WrongOption, match=r"files that bronze/_delta_log names are gone.*Move the objects"):
                refused()
        store.delete([one.name for one in store.names("bronze/_delta_log")])
        check_format(delta)
        put_batch(delta, batches, tmp_path)
        compact(delta)
        assert rows_on_objects(delta, proxy) == list(range(10 * batches + 10))


def test_a_log_that_is_to_take_in_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches landed as plain files behind it, whose `compact` has removed them; or what the log had merged is gone."""
    with s3_found(monkeypatch) as proxy:
        for optimized, said in (
            (False, "Move the objects below"),
            (True, "0.parquet, which had these before, is gone"),
        ):
            delta, plain = (object_job(proxy, tmp_path, f"late-{optimized}", each) for each in ("delta", "parquet"))
            put_batch(delta, 0, tmp_path)
            put_batch(delta, 1, tmp_path)
            store = open_store(delta.place, delta.storage.settings)
            if optimized:
                compact_as_before(delta, monkeypatch)
                merged = {one.name for one in store.names("bronze")} - {"bronze/0.parquet", "bronze/1.parquet"}
                store.delete(["bronze/0.parquet", *(name for name in merged if name.endswith(".parquet"))])
            else:
                put_batch(plain, 2, tmp_path)
                manifest = ObjectManifest(store)
                manifest.commit("merge", {"table": "bronze", "old": ["bronze/2.parquet"], "new": []}, lambda: None)
                store.delete(["bronze/2.parquet"])
            with pytest.raises(WrongOption, match=said):
                (check_format(delta) if optimized else put_batch(delta, 3, tmp_path))


class Killed(Exception):
    """The driver ends between its entry and what follows it."""


class Dying:
    """What follows the manifest, of a driver that is killed after its first entry."""

    def __init__(self, follower: Any) -> None:
        self.format, self.check, self._follower = follower.format, follower.check, follower

    def __call__(self, manifest: ObjectManifest) -> None:
        if manifest.state.number:
            raise Killed
        self._follower(manifest)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_driver_that_is_killed_after_its_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    """There is no table of its format yet; the next driver makes it, and one with another format is refused."""
    with s3_found(monkeypatch) as proxy:
        job = object_job(proxy, tmp_path, "killed", table_format)
        store = open_store(job.place, job.storage.settings)

        with pytest.raises(Killed):
            put_batch(job, 0, tmp_path, Dying(follower_of(job, store)))
        check_format(job)
        with pytest.raises(WrongOption, match=f"have landed as {table_format}"):
            check_format(object_job(proxy, tmp_path, "killed", "parquet"))
        put_batch(job, 1, tmp_path)
        assert rows_on_objects(job, proxy) == list(range(20))


def test_two_formats_side_by_side(tmp_path: Path) -> None:
    """As an earlier release let them: the job goes on, and nothing is taken for left-overs."""
    plain, iceberg = job_of(tmp_path, "parquet"), job_of(tmp_path, "iceberg")
    land(plain, 0)
    land(iceberg, 1)
    check_format(plain)
    check_format(iceberg)
    with pytest.raises(WrongOption, match=r"as parquet and as iceberg: .* Move them"):
        remove_leftovers(iceberg)


def test_commands_that_read_or_put_again(tmp_path: Path) -> None:
    land(job_of(tmp_path, "delta"), 0)
    job_of(tmp_path, "parquet")
    write_journal(tmp_path / "x", 1)
    file = str(tmp_path / "job.yaml")
    for command in (["files", file, "--table", "bronze"], ["compact", file], ["check", file],
                    ["replay", file, "--table", "bronze", "--queue", "Q"], ["run", file, "--once"]):  # fmt: skip
        done = CliRunner().invoke(pipeline, command)
        assert done.exit_code == 1, (command, done.output)
        assert "have landed as delta" in done.output


def test_a_table_of_delta_that_somebody_keeps_beside_those_of_the_job(tmp_path: Path) -> None:
    plain = job_of(tmp_path, "parquet")
    land(plain, 0)
    (tmp_path / "lake/daily/_delta_log").mkdir(parents=True)
    check_format(plain)
    compact(plain)
