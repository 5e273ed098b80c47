"""The benchmark's jobs: one stream that lands bronze in a folder, the other on an S3 server on loopback. The server is
Python too and takes its share of the machine; its processor time is told beside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from free_ports import free_port
from s3_server import BUCKET, environment

from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.run import JobRun
from gateway.pipeline.jobs.spark.listener import messages_of

TICKS = os.sysconf("SC_CLK_TCK")
JOB = """
version: 1
name: landing
source: {{queue: "TELEMETRY.*", path: {path}, purge_delay: 1h, group: {group}}}
warehouse: {lake}
format: {format}
trigger: 0s
"""


class Server:
    """An S3 server in a process of its own, found by the usual variables: Spark's processes inherit them, so it is
    there before the session."""

    def __enter__(self) -> Self:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        os.environ |= environment(self.url)
        until = time.monotonic() + 60
        while True:
            request = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")
            try:
                urllib.request.urlopen(request, timeout=30).close()
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def cpu(self) -> float:
        """Seconds of processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / TICKS


class Landed(NamedTuple):
    """A stream that has landed all there was."""

    rates: list[float]
    """Rows a second of each batch."""
    rate: float
    """Rows a second over all batches, without the start of the query."""


def landed(spark: Any, journal: Path, lake: Path | str, table_format: str) -> Landed:
    """A job from the first message to the last."""
    if isinstance(lake, Path):
        shutil.rmtree(lake, ignore_errors=True)
    group = f"job{time.time_ns()}"
    job = JobRun(spark, parse_job("job.yaml", JOB.format(path=journal, lake=lake, format=table_format, group=group)))
    query = job.start(once=True)
    query.awaitTermination()
    job.close()
    return landed_by(query)


def landed_by(query: Any) -> Landed:
    """The rates of a query that has ended."""
    done = [each for each in query.recentProgress if each.numInputRows]
    took = [(messages_of(each.sources), each.durationMs["triggerExecution"] / 1000) for each in done]
    return Landed([rows / seconds for rows, seconds in took], sum(rows for rows, _ in took) / sum(s for _, s in took))
