"""The progress of a running job, and its display on a terminal: one line that changes, or a line for each batch."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gateway.config.counting import counted
from gateway.pipeline.land.manifest import ManifestRecord

STARTING = "starting"
"""The state of a job that has no Spark session yet."""
WAITING = "waiting"
"""The state of a job whose warehouse does not answer yet."""


@dataclass(slots=True)
class JobProgress:
    """State and figures of a running job. Written to the warehouse as they change, for `mqgate pipeline status`."""

    job: str
    state: str = STARTING
    batches: int = 0
    rows: int = 0
    quarantined: int = 0
    rows_per_second: float = 0.0
    backlog: int | None = None
    """Messages still waiting after the last batch, as Spark counts them."""
    batch: int | None = None
    trigger_seconds: float = 0.0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    wait_p50: float | None = None
    """Seconds from put to table in the last batch: the median."""
    wait_p99: float | None = None
    last_batch: float | None = None
    restarts: int = 0
    error: str = ""
    started: float = field(default_factory=time.time)
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)

    def add(self, record: ManifestRecord) -> None:
        """Count one landed batch."""
        rows = int(record.figures.get("rows", 0))
        self.batches += 1
        self.rows += rows
        if self.backlog is not None:  # counted after the batch before; Spark's figures of this one follow
            self.backlog = max(0, self.backlog - rows)
        self.quarantined += sum(int(n) for name, n in record.figures.items() if name.startswith("quarantined."))
        self.rows_per_second = rows / max(record.figures.get("seconds", 0.0), 1e-6)
        self.last_batch = record.landed
        self.wait_p50, self.wait_p99 = record.figures.get("wait.p50"), record.figures.get("wait.p99")


Watch = Callable[[JobProgress], None]


class ProgressDisplay:
    """Shows each new progress on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )
        self._line = ""
        self._task = self._bar.add_task("starting Spark", total=None, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, progress: JobProgress) -> None:
        """Show a progress."""
        if progress.state == STARTING:
            self._show_start(progress)
            return
        if progress.state == WAITING:
            said = f"{progress.job}: waiting: {progress.error}"
            self._console.print(said, soft_wrap=self._bar.disable, markup=False)
            return
        figures = (
            f"{counted(progress.rows, 'row')}, {progress.rows_per_second:,.0f}/s, {progress.quarantined:,} quarantined"
        )
        if progress.backlog:
            figures += f", {progress.backlog:,} to go"
        if self._bar.disable:
            batches = counted(progress.batches, "batch", "batches")
            line = f"{progress.job}: {progress.state}: {batches}, {figures}"
            if line != self._line:  # Spark's own figures of a batch come after it and change others
                self._console.print(line, style="", soft_wrap=True)  # a log's lines have no width
            self._line = line
        else:
            total = None if progress.backlog is None else progress.rows + progress.backlog
            self._bar.update(
                self._task, description=f"{progress.job}: {progress.state}", figures=figures,
                total=total, completed=progress.rows,
            )  # fmt: skip
        if progress.error and progress.state == "restarting":  # of one that has failed the command says it
            said = f"{progress.state}: {progress.error}"
            self._console.print(said, style="red", soft_wrap=self._bar.disable, markup=False)

    def _show_start(self, progress: JobProgress) -> None:
        """Say that there will be nothing to see for some time, which on a busy machine is minutes."""
        if self._bar.disable:
            self._console.print(f"{progress.job}: starting Spark, which takes a while", style="")
        else:
            self._bar.update(self._task, description=f"{progress.job}: starting Spark")
