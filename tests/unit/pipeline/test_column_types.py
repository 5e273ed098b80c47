"""`mqgate pipeline check` compares the columns of a job with the tables that it has landed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.pipeline.commands import pipeline
from gateway.pipeline.jobs.job import Job, read_job
from gateway.pipeline.jobs.tables.column_types import arrow_of, declared
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.followers import follower_of
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.object_landing import ObjectLanding, WrittenFile
from gateway.pipeline.land.objects import open_store

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")

pytestmark = pytest.mark.filterwarnings("default")
JOB = """\
version: 1
name: plant
source: {{queue: Q, path: x}}
warehouse: lake
{format}
silver:
  - table: readings
    key: [device]
    columns:
      - {{name: device, from: client_id}}
      - {{name: n, type: {n}}}
      - {{name: warm, type: {warm}}}
gold:
  - {{table: devices, kind: last}}
  - {{table: silent, kind: silence}}
"""
DELTA = "format: delta"
ICEBERG = "format: iceberg\ncatalog: {type: sql, uri: 'sqlite:///catalog.db'}"


def written(folder: Path, form: str, n: str = "bigint", warm: str = "double") -> Job:
    (folder / "job.yaml").write_text(JOB.format(format=form, n=n, warm=warm))
    return read_job(folder / "job.yaml")


def land(job: Job) -> None:
    """A batch of one row in each table."""
    import pyarrow.parquet as pq

    tables: dict[str, dict[str, Any]] = {}
    for column in declared(job):
        tables.setdefault(column.table, {})[column.name] = arrow_of(column.kind)
    rows = {name: pa.table([pa.nulls(1, kind) for kind in of.values()], list(of)) for name, of in tables.items()}
    if job.on_objects:
        store = open_store(job.place, job.storage.settings)
        landing = ObjectLanding(store, job.name, follower_of(job, store))
        batch = landing.begin("q", 0, [(job.inputs[0].stream, 0, 1)])
        assert batch is not None
        for name, table in rows.items():
            target = io.BytesIO()
            pq.write_table(table, target, store_schema=False)
            store.put(f"{name}/1.parquet", target.getvalue())
            batch.add(name, [WrittenFile("1.parquet", 1, len(target.getvalue()))])
        batch.land()
        return
    folder = Path(job.warehouse)
    own = Landing(folder, job.name, rows_in, DeltaLog(folder, job.name, job.replaced_tables)).begin(
        "q", 0, [(job.inputs[0].stream, 0, 1)]
    )
    assert own is not None
    for name, table in rows.items():
        staged = own.stage(name)
        assert staged is not None
        staged.mkdir(parents=True)
        pq.write_table(table, staged / "1.parquet")
    own.land()


def checked(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(pipeline, ["check", str(folder / "job.yaml")])
    return done.exit_code, done.output


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_columns_that_changed_their_types_are_all_told_at_their_places(tmp_path: Path, form: str) -> None:
    land(written(tmp_path, form))
    assert checked(tmp_path)[0] == 0
    written(tmp_path, form, n="string", warm="boolean")
    code, said = checked(tmp_path)
    text = (tmp_path / "job.yaml").read_text().splitlines()
    found = [line.removeprefix(f"{tmp_path}/job.yaml:") for line in said.splitlines() if "do not fit" in line]
    where = [text[int(line.partition(":")[0]) - 1].split(",")[0].strip() for line in found]
    silver = ["- {name: n", "- {name: warm"]
    assert (code, where) == (1, silver if form == DELTA else silver + ["- {table: devices"] * 2)
    assert all("give the column that has changed its type another name" in line for line in found)


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_nothing_has_landed(tmp_path: Path, form: str) -> None:
    written(tmp_path, form)
    assert checked(tmp_path)[0] == 0


def test_plain_parquet_has_no_types_that_are_kept(tmp_path: Path) -> None:
    written(tmp_path, "format: parquet")
    code, said = checked(tmp_path)
    assert (code, "columns" in said) == (0, False)


def test_what_a_run_would_refuse_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name, other queues, and another warehouse whose tables the catalog has elsewhere."""
    monkeypatch.chdir(tmp_path)
    job = written(tmp_path, ICEBERG)
    land(job)
    text = (tmp_path / "job.yaml").read_text()
    for before, after, said in (
        ("name: plant", "name: other", "are those of job 'plant'"),
        ("queue: Q,", 'queue: "Q,R",', "has landed Q so far, and now reads Q,R"),
        ("warehouse: lake", "warehouse: elsewhere", "give the job a `catalog.namespace` of its own"),
    ):
        (tmp_path / "job.yaml").write_text(text.replace(before, after))
        done = CliRunner().invoke(pipeline, ["check", "job.yaml"])
        assert done.exit_code == 1, done.output
        assert done.output.count(said) == 1, done.output
