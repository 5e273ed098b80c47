"""An HTML page about a warehouse: what landed, how fast, how late, what is missing, what failed. One file, no script.

Made from the manifest and the gold tables with pyarrow alone, so it needs neither Spark nor a running job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.jobs.job import Gold, Job
from gateway.pipeline.jobs.plots import bar_plot, line_plot
from gateway.pipeline.land.manifest import Manifest, Record

TOP = 12
STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #57606a; --line: #d7dce2; --card: #fff; --page: #f5f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b0; --line: #333a44; --card: #1b2027; --page: #12161b } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto; padding: 1rem;
  max-width: 72rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.05rem; margin: 0 0 .5rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; min-width: 0 }
.grid-2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1rem 0 } .figures div { min-width: 7rem }
.figures b { display: block; font-size: 1.5rem } .figures span { color: var(--soft) }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--soft) }
svg .grid { stroke: var(--line) } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
"""


def make_report(job: Job) -> str:
    """The page."""
    warehouse = Path(job.warehouse)
    manifest = Manifest(warehouse)
    records = manifest.records()
    plots = [
        ("Rows a second, by batch", line_plot("Rows a second", {"landed": _rates(records)}, "rows/s")),
        ("Seconds a batch took", line_plot("Seconds a batch", {"batch": _seconds(records)}, "s")),
        ("From put to table, seconds", line_plot("Seconds from put to table", _waits(records), "s")),
        ("Quarantined rows", line_plot("Quarantined rows", {"quarantined": _quarantined(records)}, "rows")),
    ]
    for gold in job.gold:
        plots += _gold_plot(warehouse, manifest, gold)
    sections = "".join(f"<section><h2>{escape(title)}</h2>{plot}</section>" for title, plot in plots)
    body = f"{_figures(records)}<div class='grid-2'>{sections}</div>{_tables(manifest, records)}"
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Pipeline {escape(job.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>Pipeline {escape(job.name)}</h1><p>Queue {escape(job.source.queue)}, made {made}</p>{body}</body></html>"
    )


def _figures(records: list[Record]) -> str:
    rows = sum(record.figures.get("rows", 0) for record in records)
    seconds = sum(record.figures.get("seconds", 0) for record in records)
    bad = sum(value for record in records for name, value in record.figures.items() if name.startswith("quarantined."))
    shown = [
        ("batches", f"{len(records):,}"),
        ("rows landed", f"{rows:,.0f}"),
        ("rows a second", f"{rows / seconds:,.0f}" if seconds else "-"),
        ("quarantined", f"{bad:,.0f}"),
        ("span", show_duration(round(records[-1].landed - records[0].landed)) if records else "-"),
    ]
    return (
        "<div class='figures'>"
        + "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in shown)
        + "</div>"
    )


def _rates(records: list[Record]) -> list[tuple[float, float]]:
    return [
        (record.landed - records[0].landed, record.figures.get("rows", 0) / max(record.figures.get("seconds", 0), 1e-6))
        for record in records
    ]


def _seconds(records: list[Record]) -> list[tuple[float, float]]:
    return [(record.landed - records[0].landed, record.figures.get("seconds", 0)) for record in records]


def _waits(records: list[Record]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [
            (record.landed - records[0].landed, record.figures[f"wait.{name}"])
            for record in records
            if f"wait.{name}" in record.figures
        ]
        for name in ("p50", "p99")
    }


def _quarantined(records: list[Record]) -> list[tuple[float, float]]:
    return [
        (
            record.landed - records[0].landed,
            sum(value for name, value in record.figures.items() if name.startswith("quarantined.")),
        )
        for record in records
    ]


def _gold_plot(warehouse: Path, manifest: Manifest, gold: Gold) -> list[tuple[str, str]]:
    """One plot for each kind of gold table that says something at a glance."""
    table = read_table(warehouse, manifest, gold.table)
    if gold.kind == "latency":
        series = {name: _over_time(table, f"{name}_ms") for name in ("p50", "p95", "p99")}
        return [(f"Latency ({gold.table})", line_plot("Latency", series, "ms"))]
    if gold.kind == "gaps":
        missing: Counter[str] = Counter()
        for row in table:
            missing[_device(row, ("kind", "previous", "next", "missing", "seq"))] += int(row["missing"] or 0)
        return [(f"Missing messages by device ({gold.table})", bar_plot("Missing", missing.most_common(TOP)))]
    if gold.kind == "dead_letters":
        reasons: Counter[str] = Counter()
        for row in table:
            reasons[f"{row['reason']} {row['queue'] or ''}".strip()] += int(row["messages"])
        return [(f"Dead letters by reason ({gold.table})", bar_plot("Dead letters", reasons.most_common(TOP)))]
    if gold.kind == "silence":
        silent = Counter(_device(row, ("silent_from", "returned_at")) for row in table)
        return [(f"Silences by device ({gold.table})", bar_plot("Silences", silent.most_common(TOP)))]
    return []


def _over_time(table: list[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    rows = sorted((row["window_start"], row[name]) for row in table if row[name] is not None)
    return [((when - rows[0][0]).total_seconds(), float(value)) for when, value in rows]


def _device(row: dict[str, Any], without: Iterable[str]) -> str:
    names = [str(value) for name, value in row.items() if name not in without and isinstance(value, str)]
    return " ".join(names) or "?"


def read_table(warehouse: Path, manifest: Manifest, table: str) -> list[dict[str, Any]]:
    """The rows of a small table: those of the batches the manifest knows."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for folder in sorted(manifest.folders.get(table, ())):
        for file in sorted((warehouse / folder).rglob("*.parquet")):
            rows += pq.ParquetFile(file).read().to_pylist()
    return rows


def _tables(manifest: Manifest, records: list[Record]) -> str:
    rows: Counter[str] = Counter()
    for record in records:
        for name, table in record.tables.items():
            if not name.startswith("_"):
                rows[name] += table.rows
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{len(manifest.folders.get(name, ())):,}</td>"
        f"<td class='n'>{count:,}</td></tr>"
        for name, count in sorted(rows.items())
    )
    return (
        "<section style='margin-top:1rem'><h2>Tables</h2><table><tr><th>table</th><th class='n'>batches</th>"
        f"<th class='n'>rows written</th></tr>{lines}</table></section>"
    )
