"""The commands, each loaded when it is used: `mqgate --help` is quick and needs nothing optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from gateway.cli.extensions import unusable

COMMANDS = {
    "run": ("gateway.cli.run", "Run the gateway."),
    "check": ("gateway.cli.check", "Validate settings and mappings, run the mappings' tests."),
    "explain": ("gateway.cli.explain", "Where a publication would go, and why."),
    "queue": ("gateway.cli.queue", "Queues: list, show, browse, put, get, clear."),
    "journal": ("gateway.cli.journal", "The store: check, dump, salvage."),
    "mqsc": ("gateway.cli.mqsc", "Define, alter, delete, display objects."),
    "dlq": ("gateway.cli.dlq", "Dead letters: list, show, replay, export, purge."),
    "client": ("gateway.cli.client", "Devices: list, show, kick, purge."),
    "pipeline": ("gateway.cli.pipeline", "The Spark jobs: run, drain, status, report, replay, compact."),
    "passwd": ("gateway.cli.passwd", "Users of a password file."),
    "schema": ("gateway.cli.schema", "JSON Schema of settings and mappings."),
    "mqi": ("gateway.cli.mqi", "The MQI library for programs that use ibmmq or pymqi."),
    "init": ("gateway.cli.init", "A commented starter configuration."),
    "doctor": ("gateway.cli.doctor", "What is missing here, and why."),
    "probe": ("gateway.cli.probe", "Connect, publish, wait for the acknowledgement."),
    "demo": ("gateway.cli.demo", "Simulated devices and a live summary."),
    "completion": ("gateway.cli.completion", "Completion for bash, zsh or fish."),
    "version": ("gateway.cli.version", "Show the version."),
}
"""Name: module that holds a click command of the same name, and its line in the help."""


class Lazy(click.Group):
    """A group whose commands are imported on demand."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an extension that cannot be loaded ends it with one line."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            if not unusable(error):
                raise
            raise click.ClickException(str(error)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A bridge between telemetry devices (MQTT) and IBM MQ whose acknowledgement means: committed."""
