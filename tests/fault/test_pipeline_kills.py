"""SIGKILL of a whole Spark job (JVM, planner, workers, driver), named points and at random: nothing lost or doubled.

Counted by pyarrow and DuckDB on plain files, and in the long form by Spark. One run of the job ends at each point; the
next takes over where it died, in the short form in the session that the tests share. Negative controls show that the
counting notices loss and doubling.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from device_fleet import Fleet, write_journal

from gateway.errors import StoreInUse
from gateway.pipeline.failpoint import POINTS
from gateway.pipeline.jobs.job import read_job

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("default")]

LONG = bool(os.environ.get("MQGATE_LONG"))
KILLS = int(os.environ.get("MQGATE_KILLS", "60"))
NAMED = [point for point in POINTS if not point.startswith("drain.")]
SHORT = ["land.rename.after"]
"""Some tables of a batch are in place, and no record. What follows the record is killed on object storage."""
STEP = 240 if LONG else 100
"""In the short form one batch, which is killed and comes again."""

RUN = """
from pathlib import Path
import sys
from gateway.pipeline.jobs.job import read_job
from gateway.pipeline.jobs.run import run_job
{patch}
job = read_job(Path(sys.argv[1]))
run_job(job, once=True)
if len(sys.argv) > 2:
    import json
    from gateway.pipeline.jobs.spark.spark_session import make_session
    spark = make_session("count", job.spark)
    counted = {{}}
    for table in ("bronze", "readings"):
        rows = spark.read.parquet(job.warehouse + "/" + table)
        counted[table] = list(rows.selectExpr("count(*)", "count(DISTINCT seq)").first())
    Path(sys.argv[2]).write_text(json.dumps(counted))
"""
JOB = """
version: 1
name: kills
source: {{queue: TELEMETRY.A, path: {journal}, group: kills, max_messages: 100, purge_delay: 0s}}
warehouse: ./lake
format: {format}
trigger: 0s
silver:
  - table: readings
    key: [device]
    event_time: ts
    columns: [{{name: device, required: true}}, {{name: n, type: bigint}}, {{name: ts, type: timestamp, unit: ms}}]
{gold}
restart: {{from: 100ms}}
nice: 0
spark:
  spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
  spark.sql.codegen.wholeStage: "false"
  spark.sql.codegen.factoryMode: NO_CODEGEN
  spark.sql.adaptive.enabled: "false"
  spark.sql.shuffle.partitions: "1"
"""
GOLD = "gold: [{table: gaps, kind: gaps, sequence: n}]" if LONG else ""
"""What a gold table costs a cold session is a quarter of a short form."""


class Rig:
    """A journal that grows and a job that dies."""

    def __init__(self, folder: Path, table_format: str = "parquet", patch: str = "") -> None:
        pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
        self.folder, self.format = folder, table_format
        self.journal, self.lake = folder / "journal", folder / "lake"
        self.fleet = Fleet(devices=20)
        self.job = folder / "job.yaml"
        self.job.write_text(JOB.format(journal=self.journal, format=table_format, gold=GOLD))
        self.script = folder / "run.py"
        self.script.write_text(RUN.format(patch=textwrap.dedent(patch)))
        self.fired: list[str] = []
        self.counts = folder / "counts.json"
        self.runs = count()

    def grow(self, count: int = STEP) -> None:
        """More messages. The process that plans may outlive its leader by a moment, with the store open."""
        until = time.monotonic() + 120
        while True:
            try:
                write_journal(self.journal, count, self.fleet, frame=40)
            except StoreInUse:
                assert time.monotonic() < until, "a process of the killed run has the store open"
                time.sleep(0.05)
            else:
                return

    def run(self, point: str = "", after: float | None = None, *, counted: bool = False) -> int:
        """One run of the job; `after` kills it so long after its query has begun to plan."""
        marker = self.folder / "fired"
        marker.unlink(missing_ok=True)
        process = self.started(point, counted=counted)
        if after is not None:
            self.planning(process)
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        code = self.ended(process)
        if marker.exists() or (after is not None and code == -signal.SIGKILL):
            self.fired.append(point or "random")
        return code

    def started(self, point: str = "", *, counted: bool = False) -> subprocess.Popen[bytes]:
        """A run that goes on; at its point it is killed with all its processes."""
        group = self.folder / f"group-{next(self.runs)}"
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "MQGATE_FAILPOINT": point}
        environment |= {"MQGATE_FAILPOINT_FILE": str(self.folder / "fired"), "MQGATE_FAILPOINT_GROUP_FILE": str(group)}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(self.script), str(self.job), *([str(self.counts)] if counted else [])],
                env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        group.write_text(str(process.pid))
        return process

    def planning(self, process: subprocess.Popen[bytes]) -> None:
        """Until it writes to its checkpoint: Spark's own start is of no interest."""
        begun = time.time()
        while process.poll() is None and time.time() < begun + 120:
            with suppress(FileNotFoundError):  # a temporary file, renamed since
                if any(path.stat().st_mtime > begun for path in self.lake.glob("_checkpoint/kills/*/*")):
                    return
            time.sleep(0.05)

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        """Its end; a run that does not end is ended, so that it takes nothing from the tests after it."""
        try:
            return process.wait(900)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def finish(self, spark: Any = None) -> None:
        """The last run: of a process, or in a session that is there."""
        if spark is None:
            assert self.run(counted=LONG) == 0, (self.folder / "log").read_text()[-4000:]
        else:
            run_in(spark, self.job)

    # ---- counting

    def by_pyarrow(self, table: str) -> tuple[int, int]:
        import pyarrow.parquet as pq

        seqs: list[int] = []
        for file in (self.lake / table).rglob("*.parquet"):
            seqs += pq.ParquetFile(file).read(columns=["seq"]).column("seq").to_pylist()
        return len(seqs), len(set(seqs))

    def by_duckdb(self, table: str) -> tuple[int, int] | None:
        try:
            import duckdb
        except ImportError:
            return None
        query = f"SELECT count(*), count(DISTINCT seq) FROM read_parquet('{self.lake}/{table}/**/*.parquet')"
        return tuple(duckdb.sql(query).fetchall()[0])

    def by_delta(self, table: str) -> tuple[int, int]:
        from deltalake import DeltaTable

        seqs = DeltaTable(str(self.lake / table)).to_pyarrow_table(columns=["seq"]).column("seq").to_pylist()
        return len(seqs), len(set(seqs))

    def expect_exact(self) -> None:
        sent = self.fleet.sent
        for table in ("bronze", "readings"):
            assert self.by_pyarrow(table) == (sent, sent)
            assert self.by_duckdb(table) in (None, (sent, sent))
            if LONG:  # by Spark in a session of its own, which takes as long as all else
                assert json.loads(self.counts.read_text())[table] == [sent, sent]
            if self.format == "delta":
                assert self.by_delta(table) == (sent, sent)
        assert not [file for file in (self.lake / "gaps").rglob("*.parquet") if _rows(file)], "a gap that was none"


def run_in(spark: Any, file: Path) -> None:
    from gateway.pipeline.jobs.run import JobRun

    assert JobRun(spark, read_job(file)).run(once=True).state == "done"


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


@pytest.mark.timeout(1800 if not LONG else 14400)
def test_killed_at_named_points(spark: Any, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for point in NAMED if LONG else SHORT:
        rig.grow()
        rig.run(f"{point}:{random.Random(point).randint(1, 2) if LONG else 1}")
    rig.finish(None if LONG else spark)
    rig.expect_exact()
    assert len(rig.fired) >= (len(NAMED) - 3 if LONG else len(SHORT))


@pytest.mark.stress
@pytest.mark.timeout(14400)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_killed_many_times(tmp_path: Path, table_format: str) -> None:
    if table_format == "delta":
        pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    rig = Rig(tmp_path, table_format)
    chance = random.Random(table_format)
    while len(rig.fired) < KILLS // 2:
        rig.grow()
        if chance.random() < 0.7:
            rig.run(f"{chance.choice(NAMED)}:{chance.randint(1, 3)}")
        else:
            rig.run(after=chance.uniform(0, 6))
    rig.finish()
    rig.expect_exact()


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_a_deleted_checkpoint_doubles_and_loses_nothing(tmp_path: Path) -> None:
    import shutil

    rig = Rig(tmp_path)
    rig.grow()
    rig.run("land.manifest.after:2")
    shutil.rmtree(rig.lake / "_checkpoint")
    rig.grow(70)
    rig.finish()
    rig.expect_exact()


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_checkpoint_files_that_never_reached_the_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grow()
    rig.run("land.manifest.after:3")
    newest: list[Path] = []
    for folder in ("offsets", "commits"):
        files = [path for path in (rig.lake / "_checkpoint/kills" / folder).iterdir() if path.name.isdigit()]
        newest += sorted(files, key=lambda path: int(path.name))[-2:]
    for path in newest:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    rig.grow(70)
    rig.finish()
    rig.expect_exact()


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_two_drivers_of_one_job(tmp_path: Path) -> None:
    """The second waits for the lease; what the first has landed meanwhile it neither removes nor lands again. The first
    is killed on the way, so that the second takes over in the middle."""
    rig = Rig(tmp_path)
    rig.grow(1500)
    first = rig.started("land.manifest.after:4")
    rig.planning(first)  # or, on a busy machine, the second may have the lease before it
    second = rig.started()
    assert rig.ended(first) == -signal.SIGKILL
    assert rig.ended(second) == 0, (tmp_path / "log").read_text()[-4000:]
    rig.finish()
    rig.expect_exact()


NO_MANIFEST = """
import secrets
from gateway.pipeline.land import landing
named, own = landing.range_id, secrets.token_hex(4)
landing.range_id = lambda pieces: named(pieces) + own
landing.Landing.clear = lambda self, keep="": []
from gateway.pipeline.land.ranges import Landed
Landed.missing = lambda self, pieces: pieces
Landed.next = lambda self, name: 0
"""


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_the_counting_notices_doubled_rows(tmp_path: Path) -> None:
    rig = Rig(tmp_path, patch=NO_MANIFEST)
    rig.grow()
    rig.run("land.manifest.after:1")
    rig.finish()
    rows, distinct = rig.by_pyarrow("bronze")
    assert rows > distinct


EAGER = """
from gateway.pipeline.source import source
_planned = source.QueueStreamReader._planned
def planned(self, start, limit):
    end = _planned(self, start, limit)
    self.access.acknowledge(self.group, self._leased().epoch, end["next"], 60.0, last=True)
    return end
source.QueueStreamReader._planned = planned
"""


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_the_counting_notices_lost_rows(tmp_path: Path) -> None:
    """Acknowledged when planned instead of when landed, then killed and without its checkpoint."""
    import shutil

    rig = Rig(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(EAGER)
    rig.grow()
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{site}{os.pathsep}{before}"
    try:
        rig.run("land.stage.before:2")
    finally:
        os.environ["PYTHONPATH"] = before
    shutil.rmtree(rig.lake)
    rig.run()
    assert rig.by_pyarrow("bronze")[1] < rig.fleet.sent


def test_points_are_those_of_the_code() -> None:
    folder = Path(__file__).parents[2] / "gateway/pipeline"
    text = "".join(path.read_text() for path in folder.rglob("*.py") if path.name != "failpoint.py")
    assert [point for point in POINTS if f'failpoint("{point}")' not in text] == []
