"""`mqgate journal`: check the embedded queue manager's store, dump its frames, save what is readable of a damaged
one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from gateway.cli.reach import data_directory, read_settings, show_json
from gateway.config.counting import counted
from gateway.errors import StoreError
from gateway.queue_manager.journal import diagnosis


@click.group()
def journal() -> None:
    """The store of the embedded queue manager."""


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where the store is."""
    command = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")(command)
    command = click.option("--data", type=click.Path(file_okay=False), help="Directory of the journal.")(command)
    return click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")(command)


@contextmanager
def progress_of(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal."""
    with Progress(disable=not sys.stderr.isatty(), transient=True) as bars:
        task = bars.add_task(text)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with the store's error."""
    try:
        yield
    except StoreError as error:
        click.echo(str(error), err=True)
        sys.exit(3)


@journal.command()
@options
def check(config: str | None, data: str | None, as_json: bool) -> None:
    """Check that the store is intact. Exit code 1 if it is damaged. The gateway must be stopped."""
    directory = data_directory(read_settings(config, data))
    with refusals(), progress_of("reading") as progress:
        found = list(diagnosis.check(directory, progress))
    problems = [one for one in found if isinstance(one, diagnosis.Problem)]
    verdicts = [one for one in found if isinstance(one, diagnosis.Verdict)]
    if as_json:
        show_json(
            {"problems": [one._asdict() for one in problems], "verdict": [one._asdict() for one in verdicts][-1:]}
        )
    else:
        for problem in problems:
            click.echo(f"{problem.path}, byte {problem.offset}: {problem.what}", err=True)
        for verdict in verdicts:
            closed = "closed in order" if verdict.closed else "not closed in order (killed, or power lost)"
            held = [counted(verdict.frames, "frame"), counted(verdict.messages, "message")]
            found_in = f"{counted(verdict.segments, 'segment')} and {verdict.spare} spare"
            click.echo(f"{found_in}, {', '.join(held)}, {counted(verdict.bytes, 'byte')}; {closed}")
        click.echo(counted(len(problems), "problem") if problems else "whole")
    sys.exit(1 if problems else 0)


@journal.command()
@click.option("-n", "--number", type=int, default=0, help="At most this many frames; 0: all.")
@options
def dump(number: int, config: str | None, data: str | None, as_json: bool) -> None:
    """List the frames, oldest first; also while the gateway runs."""
    directory = data_directory(read_settings(config, data))
    shown = 0
    with refusals():
        for one in diagnosis.dump(directory):
            if isinstance(one, diagnosis.Problem):
                click.echo(f"{one.path.name} {one.offset:>10}  {one.what}", err=True)
                continue
            if as_json:
                click.echo(json.dumps({"segment": one.path.name, "offset": one.offset, "sequence": one.sequence,
                                       "time": one.time, "length": one.length, "rows": one.rows}))  # fmt: skip
            else:
                when = datetime.fromtimestamp(one.time / 1e6, UTC).isoformat(timespec="milliseconds")
                click.echo(f"{one.path.name} {one.offset:>10}  {one.sequence:>10}  {when}  {one.length:>9} bytes"
                           f"  {one.rows:>6} rows  {one.flags!r}")  # fmt: skip
            shown += 1
            if number and shown >= number:
                break


@journal.command()
@click.argument("file", type=click.Path(dir_okay=False))
@options
def salvage(file: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Write every message that can still be read to FILE as JSON lines (bodies in hexadecimal digits)."""
    del as_json
    directory = data_directory(read_settings(config, data))
    messages = records = 0
    with refusals(), progress_of("reading") as progress, Path(file).open("w", encoding="utf-8") as out:
        for one in diagnosis.salvage(directory, progress):
            if isinstance(one, diagnosis.SalvagedState):
                records += 1
                line: dict[str, object] = {"state": one.key.hex(), "value": one.value.hex()}
            else:
                messages += 1
                message = one.message
                line = {"queue": one.queue, "key": one.key.hex(), "priority": one.priority}
                line |= {"put_time": message.put_time, "head": message.head.hex(), "body": message.body.hex()}
            out.write(json.dumps(line) + "\n")
    click.echo(f"{counted(messages, 'message')} and {counted(records, 'state record')} written to {file}")
