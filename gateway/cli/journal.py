"""`mqgate journal`: check the embedded queue manager's store, dump its frames, save what is readable in a damaged one
and put that back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from gateway.app.files.data_directory import owner_kept
from gateway.app.files.directories import data_directory
from gateway.app.files.whole_file import written_whole
from gateway.cli.denied import DATA_DIRECTORY
from gateway.cli.reach import LocalClock, Refused, read_settings, show_json
from gateway.cli.words import Words
from gateway.config.counting import counted
from gateway.config.model import Settings
from gateway.errors import MQError, StoreError
from gateway.queue_manager.journal import diagnosis
from gateway.queue_manager.restoring import FOR_UNNAMED, Restoration, line_of

if TYPE_CHECKING:
    from gateway.queue_manager.embedded import EmbeddedQueueManager


@click.group(cls=Words)
def journal() -> None:
    """The store of the embedded queue manager."""


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the store is."""
    command = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")(command)
    command = click.option("--data", type=DATA_DIRECTORY, help="Directory of the journal.")(command)
    return click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")(command)


@contextmanager
def progress_of(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that advances a progress bar on a terminal."""
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bars:
        task = bars.add_task(text)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def settings_of(config: str | None, data: str | None) -> Settings:
    """Returns the settings. Ends the command unless they name a store of the gateway's own: it cannot read IBM MQ's
    logs."""
    settings = read_settings(config, data)
    manager = settings.queue_manager
    if manager.ibm is not None and manager.buffer is None and data is None:
        name = manager.ibm.name or "the queue manager of IBM MQ"
        what = f"the settings name IBM MQ ({name}): its messages are in that queue manager's logs, not in a journal"
        raise Refused(f"{what} of mqgate. Use --data DIR for a journal that is left from an earlier time", 3)
    return settings


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with the store's error."""
    try:
        yield
    except (StoreError, MQError) as error:
        click.echo(str(error), err=True)
        sys.exit(3)


@journal.command()
@options
def check(config: str | None, data: str | None, as_json: bool) -> None:
    """Check that the store is intact. Exit code 1 if it is damaged. The gateway must be stopped."""
    directory = data_directory(settings_of(config, data))
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
@click.option("-n", "--number", type=click.IntRange(min=0), default=0, help="At most this many frames; 0: all.")
@options
def dump(number: int, config: str | None, data: str | None, as_json: bool) -> None:
    """List the frames, oldest first; possible while the gateway runs."""
    directory = data_directory(settings_of(config, data))
    shown = 0
    with refusals():
        for one in diagnosis.dump(directory):
            if isinstance(one, diagnosis.Problem):
                click.echo(f"{one.path.name} {one.offset:>10}  {one.what}", err=True)
                continue
            if as_json:
                click.echo(json.dumps({"segment": one.path.name, "offset": one.offset, "sequence": one.sequence,
                                       "time": one.time, "length": one.length, "rows": one.rows,
                                       "flags": [flag.name.lower() for flag in one.flags if flag.name]}))  # fmt: skip
            else:
                when = datetime.fromtimestamp(one.time / 1e6, UTC).isoformat(timespec="milliseconds")
                flags = " ".join(flag.name.lower() for flag in one.flags if flag.name)
                click.echo(f"{one.path.name} {one.offset:>10}  {one.sequence:>10}  {when}  {one.length:>9} bytes"
                           f"  {one.rows:>6} rows  {flags}".rstrip())  # fmt: skip
            shown += 1
            if number and shown >= number:
                break


@journal.command()
@click.argument("file", type=click.Path(dir_okay=False))
@options
def salvage(file: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Write every message that can still be read to FILE as JSON lines, for `mqgate journal restore`. Reports what
    could not be read; exit code 1 if there was anything."""
    settings = settings_of(config, data)
    directory = data_directory(settings)
    embedded = settings.queue_manager.embedded
    name = embedded.name if embedded is not None else "BUFFER"
    messages = records = 0
    problems: list[diagnosis.Problem] = []
    with refusals(), progress_of("reading") as progress, written_whole(Path(file)) as out:
        for one in diagnosis.salvage(directory, progress):
            if isinstance(one, diagnosis.Problem):
                problems.append(one)
                continue
            if isinstance(one, diagnosis.SalvagedState):
                records += 1
                line = json.dumps({"state": one.key.hex(), "value": one.value.hex()})
            else:
                messages += 1
                line = line_of(one.queue, one.key, one.priority, one.message, name)
            out.write(line + "\n")
    if as_json:
        show_json({"messages": messages, "records": records, "problems": [one._asdict() for one in problems]})
    else:
        for problem in problems:
            click.echo(f"not readable: {problem.path}, byte {problem.offset}: {problem.what}", err=True)
        unread = f"; {counted(len(problems), 'place')} could not be read" if problems else ", all there was"
        click.echo(f"{counted(messages, 'message')} and {counted(records, 'state record')} written to {file}{unread}")
    sys.exit(1 if problems else 0)


@journal.command()
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--unnamed", default="", metavar="QUEUE",
    help=f"Queue for messages whose own queue is no longer known; by default {FOR_UNNAMED}, which is then defined.",
)  # fmt: skip
@options
def restore(file: Path, unnamed: str, config: str | None, data: str | None, as_json: bool) -> None:
    """Put the messages of a file of `mqgate journal salvage` into the store of a stopped gateway: each once, by its
    message identifier. An interrupted restore continues where it was."""
    from gateway.app.queue_managers.embedded import store_options
    from gateway.queue_manager.embedded import EmbeddedQueueManager

    settings = settings_of(config, data)
    embedded = settings.queue_manager.embedded
    name = embedded.name if embedded is not None else "BUFFER"
    with refusals(), owner_kept(data_directory(settings)):
        target = EmbeddedQueueManager.open(
            data_directory(settings), name, LocalClock(), store_options=store_options(settings)
        )
        try:
            with progress_of("restoring") as progress:
                done = Restoration(target.core, file, partial(_define, target), unnamed).run(progress)
        finally:
            target.close()
    if as_json:
        show_json({"messages": done.messages, "present": done.present, "unnamed": done.unnamed,
                   "records": done.records, "before": done.before, "queues": dict(done.queues)})  # fmt: skip
    else:
        for queue, count in sorted(done.queues.items()):
            click.echo(f"{queue}: {counted(count, 'message')}")
        before = f"; {counted(done.before, 'byte')} of the file had been restored before" if done.before else ""
        click.echo(
            f"{counted(done.messages, 'message')} and {counted(done.records, 'record')} restored; "
            f"{done.present} were there already{before}"
        )
        if done.unnamed:
            text = f"the queue of {counted(done.unnamed, 'message')} is no longer known"
            click.echo(f"{text}: see {unnamed or FOR_UNNAMED}", err=True)


def _define(target: EmbeddedQueueManager, name: str) -> None:
    """Define the queue for messages whose own queue is not known."""
    target.mqsc(f"DEFINE QLOCAL('{name}') MAXDEPTH(999999999) MAXMSGL(104857600) DESCR('Restored: queue not known')")
