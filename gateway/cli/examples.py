"""Examples of commands, shown below their help, in the reference and in the man pages."""

from __future__ import annotations

from collections.abc import Callable

import click

_TITLE = "Examples:"


def examples(*lines: str) -> Callable[[click.Command], click.Command]:
    """Returns a decorator, to be placed above that of the command: the lines appear unchanged below its help."""

    def given(command: click.Command) -> click.Command:
        command.epilog = "\b\n" + "\n".join((_TITLE, *(f"  {line}" for line in lines)))
        return command

    return given


def examples_of(command: click.Command) -> list[str]:
    """Returns the example lines of a command."""
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines[lines.index(_TITLE) + 1 :]] if _TITLE in lines else []
