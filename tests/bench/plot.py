"""The benchmark's table as a picture: how many times as fast as each peer the gateway is, case by case (SVG)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

WIDTH, LABEL, ROW, TOP, GAP, KEY = 820, 250, 13, 46, 9, 85
COLOURS = ("#2a78d6", "#c25a1a", "#2f8f5b", "#8a4fbf", "#888888", "#b8860b", "#c2185b", "#37474f")
MARKS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def ratios_plot(title: str, ratios: Mapping[str, Mapping[str, float]]) -> str:
    """Bars from 1 to the right where the gateway is faster, to the left where it is slower; the axis is logarithmic."""
    peers = list(dict.fromkeys(peer for found in ratios.values() for peer in found))
    values = [value for found in ratios.values() for value in found.values()] or [1.0]
    low, high = min(0.1, *values), max(10.0, *values)

    def x(value: float) -> float:
        return LABEL + (WIDTH - LABEL - 70) * (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))

    bars, y = [], TOP
    for case, found in ratios.items():
        middle = y + len(found) * ROW / 2 + 4
        bars.append(f'<text x="{LABEL - 10}" y="{middle:.0f}" text-anchor="end">{escape(case)}</text>')
        for peer, value in found.items():
            left, right = sorted((x(1), x(value)))
            colour = COLOURS[peers.index(peer) % len(COLOURS)]
            width = max(1.0, right - left)
            bars += [
                f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 3}" fill="{colour}"/>',
                f'<text x="{right + 4:.1f}" y="{y + 9}" class="value">{_short(value)}</text>',
            ]
            y += ROW
        y += GAP
    lines = [
        f'<path d="M{x(mark):.1f} {TOP - 6}V{y}" class="{"one" if mark == 1 else "grid"}"/>'
        f'<text x="{x(mark):.1f}" y="{y + 13}" text-anchor="middle" class="value">{mark:g}x</text>'
        for mark in MARKS
        if low <= mark <= high
    ]
    keys = [
        f'<rect x="{LABEL - 120 + KEY * number}" y="24" width="10" height="10" '
        f'fill="{COLOURS[number % len(COLOURS)]}"/>'
        f'<text x="{LABEL - 105 + KEY * number}" y="33" class="value">{escape(peer)}</text>'
        for number, peer in enumerate(peers)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 22}" width="{WIDTH}" role="img">'
        f"<title>{escape(title)}</title><style>svg{{background:#fff}}text{{font:12px sans-serif;fill:#222}}"
        ".value{font-size:10px;fill:#444}.grid{stroke:#ddd}.one{stroke:#222}</style>"
        f'<text x="{LABEL}" y="15">{escape(title)}</text>{"".join(keys)}{"".join(lines)}{"".join(bars)}</svg>\n'
    )
