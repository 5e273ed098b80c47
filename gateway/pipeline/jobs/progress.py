"""A job's progress on a terminal: one line that changes, or a line for each batch where there is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gateway.config.counting import counted
from gateway.pipeline.jobs import run


class Shown:
    """Called with each new `run.Progress`."""

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
        self._task = self._bar.add_task("starting Spark", total=None, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, progress: run.Progress) -> None:
        """Show it."""
        figures = (
            f"{counted(progress.rows, 'row')}, {progress.rows_per_second:,.0f}/s, {progress.quarantined:,} quarantined"
        )
        if progress.backlog:
            figures += f", {progress.backlog:,} to go"
        if self._bar.disable:
            batches = counted(progress.batches, "batch", "batches")
            self._console.print(f"{progress.job}: {progress.state}: {batches}, {figures}", style="")
        else:
            total = None if progress.backlog is None else progress.rows + progress.backlog
            self._bar.update(
                self._task, description=f"{progress.job}: {progress.state}", figures=figures,
                total=total, completed=progress.rows,
            )  # fmt: skip
        if progress.error and progress.state in ("failed", "restarting"):
            self._console.print(f"{progress.state}: {progress.error}", style="red")
