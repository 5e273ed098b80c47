"""Man pages from the command line's own definitions: mqgate(1), and one for each command.

python deploy/manpages.py FOLDER      write them, as mqgate.1, mqgate-queue.1 and so on
"""

from __future__ import annotations

import inspect
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from gateway.cli.examples import examples_of
from gateway.cli.main import COMMANDS, main
from gateway.version import VERSION

_EXITS = (("0", "done"), ("1", "the answer is no"), ("2", "wrong use"), ("3", "what is needed cannot be reached"))
_FILES = (
    ("/etc/mqgate/mqgate.yaml", "the settings of the service"),
    ("/var/lib/mqgate", "the messages of the embedded queue manager, when it runs as a service"),
)


def pages(date: str) -> dict[str, str]:
    """The text of every page by file name."""
    context = click.Context(main, info_name="mqgate")
    found = {"mqgate.1": _main_page(date, context)}
    for name, (_, line) in COMMANDS.items():
        command = main.get_command(context, name)
        if command is not None:
            inner = click.Context(command, info_name=name, parent=context)
            found[f"mqgate-{name}.1"] = _page(date, f"mqgate-{name}", line, command, inner)
    return found


def _main_page(date: str, context: click.Context) -> str:
    lines = [
        _head("mqgate", date, main.help or ""),
        ".SH SYNOPSIS",
        f".B mqgate\n{_text('COMMAND [OPTIONS] [ARGUMENTS]')}",
    ]
    lines += [".SH DESCRIPTION", _text(inspect.cleandoc(main.help or "")), ".SH COMMANDS"]
    for name, (_, line) in COMMANDS.items():
        lines += [".TP", f".BR mqgate\\-{_text(name)} (1)", _text(line)]
    del context
    return "\n".join([*lines, *_table("EXIT STATUS", _EXITS), *_table("FILES", _FILES), *_more()]) + "\n"


def _page(date: str, name: str, line: str, command: click.Command, context: click.Context) -> str:
    lines = [_head(name, date, line), ".SH SYNOPSIS"]
    leaves = list(_leaves(command, context))
    for leaf, inner in leaves:
        usage = " ".join(leaf.collect_usage_pieces(inner))
        lines += [f".B {_text(inner.command_path)}", _text(usage), ".br"]
    lines.append(".SH DESCRIPTION")
    if leaves[0][0] is not command:
        lines.append(_text(inspect.cleandoc(command.help or line)))
    for leaf, inner in leaves:
        if leaf is not command:
            lines.append(f".SS {_text(inner.command_path)}")
        lines.append(_paragraphs(leaf.help or ""))
        for option in leaf.params:
            record = option.get_help_record(inner)
            if record is not None:
                lines += [".TP", f".B {_text(record[0])}", _text(record[1]) or "\\&"]
        if typed := examples_of(leaf):
            lines += [".PP", "Examples:", ".PP", ".nf", *map(_text, typed), ".fi"]
    return "\n".join([*lines, *_table("EXIT STATUS", _EXITS), *_more()]) + "\n"


def _leaves(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    if not isinstance(command, click.Group):
        yield command, context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            yield from _leaves(found, click.Context(found, info_name=name, parent=context))


def _head(name: str, date: str, line: str) -> str:
    summary = inspect.cleandoc(line).split("\n")[0].rstrip(".")
    title = f'.TH {_text(name).upper()} 1 "{date}" "mqgate {VERSION}" "mqgate"'
    return f"{title}\n.SH NAME\n{_text(name)} \\- {_text(summary)}"


def _table(title: str, rows: tuple[tuple[str, str], ...]) -> list[str]:
    lines = [f".SH {title}"]
    for term, meaning in rows:
        lines += [".TP", f".B {_text(term)}", _text(meaning)]
    return lines


def _more() -> list[str]:
    return [".SH SEE ALSO", ".BR mqgate (1),", "/usr/share/doc/mqgate"]


def _paragraphs(text: str) -> str:
    """Paragraphs of a help text; what stands behind a form feed is for the source only, as click has it."""
    cleaned = inspect.cleandoc(text).split("\f")[0].replace("\b\n", "")
    return "\n.PP\n".join(_text(" ".join(part.split())) for part in re.split(r"\n\s*\n", cleaned))


def _text(text: str) -> str:
    """Text as roff takes it literally: no escape, no request, minus signs that can be copied."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return "\n".join(f"\\&{line}" if line.startswith((".", "\\(aq")) else line for line in escaped.split("\n"))


def write(folder: Path, epoch: int | None = None) -> list[Path]:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    found = pages(date)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in found]


if __name__ == "__main__":
    for path in write(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None):
        print(path)
