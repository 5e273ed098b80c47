"""`mqgate mqsc`: define, alter, delete and display objects of the queue manager that the settings name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from gateway.app.files.directories import data_directory
from gateway.cli.denied import DATA_DIRECTORY
from gateway.cli.examples import examples
from gateway.cli.reach import Reach, Refused, authority_option, gateway_or_store, read_settings
from gateway.cli.text_file import TextFile
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, DriverUnavailable, MQError


class Outcome(NamedTuple):
    """The lines to print, and whether every command was carried out."""

    lines: list[str]
    ok: bool


VERBS = {"ALTER", "CLEAR", "DEFINE", "DELETE", "DISPLAY", "DIS", "DEF", "SET", "START", "STOP"}
"""The words with which MQSC commands begin."""


class CommandFile(TextFile):
    """A file of commands. If a command is given instead, the error says where commands are read from."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the text of the file."""
        if str(value).partition(" ")[0].upper() in VERBS and not Path(value).exists():
            self.fail(
                "commands are read from a file or from standard input: echo 'DISPLAY QMGR' | mqgate mqsc", param, ctx
            )
        return super().convert(value, param, ctx)


@examples(
    "echo 'DEFINE QLOCAL(TELEMETRY.LIMA)' | mqgate mqsc",
    "mqgate mqsc objects.mqsc",
    "echo 'DISPLAY QLOCAL(*) CURDEPTH' | mqgate mqsc",
)
@click.command()
@click.argument("text", metavar="[FILE]", type=CommandFile(), default="-")
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")
@click.option("--data", type=DATA_DIRECTORY, help="Directory of the embedded queue manager.")
@authority_option
def mqsc(text: str, config: str | None, data: str | None) -> None:
    """Run the MQSC commands in FILE, or on standard input. Exit code 1 if any of them failed. If the settings name IBM
    MQ, its command server carries them out."""
    settings = read_settings(config, data)
    on_ibm = settings.queue_manager.ibm is not None and data is None
    outcome = _by_ibm_mq(settings, text) if on_ibm else _by_embedded(settings, text)
    for line in outcome.lines:
        click.echo(line)
    sys.exit(0 if outcome.ok else 1)


def _by_embedded(settings: Settings, text: str) -> Outcome:
    """Have the running gateway carry out the commands, or do it in the store of a stopped one."""
    with gateway_or_store(settings, data_directory(settings)) as found:
        if isinstance(found, Reach):
            answer = found.post("/mqsc", {"text": text})
            return Outcome([*answer["lines"], *answer.get("summary", [])], answer["ok"])
        report = found.mqsc(text)
    return Outcome([*report.lines, *report.summary()], report.ok)


def _by_ibm_mq(settings: Settings, text: str) -> Outcome:
    """Have the command server of the queue manager that the settings name carry out the commands."""
    from gateway.app.queue_managers.ibm import connect_settings
    from gateway.backends.ibm.command_server import CommandServer
    from gateway.backends.ibm.driver import load
    from gateway.queue_manager.commands.mqsc_parse import commands
    from gateway.queue_manager.commands.mqsc_report import MqscReport

    ibm = settings.queue_manager.ibm
    assert ibm is not None  # noqa: S101 -- the caller has looked
    report = MqscReport()
    try:
        reached = connect_settings(settings, ibm)
        session = load(ibm.driver).connect(reached)
        try:
            server = CommandServer(session)
            for _, command in commands(text):
                answer = server.run(command)
                report.read += 1
                report.syntax_errors += answer.syntax
                report.failed += answer.failed and not answer.syntax
                report.lines += [f"     {report.read} : {command}", *answer.lines]
            server.close()
        finally:
            session.disconnect()
    except (MQError, DriverUnavailable, ConfigurationError) as error:
        for line in report.lines:
            click.echo(line)
        raise Refused(str(error), 3) from error
    return Outcome([*report.lines, *report.summary()], report.ok)
