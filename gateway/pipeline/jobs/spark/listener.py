"""Spark's reports on a running query, copied into the job's progress: rates, trigger time, backlog.

Spark calls the listener from a thread of its own. The module imports pyspark, so only a running job imports it.
Progress is transferred as one JSON text: pyspark's own classes ask the JVM for each value separately, which took a
third of the JVM's time in a job with short triggers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from gateway.pipeline.jobs.progress import JobProgress


class _Calls(JStreamingQueryListener):
    """The object that the JVM calls."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        """Parse the JSON that Spark also writes to its logs."""
        progress = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        self.pylistener.onQueryProgress(QueryProgressEvent(progress))


class ProgressListener(StreamingQueryListener):
    """Listens to the query with this name; a session may have others."""

    def __init__(self, name: str, progress: JobProgress, report: Callable[[], None]) -> None:
        self._name = name
        self._progress = progress
        self._report = report
        self._mine: set[str] = set()
        self._proxy: Any = None
        self._began = 0.0
        """When the trigger before began, in seconds since the epoch; 0 if there was none."""

    @property
    def _jlistener(self) -> Any:
        """Read by Spark when the listener is added and when it is removed."""
        if self._proxy is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm  # noqa: SLF001 - there is no public way to a listener of one's own
            self._proxy = jvm.PythonStreamingQueryListenerWrapper(_Calls(self))
        return self._proxy

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Remember the run's identifier, which later events have. The query runs, perhaps without messages yet."""
        if event.name == self._name:
            self._mine.add(str(event.runId))
            self._began = 0.0
            self._progress.state = "running"
            self._report()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Called after each trigger that had data, and now and then after others."""
        trigger = event.progress
        if str(trigger.runId) not in self._mine:
            return
        progress = self._progress
        progress.batch = int(trigger.batchId)
        progress.trigger_seconds = int(trigger.durationMs.get("triggerExecution", 0)) / 1000
        messages, began = messages_of(trigger.sources), datetime.fromisoformat(trigger.timestamp).timestamp()
        progress.processed_rate = rate(messages, progress.trigger_seconds)
        progress.input_rate = rate(messages, began - self._began) if self._began else 0.0
        self._began = began
        progress.backlog = backlog_of(trigger.sources)
        self._report()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Called when there was no data for a while."""
        if str(event.runId) in self._mine:
            self._progress.input_rate = 0.0
            self._progress.backlog = 0
            self._report()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Stop listening to this run. The job decides whether to start the query again."""
        self._mine.discard(str(event.runId))


def rate(messages: int, seconds: float) -> float:
    """Messages a second; 0 where no time has passed."""
    return messages / seconds if seconds > 0 else 0.0


def messages_of(sources: Any) -> int:
    """Messages of the batch. Spark itself counts the rows it is handed, one for each file of messages, or none."""
    total = 0
    for source in sources:
        start, end = _offset(source.startOffset), _offset(source.endOffset)
        if end is not None:
            total += end["messages"] - (start["messages"] if start is not None else 0)
    return total


def backlog_of(sources: Any) -> int | None:
    """Messages after the last batch; None when the source has not reported them."""
    total = None
    for source in sources:
        latest, end = _offset(source.latestOffset), _offset(source.endOffset)
        if latest is not None and end is not None:
            total = (total or 0) + max(0, latest["messages"] - end["messages"])
    return total


def _offset(text: Any) -> dict[str, int] | None:
    value = json.loads(text) if isinstance(text, str) and text.strip() not in ("", "null") else text
    return value if isinstance(value, dict) and "messages" in value else None
