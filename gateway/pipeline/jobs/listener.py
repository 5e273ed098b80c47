"""What Spark tells of a running query, taken over into a job's progress: rates, trigger time, backlog, its end.

Called by Spark from a thread of its own. Imports pyspark: only a running job does so. Progress comes over as one text:
pyspark's own way asks the JVM for each of its values by itself, which took a third of the JVM's time in a job with
short triggers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from gateway.pipeline.jobs.progress import JobProgress


class _Calls(JStreamingQueryListener):
    """What the JVM calls."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        """With the JSON that Spark also writes to its logs."""
        told = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        self.pylistener.onQueryProgress(QueryProgressEvent(told))


class ProgressListener(StreamingQueryListener):
    """Of the query with this name; a session may have others."""

    def __init__(self, name: str, progress: JobProgress, tell: Callable[[], None]) -> None:
        self._name = name
        self._progress = progress
        self._tell = tell
        self._mine: set[str] = set()
        self._proxy: Any = None

    @property
    def _jlistener(self) -> Any:
        """Asked for by Spark when the listener is added and when it is removed."""
        if self._proxy is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm  # noqa: SLF001 - there is no public way to a listener of one's own
            self._proxy = jvm.PythonStreamingQueryListenerWrapper(_Calls(self))
        return self._proxy

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Its names are told once. It runs, though nothing may have come yet."""
        if event.name == self._name:
            self._mine.add(str(event.runId))
            self._progress.state = "running"
            self._tell()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """After each trigger that had data, and now and then without."""
        told = event.progress
        if str(told.runId) not in self._mine:
            return
        progress = self._progress
        progress.batch = int(told.batchId)
        progress.trigger_seconds = int(told.durationMs.get("triggerExecution", 0)) / 1000
        each = messages_of(told.sources) / (told.numInputRows or 1)
        progress.input_rate = rate(told.inputRowsPerSecond) * each
        progress.processed_rate = rate(told.processedRowsPerSecond) * each
        progress.backlog = backlog_of(told.sources)
        self._tell()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has come for a while."""
        if str(event.runId) in self._mine:
            self._progress.input_rate = 0.0
            self._progress.backlog = 0
            self._tell()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Whether it goes on is for the job to say."""
        self._mine.discard(str(event.runId))


def rate(value: Any) -> float:
    """Rows a second; Spark says nothing, NaN or infinite where no time has passed."""
    number = float(value or 0.0)
    return number if 0.0 <= number < 1e12 else 0.0


def messages_of(sources: Any) -> int:
    """Messages of the batch: Spark itself counts the rows it is handed, which are one for each file of messages."""
    found = 0
    for source in sources:
        start, end = _offset(source.startOffset), _offset(source.endOffset)
        if end is not None:
            found += end["messages"] - (start["messages"] if start is not None else 0)
    return found


def backlog_of(sources: Any) -> int | None:
    """Messages behind the last batch; None when the source has not said."""
    found = None
    for source in sources:
        latest, end = _offset(source.latestOffset), _offset(source.endOffset)
        if latest is not None and end is not None:
            found = (found or 0) + max(0, latest["messages"] - end["messages"])
    return found


def _offset(text: Any) -> dict[str, int] | None:
    value = json.loads(text) if isinstance(text, str) and text.strip() not in ("", "null") else text
    return value if isinstance(value, dict) and "messages" in value else None
