"""What `mqgate pipeline status` shows: a job's progress, its last batch, and the consumer groups with their lag."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.warehouse import warehouse_of
from gateway.pipeline.journal.groups import groups_in, shown
from gateway.pipeline.journal.lookup import Follower
from gateway.pipeline.source.http_access import HttpAccess
from gateway.pipeline.source.options import Options


def job_status(job: Job) -> dict[str, Any]:
    """The status of one job, as `--json` prints it."""
    warehouse = warehouse_of(job)
    run = warehouse.read_status() or {"state": "never run"}
    last = warehouse.last()
    landed = None
    if last is not None:
        landed = {"number": last.number, "rows": int(last.figures.get("rows", 0)), "landed": last.landed}
        landed |= {"seconds": last.figures.get("seconds", 0.0), "from": last.pieces[0][1], "to": last.pieces[-1][2]}
    return {"job": job.name, "run": run, "last_batch": landed, "groups": group_status(job)}


def group_status(job: Job) -> list[dict[str, Any]]:
    """All groups of the queue manager that the job reads from: asked of the gateway if it has an address, otherwise
    read from the journal's files without a lock."""
    source = job.source
    if source.url:
        options = Options(url=source.url, token_file=source.token_file, ca_file=source.ca_file, queue=source.queue)
        groups: list[dict[str, Any]] = HttpAccess(options).address.call("GET", "groups")
        return groups
    follower = Follower(Path(source.path))
    follower.poll()
    return [shown(group, follower) for group in groups_in(follower.index.state)]


def status_lines(status: dict[str, Any], now: float | None = None) -> list[str]:
    """The status as text."""
    now = time.time() if now is None else now
    run, last = status["run"], status["last_batch"]
    lines = [f"job {status['job']}: {run['state']}"]
    if run.get("error"):
        lines.append(f"  last error: {run['error']}")
    if run.get("restarts"):
        lines.append(f"  restarts: {run['restarts']}")
    if last:
        ago = show_duration(max(0, round(now - last["landed"])))
        lines.append(f"  last batch: {last['rows']:,} rows in {last['seconds']:.1f} s, {ago} ago")
    if run.get("backlog") is not None:
        lines.append(
            f"  query: batch {run['batch']}, {run['backlog']:,} messages behind, {run['processed_rate']:,.0f} rows/s, "
            f"{run['trigger_seconds']:.1f} s a trigger"
        )
    if run.get("wait_p50") is not None:
        lines.append(f"  from put to table: {run['wait_p50']:.1f} s, 99 of 100 within {run['wait_p99']:.1f} s")
    for group in status["groups"]:
        owner = f"read by {group['owner']}" if group["owner"] and group["expires"] > now else "nobody reads"
        lines.append(f"  group {group['name']} on {group['queues']}: {group['lag']:,} behind, {owner}")
    return lines
