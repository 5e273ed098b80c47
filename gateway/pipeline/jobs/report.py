"""An HTML page about a warehouse: rates, times, waits, quarantined rows, gaps, dead letters. One file, no script.

It is made from the manifest and the gold tables with pyarrow alone, so neither Spark nor a running job is needed. The
plots are small SVG drawings, readable in light and dark.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.jobs.job import Gold, Job
from gateway.pipeline.jobs.quality import Expectation, expectations
from gateway.pipeline.jobs.tables.warehouse import Warehouse, warehouse_of
from gateway.pipeline.land.manifest import ManifestRecord

MOST_BARS = 12
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
    """The report of a job as HTML."""
    warehouse = warehouse_of(job)
    records = warehouse.records()
    plots = [
        ("Rows a second, by batch", line_plot("Rows a second", {"landed": _rates(records)}, "rows/s")),
        ("Seconds a batch took", line_plot("Seconds a batch", {"batch": _seconds(records)}, "s")),
        ("From put to table, seconds", line_plot("Seconds from put to table", _waits(records), "s")),
        ("Quarantined rows", line_plot("Quarantined rows", {"quarantined": _quarantined(records)}, "rows")),
    ]
    expected = [(silver.table, expectations(silver, records)) for silver in job.silver]
    for table, found in expected:
        lines = {each.code: each.series for each in found if each.failed}
        shown = dict(list(lines.items())[: len(COLOURS)])
        plots.append((f"Rows that failed a check ({table})", line_plot("Failed checks", shown, "rows")))
    for gold in job.gold:
        plots += _gold_plot(warehouse, gold)
    sections = "".join(f"<section><h2>{escape(title)}</h2>{plot}</section>" for title, plot in plots)
    body = (
        f"{_figures(records)}<div class='grid-2'>{sections}</div>{_expectations(expected)}{_tables(warehouse, records)}"
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Pipeline {escape(job.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>Pipeline {escape(job.name)}</h1><p>{_where(job)}, made {made}</p>{body}</body></html>"
    )


def _where(job: Job) -> str:
    listed = [f"{each.name} ({each.source.queue})" if each.name else each.source.queue for each in job.inputs]
    return f"{'Sources' if job.sources else 'Queue'} {escape(', '.join(listed))}"


def _figures(records: list[ManifestRecord]) -> str:
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


def _rates(records: list[ManifestRecord]) -> list[tuple[float, float]]:
    return [
        (record.landed - records[0].landed, record.figures.get("rows", 0) / max(record.figures.get("seconds", 0), 1e-6))
        for record in records
    ]


def _seconds(records: list[ManifestRecord]) -> list[tuple[float, float]]:
    return [(record.landed - records[0].landed, record.figures.get("seconds", 0)) for record in records]


def _waits(records: list[ManifestRecord]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [
            (record.landed - records[0].landed, record.figures[f"wait.{name}"])
            for record in records
            if f"wait.{name}" in record.figures
        ]
        for name in ("p50", "p99")
    }


def _quarantined(records: list[ManifestRecord]) -> list[tuple[float, float]]:
    return [
        (
            record.landed - records[0].landed,
            sum(value for name, value in record.figures.items() if name.startswith("quarantined.")),
        )
        for record in records
    ]


def _gold_plot(warehouse: Warehouse, gold: Gold) -> list[tuple[str, str]]:
    """The plots of a gold table; none for kinds for which a plot does not help."""
    table = warehouse.rows(gold.table)
    if gold.kind == "latency":
        series = {name: _over_time(table, f"{name}_ms") for name in ("p50", "p95", "p99")}
        return [(f"Latency ({gold.table})", line_plot("Latency", series, "ms"))]
    if gold.kind == "gaps":
        missing: Counter[str] = Counter()
        for row in table:
            missing[_device(row, ("kind", "previous", "next", "missing", "seq"))] += int(row["missing"] or 0)
        return [(f"Missing messages by device ({gold.table})", bar_plot("Missing", missing.most_common(MOST_BARS)))]
    if gold.kind == "dead_letters":
        reasons: Counter[str] = Counter()
        for row in table:
            reasons[f"{row['reason']} {row['queue'] or ''}".strip()] += int(row["messages"])
        return [(f"Dead letters by reason ({gold.table})", bar_plot("Dead letters", reasons.most_common(MOST_BARS)))]
    if gold.kind == "silence":
        silent = Counter(_device(row, ("silent_from", "returned_at")) for row in table)
        return [(f"Silences by device ({gold.table})", bar_plot("Silences", silent.most_common(MOST_BARS)))]
    return []


def _over_time(table: list[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    rows = sorted((row["window_start"], row[name]) for row in table if row[name] is not None)
    return [((when - rows[0][0]).total_seconds(), float(value)) for when, value in rows]


def _device(row: dict[str, Any], without: Iterable[str]) -> str:
    names = [str(value) for name, value in row.items() if name not in without and isinstance(value, str)]
    return " ".join(names) or "?"


def _expectations(expected: list[tuple[str, list[Expectation]]]) -> str:
    """Each check of each column: how many rows failed it, which share of all that is, when the last one did, and what
    becomes of such rows."""
    lines = [_expectation(table, each) for table, found in expected for each in found]
    if not lines:
        return ""
    return (
        "<section style='margin-top:1rem'><h2>Expectations</h2><table><tr><th>table</th><th>check</th><th>column</th>"
        "<th class='n'>failed</th><th class='n'>of all</th><th>last</th><th>rows that fail</th></tr>"
        f"{''.join(lines)}</table></section>"
    )


def _expectation(table: str, each: Expectation) -> str:
    check, _, column = each.code.partition(":")
    share = f"{100 * each.failed / each.rows:.3g} %" if each.rows else "-"
    last = "-" if each.last is None else datetime.fromtimestamp(each.last, UTC).strftime("%Y-%m-%d %H:%M UTC")
    cells = (table, check, column or "-", f"{each.failed:,}", share, last, "stay" if each.counts_only else "quarantine")
    marks = ("", "", "", " class='n'", " class='n'", "", "")
    return "<tr>" + "".join(f"<td{m}>{escape(cell)}</td>" for m, cell in zip(marks, cells, strict=True)) + "</tr>"


def _tables(warehouse: Warehouse, records: list[ManifestRecord]) -> str:
    rows: Counter[str] = Counter()
    for record in records:
        for name, table in record.tables.items():
            if not name.startswith("_"):
                rows[name] += table.rows
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{warehouse.parts(name):,}</td><td class='n'>{count:,}</td></tr>"
        for name, count in sorted(rows.items())
    )
    return (
        "<section style='margin-top:1rem'><h2>Tables</h2><table><tr><th>table</th><th class='n'>parts</th>"
        f"<th class='n'>rows written</th></tr>{lines}</table></section>"
    )


WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 18, 34
COLOURS = ("#2a78d6", "#c25a1a", "#2f8f5b", "#8a4fbf")

Series = Sequence[tuple[float, float]]


def line_plot(title: str, series: Mapping[str, Series], unit: str) -> str:
    """A plot of lines over time; x is in seconds from the start."""
    points = [point for each in series.values() for point in each]
    if not points:
        return empty_plot(title)
    right = max(x for x, _ in points) or 1.0
    top = nice(max(y for _, y in points))
    parts = [_frame(top, unit), *_x_axis(right)]
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in values)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{_x(x, right):.1f}" cy="{_y(y, top):.1f}" r="2.5" fill="{colour}">'
            f"<title>{escape(name)}: {y:,.6g} {escape(unit)} at {x:,.0f} s</title></circle>"
            for x, y in values
        ]
    return _svg(title, [*parts, *_legend(list(series))])


def bar_plot(title: str, values: Sequence[tuple[str, float]]) -> str:
    """A plot of horizontal bars, one for each value."""
    if not values:
        return empty_plot(title)
    most = max(value for _, value in values) or 1.0
    row, label = 22, 210
    height = TOP + row * len(values) + 12
    parts = []
    for number, (name, value) in enumerate(values):
        y, length = TOP + row * number, (WIDTH - label - 90) * value / most
        width, colour = max(length, 1), COLOURS[0]
        shown = escape(name if len(name) <= 32 else name[:31] + "…")
        parts += [
            f'<text x="{label - 8}" y="{y + 14}" text-anchor="end">{shown}</text>',
            f'<rect x="{label}" y="{y + 3}" width="{width:.1f}" height="{row - 8}" fill="{colour}" rx="2"/>',
            f'<text x="{label + width + 6:.1f}" y="{y + 14}">{short(value)}</text>',
        ]
    return _svg(title, parts, height)


def empty_plot(title: str) -> str:
    """A plot that says that there is nothing to show."""
    return _svg(title, [f'<text x="{WIDTH / 2}" y="40" text-anchor="middle">nothing to show</text>'], 64)


def short(value: float) -> str:
    """A number with separators or a unit, never with an exponent."""
    for size, name in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:,.4g} {name}"
    return f"{value:,.6g}"


def nice(most: float) -> float:
    """The end of an axis: the next 1, 2, 2.5 or 5 times a power of ten."""
    if most < 1e-12:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20) if step * power >= most)


def _x(x: float, right: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * x / right


def _y(y: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top


def _frame(top: float, unit: str) -> str:
    lines = []
    for part in range(5):
        value = top * part / 4
        y = _y(value, top)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    lines.append(f'<text x="{LEFT + 4}" y="{TOP - 4}">{escape(unit)}</text>')
    return "".join(lines)


def _x_axis(right: float) -> list[str]:
    steps = [right * part / 4 for part in range(5)]
    y = HEIGHT - BOTTOM + 16
    anchors = ("start", "middle", "middle", "middle", "end")
    return [
        f'<text x="{_x(x, right):.1f}" y="{y}" text-anchor="{anchor}">{short(float(f"{x:.3g}"))} s</text>'
        for x, anchor in zip(steps, anchors, strict=True)
    ]


def _legend(names: list[str]) -> list[str]:
    if len(names) < 2:
        return []
    parts = []
    for number, name in enumerate(names):
        x = LEFT + 120 * number
        parts.append(
            f'<rect x="{x}" y="{HEIGHT - 12}" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        parts.append(f'<text x="{x + 14}" y="{HEIGHT - 3}">{escape(name)}</text>')
    return parts


def _svg(title: str, parts: list[str], height: float = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
