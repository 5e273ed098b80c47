"""The packaged job on YARN, submitted in both deploy modes; an executor's container is killed in the middle and every
message is in the tables once. Spark's side of YARN is real, the cluster is a stand-in (tests/yarn_stand_in.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import on_a_cluster
import pytest
from device_fleet import Fleet, write_journal
from yarn_stand_in import YarnStandIn

pytestmark = on_a_cluster.MARKS
MESSAGES = 6000
EXECUTOR = 1
"""The second container; the first is the application master's."""
JOB = """
version: 1
name: yarn
source: {{queue: "TELEMETRY.*", url: "{url}", token_file: {folder}/token, max_messages: 300, purge_delay: 0s}}
warehouse: {folder}/lake
trigger: 0s
silver:
  - {{table: readings, key: [device], columns: [{{name: device, required: true}}]}}
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """A job file that reads a journal over HTTP, as hosts of a cluster do."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from free_ports import free_port

    from gateway.pipeline.drain.journal_server import open_journal, serve
    from gateway.pipeline.journal.owner import Owner
    from gateway.pipeline.journal.service import PipelineService

    write_journal(tmp_path / "j", MESSAGES, Fleet(devices=20))
    (tmp_path / "token").write_text("secret\n")
    journal = open_journal(tmp_path / "j")
    service = PipelineService(Owner(journal), tmp_path / "j")
    server = serve("127.0.0.1", free_port(), journal.guarded(service.handle), "secret", lambda: "")
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(url=f"http://127.0.0.1:{server.server_port}", folder=tmp_path))
    yield file
    server.shutdown()
    server.server_close()
    journal.store.close()


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnStandIn]:
    from gateway.pipeline.jobs.spark.java import find_java

    with YarnStandIn(tmp_path / "yarn", find_java(os.environ, tmp_path)) as cluster:
        yield cluster


def submitted(yarn: YarnStandIn, job: Path, mode: str) -> subprocess.Popen[bytes]:
    """spark-submit, as docs/howto/pipeline.md has it."""
    import pyspark

    from gateway.pipeline.jobs.spark.spark_session import write_package

    folder, home = job.parent, Path(pyspark.__file__).parent
    write_package(folder / "mqgate-pipeline.zip")
    settings = {
        "spark.yarn.jars": f"local:{home}/jars/*", "spark.yarn.stagingDir": str(folder), "spark.yarn.am.memory": "512m",
        "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.executor.instances": "1",
        "spark.sql.shuffle.partitions": "1", "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    command = [str(home / "bin/spark-submit"), "--master", "yarn", "--deploy-mode", mode]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--py-files", str(folder / "mqgate-pipeline.zip")]
    command += [str(Path(__file__).parents[2] / "deploy/spark/job.py"), str(job), "--once"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYSPARK_PYTHON": sys.executable}
    environment |= {"HADOOP_CONF_DIR": str(yarn.configuration), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JAVA_HOME": str(yarn.java_home)}
    with (folder / "submit.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


def told(folder: Path) -> str:
    """What submission and containers have said, for a failure."""
    files = [folder / "submit.log", *sorted((folder / "yarn/containers").glob("*/std*"))]
    return "\n".join(f"== {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_packaged_job(yarn: YarnStandIn, job: Path, mode: str) -> None:
    import pyarrow.parquet as pq

    from gateway.pipeline.land.manifest import Manifest

    lake, killed = job.parent / "lake", False
    process = submitted(yarn, job, mode)
    try:
        while process.poll() is None:
            if not killed and lake.exists() and len(Manifest(lake).records()) > 2:
                yarn.kill_container(EXECUTOR)
                killed = True
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, told(job.parent)
    assert (yarn.state, yarn.final) == ("FINISHED", "SUCCEEDED")
    assert killed
    assert len(yarn.processes) > EXECUTOR + 1, "another executor in place of the one that was killed"
    for table in ("bronze", "readings"):
        files = (lake / table).rglob("*.parquet")
        found = [seq for file in files for seq in pq.ParquetFile(file).read(columns=["seq"]).column(0).to_pylist()]
        assert (len(found), len(set(found))) == (MESSAGES, MESSAGES), table
