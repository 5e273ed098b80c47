"""The Grafana dashboard as code: rows of panels in, one JSON document out. Written by `python deploy/build.py`.

Every query uses metrics of the catalogue (a test says so) and is run against a real Prometheus by another test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PICK = 'job=~"$job", instance=~"$instance"'


class Query(NamedTuple):
    """An expression and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel; `width` of 24 columns."""

    title: str
    queries: list[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    text: str = ""
    thresholds: list[tuple[str, float | None]] = field(default_factory=list)
    decimals: int | None = None


def rate(metric: str, by: str = "", where: str = "") -> str:
    """The rate of a counter, summed by labels."""
    selector = ", ".join(part for part in (PICK, where) if part)
    return f"sum {f'by ({by}) ' if by else ''}(rate({metric}{{{selector}}}[$__rate_interval]))"


def seen(metric: str, by: str, always: str) -> str:
    """Rates that are not 0, and one that is always drawn, so that a quiet panel has a line."""
    return f"{rate(metric, by)} > 0 or {rate(metric, by, always)}"


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', labels, where)})"


def gauge(metric: str, by: str = "", how: str = "sum", where: str = "") -> str:
    """A gauge over all instances."""
    selector = ", ".join(part for part in (PICK, where) if part)
    return f"{how} {f'by ({by}) ' if by else ''}({metric}{{{selector}}})"


def stat(title: str, expr: str, unit: str = "short", thresholds: list[tuple[str, float | None]] | None = None) -> Panel:
    """A single number."""
    return Panel(title, [Query(expr)], unit, "stat", 3, 4, thresholds=thresholds or [("text", None)])


BAD_ABOVE_0: list[tuple[str, float | None]] = [("green", None), ("red", 0.000001)]
WARN_ABOVE_0: list[tuple[str, float | None]] = [("green", None), ("orange", 1)]
BAD_BELOW_1: list[tuple[str, float | None]] = [("red", None), ("green", 1)]

_MAX_DEPTH = f"({gauge('mqgate_queue_max_depth', 'queue', 'max')} > 0)"

ROWS: list[tuple[str, list[Panel]]] = [
    (
        "Overview",
        [
            stat("Connected devices", gauge("mqgate_mqtt_connections")),
            stat("From devices", rate("mqgate_mqtt_publish_received_total"), "cps"),
            stat("To queues", rate("mqgate_mq_put_messages_total"), "cps"),
            stat("To devices", rate("mqgate_mqtt_publish_sent_total"), "cps"),
            stat(
                "Dropped, 1 h",
                f'sum (increase(mqgate_messages_dropped_total{{{PICK}, reason!~"denied|away|payload_format"}}[1h]))',
                "short",
                BAD_ABOVE_0,
            ),
            stat("Dead letters", gauge("mqgate_dlq_depth"), "short", WARN_ABOVE_0),
            stat("On disk", gauge("mqgate_spool_bytes"), "bytes"),
            stat(
                "Queue managers up",
                f"count (max by (qmgr) (mqgate_mq_connections{{{PICK}}}) > 0) or vector(0)",
                "short",
                BAD_BELOW_1,
            ),
        ],
    ),
    (
        "Connections and authentication",
        [
            Panel(
                "Connected devices",
                [
                    Query(gauge("mqgate_mqtt_connections", "listener, protocol"), "{{listener}} {{protocol}}"),
                    Query(gauge("mqgate_mqtt_connections_limit", "listener"), "limit {{listener}}"),
                ],
            ),
            Panel(
                "Connects by answer",
                [Query(seen("mqgate_mqtt_connects_total", "result", 'result="accepted"'), "{{result}}")],
                "cps",
            ),
            Panel(
                "Disconnects by cause", [Query(rate("mqgate_mqtt_disconnects_total", "reason"), "{{reason}}")], "cps"
            ),
            Panel(
                "TLS handshakes",
                [
                    Query(rate("mqgate_tls_handshakes_total", "listener, result"), "{{listener}} {{result}}"),
                    Query(gauge("mqgate_tls_handshakes_waiting"), "waiting"),
                ],
                "cps",
            ),
            Panel(
                "Logins",
                [
                    Query(rate("mqgate_mqtt_logins_total", "method"), "{{method}}"),
                    Query(rate("mqgate_identity_requests_total", "method, result"), "asked: {{method}} {{result}}"),
                    Query(rate("mqgate_device_events_total", "kind, result"), "event: {{kind}} {{result}}"),
                ],
                "cps",
            ),
            Panel(
                "Refusals",
                [
                    Query(rate("mqgate_mqtt_auth_failures_total", "listener, reason"), "{{listener}} {{reason}}"),
                    Query(
                        rate("mqgate_mqtt_subscriptions_refused_total", "listener, reason"),
                        "{{listener}} subscription {{reason}}",
                    ),
                ],
                "cps",
            ),
            Panel(
                "Sessions and subscriptions",
                [
                    Query(gauge("mqgate_mqtt_sessions", "state"), "sessions {{state}}"),
                    Query(gauge("mqgate_mqtt_listener_sessions", "listener"), "sessions of {{listener}}"),
                    Query(gauge("mqgate_mqtt_sessions_limit", "listener"), "limit {{listener}}"),
                    Query(gauge("mqgate_mqtt_subscriptions"), "subscriptions"),
                    Query(gauge("mqgate_mqtt_retained_messages"), "retained"),
                ],
            ),
            Panel(
                "Sessions between gateways",
                [
                    Query(rate("mqgate_mqtt_sessions_taken_over_total"), "taken over"),
                    Query(rate("mqgate_mqtt_sessions_signed_over_total"), "signed over"),
                ],
                "cps",
            ),
            Panel("Bytes", [Query(rate("mqgate_mqtt_bytes_total", "direction"), "{{direction}}")], "Bps"),
        ],
    ),
    (
        "Routes",
        [
            Panel(
                "From devices by route",
                [Query(rate("mqgate_mqtt_publish_received_total", "route"), "{{route}}")],
                "cps",
                width=12,
            ),
            Panel(
                "To devices by route",
                [Query(rate("mqgate_mqtt_publish_sent_total", "route"), "{{route}}")],
                "cps",
                width=12,
            ),
            Panel(
                "Routes",
                [
                    Query(rate("mqgate_route_matched_total", "route"), "matched"),
                    Query(rate("mqgate_transform_errors_total", "route"), "not built"),
                    Query(rate("mqgate_dlq_messages_total", "route"), "dead-lettered"),
                    Query(rate("mqgate_messages_dropped_total", "route"), "dropped"),
                    Query(rate("mqgate_messages_returned_total", "route"), "came back"),
                ],
                "cps",
                "table",
                24,
                8,
                "A second, by route.",
            ),
        ],
    ),
    (
        "IBM MQ",
        [
            Panel("Connections", [Query(gauge("mqgate_mq_connections", "qmgr"), "{{qmgr}}")]),
            Panel(
                "Messages",
                [
                    Query(rate("mqgate_mq_put_messages_total", "qmgr"), "put {{qmgr}}"),
                    Query(rate("mqgate_mq_get_messages_total", "qmgr"), "got {{qmgr}}"),
                ],
                "cps",
            ),
            Panel(
                "Call time, 99th percentile", [Query(quantile(0.99, "mqgate_mq_call_seconds", "call"), "{{call}}")], "s"
            ),
            Panel(
                "Messages in a unit of work",
                [
                    Query(quantile(0.5, "mqgate_mq_batch_messages"), "median"),
                    Query(quantile(0.99, "mqgate_mq_batch_messages"), "99 %"),
                ],
            ),
            Panel(
                "Errors by reason",
                [
                    Query(
                        seen("mqgate_mq_errors_total", "call, reason", 'call="put", reason="MQRC_Q_FULL"'),
                        "{{call}} {{reason}}",
                    )
                ],
                "cps",
            ),
            Panel(
                "Backed out, gone before they were taken, connection attempts",
                [
                    Query(rate("mqgate_mq_backouts_total", "qmgr"), "backed out {{qmgr}}"),
                    Query(rate("mqgate_mq_gone_messages_total", "qmgr"), "gone {{qmgr}}"),
                    Query(rate("mqgate_mq_connect_attempts_total", "result"), "connect {{result}}"),
                ],
                "cps",
            ),
        ],
    ),
    (
        "Spool and back-pressure",
        [
            Panel(
                "On disk",
                [
                    Query(gauge("mqgate_spool_bytes", "instance"), "{{instance}}"),
                    Query(gauge("mqgate_spool_limit_bytes", "instance"), "limit {{instance}}"),
                ],
                "bytes",
            ),
            Panel(
                "Disk full",
                [Query(gauge("mqgate_spool_full_since_seconds", "instance", "max") + " > bool 0", "{{instance}}")],
                "none",
            ),
            Panel(
                "Buffer in front of IBM MQ",
                [
                    Query(gauge("mqgate_spool_messages", "instance"), "waiting {{instance}}"),
                    Query(rate("mqgate_spool_drained_messages_total", "instance"), "drained/s {{instance}}"),
                    Query(gauge("mqgate_spool_state", "state"), "{{state}}"),
                ],
            ),
            Panel(
                "Group commit to disk",
                [
                    Query(quantile(0.5, "mqgate_spool_sync_seconds"), "median"),
                    Query(quantile(0.99, "mqgate_spool_sync_seconds"), "99 %"),
                ],
                "s",
            ),
            Panel(
                "Damaged by the disk",
                [
                    Query(
                        gauge("mqgate_spool_corrupt_records_total", "instance"), "messages since the start {{instance}}"
                    )
                ],
            ),
            Panel(
                "Reading paused",
                [
                    Query(rate("mqgate_backpressure_events_total", "cause"), "{{cause}}"),
                    Query(gauge("mqgate_backpressure_paused_connections"), "connections now"),
                ],
            ),
        ],
    ),
    (
        "Drops and dead letters",
        [
            Panel("Dropped", [Query(rate("mqgate_messages_dropped_total", "reason"), "{{reason}}")], "cps"),
            Panel("Dead-lettered", [Query(rate("mqgate_dlq_messages_total", "reason"), "{{reason}}")], "cps"),
            Panel("Held", [Query(f"sum by (route) (mqgate_messages_held{{{PICK}}}) > 0", "{{route}}")], "short"),
            Panel(
                "On dead-letter queues",
                [
                    Query(gauge("mqgate_dlq_depth", "queue"), "{{queue}}"),
                    Query(rate("mqgate_dlq_replayed_total", "result"), "replayed {{result}}"),
                ],
            ),
            Panel(
                "Set aside: what met a defect",
                [
                    Query(gauge("mqgate_set_aside_messages"), "waiting"),
                    Query(rate("mqgate_set_aside_total", "what, result"), "{{what}} {{result}}"),
                ],
                "short",
            ),
        ],
    ),
    (
        "Latency",
        [
            Panel(
                "PUBLISH to commit",
                [Query(rate("mqgate_bridge_latency_seconds_bucket", "le", 'direction="in"'), "{{le}}")],
                "s",
                "heatmap",
                12,
            ),
            Panel(
                "Percentiles",
                [
                    Query(quantile(0.5, "mqgate_bridge_latency_seconds", "direction"), "median {{direction}}"),
                    Query(quantile(0.99, "mqgate_bridge_latency_seconds", "direction"), "99 % {{direction}}"),
                    Query(
                        quantile(0.99, "mqgate_mqtt_puback_seconds", "qos", 'qos!="0"'),
                        "99 % acknowledged, QoS {{qos}}",
                    ),
                ],
                "s",
                width=12,
            ),
        ],
    ),
    (
        "Runtime",
        [
            Panel(
                "Event loop lag, 99th percentile",
                [Query(quantile(0.99, "mqgate_reactor_lag_seconds", "instance, worker"), "{{instance}} {{worker}}")],
                "s",
                width=6,
            ),
            Panel(
                "CPU",
                [Query(f"rate(process_cpu_seconds_total{{{PICK}}}[$__rate_interval])", "{{instance}}")],
                "percentunit",
                width=6,
            ),
            Panel("Memory", [Query(f"process_resident_memory_bytes{{{PICK}}}", "{{instance}}")], "bytes", width=6),
            Panel(
                "Descriptors",
                [
                    Query(f"process_open_fds{{{PICK}}}", "{{instance}}"),
                    Query(f"process_max_fds{{{PICK}}}", "limit {{instance}}"),
                ],
                width=6,
            ),
            Panel(
                "Log lines and spans",
                [
                    Query(rate("mqgate_log_events_total", "level"), "{{level}}"),
                    Query(rate("mqgate_log_suppressed_total"), "suppressed"),
                    Query(rate("mqgate_spans_total", "result"), "spans {{result}}"),
                ],
                "cps",
                width=12,
            ),
            Panel(
                "Reloads and certificates",
                [Query(gauge("mqgate_config_last_reload_successful", "instance", "min"), "reload well {{instance}}")],
                width=6,
            ),
            Panel(
                "Reactor stalls",
                [
                    Query(quantile(0.99, "mqgate_reactor_stall_seconds", "instance"), "99 % {{instance}}"),
                    Query(rate("mqgate_reactor_stall_seconds_sum", "instance"), "in a second {{instance}}"),
                ],
                "s",
                width=6,
            ),
        ],
    ),
    (
        "Queues and pipeline",
        [
            Panel("Depth", [Query(gauge("mqgate_queue_depth", "queue", "max"), "{{queue}}")], width=12),
            Panel(
                "Share of MAXDEPTH",
                [
                    Query(f"{gauge('mqgate_queue_depth', 'queue', 'max')} / {_MAX_DEPTH}", "{{queue}}"),
                    Query(f"{gauge('mqgate_queue_high_depth', 'queue', 'max')} / {_MAX_DEPTH}", "{{queue}} QDEPTHHI"),
                ],
                "percentunit",
            ),
            Panel("Pipeline lag", [Query("sum by (group) (mqgate_pipeline_lag_messages)", "{{group}}")], width=6),
            Panel(
                "Depth by IBM's exporter",
                [Query("max by (queue) (ibmmq_queue_depth * on (queue) max by (queue) (mqgate_route_info))")],
                width=6,
                text="With mq_prometheus of mq-metric-samples beside the gateway.",
            ),
        ],
    ),
]
OPTIONAL = {"Pipeline lag", "Depth by IBM's exporter", "Buffer in front of IBM MQ", "Held"}
"""Panels that stay empty without the pipeline, IBM's exporter or a buffer, and while no queue refuses."""


def dashboard() -> dict[str, Any]:
    """The document as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(_row(title, len(panels) + 1, y))
        y += 1
        x = height = 0
        for panel in row:
            if x + panel.width > WIDTH:
                y, x, height = y + height, 0, 0
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return {
        "uid": "mqgate",
        "title": "mqgate",
        "tags": ["mqgate", "mqtt", "ibm-mq"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "graphTooltip": 1,
        "panels": panels,
        "annotations": {"list": [_reloads()]},
        "templating": {"list": _variables()},
        "links": [],
    }


def expressions() -> list[tuple[str, str]]:
    """(panel, expression) of the whole dashboard."""
    return [(panel.title, query.expr) for _, row in ROWS for panel in row for query in panel.queries]


def text() -> str:
    """The document as it is stored."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _row(title: str, number: int, y: int) -> dict[str, Any]:
    place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {
            "refId": chr(65 + n),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            **(
                {"format": "table", "instant": True}
                if table
                else {"format": "heatmap"}
                if panel.kind == "heatmap"
                else {}
            ),
        }
        for n, query in enumerate(panel.queries)
    ]
    steps = [{"color": color, "value": value} for color, value in panel.thresholds or [("green", None)]]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": targets,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "options": _options(panel.kind),
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "min": 0},
            "overrides": [],
        },
        **({"transformations": _joined(panel)} if table else {}),
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    if kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": "s"}, "color": {"scheme": "Blues", "mode": "scheme"}}
    if kind == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}


def _joined(panel: Panel) -> list[dict[str, Any]]:
    names = {f"Value #{chr(65 + n)}": query.legend for n, query in enumerate(panel.queries)}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
    ]


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [source, _label("job", "mqgate_build_info"), _label("instance", 'mqgate_build_info{job=~"$job"}')]


def _label(name: str, metric: str) -> dict[str, Any]:
    query = {"query": f"label_values({metric}, {name})", "refId": name}
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _reloads() -> dict[str, Any]:
    expr = f"changes(mqgate_config_last_reload_timestamp_seconds{{{PICK}}}[1m]) > 0"
    return {
        "name": "Reloads",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "blue",
        "expr": expr,
        "titleFormat": "Configuration reloaded",
    }
