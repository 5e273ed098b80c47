"""From devices to gold: MQTT clients, a running gateway, its queue, a stream, tables equal to what was sent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port

from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.status import job_status, status_lines

DEVICES, READINGS = 10, 25
JOB = """
version: 1
name: fleet
source:
  queue: MQGATE.DEFAULT
  path: {data}
  url: http://127.0.0.1:{admin}
  token_file: {data}/admin.token
  max_messages: 150
  purge_delay: 0s
warehouse: {lake}
trigger: 0s
silver:
  - table: readings
    event_time: ts
    key: [device]
    columns:
      - {{name: device, from: client_id, required: true}}
      - {{name: n, type: bigint, required: true}}
      - {{name: ts, type: timestamp, unit: ms}}
      - {{name: temperature, type: double}}
gold:
  - {{table: devices, kind: last, values: [n, temperature]}}
  - {{table: gaps, kind: gaps, sequence: n}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    data, mqtt, admin = tmp_path / "data", free_port(), free_port()
    command = [
        sys.executable,
        "-m",
        "gateway",
        "run",
        "--data",
        str(data),
        "--port",
        str(mqtt),
        "--admin-port",
        str(admin),
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": ""}
        )
    try:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", mqtt)) == 0:
                    break
            time.sleep(0.1)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield data, mqtt, admin
    finally:
        process.terminate()
        process.wait(30)


def payload(device: int, n: int) -> bytes:
    return json.dumps({"n": n, "ts": 1_790_000_000_000 + 1000 * n, "temperature": 20 + device + n / 10}).encode()


def test_gold_is_what_the_devices_sent(spark: Any, gateway: tuple[Path, int, int], tmp_path: Path) -> None:
    publish = pytest.importorskip("paho.mqtt.publish", reason="paho-mqtt is not installed")
    from gateway.pipeline.jobs.run import JobRun

    data, mqtt, admin = gateway
    job = parse_job("job.yaml", JOB.format(data=data, admin=admin, lake=tmp_path / "lake"))
    sent = [n for n in range(READINGS) if n != 11]
    for part in (sent[:15], sent[15:]):
        for device in range(DEVICES):
            messages = [(f"plant/dev{device}", payload(device, n), 1, False) for n in part]
            publish.multiple(messages, hostname="127.0.0.1", port=mqtt, client_id=f"dev{device}")
    assert JobRun(spark, job).run(once=True).batches == 2, "the second begins with the state of the first"
    (line,) = [line for line in status_lines(job_status(job)) if "group spark" in line]
    assert line.endswith("0 behind, nobody reads"), "the lease is given back to the gateway"
    rows = spark.read.parquet(str(tmp_path / "lake/readings")).where("status = 'ok'").collect()
    assert sorted((row.device, row.n) for row in rows) == sorted((f"dev{d}", n) for d in range(DEVICES) for n in sent)
    assert {row.topic for row in rows} == {f"plant/dev{device}" for device in range(DEVICES)}
    last = {
        row.device: (row.n, row.temperature) for row in spark.read.parquet(str(tmp_path / "lake/devices")).collect()
    }
    assert last == {f"dev{device}": (24, 20 + device + 2.4) for device in range(DEVICES)}
    gaps = spark.read.parquet(str(tmp_path / "lake/gaps")).collect()
    assert sorted((gap.device, gap.previous, gap.next, gap.missing) for gap in gaps) == [
        (f"dev{device}", 10, 12, 1) for device in range(DEVICES)
    ]
