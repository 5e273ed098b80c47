"""Spark Connect: the same data source through a client that has no JVM of its own. A server is started for it, in
processes of their own, since a process has sessions of one kind only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from device_fleet import write_journal

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="the long form: tests/run --long"),
]
CLIENT = """
import json, sys
from pyspark.sql import SparkSession

journal, work = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {"path": journal, "queue": "TELEMETRY.*"}
found = {"client": type(spark).__module__}
rows = spark.read.format("mqqueue").options(**options).load()
found["batch"] = list(rows.selectExpr("count(*)", "count(DISTINCT seq)", "count(DISTINCT client_id)").first())
view = "CREATE OR REPLACE TEMPORARY VIEW m USING mqqueue OPTIONS (path '{path}', queue '{queue}')"
spark.sql(view.format(**options))
found["sql"] = spark.sql("SELECT count(*) FROM m WHERE topic LIKE 'plant/%'").first()[0]
stream = spark.readStream.format("mqqueue").options(**options, maxMessagesPerTrigger="1000").load()
writer = stream.writeStream.format("parquet").option("checkpointLocation", work + "/c").option("path", work + "/o")
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
found["batches"] = query.lastProgress.batchId + 1
landed = spark.read.parquet(work + "/o").selectExpr("count(*)", "count(DISTINCT seq)")
found["stream"] = list(landed.first())
sent = rows.select("payload").write.format("mqqueue").options(path=journal, queue="BACK", txn="once").mode("append")
sent.save()
found["sink"] = spark.read.format("mqqueue").options(path=journal, queue="BACK").load().count()
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.mark.timeout(900)
def test_batch_sql_stream_and_sink(tmp_path: Path) -> None:
    for module in ("pyspark", "pyarrow", "pandas", "grpc", "zstandard"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install 'pyspark[connect]'")
    from gateway.pipeline.jobs.spark.java import find_java
    from gateway.pipeline.jobs.spark.spark_session import worker_path

    write_journal(tmp_path / "j", 3000)
    environment = {**os.environ, "JAVA_HOME": str(find_java(os.environ, tmp_path)), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYTHONPATH": worker_path(os.environ.get("PYTHONPATH", "")), "PYTHONWARNINGS": "ignore"}
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(tmp_path / "j"), str(tmp_path / "w")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    try:
        told, _ = client.communicate(timeout=840)
    finally:
        if client.poll() is None:
            os.killpg(client.pid, signal.SIGKILL)
    line = next((each for each in told.splitlines() if each.startswith("FOUND ")), None)
    assert line is not None, told[-6000:]
    assert json.loads(line.removeprefix("FOUND ")) == {
        "client": "pyspark.sql.connect.session",
        "batch": [3000, 3000, 100],
        "sql": 3000,
        "batches": 3,
        "stream": [3000, 3000],
        "sink": 3000,
    }
