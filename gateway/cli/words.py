"""Groups of commands that understand what people type: for an unknown word they suggest what may be meant."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from difflib import get_close_matches

import click

SAME = (
    {"clear", "purge", "empty", "truncate"},
    {"purge", "delete", "remove", "rm"},
    {"pub", "publish", "send"},
    {"sub", "subscribe"},
    {"run", "start", "serve"},
    {"check", "validate", "lint", "test"},
    {"import", "migrate", "convert"},
    {"delete", "remove", "rm", "del", "drop"},
    {"kick", "disconnect", "drop"},
    {"list", "ls", "all", "status"},
    {"show", "info", "describe", "inspect", "display", "view"},
    {"add", "create", "new", "define"},
    {"browse", "peek", "read", "cat"},
    {"put", "send", "write"},
    {"replay", "retry", "resend", "redeliver"},
    {"rotate", "password", "passwd", "reset"},
    {"mqsc", "runmqsc", "define", "alter", "display"},
)
"""Synonyms: other tools use other words."""
MQSC = {"create", "define", "delete", "alter", "new", "add", "remove"}
"""What is done to queues by MQSC commands."""


def meant(word: str, commands: Collection[str]) -> list[str]:
    """Returns the commands that may be meant."""
    same = [name for name in commands if any({word, name} <= one for one in SAME)]
    return same or get_close_matches(word, commands)


OPTIONS = {
    "--host": ("--bind",), "--address": ("--bind",), "--listen": ("--bind",),
    "--verbose": ("--log-level",), "--debug": ("--log-level", "--verbose"), "-v": ("--log-level", "--verbose"),
    "--settings": ("--config",), "--config-file": ("--config",), "--data-dir": ("--data",),
    "--format": ("--json",), "--output": ("--json",), "-o": ("--json",),
    "--username": ("--user",), "--cafile": ("--ca-file",), "--cert": ("--certificate",), "--id": ("--client-id",),
    "--payload": ("--message",), "--count": ("--number",), "--limit": ("--number",), "--pw": ("--password-file",),
    "-P": ("--password-file",), "--password": ("--password-file",), "-C": ("--number",), "-W": ("--timeout",),
}  # fmt: skip
"""Options of other programs, mosquitto among them, and their names here: the first one that the command has."""


def how_it_is_said(error: click.UsageError) -> click.UsageError:
    """Returns the error with advice for those who give settings as a word, or an option the name that it has in other
    programs."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        if error.option_name == "-v" and error.ctx.command.name == "sub":
            return click.UsageError("No such option '-v': topics are written without it.", error.ctx)
        here = {name for one in error.ctx.command.params for name in one.opts}
        same = next((name for name in OPTIONS.get(error.option_name, ()) if name in here), None)
        text = f"No such option {error.option_name!r}. Did you mean {same!r}?"
        return click.UsageError(text, error.ctx) if same else error
    named = error.ctx is not None and any(one.name == "config" for one in error.ctx.command.params)
    if named and error.message.startswith("Got unexpected extra argument"):
        return click.UsageError(f"{error.message}. A file of settings is named with -c FILE.", error.ctx)
    return error


def behind(error: click.NoSuchOption, args: list[str], commands: Collection[str]) -> click.UsageError:
    """Returns the error for an option that stands before its command: options stand behind it."""
    path = error.ctx.command_path if error.ctx is not None else "mqgate"
    place = next((at for at, word in enumerate(args) if word in commands), None)
    if place is None:
        return error
    meant = shlex.join([*args[place:], *args[:place]])
    text = f"No such option {error.option_name!r} before the command. Did you mean: {path} {meant}"
    return click.UsageError(text, error.ctx)


class Words(click.Group):
    """A group that suggests what may be meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns the words behind the group's own options."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise behind(error, given, self.commands) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command of the first word."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            if self.name == "queue" and word in MQSC:
                text = (
                    f"No such command {word!r}: MQSC commands do that, as in: echo 'DEFINE QLOCAL(NAME)' | mqgate mqsc"
                )
                raise click.UsageError(text, ctx)
            if found := meant(word, self.commands):
                text = f"No such command {word!r}. Did you mean {' or '.join(map(repr, found))}?"
                raise click.UsageError(text, ctx)
        return super().resolve_command(ctx, args)
