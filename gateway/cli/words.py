"""Groups of commands that understand what people type: for a word that is no command, what may be meant is told."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

import click

SAME = (
    {"clear", "purge", "empty", "truncate"},
    {"delete", "remove", "rm", "del", "drop"},
    {"kick", "disconnect", "drop"},
    {"list", "ls", "all", "status"},
    {"show", "info", "describe", "inspect", "display", "view"},
    {"add", "create", "new", "define"},
    {"browse", "peek", "read", "cat"},
    {"put", "send", "write"},
    {"replay", "retry", "resend", "redeliver"},
    {"rotate", "password", "passwd", "reset"},
)
"""Words for the same thing: other tools have other ones."""
MQSC = {"create", "define", "delete", "alter", "new", "add", "remove"}
"""What is done to queues by MQSC commands."""


def meant(word: str, commands: Collection[str]) -> list[str]:
    """Which commands may be meant."""
    same = [name for name in commands if any({word, name} <= one for one in SAME)]
    return same or get_close_matches(word, commands)


class Words(click.Group):
    """A group that tells what may be meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word."""
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
