"""What `mqgate pipeline status` shows: a job's last words, what has landed, and the consumer groups with their lag."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.durable import read_json
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.source.follower import Follower
from gateway.pipeline.source.groups import STATE_PREFIX, Group
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.remote import RemoteAccess

STATUS = "_status"
QUERY = (
    ("backlog_messages", "backlog"),
    ("batch_id", "batch"),
    ("trigger_seconds", "trigger_seconds"),
    ("input_rows_per_second", "input_rate"),
    ("processed_rows_per_second", "processed_rate"),
)
"""Metrics of the running query, as Spark's listener has them."""


def job_status(job: Job) -> dict[str, Any]:
    """One job."""
    warehouse = Path(job.warehouse)
    told = read_json(warehouse / STATUS / f"{job.name}.json") or {"state": "never run"}
    last = Manifest(warehouse).last if warehouse.exists() else None
    landed = None
    if last is not None:
        landed = {"number": last.number, "rows": int(last.figures.get("rows", 0)), "landed": last.landed}
        landed |= {"seconds": last.figures.get("seconds", 0.0), "from": last.pieces[0][1], "to": last.pieces[-1][2]}
    return {"job": job.name, "run": told, "last_batch": landed, "groups": group_status(job)}


def group_status(job: Job) -> list[dict[str, Any]]:
    """The groups of the queue manager a job reads from, through the gateway if it has an address, else its files."""
    source = job.source
    if source.url:
        options = Options(url=source.url, token_file=source.token_file, ca_file=source.ca_file, queue=source.queue)
        shown: list[dict[str, Any]] = RemoteAccess(options).address.call("GET", "groups")
        return shown
    return local_groups(Path(source.path))


def local_groups(folder: Path) -> list[dict[str, Any]]:
    """Read from the journal; nothing is locked."""
    follower = Follower(folder)
    follower.poll()
    shown = []
    for key, record in follower.index.state.items():
        if key.startswith(STATE_PREFIX):
            group = Group.decode(record)
            last = group.marks[-1][0] if group.marks else None
            value = asdict(group)
            value.pop("marks")
            shown.append(value | {"lag": follower.count(group.queues, group.cursor), "acknowledged": last})
    return shown


def status_lines(status: dict[str, Any], now: float | None = None) -> list[str]:
    """The same for people."""
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


def metrics_text(status: dict[str, Any]) -> str:
    """The same in Prometheus' text format."""
    run, last = status["run"], status["last_batch"]
    job = f'{{job="{status["job"]}"}}'
    figures: list[tuple[str, str, str, float]] = [
        ("up", "gauge", job, int(run["state"] == "running")),
        ("batches_total", "counter", job, run.get("batches", 0)),
        ("rows_total", "counter", job, run.get("rows", 0)),
        ("quarantined_rows_total", "counter", job, run.get("quarantined", 0)),
        ("restarts_total", "counter", job, run.get("restarts", 0)),
    ]
    if last:
        figures.append(("last_batch_timestamp_seconds", "gauge", job, last["landed"]))
        figures.append(("last_batch_seconds", "gauge", job, last["seconds"]))
        figures.append(("last_batch_rows", "gauge", job, last["rows"]))
    for name, key in QUERY:
        if run.get(key) is not None:
            figures.append((name, "gauge", job, run[key]))
    for quantile, key in (("0.5", "wait_p50"), ("0.99", "wait_p99")):
        if run.get(key) is not None:
            labels = f'{{job="{status["job"]}",quantile="{quantile}"}}'
            figures.append(("wait_seconds", "gauge", labels, run[key]))
    figures += [("lag_messages", "gauge", f'{{group="{each["name"]}"}}', each["lag"]) for each in status["groups"]]
    lines = []
    for name, kind, labels, value in figures:
        lines += [f"# TYPE mqgate_pipeline_{name} {kind}", f"mqgate_pipeline_{name}{labels} {value}"]
    return "\n".join(dict.fromkeys(lines)) + "\n"
