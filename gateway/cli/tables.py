"""Lists: a table on a terminal, which never cuts a name; into a pipe plain lines with tabs between the columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from gateway.cli.reach import Reach

PAGE = 500
"""The most that one answer of the API holds."""


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The rows under their columns. The first column names what a row is about."""
    if sys.stdout.isatty():
        _show_boxes(columns, list(rows))
        return
    for row in (columns, *rows):
        click.echo("\t".join(_one_line(cell) for cell in row))


def _show_boxes(columns: Sequence[str], rows: list[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, name in enumerate(columns):
        longest = max((len(row[index]) for row in rows), default=0)
        table.add_column(name, overflow="fold", no_wrap=not index, min_width=0 if index else longest)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _one_line(text: str) -> str:
    """Identifiers may hold anything: a tab or a line's end in one must not look like the next column or row."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def pages(there: Reach, path: str, most: int, **query: object) -> Iterator[dict[str, Any]]:
    """The answers to a listing, one after the other, until `most` items are there (0: all)."""
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
    """All items of a listing."""
    return [item for answer in pages(there, path, 0, **query) for item in answer["items"]]
