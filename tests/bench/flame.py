"""Samples of a running gateway as a flame graph (SVG): `python tests/bench/flame.py SAMPLES > flame.svg`.

SAMPLES is what `py-spy record --pid PID --format raw --rate 400 --output SAMPLES` writes: a line for each stack. Frames
above the hub's wait are left out, lines of one function are one frame, and widths are shares of all samples.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

WIDTH, ROW, FOOT, LEAST = 1180, 18, 30, 1.0
ROOT = "wait (gateway/net/hub.py"
COLOURS = {
    "gateway/net": "#7fb2e5",
    "gateway/broker": "#e5a66b",
    "gateway/session": "#d9c26a",
    "gateway/bridge": "#b9a0dc",
    "gateway/queue_manager": "#86c08e",
}
OTHER = "#c9c9c9"


class Frame:
    """A function where it was called from."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path, self.count = name, path, 0
        self.callees: dict[tuple[str, str], Frame] = {}

    def callee(self, name: str, path: str) -> Frame:
        """The same function called from here."""
        return self.callees.setdefault((name, path), Frame(name, path))


def read(lines: list[str]) -> Frame:
    """All stacks in one tree, without what lies above the hub."""
    top = Frame("hub", "gateway/net/hub.py")
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if ROOT not in stack:
            continue
        frame = top
        frame.count += int(count)
        for call in stack[stack.index(ROOT) :].split(";")[1:]:
            found = re.match(r"(.+) \((.+?)(?::\d+)?\)$", call)
            if found:
                frame = frame.callee(found[1], found[2])
                frame.count += int(count)
    return top


def draw(top: Frame) -> str:
    """The picture: who calls above whom is called."""
    boxes: list[str] = []
    depth = 0

    def box(frame: Frame, left: float, level: int) -> None:
        nonlocal depth
        width = WIDTH * frame.count / top.count
        if width < LEAST:
            return
        depth = max(depth, level)
        colour = next((colour for path, colour in COLOURS.items() if frame.path.startswith(path)), OTHER)
        share = f"{frame.name} ({frame.path}): {100 * frame.count / top.count:.1f} %"
        boxes.append(f'<g><title>{escape(share)}</title><rect x="{left:.1f}" y="{level * ROW}" width="{width:.1f}" '
                     f'height="{ROW - 1}" fill="{colour}"/>')  # fmt: skip
        text = frame.name if len(frame.name) * 6.4 + 6 < width else ""
        boxes.append(f'<text x="{left + 3:.1f}" y="{level * ROW + 13}">{escape(text)}</text></g>')
        for callee in sorted(frame.callees.values(), key=lambda one: -one.count):
            box(callee, left, level + 1)
            left += WIDTH * callee.count / top.count

    box(top, 0.0, 0)
    foot = (depth + 1) * ROW
    keys = [
        f'<rect x="{120 * at}" y="{foot + 8}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{120 * at + 17}" y="{foot + 18}">{path.partition("/")[2] or path}</text>'
        for at, (path, colour) in enumerate([*COLOURS.items(), ("libraries", OTHER)])
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {foot + FOOT}" font-family="sans-serif" '
        'font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([head, *boxes, *keys, "</svg>\n"])


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    sys.stdout.write(draw(read(Path(sys.argv[1]).read_text().splitlines())))
