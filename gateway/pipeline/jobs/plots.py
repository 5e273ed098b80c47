"""Small self-contained SVG plots: lines over time and bars. No script, no fonts, readable in light and dark. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 18, 34
COLOURS = ("#2a78d6", "#c25a1a", "#2f8f5b", "#8a4fbf")

Series = Sequence[tuple[float, float]]


def line_plot(title: str, series: Mapping[str, Series], unit: str = "", x_unit: str = "s") -> str:
    """Lines over time; x in seconds from the start."""
    points = [point for each in series.values() for point in each]
    if not points:
        return empty_plot(title)
    right = max(x for x, _ in points) or 1.0
    top = nice(max(y for _, y in points))
    parts = [_frame(title, top, unit), *_x_axis(right, x_unit)]
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in values)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{_x(x, right):.1f}" cy="{_y(y, top):.1f}" r="2.5" fill="{colour}">'
            f"<title>{escape(name)}: {y:,.6g} {escape(unit)} at {x:,.0f} {x_unit}</title></circle>"
            for x, y in values
        ]
    return _svg(title, [*parts, *_legend(list(series))])


def bar_plot(title: str, values: Sequence[tuple[str, float]], unit: str = "") -> str:
    """Horizontal bars, as many as there are values."""
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
            f'<text x="{label + width + 6:.1f}" y="{y + 14}">{short(value)} {escape(unit)}</text>',
        ]
    return _svg(title, parts, height)


def empty_plot(title: str) -> str:
    """A plot with nothing to show says so."""
    return _svg(title, [f'<text x="{WIDTH / 2}" y="40" text-anchor="middle">nothing to show</text>'], 64)


def short(value: float) -> str:
    """A number as people write it: never with an exponent."""
    for size, name in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:,.4g} {name}"
    return f"{value:,.6g}"


def nice(most: float) -> float:
    """The next 1, 2, 2.5 or 5 times a power of ten."""
    if most < 1e-12:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20) if step * power >= most)


def _x(x: float, right: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * x / right


def _y(y: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top


def _frame(title: str, top: float, unit: str) -> str:
    del title
    lines = []
    for part in range(5):
        value = top * part / 4
        y = _y(value, top)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    lines.append(f'<text x="{LEFT + 4}" y="{TOP - 4}">{escape(unit)}</text>')
    return "".join(lines)


def _x_axis(right: float, unit: str) -> list[str]:
    steps = [right * part / 4 for part in range(5)]
    y = HEIGHT - BOTTOM + 16
    anchors = ("start", "middle", "middle", "middle", "end")
    return [
        f'<text x="{_x(x, right):.1f}" y="{y}" text-anchor="{anchor}">{short(float(f"{x:.3g}"))} {unit}</text>'
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
