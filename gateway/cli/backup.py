"""`mqgate backup` and `mqgate restore`: copy the journal of a gateway, with its queues and sessions, and put it
back."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.app.files.data_directory import owner_kept
from gateway.app.files.directories import data_directory
from gateway.cli.examples import examples
from gateway.cli.journal import options, progress_of, refusals
from gateway.cli.reach import read_settings, show_json
from gateway.config.counting import counted
from gateway.queue_manager.journal import diagnosis, snapshot


@examples(
    "mqgate backup -c /etc/mqgate/mqgate.yaml /backup/mqgate-2026-07-01",
)
@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@options
def backup(directory: Path, config: str | None, data: str | None, as_json: bool) -> None:
    """Copy queues, sessions and everything else in the journal to DIR, as they are at one moment.

    The gateway may be running. DIR appears when the copy is complete, and may be on another disk.
    """
    journal = data_directory(read_settings(config, data))
    with refusals(), progress_of("copying") as progress:
        made = snapshot.take(journal, directory, progress)
    if as_json:
        show_json({"directory": str(directory), "bytes": made.bytes, "files": len(made.files), "frame": made.sequence})
    else:
        held = f"{counted(made.bytes, 'byte')}, {counted(len(made.files), 'segment')}"
        click.echo(f"{directory}: {held}, to frame {made.sequence}")


@examples(
    "mqgate restore /backup/mqgate-2026-07-01 -c /etc/mqgate/mqgate.yaml --replace",
)
@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Move an existing journal aside.")
@options
def restore(directory: Path, replace: bool, config: str | None, data: str | None, as_json: bool) -> None:
    """Make the backup in DIR the journal of a stopped gateway. The whole backup is checked before anything is changed.

    Messages taken since the backup come back, and messages that came since are missing: see the guide on backups.
    """
    journal = data_directory(read_settings(config, data))
    with refusals(), owner_kept(journal):
        with progress_of("restoring") as progress:
            made = snapshot.read_manifest(directory)
            aside = snapshot.restore(directory, journal, progress, replace=replace)
        verdict = [one for one in diagnosis.check(journal) if isinstance(one, diagnosis.Verdict)][-1]
    taken = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(made.taken))
    if as_json:
        show_json({"taken": made.taken, "messages": verdict.messages, "aside": str(aside) if aside else None})
        return
    click.echo(f"{journal}: {counted(verdict.messages, 'message')} as of {taken} UTC (release {made.version})")
    if aside is not None:
        click.echo(f"the previous journal is in {aside}: remove it when it is no longer needed")
