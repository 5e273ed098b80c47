"""The benchmark's live parts: a store that is served and grows, and a gateway that takes publications meanwhile."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple, Self

from device_fleet import Fleet
from free_ports import free_port

from gateway.pipeline.drain.journal_server import LockedJournal, open_journal, serve
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.status import groups_of
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.journal.owner import Owner
from gateway.pipeline.journal.service import PipelineService
from gateway.pipeline.land.objects import open_store
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

TOKEN = "bench"
TICK = 0.05
LOAD = """
import sys, python_load
print(python_load.run(int(sys.argv[1]), 10, 100, 64, float(sys.argv[2]), float(sys.argv[3]))["acked_per_s"])
"""
JOB = """
version: 1
name: live
source: {{queue: "TELEMETRY.*", path: {path}, url: "{url}", token_file: {token}, purge_delay: 1h}}
warehouse: {lake}
trigger: 500ms
"""


STEADY = JOB.replace("TELEMETRY.*", "MQGATE.DEFAULT").replace("purge_delay: 1h", "purge_delay: 0s, group: {group}")


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

    def landed(self, spark: Any, lake: str, seconds: float) -> list[float]:
        """How long each message took from its put to a file that can be read; the first quarter warms up."""
        from gateway.pipeline.jobs.run import JobRun

        token = self.folder.parent / "token"
        token.write_text(TOKEN)
        text = JOB.format(path=self.folder, url=self.options["url"], token=token, lake=lake)
        parsed = parse_job("job.yaml", text)
        job = JobRun(spark, parsed)
        stopping = threading.Event()
        putting = threading.Thread(target=self._put, args=(stopping,))
        putting.start()
        query = job.start(once=False)
        query.awaitTermination(seconds)
        stopping.set()
        putting.join()
        query.stop()
        job.close()
        return waits(parsed, seconds / 4)

    def _put(self, stopping: threading.Event) -> None:
        fleet, due = Fleet(devices=1000), time.monotonic()
        while not stopping.wait(max(0.0, due - time.monotonic())):
            heads, bodies = fleet.batch(round(1000 * TICK))
            self.journal.commit(StoreUnit(puts=[LanePuts("TELEMETRY.A", heads=heads, bodies=bodies)]))
            due += TICK


def waits(job: Job, after: float) -> list[float]:
    """From each record's time and its rows' put times, without the batches of the first `after` seconds."""
    import pyarrow.parquet as pq

    records = warehouse_of(job).manifest().records(10_000)
    store = open_store(job.place, job.storage.settings)
    found: list[float] = []
    for record in records:
        if record.landed < records[0].landed + after:
            continue
        table = record.tables["bronze"]
        for name in [f"{table.folder}/{file}" for file, _ in table.files] or in_folder(job, table.folder):
            file = pq.ParquetFile(io.BytesIO(store.get(name) or b""))
            put = file.read(columns=["put_ts"]).column(0).cast("int64").to_pylist()
            found += [record.landed - micros / 1_000_000 for micros in put]
    return sorted(found)


def in_folder(job: Job, folder: str) -> list[str]:
    """The files of a batch in a folder, whose manifest names the folder alone."""
    lake = Path(job.warehouse)
    return [str(file.relative_to(lake)) for file in (lake / folder).glob("*.parquet")]


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

    def load(self, seconds: float, rate: float = 0) -> float:
        """Acknowledged publications a second, of as many as can be or of so many."""
        process = self.loading(seconds, rate)
        told, _ = process.communicate()
        assert process.returncode == 0
        return float(json.loads(told)["pub_rate"]) if os.environ.get("MQTTLOAD") else float(told)

    def loading(self, seconds: float, rate: float = 0) -> subprocess.Popen[str]:
        """In a process of its own, as devices are: the generator in C where MQTTLOAD names it."""
        if tool := os.environ.get("MQTTLOAD"):
            options = f"pub --qos 1 --pubs 10 --window 100 --size 64 --seconds {seconds} --warmup 0.5"
            options += f" --rate {rate}" if rate else ""
            command = [tool, *options.split(), "--port", str(self.port)]
        else:
            command = [sys.executable, "-c", LOAD, str(self.port), str(seconds), str(rate)]
        here = Path(__file__).parent
        found = {**os.environ, "PYTHONPATH": f"{here}:{here.parent / 'support'}"}
        return subprocess.Popen(command, cwd=here, env=found, stdout=subprocess.PIPE, text=True)

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

    def kept_up(self, spark: Any, lake: Path, rate: float, seconds: float) -> Kept:
        """A job lands what publishers put at a steady rate. The first third of the time is for the compilers."""
        from gateway.pipeline.jobs.run import JobRun

        data = self.folder / "data"
        text = STEADY.format(
            path=data, url=f"http://127.0.0.1:{self.admin}", token=data / "admin.token", lake=lake, group="steady"
        )
        parsed = parse_job("job.yaml", text)
        job = JobRun(spark, parsed)
        query = job.start(once=False)
        process = self.loading(seconds, rate)
        behind: list[tuple[float, int]] = []
        began = time.monotonic()
        while process.poll() is None:
            time.sleep(0.5)
            lags = [group["lag"] for group in groups_of(parsed.inputs[0]) if group["name"] == "steady"]
            if time.monotonic() - began > seconds / 3 and lags:
                behind.append((time.monotonic() - began, lags[0]))
        told, _ = process.communicate()
        query.stop()
        job.close()
        put = float(json.loads(told)["pub_rate"]) if os.environ.get("MQTTLOAD") else float(told)
        return Kept(put, behind, waits(parsed, seconds / 3))


class Kept(NamedTuple):
    """How a stream followed publishers."""

    rate: float
    """Acknowledged publications a second."""
    behind: list[tuple[float, int]]
    """When, and how many messages were acknowledged and not yet landed."""
    waits: list[float]
    """Seconds from put to readable."""

    @property
    def piled_up(self) -> float:
        """How much the lag grew from the first half to the second, of what was put meanwhile."""
        half = len(self.behind) // 2
        first, second = ([lag for _, lag in some] for some in (self.behind[:half], self.behind[half:]))
        between = self.behind[half + half // 2][0] - self.behind[half // 2][0]
        return (median(second) - median(first)) / (between * self.rate)
