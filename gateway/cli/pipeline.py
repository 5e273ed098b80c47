"""`mqgate pipeline`: the commands of `gateway.pipeline.commands`, and `drain`, which needs the settings of IBM MQ."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from gateway.cli.numbers import OWN_PORT
from gateway.cli.reach import Refused, read_settings, show_json
from gateway.config.counting import counted
from gateway.errors import ConfigurationError, DriverUnavailable, MQError, StoreError
from gateway.pipeline.commands import only_with, pipeline

__all__ = ["pipeline"]


@pipeline.command()
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings with queue_manager.ibm.")
@click.option(
    "--journal", type=click.Path(path_type=Path, file_okay=False), default=Path("mqgate-drained"), show_default=True,
    help="Directory of the journal; no other process may have it open.",
)  # fmt: skip
@click.option("--target", default="", help="Name of the queue in the journal; QUEUE itself if left out.")
@click.option("--once", is_flag=True, help="End as soon as the queues are empty.")
@click.option(
    "--batch", type=click.IntRange(1, 20_000), default=1000, show_default=True, help="Messages in a unit of work."
)
@click.option("--port", type=OWN_PORT, default=0, help="Serve the journal on this port; readers name it in `url`.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), help="Token that readers must send.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificate; with it the journal is served over https.",
)
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), help="The certificate's key.")
@click.option("--json", "as_json", is_flag=True, help="Output as JSON.")
def drain(queues: tuple[str, ...], config: str | None, journal: Path, once: bool, as_json: bool, **given: Any) -> None:
    """Drain queues of IBM MQ into a journal that Spark reads, each message once even if processes are killed."""
    only_with("port", "bind", "token_file", "certificate", "key")
    only_with("certificate", "key")
    settings = read_settings(config, None)
    if settings.queue_manager.ibm is None:
        raise Refused("drain reads IBM MQ: give settings with queue_manager.ibm (-c FILE)", 2)
    if given["target"] and len(queues) > 1:
        raise click.UsageError("--target names one queue: drain several with a command each, or leave it out")
    try:
        _drain(settings, queues, journal, given, once=once, as_json=as_json)
    except (StoreError, DriverUnavailable, MQError, OSError) as error:
        click.echo(f"mqgate: {error}", err=True)
        sys.exit(3)
    except ConfigurationError as error:
        click.echo("\n".join(map(str, error.findings)), err=True)
        sys.exit(1)


def _drain(
    settings: Any, queues: tuple[str, ...], folder: Path, given: dict[str, Any], *, once: bool, as_json: bool
) -> None:
    from gateway.app.files.data_directory import make_private
    from gateway.app.queue_managers.ibm import connect_settings
    from gateway.backends.ibm.driver import load
    from gateway.pipeline.drain.drainer import QueueDrain
    from gateway.pipeline.drain.journal_server import open_journal

    ibm = settings.queue_manager.ibm
    reached = connect_settings(settings, ibm)
    driver = load(ibm.driver)
    driver.on_left_open = _end_at_once
    make_private(folder)
    journal = open_journal(folder)
    draining = QueueDrain(
        lambda: driver.connect(reached),
        journal,
        queues,
        given["target"],
        given["batch"],
        report=lambda text: click.echo(text, err=True),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: draining.stopping.set())
    server = _served(draining, folder, given) if given["port"] else None
    try:
        draining.run(once=once, pause=ibm.reconnect_from)
    finally:
        if server is not None:
            server.shutdown()
        journal.store.close()
    if as_json:
        show_json(draining.figures())
        return
    for queue, done in draining.done.items():
        messages, units = counted(done.messages, "message"), counted(done.units, "unit")
        click.echo(f"{queue}: {messages} in {units}, {done.repeated:,} had been drained before")


def _end_at_once(text: str) -> NoReturn:
    """End the process at once, because messages were got that are in no journal, and only this backs them out: when the
    interpreter ends properly its bindings disconnect, which commits."""
    click.echo(f"mqgate: {text}: the drain has ended and has to be started again", err=True)
    os._exit(3)


def _served(draining: Any, folder: Path, given: dict[str, Any]) -> Any:
    """Serve the journal over HTTP while this process has it open."""
    from gateway.app.files.data_directory import own_token
    from gateway.pipeline.drain.journal_server import serve
    from gateway.pipeline.journal.owner import Owner
    from gateway.pipeline.journal.service import PipelineService

    token = own_token(folder)
    if given["token_file"] is not None:
        token = given["token_file"].read_text(encoding="utf-8").split("\n", 1)[0].strip()
    pair = (given["certificate"], given["key"] or given["certificate"]) if given["certificate"] is not None else None
    service = PipelineService(Owner(draining.journal), folder)
    handle = draining.journal.guarded(service.handle)
    server = serve(given["bind"], given["port"], handle, token, draining.metrics, pair)
    where = f"{'https' if pair else 'http'}://{given['bind']}:{server.server_port}"
    shown = given["token_file"] or folder / "admin.token"
    click.echo(f"serving {folder} at {where}, token in {shown}", err=True)
    return server
