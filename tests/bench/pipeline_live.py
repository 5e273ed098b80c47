"""The benchmark's live parts: a store that is served and grows, and a gateway that takes publications meanwhile."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from device_fleet import Fleet
from free_ports import free_port

from gateway.pipeline.drain.journal_server import LockedJournal, open_journal, serve
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.journal.owner import Owner
from gateway.pipeline.journal.service import PipelineService
from gateway.pipeline.land.manifest import Manifest
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

TOKEN = "bench"
TICK = 0.05
LOAD = """
import sys, python_load
print(python_load.run(int(sys.argv[1]), 10, 100, 64, float(sys.argv[2]))["acked_per_s"])
"""
JOB = """
version: 1
name: live
source: {{queue: "TELEMETRY.*", path: {path}, url: "{url}", token_file: {token}, purge_delay: 1h}}
warehouse: {lake}
trigger: 500ms
"""


class Serving:
    """A journal that this process owns and serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        self.journal: LockedJournal = open_journal(self.folder)
        service = PipelineService(Owner(self.journal), self.folder)
        handle = self.journal.guarded(service.handle)
        self.server = serve("127.0.0.1", free_port(), handle, TOKEN, lambda: "")
        self.options = {"url": f"http://127.0.0.1:{self.server.server_port}", "token": TOKEN}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.journal.store.close()

    def landed(self, spark: Any, lake: Path, seconds: float) -> list[float]:
        """How long each message took from its put to a file that can be read; the first quarter warms up."""
        from gateway.pipeline.jobs.run import JobRun

        token = self.folder.parent / "token"
        token.write_text(TOKEN)
        text = JOB.format(path=self.folder, url=self.options["url"], token=token, lake=lake)
        job = JobRun(spark, parse_job("job.yaml", text))
        stopping = threading.Event()
        putting = threading.Thread(target=self._put, args=(stopping,))
        putting.start()
        query = job.start(once=False)
        query.awaitTermination(seconds)
        stopping.set()
        putting.join()
        query.stop()
        job.close()
        return waits(lake, seconds / 4)

    def _put(self, stopping: threading.Event) -> None:
        fleet, due = Fleet(devices=1000), time.monotonic()
        while not stopping.wait(max(0.0, due - time.monotonic())):
            heads, bodies = fleet.batch(round(1000 * TICK))
            self.journal.commit(StoreUnit(puts=[LanePuts("TELEMETRY.A", heads=heads, bodies=bodies)]))
            due += TICK


def waits(lake: Path, after: float) -> list[float]:
    """From each record's time and its rows' put times, without the batches of the first `after` seconds."""
    import pyarrow.parquet as pq

    records = Manifest(lake).records()
    found: list[float] = []
    for record in records:
        if record.landed < records[0].landed + after:
            continue
        for file in (lake / record.tables["bronze"].folder).glob("*.parquet"):
            put = pq.ParquetFile(file).read(columns=["put_ts"]).column(0).cast("int64").to_pylist()
            found += [record.landed - micros / 1_000_000 for micros in put]
    return sorted(found)


class Ingesting:
    """A gateway, and publishers that have as much in flight as they may."""

    def __init__(self, folder: Path, core: int | None = None) -> None:
        self.folder, self.core = folder, core

    def __enter__(self) -> Self:
        self.folder.mkdir()
        self.port, self.admin = free_port(), free_port()
        command = [sys.executable, "-m", "gateway", "run", "--data", str(self.folder / "data")]
        if self.core is not None:
            command = ["taskset", "-c", str(self.core), *command]
        command += ["--port", str(self.port), "--admin-port", str(self.admin)]
        log = (self.folder / "log").open("wb")
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment)
        log.close()
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(60)

    def load(self, seconds: float) -> float:
        """In a process of its own, as devices are: the generator in C where MQTTLOAD names it."""
        if tool := os.environ.get("MQTTLOAD"):
            options = f"pub --qos 1 --pubs 10 --window 100 --size 64 --seconds {seconds} --warmup 0.5"
            told = subprocess.run([tool, *options.split(), "--port", str(self.port)], capture_output=True, check=True)
            return float(json.loads(told.stdout)["pub_rate"])
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(self.port), str(seconds)],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1] / 'support'}"},
        )  # fmt: skip
        return float(done.stdout)

    def rates(self, spark: Any, work: Path, seconds: float = 8.0) -> tuple[float, float]:
        """Best of three each, in turn; the stream reads and discards whatever is there."""
        data = self.folder / "data"
        options = {"path": str(data), "url": f"http://127.0.0.1:{self.admin}", "tokenFile": str(data / "admin.token")}
        options |= {"queue": "MQGATE.DEFAULT", "purgeDelay": "0", "maxMessagesPerTrigger": "50000"}
        self.load(seconds)
        alone, beside = [], []
        for turn in range(3):
            alone.append(self.load(seconds))
            frame = spark.readStream.format("mqqueue").options(**options).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(work / "c"))
            query = writer.trigger(processingTime="0 seconds").start()
            if not turn:
                query.awaitTermination(20)  # the compilers
            beside.append(self.load(seconds))
            query.stop()
        return max(alone), max(beside)
