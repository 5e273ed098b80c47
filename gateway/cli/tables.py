"""Lists: aligned columns on a terminal, which never cut a name; in a pipe plain lines with tabs between columns."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unicodedata import east_asian_width

import click

from gateway.cli.reach import Reach

PAGE = 500
"""The most items of one answer of the API."""
_GAP = "  "
_NUMBER = re.compile(r"-?|[\d.,]+%?")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], first_to_go: Sequence[str] = (), cut: str = ""
) -> None:
    """Show the rows under their columns. The first column names what a row is about. On a terminal that is too narrow,
    the texts of `cut` are shortened, then whole columns are left out: `first_to_go` in their order, then the others
    from the right. A last line says which."""
    lines = [[_one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in (columns, *lines):
            click.echo("\t".join(line))
        return
    width = shutil.get_terminal_size().columns
    if cut:
        _shorten(columns.index(cut), columns, lines, width)
    shown = _that_fit(columns, lines, first_to_go, width)
    sizes = {at: max(_width(line[at]) for line in (columns, *lines)) for at in shown}
    numbers = {at for at in shown if lines and all(_NUMBER.fullmatch(line[at]) for line in lines)}
    click.secho(_aligned(columns, shown, sizes, numbers), bold=True)
    for line in lines:
        click.echo(_aligned(line, shown, sizes, numbers))
    left_out = [name for at, name in enumerate(columns) if at not in shown]
    if left_out:
        click.secho(f"not shown in {width} columns: {', '.join(left_out)}", dim=True, err=True)


def _shorten(at: int, columns: Sequence[str], lines: list[list[str]], width: int) -> None:
    """Cut the texts of a column to what the others leave, but no shorter than its heading."""
    others = [max(_width(line[each]) for line in (columns, *lines)) for each in range(len(columns)) if each != at]
    room = max(width - sum(others) - len(_GAP) * len(others), len(columns[at]))
    for line in lines:
        if len(line[at]) > room:
            line[at] = line[at][: room - 1] + "…"


def _that_fit(columns: Sequence[str], lines: list[list[str]], first_to_go: Sequence[str], width: int) -> list[int]:
    """Returns the columns for which there is room; always the first."""
    shown = list(range(len(columns)))
    going = [columns.index(name) for name in first_to_go]
    going += [at for at in reversed(shown[1:]) if at not in going]
    sizes = [max(_width(line[at]) for line in (columns, *lines)) for at in shown]
    for at in going:
        if sum(sizes[each] for each in shown) + len(_GAP) * (len(shown) - 1) <= width:
            break
        shown.remove(at)
    return shown


def _aligned(line: Sequence[str], shown: list[int], sizes: dict[int, int], numbers: set[int]) -> str:
    blank = {at: " " * (sizes[at] - _width(line[at])) for at in shown}
    return _GAP.join(blank[at] + line[at] if at in numbers else line[at] + blank[at] for at in shown).rstrip()


def _width(text: str) -> int:
    """Returns the width in columns of a terminal."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(each) in "WF") for each in text)


def _one_line(text: str) -> str:
    """Returns text as one line. Identifiers may contain anything: a tab or line end in one must not look like the next
    column or row."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def pages(there: Reach, path: str, most: int, **query: object) -> Iterator[dict[str, Any]]:
    """Yields the pages of a listing, one after the other, until `most` items are there (0: all)."""
    after: object = query.pop("after", None)
    shown = 0
    while True:
        limit = PAGE if not most else min(PAGE, most - shown)
        answer = there.get(path, limit=limit, after=after, **query)
        yield answer
        shown += len(answer["items"])
        after = answer["next"]
        if after is None or not answer["items"] or (most and shown >= most):
            return


def everything(there: Reach, path: str, **query: object) -> list[dict[str, Any]]:
    """Returns all items of a listing."""
    return [item for answer in pages(there, path, 0, **query) for item in answer["items"]]
