"""The service through which the data pipeline reads from the running queue manager, and the lag of its consumer
groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.journal.job_reports import JobReports
from gateway.pipeline.journal.owner import Owner, QueueManagerJournal
from gateway.pipeline.journal.service import JSON, PipelineService, Reply
from gateway.ports.batch import BatchQueueManager
from gateway.queue_manager.embedded import EmbeddedQueueManager

TROUBLED = ("failed", "restarting")
NEEDED = ("numpy", "pyarrow")
"""Libraries for sending messages as Arrow streams; the extra `data`."""


def pipeline_of(queue_manager: BatchQueueManager, directory: Path, reports: JobReports) -> PipelineService | None:
    """Returns the service, if the queue manager is embedded. Queues of IBM MQ are drained or browsed instead."""
    if not isinstance(queue_manager, EmbeddedQueueManager):
        return None
    return PipelineService(Owner(QueueManagerJournal(queue_manager.core)), directory, reports)


def pipeline_answers(service: PipelineService) -> Callable[[str, str, Mapping[str, str], bytes], Reply]:
    """Returns the service's request handler; without the libraries, one that answers what to install."""

    def answer(method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing and path in {"messages", "put"}:
            text = f"this gateway lacks {' and '.join(missing)}: {how_to_install('data')} on its machine"
            return Reply(503, JSON, iter([json.dumps({"error": text, "kind": ""}).encode()]))
        return service.handle(method, path, query, body)

    return answer


def pipeline_state(service: PipelineService | None, now: float) -> dict[str, Any]:
    """Returns the body of GET /pipeline."""
    shown = service.groups() if service is not None else []
    queues = [
        {
            "queue": group["queues"],
            "lag_messages": group["lag"],
            "oldest_seconds": None,
            "committed_messages": group["cursor"],
            "last_commit": group["acknowledged"],
            "job": group["name"],
        }
        for group in shown
    ]
    reports = {group["name"]: service.reports.of(group["name"]) or {} for group in shown} if service else {}
    jobs = [_job(group, reports[group["name"]], now) for group in shown]
    return {"queues": queues, "jobs": jobs}


def _job(group: Mapping[str, Any], told: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Returns a job: the state of its group, and what the job has reported about itself since this process began."""
    runs = bool(group["owner"]) and group["expires"] > now
    read = f"read by {group['owner']}" if group["owner"] else "nobody reads"
    return {
        "name": told.get("job") or group["name"],
        "group": group["name"],
        "state": ("failed" if told.get("state") in TROUBLED else "running") if runs else "stopped",
        "lag_messages": group["lag"],
        "last_batch": told.get("batch"),
        "last_commit": told.get("last_commit") or group["acknowledged"],
        "rows_per_second": told.get("rows_per_second"),
        "parts": told.get("parts"),
        "next_compaction": told.get("next_compaction") or None,
        "detail": ", ".join(filter(None, [read, told.get("detail")])),
    }
