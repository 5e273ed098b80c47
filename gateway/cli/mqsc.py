"""`mqgate mqsc`: define, alter, delete and display objects of the embedded queue manager."""

from __future__ import annotations

import sys
from typing import Any

import click

from gateway.cli.reach import LocalClock, Reach, data_directory, read_settings, remote
from gateway.errors import StoreError, StoreInUse
from gateway.queue_manager.embedded import EmbeddedQueueManager


@click.command()
@click.argument("file", type=click.File("r"), default="-")
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")
@click.option("--data", type=click.Path(file_okay=False), help="Directory of the embedded queue manager.")
def mqsc(file: Any, config: str | None, data: str | None) -> None:
    """Run the MQSC commands of FILE, or of standard input. Exit code 1 when one of them failed."""
    settings = read_settings(config, data)
    directory = data_directory(settings)
    embedded = settings.queue_manager.embedded
    text = file.read()
    try:
        queue_manager = EmbeddedQueueManager.open(directory, embedded.name if embedded else "MQGATE", LocalClock())
    except StoreInUse as busy:
        there: Reach = remote(directory, busy)
        answer = there.post("/mqsc", {"text": text})
        lines, ok = answer["lines"], answer["ok"]
    except StoreError as error:
        click.echo(str(error), err=True)
        sys.exit(3)
    else:
        report = queue_manager.mqsc(text)
        lines, ok = report.lines, report.ok
        queue_manager.close()
    for line in lines:
        click.echo(line)
    sys.exit(0 if ok else 1)
