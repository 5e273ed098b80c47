"""Figures of a running query: of messages, whatever Spark itself counts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from gateway.pipeline.jobs.progress import JobProgress
from gateway.pipeline.jobs.spark.listener import ProgressListener


def triggered(second: int, start: int, end: int, rows: int) -> Any:
    """Spark's report of a batch that took four seconds."""
    offsets = {
        name: json.dumps({"messages": value, "next": value})
        for name, value in (("startOffset", start), ("endOffset", end), ("latestOffset", 9000))
    }
    return SimpleNamespace(progress=SimpleNamespace(
        runId="r", batchId=1, timestamp=f"2026-11-28T15:35:{second:02}.000Z", sources=[SimpleNamespace(**offsets)],
        durationMs={"triggerExecution": 4000}, numInputRows=rows, inputRowsPerSecond=0.0, processedRowsPerSecond=0.0,
    ))  # fmt: skip


@pytest.mark.parametrize("rows", [0, 2])
def test_rates_are_of_messages(rows: int) -> None:
    progress, told = JobProgress("plant"), []
    listener = ProgressListener("plant", progress, lambda: told.append(progress.processed_rate))
    listener.onQueryStarted(SimpleNamespace(name="plant", runId="r"))
    listener.onQueryProgress(triggered(0, 0, 1000, rows))
    assert (progress.processed_rate, progress.input_rate, progress.backlog) == (250.0, 0.0, 8000)
    listener.onQueryProgress(triggered(10, 1000, 5000, rows))
    assert (progress.processed_rate, progress.input_rate, progress.backlog) == (1000.0, 400.0, 4000)
    assert told == [0.0, 250.0, 1000.0]
