"""What `mqgate pipeline status` shows: a job's progress, its rate, its last batch, its files and their next compaction,
and the consumer groups with their lag."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.errors import PipelineError
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.sources import Input
from gateway.pipeline.jobs.tables.upkeep import shown_upkeep
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.journal.groups import groups_in, is_dead, shown
from gateway.pipeline.journal.lookup import Follower
from gateway.pipeline.land.manifest import ManifestRecord
from gateway.pipeline.source.http_access import TIMEOUT, HttpAccess
from gateway.pipeline.source.options import Options

RATE_OVER = 20
"""The number of batches whose rate is shown."""


def job_status(job: Job) -> dict[str, Any]:
    """The status of one job, as `--json` prints it."""
    warehouse = warehouse_of(job)
    run = warehouse.read_status() or {"state": "never run"}
    manifest = warehouse.manifest()
    last = manifest.last
    landed: dict[str, Any] | None = None
    if last is not None:
        landed = {"number": last.number, "rows": int(last.figures.get("rows", 0)), "landed": last.landed}
        landed |= {"seconds": last.figures.get("seconds", 0.0), "from": last.pieces[0][1], "to": last.pieces[-1][2]}
        landed["pieces"] = [list(piece) for piece in last.pieces]
    rate = rate_of(manifest.records(RATE_OVER))
    upkeep = shown_upkeep(job, manifest)
    reads = [each.group for each in job.inputs]
    return {"job": job.name, "run": run, "last_batch": landed, "rate": rate, **upkeep, "reads": reads,
            "groups": group_status(job)}  # fmt: skip


def rate_of(records: Sequence[ManifestRecord]) -> float | None:
    """Rows per second from the first of some batches to the last, pauses included; None for fewer than two."""
    seconds = records[-1].landed - records[0].landed if records else 0.0
    return sum(record.figures.get("rows", 0) for record in records[1:]) / seconds if seconds > 0 else None


def group_status(job: Job) -> list[dict[str, Any]]:
    """The groups as which a job reads; with several sources, the error for each that cannot be asked."""
    if not job.sources:
        return _own_group(job.inputs[0])
    found = []
    for each in job.inputs:
        try:
            mine = _own_group(each)
        except (PipelineError, OSError) as error:
            found.append({"source": each.name, "name": each.group, "queues": each.source.queue, "trouble": str(error)})
        else:
            found += [group | {"source": each.name} for group in mine]
    return found


def _own_group(each: Input) -> list[dict[str, Any]]:
    return [group for group in groups_of(each) if group["name"] == each.group]


def groups_of(each: Input, timeout: float = TIMEOUT) -> list[dict[str, Any]]:
    """All groups of the queue manager: asked of the gateway if it has an address, else read from the journal's files
    without a lock."""
    source = each.source
    if source.url:
        options = Options(url=source.url, token_file=source.token_file, ca_file=source.ca_file, queue=source.queue)
        groups: list[dict[str, Any]] = HttpAccess(options, timeout).address.call("GET", "groups")
        return groups
    follower = Follower(Path(source.path))
    follower.poll()
    return [shown(group, follower, time.time()) for group in groups_in(follower.index.state)]


def status_lines(status: dict[str, Any], now: float | None = None) -> list[str]:
    """The status as text."""
    now = time.time() if now is None else now
    run, last = status["run"], status["last_batch"]
    lines = [f"job {status['job']}: {run['state']}{_unless_gone(status, now)}"]
    if run.get("error"):
        lines.append(f"  last error: {run['error']}")
    if run.get("restarts"):
        lines.append(f"  restarts: {run['restarts']}")
    if last:
        ago = show_duration(rounded(max(0.0, now - last["landed"])))
        lines.append(f"  last batch: {last['rows']:,} rows in {last['seconds']:.1f} s, {ago} ago")
    if status.get("rate") is not None:
        lines.append(f"  rate: {status['rate']:,.0f} rows/s over the last batches")
    if run.get("backlog") is not None:
        lines.append(_query_line(run))
    if run.get("wait_p50") is not None:
        lines.append(f"  from put to table: {run['wait_p50']:.1f} s, 99 of 100 within {run['wait_p99']:.1f} s")
    if status.get("tables"):
        listed = ", ".join(f"{each['table']} {each['parts']:,}" for each in status["tables"])
        lines.append(f"  parts of tables: {listed}; next compaction {status['next_compaction']}")
    return [*lines, *(group_line(group, now) for group in status["groups"])]


def _query_line(run: dict[str, Any]) -> str:
    """Spark's figures of the last batch; without those of a batch while there has been none since the start."""
    behind = f"{run['backlog']:,} messages behind"
    if run.get("batch") is None:
        return f"  query: no batch yet, {behind}"
    figures = f"{run['processed_rate']:,.0f} rows/s, {run['trigger_seconds']:.1f} s a trigger"
    return f"  query: batch {run['batch']}, {behind}, {figures}"


def _unless_gone(status: dict[str, Any], now: float) -> str:
    """The addition to a state `running` that a killed process can no longer correct: that it does not run."""
    mine = [one for one in status["groups"] if one["name"] in status.get("reads", ()) and "trouble" not in one]
    if status["run"]["state"] != "running" or not mine or any(is_read(one, now) for one in mine):
        return ""
    return " when it last said so, but nobody reads its queues now: its process has ended, or does not get on"


def is_read(group: dict[str, Any], now: float) -> bool:
    """Whether a driver has the group's lease. In a batch that takes longer than the lease runs, the lease is not
    renewed, and yet it is the driver's until another takes it: of a driver on this machine it is known whether it
    lives."""
    owner, here = group["owner"], socket.gethostname()
    on_this_one = owner.rpartition(":")[0] == here
    return bool(owner) and (group["expires"] > now or (on_this_one and not is_dead(owner, here)))


def rounded(seconds: float) -> int:
    """Seconds rounded as people say them: to minutes from two minutes on, to hours from two hours on."""
    unit = 3600 if seconds >= 7200 else 60 if seconds >= 120 else 1
    return round(seconds / unit) * unit


def group_line(group: dict[str, Any], now: float) -> str:
    """A consumer group as text."""
    name = f"{group['name']} on {group['queues']}" + (f" (source {group['source']})" if "source" in group else "")
    if "trouble" in group:
        return f"  group {name}: not known: {group['trouble']}"
    owner = f"read by {group['owner']}" if is_read(group, now) else "nobody reads"
    return f"  group {name}: {group['lag']:,} behind, {owner}"
