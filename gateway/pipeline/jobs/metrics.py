"""A job's metrics for Prometheus, and the small server that answers with them on a port of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gateway.pipeline.http_port import listening

QUERY = (
    ("backlog_messages", "backlog"),
    ("batch_id", "batch"),
    ("trigger_seconds", "trigger_seconds"),
    ("input_rows_per_second", "input_rate"),
    ("processed_rows_per_second", "processed_rate"),
)
"""Metrics of the running query, with the fields of `JobProgress` that hold them."""


def metrics_text(status: dict[str, Any]) -> str:
    """A job's status in Prometheus' text format."""
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
    figures += [("lag_messages", "gauge", _labels(each), each["lag"]) for each in status["groups"] if "lag" in each]
    lines = []
    for name, kind, labels, value in figures:
        lines += [f"# TYPE mqgate_pipeline_{name} {kind}", f"mqgate_pipeline_{name}{labels} {value}"]
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _labels(group: dict[str, Any]) -> str:
    source = f',source="{group["source"]}"' if "source" in group else ""
    return f'{{group="{group["name"]}"{source}}}'


def serve_metrics(bind: str, port: int, text: Callable[[], str]) -> ThreadingHTTPServer:
    """Answer GET /metrics with what `text` returns. Runs until `shutdown`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Requests are not logged."""

    server = listening(ThreadingHTTPServer, bind, port, Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
