"""Examples of commands: below their help, in the reference and in the man pages."""

from __future__ import annotations

from collections.abc import Callable

import click

_TITLE = "Examples:"


def examples(*lines: str) -> Callable[[click.Command], click.Command]:
    """A decorator above that of the command: these lines stand below its help, as they are."""

    def given(command: click.Command) -> click.Command:
        command.epilog = "\b\n" + "\n".join((_TITLE, *(f"  {line}" for line in lines)))
        return command

    return given


def examples_of(command: click.Command) -> list[str]:
    """The lines that were given."""
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines[lines.index(_TITLE) + 1 :]] if _TITLE in lines else []
