"""A job on a standalone cluster of two workers that have the data source only as a file and read over HTTP: executors
and a worker's Python are killed in the middle, and every message is in the tables once. The packaged job, submitted
with spark-submit, reads over TLS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import on_a_cluster
import pytest
from certificates import Authority
from device_fleet import Fleet, write_journal
from free_ports import free_port
from s3_server import BUCKET, MANIFEST, Fault, Proxy, s3_found

pytestmark = on_a_cluster.MARKS
MESSAGES = 6000
DRIVER = """
import sys
from pathlib import Path
from gateway.pipeline.jobs.job import read_job
from gateway.pipeline.jobs.run import JobRun
from gateway.pipeline.jobs.spark.spark_session import make_session

job = read_job(Path(sys.argv[1]))
spark = make_session("cluster", job.spark)
import json
where = spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("gateway").__file__).collect()
Path(sys.argv[2]).write_text(json.dumps(where))
JobRun(spark, job).run(once=True)
spark.stop()
"""
JOB = """
version: 1
name: cluster
source: {{queue: "TELEMETRY.*", url: "{url}", token_file: {token}, group: cluster, max_messages: 500, purge_delay: 0s}}
warehouse: {lake}
trigger: 0s
silver:
  - table: readings
    key: [device]
    columns: [{{name: device, required: true}}, {{name: n, type: bigint}}]
spark:
  spark.master: {master}
  spark.submit.pyFiles: {package}
  spark.executor.memory: 512m
  spark.executor.cores: "1"
  spark.driver.memory: 512m
  spark.sql.shuffle.partitions: "2"
  spark.executorEnv.MQGATE_FAILPOINT: "read.middle:2"
  spark.executorEnv.MQGATE_FAILPOINT_FILE: {marker}
"""


def daemon(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of Spark's own processes."""
    import pyspark

    from gateway.pipeline.jobs.spark.java import find_java

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    environment["JAVA_HOME"] = str(find_java(os.environ, folder))
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    with (folder / "daemons").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    started = [daemon(tmp_path, "master.Master", "--port", str(port), "--webui-port", "0")]
    for number in range(2):
        work = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path / f"worker{number}")]
        started.append(daemon(tmp_path, "worker.Worker", *work, address))
    until = time.monotonic() + 180
    while (tmp_path / "daemons").read_text().count("Registering worker 127.0.0.1") < 2:
        assert time.monotonic() < until, (tmp_path / "daemons").read_text()[-4000:]
        time.sleep(0.2)
    yield address
    for process in started:
        with suppress(ProcessLookupError):  # a worker that its test has killed
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def serving(folder: Path, pair: Any = None) -> Iterator[tuple[str, Any]]:
    """The journal over HTTP, or TLS, as a gateway's administration port or a drainer serves it; and the journal."""
    from gateway.pipeline.drain.journal_server import open_journal, serve
    from gateway.pipeline.journal.owner import Owner
    from gateway.pipeline.journal.service import PipelineService

    (folder / "token").write_text("secret\n")
    journal = open_journal(folder / "j")
    service = PipelineService(Owner(journal), folder / "j")
    server = serve("127.0.0.1", free_port(), journal.guarded(service.handle), "secret", lambda: "", pair)
    yield f"{'https' if pair else 'http'}://127.0.0.1:{server.server_port}", journal
    server.shutdown()
    server.server_close()
    journal.store.close()


@pytest.fixture(params=[False])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A journal with messages; over TLS where the parameter says so."""
    write_journal(tmp_path / "j", MESSAGES, Fleet(devices=20))
    pair = Authority(tmp_path, "ca").issue("localhost") if request.param else None
    with serving(tmp_path, pair) as (url, _):
        yield url


def executors(folder: Path) -> list[int]:
    """The processes of the workers that run tasks."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            here = str((entry / "cwd").readlink())
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and here.startswith(str(folder)):
            found.append(int(entry.name))
    return found


def seqs(lake: Path, table: str) -> list[int]:
    import pyarrow.parquet as pq

    files = (lake / table).rglob("*.parquet")
    return [seq for file in files for seq in pq.ParquetFile(file).read(columns=["seq"]).column("seq").to_pylist()]


def test_executors_are_killed(tmp_path: Path, master: str, served: str) -> None:
    from gateway.pipeline.jobs.spark.spark_session import write_package
    from gateway.pipeline.land.manifest import Manifest

    lake, package, marker = tmp_path / "lake", tmp_path / "mqgate-pipeline.zip", tmp_path / "fired"
    write_package(package)
    given: dict[str, Any] = {"url": served, "token": tmp_path / "token", "lake": lake, "master": master}
    (tmp_path / "job.yaml").write_text(JOB.format(**given, package=package, marker=marker))
    (tmp_path / "driver.py").write_text(DRIVER)
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "job.yaml"), str(tmp_path / "where")],
            stdout=log, stderr=log, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
    try:
        killed = 0
        while driver.poll() is None:
            landed = len(Manifest(lake).records()) if lake.exists() else 0
            if landed > 3 * killed and killed < 2 and (running := executors(tmp_path)):
                os.kill(running[killed % len(running)], signal.SIGKILL)
                killed += 1
            time.sleep(0.1)
        assert driver.returncode == 0, (tmp_path / "log").read_text()[-6000:]
    finally:
        driver.kill()
        driver.wait()
    assert killed == 2
    assert marker.exists(), "a worker's Python was to die too"
    assert all(".zip" in place for place in json.loads((tmp_path / "where").read_text()))
    for table in ("bronze", "readings"):
        found = seqs(lake, table)
        assert (len(found), len(set(found))) == (MESSAGES, MESSAGES), table


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server. Workers hand its variables on to their executors, so it is there before them."""
    with s3_found(monkeypatch) as proxy:
        yield proxy


def workers(folder: Path) -> list[int]:
    """The leaders of the groups that a worker and its executors are."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            mine = str((entry / "cwd").readlink()) == str(folder)
            if mine and b"deploy.worker.Worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_a_worker_is_killed_on_the_way_to_object_storage(tmp_path: Path, s3: Proxy, master: str, served: str) -> None:
    """With all its executors; the other worker lands the rest, while answers of the store are lost."""
    from gateway.pipeline.jobs.job import read_job
    from gateway.pipeline.jobs.spark.spark_session import write_package
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    package, marker, file = tmp_path / "mqgate-pipeline.zip", tmp_path / "fired", tmp_path / "job.yaml"
    write_package(package)
    given: dict[str, Any] = {"url": served, "token": tmp_path / "token", "master": master}
    file.write_text(JOB.format(**given, lake=f"s3://{BUCKET}/cluster", package=package, marker=marker))
    (tmp_path / "driver.py").write_text(DRIVER)
    s3.faults += [Fault("PUT", MANIFEST, "answer lost"), Fault("PUT", r"\.parquet", "503", times=3)]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(tmp_path / "driver.py"), str(file), str(tmp_path / "where")],
            stdout=log, stderr=log, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip
    warehouse, killed = warehouse_of(read_job(file)), 0
    try:
        while driver.poll() is None:
            if not killed and len(warehouse.records()) > 2:
                killed = workers(tmp_path)[0]
                os.killpg(killed, signal.SIGKILL)
            time.sleep(0.2)
        assert driver.returncode == 0, (tmp_path / "log").read_text()[-6000:]
    finally:
        driver.kill()
        driver.wait()
    assert killed
    assert s3.unspent() == []
    for table in ("bronze", "readings"):
        found = [row["seq"] for row in warehouse.rows(table)]
        assert (len(found), len(set(found))) == (MESSAGES, MESSAGES), table


COMING_AND_GOING = """
  spark.dynamicAllocation.enabled: "true"
  spark.dynamicAllocation.minExecutors: "0"
  spark.dynamicAllocation.initialExecutors: "0"
  spark.dynamicAllocation.maxExecutors: "2"
  spark.dynamicAllocation.executorIdleTimeout: 10s
  spark.dynamicAllocation.schedulerBacklogTimeout: 1s
  spark.dynamicAllocation.shuffleTracking.timeout: 10s
"""
"""An executor takes most of a minute to start on a busy machine: it must not go between two steps of one batch."""
BURSTS, LONGEST = 2, 1000.0
UNTIL_TOLD = """
import sys
from pathlib import Path
from gateway.pipeline.jobs.job import read_job
from gateway.pipeline.jobs.run import JobRun
from gateway.pipeline.jobs.spark.spark_session import make_session

job = read_job(Path(sys.argv[1]))
spark = make_session("cluster", job.spark)
query = JobRun(spark, job).start(once=False)
while not Path(sys.argv[2]).exists() and not query.awaitTermination(1):
    pass
query.stop()
spark.stop()
"""


def test_executors_come_and_go_while_a_stream_lands(tmp_path: Path, s3: Proxy, master: str) -> None:
    """Dynamic allocation: none while there is nothing to do, new ones for each burst."""
    from gateway.pipeline.jobs.job import read_job
    from gateway.pipeline.jobs.spark.spark_session import write_package
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of
    from gateway.queue_manager.store.unit import LanePuts, StoreUnit

    package, file, told = tmp_path / "mqgate-pipeline.zip", tmp_path / "job.yaml", tmp_path / "told"
    write_package(package)
    fleet, seen, counts = Fleet(devices=20), set(), []
    write_journal(tmp_path / "j", 1, fleet)
    with serving(tmp_path) as (url, journal):
        given: dict[str, Any] = {"url": url, "token": tmp_path / "token", "master": master, "package": package}
        text = JOB.format(**given, lake=f"s3://{BUCKET}/elastic", marker=tmp_path / "fired")
        kept = "".join(f"{line}\n" for line in text.splitlines() if "FAILPOINT" not in line)
        file.write_text(kept.replace("max_messages: 500", "max_messages: 4000") + COMING_AND_GOING.lstrip("\n"))
        (tmp_path / "driver.py").write_text(UNTIL_TOLD)
        warehouse = warehouse_of(read_job(file))
        with (tmp_path / "log").open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, str(tmp_path / "driver.py"), str(file), str(told)],
                stdout=log, stderr=log, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )  # fmt: skip

        until = time.monotonic() + LONGEST

        def wait_until(done: Callable[[], bool]) -> None:
            while not done():
                seen.update(executors(tmp_path))
                assert driver.poll() is None, (tmp_path / "log").read_text()[-6000:]
                assert time.monotonic() < until, (seen, (tmp_path / "log").read_text()[-6000:])
                time.sleep(0.2)

        try:
            for _ in range(BURSTS):
                heads, bodies = fleet.batch(MESSAGES)
                journal.commit(StoreUnit(puts=[LanePuts("TELEMETRY.A", heads=heads, bodies=bodies)]))
                wait_until(lambda: sum(record.figures["rows"] for record in warehouse.records()) == fleet.sent)
                wait_until(lambda: not executors(tmp_path))
                counts.append(len(seen))
            told.touch()
            assert driver.wait(120) == 0, (tmp_path / "log").read_text()[-6000:]
        finally:
            driver.kill()
            driver.wait()
    assert counts == sorted(set(counts)), "each burst had executors of its own"
    for table in ("bronze", "readings"):
        found = [row["seq"] for row in warehouse.rows(table)]
        assert (len(found), len(set(found))) == (fleet.sent, fleet.sent), table


SUBMISSIONS = 4
"""Spark gives a Python process ten seconds to start, which a busy machine may not have; a job may be sent again."""
SUBMITTED = """
version: 1
name: submitted
source: {{queue: "TELEMETRY.*", url: "{url}", token_file: {token}, ca_file: {ca}, max_messages: 2000, purge_delay: 0s}}
warehouse: {lake}
trigger: 0s
silver:
  - {{table: readings, key: [device], columns: [{{name: device, required: true}}]}}
"""


@pytest.mark.parametrize("served", [True], indirect=True)
def test_the_packaged_job_is_submitted_and_reads_over_tls(tmp_path: Path, s3: Proxy, master: str, served: str) -> None:
    """It lands on object storage, as pods of Kubernetes do."""
    import pyspark

    from gateway.pipeline.jobs.job import read_job
    from gateway.pipeline.jobs.spark.java import find_java
    from gateway.pipeline.jobs.spark.spark_session import write_package
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    write_package(tmp_path / "mqgate-pipeline.zip")
    given = {"url": served, "token": tmp_path / "token", "ca": tmp_path / "ca.pem", "lake": f"s3://{BUCKET}/submitted"}
    (tmp_path / "job.yaml").write_text(SUBMITTED.format(**given))
    job = Path(__file__).parents[2] / "deploy/spark/job.py"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYSPARK_PYTHON": sys.executable}
    environment |= {"JAVA_HOME": str(find_java(os.environ, tmp_path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", master]
    command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"]
    command += ["--py-files", str(tmp_path / "mqgate-pipeline.zip"), str(job), str(tmp_path / "job.yaml"), "--once"]
    for _ in range(SUBMISSIONS):
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode == 0 or "failed to connect back" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[:6000]
    assert s3.seen, "the store of this test"
    warehouse = warehouse_of(read_job(tmp_path / "job.yaml"))
    for table in ("bronze", "readings"):
        found = [row["seq"] for row in warehouse.rows(table)]
        assert (len(found), len(set(found))) == (MESSAGES, MESSAGES), table
