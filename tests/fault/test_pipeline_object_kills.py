"""SIGKILL of a whole Spark job that lands on object storage, while requests to the store fail: nothing lost or doubled.

Counted by the files that the manifest names, by the Delta log, and by the catalog. In the short form the run that takes
over is in the session that the tests share.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from device_fleet import Fleet, write_journal
from s3_server import BUCKET, MANIFEST, Fault, Proxy, s3_found

from gateway.errors import StoreInUse
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land.object_delta import delta_options

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("default")]

LONG = bool(os.environ.get("MQGATE_LONG"))
KILLS = int(os.environ.get("MQGATE_KILLS", "60"))
SEED = os.environ.get("MQGATE_SEED", "")
POINTS = [
    "plan.before", "offsets.before", "offsets.after", "read.middle", "land.stage.before", "land.stage.after",
    "land.manifest.before", "land.manifest.after", "commitlog.after", "acknowledge.before", "acknowledge.after",
]  # fmt: skip
FAULTS = [
    ("PUT", MANIFEST, "answer lost"), ("PUT", MANIFEST, "lost"), ("PUT", MANIFEST, "503"), ("PUT", MANIFEST, "412"),
    ("PUT", r"\.parquet", "503"), ("PUT", r"\.parquet", "answer lost"), ("GET", r"\.parquet", "lost"),
    ("PUT", "_delta_log/", "answer lost"), ("PUT", "/metadata/", "answer lost"), ("GET", "/metadata/", "503"),
    ("GET", "list-type", "503"),
]  # fmt: skip
STEP = 240 if LONG else 100
RUN = """
import sys
from pathlib import Path
from gateway.pipeline.jobs.job import read_job
from gateway.pipeline.jobs.run import run_job
run_job(read_job(Path(sys.argv[1])), once=len(sys.argv) == 2)
"""
JOB = """
version: 1
name: kills
source: {{queue: TELEMETRY.A, {address}, group: kills, max_messages: {batch}, purge_delay: 0s}}
warehouse: s3://{bucket}/{prefix}
storage: {{endpoint: "{endpoint}", timeout: 20s, patience: 30s}}
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


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    for module in ("pyspark", "obstore", "moto", "deltalake", "pyiceberg"):
        pytest.importorskip(module, reason=f"{module} is not installed: tests/run installs it")
    with pytest.MonkeyPatch.context() as patch, s3_found(patch) as server:
        yield server


class Rig:
    """A journal that grows, a store whose requests fail, and a job that dies."""

    def __init__(
        self, proxy: Proxy, folder: Path, prefix: str, table_format: str, address: str = "", batch: int = 100
    ) -> None:
        self.proxy, self.folder = proxy, folder
        self.journal = folder / "journal"
        self.fleet = Fleet(devices=20)
        text = JOB.format(
            address=address or f"path: {self.journal}", batch=batch, bucket=BUCKET, prefix=prefix, endpoint=proxy.url,
            format=table_format, gold=GOLD,
        )  # fmt: skip
        if table_format == "iceberg":
            text += f"catalog: {{uri: 'sqlite:///{folder}/catalog.db'}}\n"
        self.file = folder / "job.yaml"
        self.file.write_text(text)
        self.job: Job = parse_job("job.yaml", text)
        self.script = folder / "run.py"
        self.script.write_text(RUN)
        self.runs = count()
        self.killed = 0

    def grow(self, messages: int = STEP) -> None:
        """More messages. The process that plans may outlive its leader by a moment, with the store open."""
        until = time.monotonic() + 120
        while True:
            try:
                write_journal(self.journal, messages, self.fleet, frame=40)
            except StoreInUse:
                assert time.monotonic() < until, "a process of the killed run has the store open"
                time.sleep(0.05)
            else:
                return

    def run(self, point: str = "", after: threading.Event | None = None) -> int:
        """One run of the job, killed with all its processes at its point, or when an event comes."""
        process = self.started(point)
        if after is not None:
            threading.Thread(target=self._kill_after, args=(after, process), daemon=True).start()
        code = self.ended(process)
        self.killed += code == -signal.SIGKILL
        return code

    def started(self, point: str = "", *, stays: bool = False) -> subprocess.Popen[bytes]:
        """A run that goes on; one that `stays` also when the queue is empty."""
        number = next(self.runs)
        group, log = self.folder / f"group-{number}", self.folder / "log"
        settings = {"MQGATE_FAILPOINT": point, "MQGATE_FAILPOINT_FILE": str(self.folder / f"fired-{number}")}
        settings |= {"MQGATE_FAILPOINT_GROUP_FILE": str(group), "PYTHONWARNINGS": "ignore"}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(self.script), str(self.file), *(["stays"] if stays else [])],
                env={**os.environ, **settings}, stdout=output, stderr=output, start_new_session=True,
                cwd=self.folder,
            )  # fmt: skip
        group.write_text(str(process.pid))
        return process

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        """Its end; a run that does not end is ended, so that it takes nothing from the tests after it."""
        try:
            return process.wait(900)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @staticmethod
    def _kill_after(event: threading.Event, process: subprocess.Popen[bytes]) -> None:
        if event.wait(600) and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    def killed_with_its_answer_lost(self) -> int:
        """The entry arrives; its driver dies before it can know."""
        arrived = threading.Event()
        self.proxy.faults.append(Fault("PUT", MANIFEST, "answer lost", then=arrived.set))
        return self.run(after=arrived)

    def finish(self, spark: Any = None) -> None:
        """The last run: of a process, or in a session that is there."""
        self.proxy.faults.clear()
        if spark is None:
            assert self.run() == 0, (self.folder / "log").read_text()[-4000:]
        else:
            run_in(spark, self.job)

    def expect_exact(self) -> None:
        for table in ("bronze", "readings"):
            assert self._counted(table) == (self.fleet.sent, self.fleet.sent)
        if self.job.gold:
            assert warehouse_of(self.job).rows("gaps") == [], "a gap that was none"

    def _counted(self, table: str) -> tuple[int, int]:
        seqs = self.values(table, "seq")
        return len(seqs), len(set(seqs))

    def values(self, table: str, column: str) -> list[Any]:
        """A column of a table, as its format's own readers see it."""
        if self.job.format == "delta":
            from deltalake import DeltaTable

            options = delta_options(self.job.storage.settings)
            found = DeltaTable(f"{self.job.warehouse}/{table}", storage_options=options).to_pyarrow_table()
            return list(found.column(column).to_pylist())
        if self.job.catalog is not None:
            from pyiceberg.catalog import load_catalog

            own = {"s3.endpoint": self.proxy.url, "s3.region": "us-east-1"}
            catalog = load_catalog("mqgate", type="sql", uri=self.job.catalog.uri, **own)
            return list(catalog.load_table(("lake", table)).scan().to_arrow()[column].to_pylist())
        return [row[column] for row in warehouse_of(self.job).rows(table)]


def run_in(spark: Any, job: Job) -> None:
    from gateway.pipeline.jobs.run import JobRun

    assert JobRun(spark, job).run(once=True).state == "done"


@pytest.mark.timeout(1800)
def test_killed_around_the_commit(spark: Any, proxy: Proxy, tmp_path: Path) -> None:
    rig = Rig(proxy, tmp_path, "short", "delta")
    rig.grow()
    assert rig.killed_with_its_answer_lost() == -signal.SIGKILL
    if LONG:  # the same entry is there, and this driver would know
        rig.grow()
        assert rig.run("land.manifest.after:2") == -signal.SIGKILL
    rig.finish(None if LONG else spark)
    rig.expect_exact()


@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
@pytest.mark.timeout(1800)
def test_killed_between_the_manifest_and_the_snapshot(proxy: Proxy, tmp_path: Path) -> None:
    rig = Rig(proxy, tmp_path, "short-iceberg", "iceberg")
    rig.grow()
    for number in (1, 2):  # before there is any table, and with one
        assert rig.run(f"land.manifest.after:{number}") == -signal.SIGKILL
    rig.finish()
    rig.expect_exact()


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_a_driver_that_was_thought_dead(proxy: Proxy, tmp_path: Path, table_format: str) -> None:
    """It stands still with its entry on the way, and wakes when its lease has run out and another has landed all."""
    rig, standing = Rig(proxy, tmp_path, f"slept-{table_format}", table_format), threading.Event()
    rig.grow()
    proxy.faults[:] = [Fault("PUT", MANIFEST, "lost", then=standing.set)]
    first = rig.started()
    try:
        assert standing.wait(600), (tmp_path / "log").read_text()[-4000:]
        os.killpg(first.pid, signal.SIGSTOP)
        rig.finish()
        rig.expect_exact()
        os.killpg(first.pid, signal.SIGCONT)
    finally:
        code = rig.ended(first)
    assert code != -signal.SIGKILL, "it finds out and ends by itself"
    rig.grow()
    rig.finish()
    rig.expect_exact()


@pytest.mark.stress
@pytest.mark.timeout(14400)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_killed_many_times(proxy: Proxy, tmp_path: Path, table_format: str) -> None:
    rig = Rig(proxy, tmp_path, f"long-{table_format}", table_format)
    chance = random.Random(table_format + SEED)
    while rig.killed < KILLS // 3:
        rig.grow()
        rig.proxy.faults[:] = [Fault(*chance.choice(FAULTS), times=chance.randint(1, 3)) for _ in range(3)]
        if chance.random() < 0.7:
            rig.run(f"{chance.choice(POINTS)}:{chance.randint(1, 3)}")
        else:
            rig.killed_with_its_answer_lost()
    rig.finish()
    rig.expect_exact()
