"""`mqgate mqi`: the MQI library for programs that use ibmmq or pymqi, and a queue manager for them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import click

from gateway.cli.numbers import OWN_PORT
from gateway.cli.words import Words
from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, MqgateError
from gateway.mqi.build import BuildFailed, instructions
from gateway.mqi.build import build as built


@click.group(cls=Words)
def mqi() -> None:
    """The MQI library for programs that use ibmmq or pymqi, and a queue manager for them."""


@mqi.command()
@click.option(
    "--out", type=click.Path(file_okay=False), help="Directory for the library; a cache directory unless given."
)
def build(out: str | None) -> None:
    """Compile the library with the system's C compiler and say how to use it."""
    try:
        made = built(Path(out) if out else None)
    except BuildFailed as error:
        click.echo(str(error), err=True)
        sys.exit(3)
    click.echo(instructions(made))


@mqi.command()
@click.argument("directory", required=False, type=click.Path())
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings: `queue_manager.embedded`, "
              "`admin` and `log` are used.")  # fmt: skip
@click.option("--name", help="Name of the queue manager (MQGATE).")
@click.option("--socket", type=click.Path(dir_okay=False), help="Its socket; by default mqi.sock in the directory.")
@click.option("--objects", type=click.Path(dir_okay=False), help="MQSC commands to run at start.")
@click.option("--admin-port", type=OWN_PORT, help="Port for probes and metrics; none unless given here or in the file.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level written.")
def serve(
    directory: str | None,
    config: str | None,
    name: str | None,
    socket: str | None,
    objects: str | None,
    admin_port: int | None,
    log_level: str | None,
) -> None:
    """Run the embedded queue manager as a process of its own, for gateways and MQ programs on this machine. Its journal
    is in DIRECTORY (./mqgate-data). SIGTERM ends it."""
    overrides = {
        "queue_manager.embedded.path": directory,
        "queue_manager.embedded.name": name,
        "queue_manager.embedded.socket": socket,
        "queue_manager.embedded.objects": objects,
        "admin.port": admin_port,
        "log.level": log_level,
    }
    try:
        settings = load_settings(
            config, os.environ, {key: value for key, value in overrides.items() if value is not None}
        )
        _run(settings)
    except ConfigurationError as error:
        for finding in error.findings:
            click.echo(str(finding), err=True)
        sys.exit(1)
    except (MqgateError, OSError) as error:
        click.echo(f"mqgate: {error}", err=True)
        sys.exit(3)


def _run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    from gateway.net.reactor import install

    running = install()
    from twisted.internet.task import LoopingCall

    from gateway.app.queue_managers.queue_manager_process import QueueManagerProcess
    from gateway.observe import logs

    terminal = sys.stderr.isatty()
    form = "human" if settings.log.format == "text" or (settings.log.format == "auto" and terminal) else "json"
    handler = logs.configure(form, settings.log.level, priorities=logs.to_journal())  # type: ignore[arg-type]
    LoopingCall(lambda: handler.sweep(time.monotonic())).start(5.0, now=False)
    sys.setswitchinterval(0.001)  # as in a gateway: a busy thread would keep the journal's waiting for 5 ms
    process = QueueManagerProcess(settings, running)

    def end(*_: object) -> None:
        running.callFromThread(running.stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    process.start()
    running.addSystemEventTrigger("before", "shutdown", process.stop)
    running.run(installSignalHandlers=False)
