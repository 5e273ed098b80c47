"""The commands, each loaded when it is used: `mqgate --help` is quick and needs nothing optional."""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import click

from gateway.cli.denied import failed
from gateway.cli.extensions import unusable
from gateway.cli.output import whole
from gateway.cli.words import behind, how_it_is_said, meant
from gateway.errors import HeaderError
from gateway.version import VERSION

COMMANDS = {
    "run": ("gateway.cli.run", "Run the gateway."),
    "status": ("gateway.cli.running", "Show the state of the running gateway, and what needs attention."),
    "reload": ("gateway.cli.running", "Read settings, mappings and their files again."),
    "pub": ("gateway.cli.device", "Publish a message as a device."),
    "sub": ("gateway.cli.device", "Subscribe as a device and write what arrives."),
    "check": ("gateway.cli.check", "Validate settings and mappings, and run the mappings' tests."),
    "explain": ("gateway.cli.explain", "Show where a publication would go, and why."),
    "rule": ("gateway.cli.rule", "Rules: list, with what each has done."),
    "queue": ("gateway.cli.queue", "Queues: list, show, browse, put, get, clear."),
    "journal": ("gateway.cli.journal", "The store: check, dump, salvage, restore."),
    "backup": ("gateway.cli.backup", "Copy the store, even while the gateway runs."),
    "restore": ("gateway.cli.backup", "Make a backup the store of a stopped gateway."),
    "mqsc": ("gateway.cli.mqsc", "Define, alter, delete and display objects."),
    "dlq": ("gateway.cli.dlq", "Dead letters: list, show, replay, export, purge."),
    "client": ("gateway.cli.client", "Devices: list, show, kick, purge, rebalance."),
    "admin": ("gateway.cli.admin", "Users of the admin port, their roles and tokens."),
    "audit": ("gateway.cli.audit", "Show who has done what at the admin port."),
    "gateway": ("gateway.cli.gateway", "The gateways on one queue manager: list."),
    "user": ("gateway.cli.user", "Managed users: add, import, enable, disable, rotate, list, show, delete, roles."),
    "pipeline": ("gateway.cli.pipeline", "The Spark jobs: run, drain, status, report, replay, compact."),
    "passwd": ("gateway.cli.passwd", "Users of a password file."),
    "schema": ("gateway.cli.schema", "Print the JSON Schema of settings and mappings."),
    "mqi": ("gateway.cli.mqi", "The MQI library for programs that use ibmmq or pymqi."),
    "init": ("gateway.cli.init", "Write a commented starter configuration."),
    "import": ("gateway.cli.migrate", "Make settings and mappings from those of mosquitto, MQ Telemetry or Amlen."),
    "doctor": ("gateway.cli.doctor", "Show what is missing here, and why it matters."),
    "probe": ("gateway.cli.probe", "Connect, publish, wait for the acknowledgement."),
    "demo": ("gateway.cli.demo", "Run simulated devices with a live summary."),
    "completion": ("gateway.cli.completion", "Print completion for bash, zsh or fish."),
    "version": ("gateway.cli.version", "Show the version."),
}
"""By name: the module that holds a click command of the same name (`import_` where Python reserves the word), and its
help."""


MOST_MEANT = 3
"""How many groups with a command of this name are suggested; `list` is one of nearly all groups."""


class Lazy(click.Group):
    """A group whose commands are imported on demand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns the words behind `mqgate` and its own options."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name == "-v":
                raise click.UsageError("No such option '-v'. Did you mean '--version'?", ctx) from error
            raise behind(error, given, COMMANDS) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What is not the command's own fault ends it with one line: an extension that cannot be
        loaded, a file that belongs to somebody else, a full disk, words that are not text."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise how_it_is_said(error) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of the output has seen enough
            ended = click.ClickException(failed(error))
            vars(ended)["exit_code"] = 3
            raise ended from error
        except UnicodeEncodeError as error:
            what = f"{error.object[error.start : error.end]!a} is not text: write it in UTF-8"
            raise click.UsageError(what) from error
        except HeaderError as error:
            raise click.ClickException(str(error)) from error
        except ImportError as error:
            if not unusable(error):
                raise
            raise click.ClickException(str(error)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        attribute = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command of the first word. For an unknown word, the error names the nearest ones."""
        if args[0] == "help" and not ctx.resilient_parsing:
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        name = args[0]
        near = [] if name in COMMANDS or name.startswith("-") else _meant(name)
        if near and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}. Did you mean {' or '.join(map(repr, near))}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _meant(name: str) -> list[str]:
    """Returns the commands that may be meant, including those of groups if their line in the table names one."""
    within = [f"{group} {name}" for group, (_, text) in COMMANDS.items() if name in _words(text)]
    return within if 0 < len(within) <= MOST_MEANT else meant(name, COMMANDS)


def _words(text: str) -> list[str]:
    return re.split(r"[,.:]? ", text.partition(": ")[2].rstrip("."))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "-V", "--version", prog_name="mqgate", message="%(prog)s %(version)s")
def main() -> None:
    """A bridge between telemetry devices (MQTT) and IBM MQ whose acknowledgement means: committed."""
    if sys.stdin is None:  # closed by whoever started the command
        # Reading this one is an error, not an empty text.
        sys.stdin = Path(os.devnull).open("w")  # noqa: SIM115
    # Otherwise libraries would write their errors to the next file that is opened, perhaps one of the journal.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stdout = whole(sys.stdout)
    # pydantic reads the metadata of all installed packages, and loads those that call themselves its plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
